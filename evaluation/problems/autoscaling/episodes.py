"""Episodes that a day of an application is cut into, what counts of them, and what the log itself says of them."""

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.recipes.scaling_task import ScalingTask
from offline_rl.rules.autoscaling.autoscaler import Played
from offline_rl.rules.autoscaling.logged import events_under, logged_grants
from twin.autoscaling.rewards import Reward, earned
from twin.autoscaling.scaling_log import DAY_S, ScalingLog
from twin.autoscaling.types import kept_objective
from twin.contracts import Array

EPISODES, WARM_UP_S = 12, 600.0
"""Episodes of a whole day, and the beginning of each that does not count."""
LEAST_LOGGED = 0.5
"""Share of an episode's intervals whose load the log tells, at least."""


def rows_of_episode(interval_s: float) -> int:
    """Rows of an episode: the one that it begins from, and those that are decided on."""
    return max(int(DAY_S / interval_s) // EPISODES, 2)


def starts_of(asked: np.ndarray, interval_s: float) -> np.ndarray:
    """[episodes] first rows of the episodes that the load [rows] of a day holds; none shares a row with another."""
    length = rows_of_episode(interval_s)
    starts = np.arange(len(asked) // length) * length
    known_share = np.isfinite(asked[: len(starts) * length]).reshape(-1, length).mean(axis=1)
    return starts[known_share >= LEAST_LOGGED]


def counted(played: Played, task: ScalingTask, known: Array | bool = True) -> dict[str, Array]:
    """Sums over the steps of which enough is known, [steps, *streams] of each: metrics are one over the other."""
    gateway, scaling = played.gateway, task.scaling
    asked = gateway.rate_per_s * scaling.interval_s
    answered = jnp.maximum(asked - gateway.num_failures, 0.0)
    latency = jnp.moveaxis(gateway.latency, 1, 0)
    kept = kept_objective(latency, gateway.num_failures, scaling.slo_share, scaling.slo_s)
    parts = {
        "reward": jnp.sum(played.reward, axis=1),
        "intervals": jnp.ones_like(asked),
        "time_s": gateway.response_s * answered,
        "answered": answered,
        "kept": kept.astype(jnp.float32),
        "failed": jnp.maximum(gateway.num_failures, 0.0),
        "asked": asked,
        "cores": jnp.sum(played.grants.replicas * played.grants.cpu_cores, axis=1),
    }
    return {name: jnp.sum(jnp.where(known, leaf, 0.0), axis=0) for name, leaf in parts.items()}


def sums_in_log(
    log: ScalingLog, starts: np.ndarray, task: ScalingTask, reward: Reward
) -> dict[str, np.ndarray]:
    """What the log says came of its own grants: sums over each episode, as `counted`; [episodes]. Intervals of which it
    does not say enough count for nothing."""
    events = events_under(log, logged_grants(log, task.limits.max_memory_gib))
    worth = reward(task.scaling, task.limits, events.grants, earned(task.scaling, events))
    skip, length = int(WARM_UP_S / task.scaling.interval_s), rows_of_episode(task.scaling.interval_s)
    rows = starts[None] + np.arange(1 + skip, length)[:, None]

    def steps(leaf: Array) -> Array:
        """[steps, ..., episodes] of a leaf [..., intervals]."""
        return jnp.moveaxis(jnp.asarray(leaf)[..., rows], -2, 0)

    known = steps(jnp.all(jnp.isfinite(worth), axis=0))
    grants, measured, gateway, reward_of = jax.tree.map(
        steps, (events.grants, events.measured, events.gateway, worth)
    )
    parts = counted(Played(grants, measured, gateway, reward_of, known), task, known)
    return {name: np.asarray(leaf) for name, leaf in parts.items()}
