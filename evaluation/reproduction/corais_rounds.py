"""When is deciding together worth the wait: rounds of several lengths over earliest-finish list scheduling at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.comparison.seeds import named, over_seeds
from evaluation.simulator.rounds import (
    RoundsConfig,
    Solver,
    draw_region,
    responses_at_once,
    responses_together,
)
from logs_schema.progress import Progress
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.local_search import insertion_local_search
from twin.assignment.instances import InstanceConfig

INTERVALS_S = (0.1, 0.5, 2.0, 5.0)
CASES = ((0.5, 0.0), (0.5, 0.3), (0.8, 0.0), (0.8, 0.3), (0.95, 0.0), (0.95, 0.3))
"""(load, deviation of the factor by which the scheduler's functions are off)."""
SOLVERS: Mapping[str, Solver] = {"insertion": insertion, "insertion_local_search": insertion_local_search}


def compare_rounds(num_requests: int, seeds: Sequence[int], progress: Progress) -> list[dict[str, Any]]:
    """Rows of load, error, solver and interval: mean and p99 response over that of requests that go at once.

    Args:
        num_requests: Of every region.
        seeds: One for each region; every policy meets the same requests.
        progress: Where to show how far it is.
    """
    law, rows = InstanceConfig(10, 5, num_requests, backlogs=(0, 0)), []
    with progress.stage("rounds", total=len(CASES), unit="cases") as stage:
        for number, (load, error) in enumerate(CASES):
            stage(number)
            regions = [draw_region(RoundsConfig(law, load, function_error=error), seed) for seed in seeds]
            at_once = [responses_at_once(region) for region in regions]
            for name, solver in SOLVERS.items():
                for interval_s in INTERVALS_S:
                    found = [responses_together(region, interval_s, solver) for region in regions]
                    row: dict[str, Any] = {
                        "solver": name,
                        "interval_s": interval_s,
                        "load": load,
                        "function_error": error,
                    }
                    pairs = list(zip(found, at_once, strict=True))
                    means = [one.mean() / usual.mean() for one, usual in pairs]
                    tails = [np.percentile(one, 99) / np.percentile(usual, 99) for one, usual in pairs]
                    row |= named("mean_over_at_once", over_seeds(means))
                    rows.append(row | named("p99_over_at_once", over_seeds(tails)))
    return rows
