"""The plan's numbers tuned in the twin: how far ahead, how generously, how much a request that waits counts.

Candidates are the plan as it stands and others, drawn widely first and then about the best of those, played over the
expected on-time rule and told apart by successive halving. In the twin the forecast is right, as it never is on a later
day. So half of the streams meet loads that every service has of its own, times what the log shows. How much of the
forecast is believed (`prior`) is not tuned: no day's log says how soon its forecast ages. Where it was tuned with the
others (to 2.2), it cost .066 of the share on time a month later in a world of `hot_services` (seed 0).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Stage, unseen
from offline_rl.rules.orchestration.expected_on_time import dispatch_rule
from offline_rl.rules.orchestration.planned import ADVICE, PlannedConfig, planned
from offline_rl.rules.tuning import Tuned, successive_halving
from twin.contracts import Array, PyTree
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_mechanics import frame_response, observing
from twin.orchestration.learned import learned_chance, learned_forecast
from twin.orchestration.orchestrator import played_frames

RANGES = {
    "lead_frames": (0.5, 4.0),
    "target": (0.5, 1.2),
    "safety": (0.3, 2.0),
    "backlog": (0.05, 0.8),
}
"""Number of the plan -> within what it is drawn, evenly by its logarithm."""
NEAR = 0.12
"""Of a range of logarithms: how far from the best others are drawn then (standard deviation)."""


@dataclass(frozen=True)
class PlanTuning:
    """How much is tried.

    Attributes:
        num_candidates: Plans that are tried widely, and again about the best of them; a power of two.
        num_streams: Runs that each of them plays in a round, an even number.
        num_frames: Length of a run.
        spread: Standard deviation of the logarithm of how many times as much of a service comes, in half of the runs.
    """

    num_candidates: int = 32
    num_streams: int = 8
    num_frames: int = 12
    spread: float = 1.0


class TunedPlan(NamedTuple):
    """The plan that was left, and how the last candidates did; the first of them is the plan as it stands."""

    config: PlannedConfig
    candidates: tuple[PlannedConfig, ...]
    tuned: Tuned


def tune_plan(
    key: Array, fitted: FittedCluster, tuning: PlanTuning | None = None, stage: Stage = unseen
) -> TunedPlan:
    """The plan with the numbers that serve best in a twin.

    Args:
        key: PRNG key.
        fitted: The twin.
        tuning: How much is tried.
        stage: Told how many rounds are done.
    """
    tuning = tuning or PlanTuning()
    edge, frames, tables = fitted.edge, fitted.frames, fitted.tables
    dispatch, forecast = observing(edge, dispatch_rule(fitted)), learned_forecast(edge, tables)
    num_streams = tuning.num_streams
    begin_s = jnp.tile(jnp.linspace(0.0, 0.9 * float(tables.day_s), num_streams // 2), 2)
    has_own_level = jnp.repeat(jnp.array([0.0, 1.0]), num_streams // 2)
    key_wide, key_near, key_tune = jax.random.split(key, 3)

    @jax.jit
    def play(params: PyTree, keys: Array) -> Array:
        def one(numbers: dict[str, Array], key: Array) -> Array:
            key_own, key_run = jax.random.split(key)
            drawn = jax.random.normal(key_own, (edge.num_services, num_streams))
            level = jnp.exp(tuning.spread * has_own_level[None] * drawn)
            response = frame_response(edge, learned_chance(edge, tables, begin_s, level), dispatch, frames)
            plan = planned(edge, forecast, frames, with_numbers(numbers), begin_s)
            counts = played_frames(key_run, edge, frames, response, plan, tuning.num_frames, (num_streams,))
            return jnp.mean(counts.on_time / jnp.maximum(counts.arrived, 1))

        return jax.vmap(one)(params, keys)

    def best_of(key: Array, candidates: tuple[PlannedConfig, ...], part: int) -> TunedPlan:
        numbers = [jax.tree.map(jnp.float32, numbers_of(one)) for one in candidates]

        def shown(done: float, total: float | None = None, text: str = "") -> None:
            stage(done + part * (total or 0.0), 2.0 * total if total else None, text)

        tuned = successive_halving(key, play, numbers, shown)
        return TunedPlan(candidates[tuned.best], candidates, tuned)

    low, high = np.log(np.array(list(RANGES.values()))).T
    shape = (tuning.num_candidates - 1, len(RANGES))
    widely = low + (high - low) * np.asarray(jax.random.uniform(key_wide, shape))
    best = best_of(key_tune, (ADVICE, *_plans(widely)), 0).config
    about = np.log(list(numbers_of(best).values())) + NEAR * (high - low) * np.asarray(
        jax.random.normal(key_near, (shape[0] - 1, len(RANGES)))
    )
    return best_of(jax.random.fold_in(key_tune, 1), (ADVICE, best, *_plans(about)), 1)


def numbers_of(plan: PlannedConfig) -> dict[str, float]:
    """The numbers that are tuned, by name."""
    return {name: float(getattr(plan, name)) for name in RANGES}


def with_numbers(numbers: Mapping[str, Any]) -> PlannedConfig:
    """The plan as it stands but for these numbers."""
    return replace(ADVICE, **numbers)


def _plans(numbers: np.ndarray) -> list[PlannedConfig]:
    """Plans of the logarithms [plans, numbers], in the order of `RANGES`."""
    return [with_numbers(dict(zip(RANGES, row, strict=True))) for row in np.exp(numbers).tolist()]
