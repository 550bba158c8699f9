"""KaiS's and KMPS's comparisons: pairs of dispatcher and orchestrator, evaluated in the truth of later days.

A day of log is written by slots, a twin is fitted to it, and what plans or learns does so in the twin. The truth of the
same day and of later ones judges all pairs on the same requests, days beginning with the deployment of day 0.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig, estimate, mean_over_units
from evaluation.problems.orchestration.bench import (
    Entrants,
    OrchestrationBenchConfig,
    Pair,
    PairScore,
    bench_orchestration,
    with_changes,
)
from evaluation.problems.orchestration.references import LOOKAHEAD, PLANNED
from evaluation.problems.orchestration.rivals import CENTRAL_RULE, central_rivals, rivals
from evaluation.problems.orchestration.simulating import FIRST_DAY, SlotLogConfig, simulate_slots
from evaluation.reproduction.orchestration_learners import Learn
from evaluation.reproduction.orchestration_pairs import (
    BASELINE_PAIRS,
    CENTRAL_AT_ONCE,
    QUICK_PAIRS,
    RIVAL_PAIRS,
    absent,
    name_of,
    pairs_of,
    trained_sides,
)
from evaluation.simulator.world import World
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.recipes.slot_training import DECISION_DELAY_S
from offline_rl.rules.orchestration.expected_on_time import dispatch_rule
from twin.orchestration.centralised import centrally
from twin.orchestration.fit import FittedCluster, fit_orchestration

OF_SEEDS = IntervalConfig(min_units=3)
"""Training seeds are few; the intervals are widened for that."""


@dataclass(frozen=True)
class OrchestrationConfig:
    """How much is simulated, learned and judged.

    Attributes:
        days: Days that are judged, since day 0.
        train_days: Days of log that the twin is fitted to, from day 0 on.
        train_seeds: Of everything that is trained.
        num_changes: Replicas that a frame may change.
        bench: How much is judged.
        untrained: Baselines and rivals that are judged.
        seed: Of world and log, of several repeats also of trainings and runs.
    """

    days: tuple[int, ...] = (0, 1, 7, 30)
    train_days: int = 1
    train_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    num_changes: int = 2
    bench: OrchestrationBenchConfig = field(
        default_factory=lambda: OrchestrationBenchConfig(days_per_seed=2, num_frames=60)
    )
    untrained: tuple[Pair, ...] = (*BASELINE_PAIRS, *RIVAL_PAIRS)
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.days or min(self.days) < 0:
            raise ConfigError(
                f"days {', '.join(map(str, self.days)) or 'none'}",
                where="reproduce --days",
                allowed="0 and later",
            )


QUICK_LEARNERS = ("residual",)
"""Every learner is a program more to compile, so the quick form keeps the dispatcher that `schedtwin train` trains."""


def quick(config: OrchestrationConfig) -> OrchestrationConfig:
    """The same in minutes: one day, a month later; few frames and runs, fewer pairs, one training."""
    bench = replace(config.bench, num_seeds=3, days_per_seed=2, num_frames=8)
    return replace(config, days=(30,), train_seeds=(0,), bench=bench, untrained=QUICK_PAIRS)


def reproduce(
    world: World, config: OrchestrationConfig, out: Path, learners: Mapping[str, Learn], progress: Progress
) -> dict[str, Any]:
    """Logs, fits, learns and judges.

    Args:
        world: At its own pace.
        config: See there.
        out: Folder for the log.
        learners: What is trained in the twin, by name.
        progress: Where to show how far it is.

    Returns:
        Plain data with `rows`, baselines first.
    """
    bench = with_changes(config.bench, config.num_changes)
    fitted = twin_of(world, config, bench, out, progress)
    known = with_central(rivals(fitted), fitted)
    with progress.stage("judge baselines", unit="scores") as stage:
        found = bench_orchestration(world, config.days, config.untrained, bench, stage, known)
    rows = [as_row(score, source_of(score.pair)) for score in found if score.pair in config.untrained]
    if learners:
        rows += _learned_rows(world, config, bench, fitted, known, learners, progress)
    return {
        "world": world.name,
        "frames": bench.num_frames,
        "changes_per_frame": config.num_changes,
        "judge": "the simulated truth, by slots, from an empty midnight and the deployment of day 0",
        "interval": "95 % over runs of a day; where there are several trainings, over them",
        "rows": rows,
        "absent": absent(rows),
    }


def twin_of(
    world: World, config: OrchestrationConfig, bench: OrchestrationBenchConfig, out: Path, progress: Progress
) -> FittedCluster:
    """The twin of the first days of a world, logged by slots."""
    log = SlotLogConfig(slots=bench.slots, frames=bench.frames)
    with progress.stage("log", unit="days") as stage:
        simulate_slots(world, config.train_days, log, config.seed, out / "log", replace=True, progress=stage)
    days = [FIRST_DAY + dt.timedelta(days=day) for day in range(config.train_days)]
    with progress.stage("fit the twin"):
        return fit_orchestration(Archive(out / "log"), days)


def with_central(known: Entrants, fitted: FittedCluster) -> Entrants:
    """The rivals, and those in one place that sees everything, late; the rule also at once."""
    rule = dispatch_rule(fitted)
    at_once = Entrants({CENTRAL_AT_ONCE: lambda case: centrally(case, rule)})
    return known.joined(central_rivals(fitted, DECISION_DELAY_S)).joined(at_once)


def _learned_rows(
    world: World,
    config: OrchestrationConfig,
    bench: OrchestrationBenchConfig,
    fitted: FittedCluster,
    known: Entrants,
    learners: Mapping[str, Learn],
    progress: Progress,
) -> list[dict[str, Any]]:
    """One row a pair and day: the mean over training seeds, with an interval; a seed's pairs are judged at once."""
    found: dict[tuple[Pair, int], list[PairScore]] = {}
    pairs = pairs_of(learners)
    for seed in config.train_seeds:
        everybody = known
        for learn in learners.values():
            everybody = everybody.joined(learn(fitted, seed, progress))
        with progress.stage(f"judge what seed {seed} trained", unit="scores") as stage:
            for score in bench_orchestration(world, config.days, pairs, bench, stage, everybody):
                if score.pair in pairs:
                    found.setdefault((score.pair, score.day), []).append(score)
    return [as_row_of_seeds(scores) for scores in found.values()]


