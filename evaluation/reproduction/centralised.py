"""Dispatch at access points against dispatch in one place, by load and by how late the latter's decisions come.

The expected on-time rule decides in both. At access points it sees other sites by their means and decides at once; in
one place it sees every node in full, and reckons with its delay. Source: Han et al. 2021, figure 8c; Huang et al.,
figure 12 (.35 s at low load, 1 s at high).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.seeds import named
from evaluation.problems.orchestration.bench import OrchestrationBenchConfig, over_runs
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import deployed_on
from evaluation.simulator.slots.worlds import time_scaled
from evaluation.simulator.world import World
from logs_schema.progress import Progress
from offline_rl.rules.orchestration.expected_on_time import dispatch_rule
from twin.contracts import Array
from twin.environment import environment
from twin.orchestration.centralised import in_full, late
from twin.orchestration.fit import FittedCluster
from twin.orchestration.mechanics import slot_response
from twin.orchestration.slots import slot_problem
from twin.placement.types import COMPLETED
from twin.rollout import rollout

LOADS = (0.5, 1.0, 1.5)
DELAYS_S = (0.0, 0.25, 0.5, 1.0, 2.0)
Played = Callable[[Array, Array], tuple[Array, Array, Array]]
"""(key, delay) -> requests sent, of those answered on time, mean response of those answered; [runs]."""


def centralised(
    world: World,
    day: int,
    bench: OrchestrationBenchConfig,
    fitted: FittedCluster,
    progress: Progress,
    loads: Sequence[float] = LOADS,
    delays_s: Sequence[float] = DELAYS_S,
) -> dict[str, Any]:
    """Plays a day under the first deployment.

    Args:
        world: At its own pace.
        day: Days since day 0.
        bench: How much is played.
        fitted: Whose tables the rule has.
        progress: Where to show how far it is.
        loads: Requests, as multiples of the world's.
        delays_s: How late the decisions of the one place come.

    Returns:
        Plain data with `rows`: load, dispatch, delay, share of the sent requests that were on time, mean response of
        the answered ones, with 95 % intervals over runs.
    """
    pace, rows = time_scaled(world, bench.slots), []
    ways = [(False, (0.0,)), (True, tuple(delays_s))]
    with progress.stage("dispatch at access points and in one place", unit="loads") as stage:
        for done, load in enumerate(loads):
            stage(done, len(loads))
            busy = replace(pace, requests_per_day=pace.requests_per_day * load)
            for central, delays in ways:
                play = _program(busy, day, bench, fitted, central=central)
                for delay_s in delays:
                    sent, on_time, response_s = map(
                        np.asarray, play(jax.random.key(bench.seed), jnp.float32(delay_s))
                    )
                    row: dict[str, Any] = {
                        "load": load,
                        "dispatch": "one_place" if central else "access_points",
                        "delay_s": delay_s,
                    }
                    row |= named("on_time_of_sent", over_runs(on_time, sent))
                    rows.append(row | named("response_s", over_runs(response_s, np.ones_like(response_s))))
    return {"world": world.name, "day": day, "frames": bench.num_frames, "rows": rows}


def _program(
    world: World, day: int, bench: OrchestrationBenchConfig, fitted: FittedCluster, *, central: bool
) -> Played:
    """The compiled day of a world at the pace of slots."""
    case = deployed_on(world, bench.slots, day, cluster=fitted.edge.cluster)
    problem, streams = slot_problem(case.public), (bench.num_seeds * bench.days_per_seed,)
    num_slots = (bench.num_frames or 60) * bench.slots.slots_per_frame

    def run(key: Array, delay_s: Array) -> tuple[Array, Array, Array]:
        response = slot_response(case.public, late(true_chance(case), delay_s))
        system = environment(in_full(problem) if central else problem, response)
        seen = rollout(key, system, dispatch_rule(fitted, delay_s), num_slots, streams)
        took_s = seen.outcome.finish_s - seen.decision_info.arrival_s
        sent = seen.active & seen.settled
        answered = sent & (seen.outcome.status == COMPLETED)
        on_time = answered & (took_s <= seen.decision_info.deadline_s)
        total_s = jnp.sum(jnp.where(answered, took_s, 0.0), axis=(0, 1))
        return (
            jnp.sum(sent, axis=(0, 1)),
            jnp.sum(on_time, axis=(0, 1)),
            total_s / jnp.maximum(jnp.sum(answered, axis=(0, 1)), 1),
        )

    return jax.jit(run)