def as_row(score: PairScore, trained_in: str) -> dict[str, Any]:
    """A score as plain data."""
    on_time, cost = score.measures["on_time"], score.measures["scheduling_mib"]
    return {
        "name": name_of(score.pair), **score.pair._asdict(), "day": score.day,
        "on_time": on_time.value, "low": on_time.low, "high": on_time.high, "cost_mib": cost.value,
        "trained_in": trained_in, "num_trainings": 0, "num_worlds": 1,
    }  # fmt: skip


def as_row_of_seeds(scores: Sequence[PairScore]) -> dict[str, Any]:
    """Scores of one pair and day by training seed as one row; units of the interval are the seeds, of one its runs."""
    if len(scores) == 1:
        return as_row(scores[0], "twin") | {"num_trainings": 1}
    per_seed = np.array([score.per_run.mean() for score in scores])
    mean = estimate(mean_over_units(per_seed), len(per_seed), OF_SEEDS)
    cost = float(np.mean([score.measures["scheduling_mib"].value for score in scores]))
    return as_row(scores[0], "twin") | {
        "on_time": mean.value,
        "low": mean.low,
        "high": mean.high,
        "cost_mib": cost,
        "num_trainings": len(scores),
    }


def source_of(pair: Pair) -> str:
    """What a pair was made of: the twin, or nothing but the cluster."""
    of_twin = {EXPECTED_ON_TIME, CENTRAL_RULE, CENTRAL_AT_ONCE, PLANNED, LOOKAHEAD, *trained_sides(pair)}
    return "twin" if of_twin & set(pair) else ""
