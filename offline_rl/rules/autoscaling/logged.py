"""What the log's own grants come to in a twin, under the load that they met: what others have to beat.

An autoscaler that plays the same hours beside them, in the same members of the twin, shows what it gains. What the twin
gets wrong of both, and how days differ, cancels; what the log measured on other days is no match for what a twin
promises. Logged grants cannot answer to a queue that the twin alone has: where they come to far less in an episode than
the log measured, that little counts.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.confidence import half_width
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, follow, free_config, free_limits
from twin.autoscaling.answers import twin_response
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.logged_intervals import logged_events
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.rewards import cost_under_slo, earned
from twin.autoscaling.scaling_log import ScalingLog, without_gaps
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import Grants, ScalingEvents
from twin.contracts import Array, PyTree

STEPS, WARM_UP_S = 480, 600.0
"""Intervals of an episode at most, and the beginning of each that does not count: it has the log's usual grants."""
LEAST_EPISODES, MOST_EPISODES = 4, 60
"""Episodes for every member of the twin at least, where the log has the intervals, and in all at most."""
LEVEL = 0.975
FAR = 4.0
"""Times the usual (median) error of an episode in the twin that is not believed."""


class LoggedLoad(NamedTuple):
    """Episodes of a log.

    Attributes:
        rates: [intervals] requests a second.
        grants: Of the log, leaves [intervals, deployments].
        usual: What episodes begin with, leaves [deployments].
        measured: [intervals] reward that the log says its grants earned [cores]; NaN where it does not say enough.
        starts: [episodes] first rows; as many as the members of the twin share alike.
        steps: Intervals of an episode, the first `warm_up` of which do not count.
    """

    rates: np.ndarray
    grants: Grants
    usual: Grants
    measured: np.ndarray
    starts: np.ndarray
    steps: int
    warm_up: int


def logged_load(
    log: ScalingLog, config: AutoscalingConfig, limits: GrantLimits, usual: Grants, num_members: int
) -> LoggedLoad:
    """The episodes of a log in which at least half of the rates are known; all of them where none is."""
    asked = log.gateway["request_rate_per_s"]
    length = min(max(len(asked) // (LEAST_EPISODES * num_members), 2), STEPS)
    starts = np.arange(max(len(asked) // length, 1)) * length
    known = np.array([np.isfinite(asked[start : start + length]).mean() for start in starts])
    starts = starts[known >= 0.5] if np.any(known >= 0.5) else starts
    steps, grants = length - 1, logged_grants(log, limits.max_memory_gib)
    events = events_under(log, grants)
    return LoggedLoad(
        without_gaps(asked[:, None])[:, 0].astype(np.float32),
        grants,
        usual,
        np.asarray(logged_rewards(config, limits, events)),
        _shared_alike(starts, num_members),
        steps,
        min(int(WARM_UP_S / log.interval_s), steps // 4),
    )


def gains(
    autoscalers: Mapping[str, Autoscaler],
    load: LoggedLoad,
    twin: ApplicationTwin,
    config: AutoscalingConfig,
    limits: GrantLimits,
) -> dict[str, np.ndarray]:
    """Name -> [episodes] mean reward of an interval over that of the log's grants [cores].

    Args:
        autoscalers: Name -> one that plays beside them.
        load: Of the log.
        twin: Of the application.
        config, limits: What is decided about.
    """
    as_logged = as_that_day(load.grants, load.starts)
    free = free_limits(len(twin.deployments))  # a log may have left the bounds
    usual = _rewards(as_logged, load, twin, config, free)
    usual = np.maximum(usual, _least_believed(usual, load))
    return {name: _rewards(one, load, twin, config, limits) - usual for name, one in autoscalers.items()}


def _least_believed(usual: np.ndarray, load: LoggedLoad) -> np.ndarray:
    """[episodes] the least that the log's grants came to, given what the log measured and how far from it the twin
    usually is; minus infinity where the log does not say."""
    rows = load.starts[:, None] + 1 + np.arange(load.warm_up, load.steps)
    worth = load.measured[rows]
    known = np.isfinite(worth)
    measured = np.where(known, worth, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    enough = known.mean(axis=1) >= 0.5
    if not enough.any():
        return np.full(len(rows), -np.inf)
    usually = float(np.median(np.abs(usual - measured)[enough]))
    return np.where(enough, measured - FAR * usually, -np.inf)


def logged_rewards(config: AutoscalingConfig, limits: GrantLimits, events: ScalingEvents) -> Array:
    """[intervals] what the grants of a log (`logged_events`) earned, all deployments together; NaN where it does not
    say enough."""
    worth = cost_under_slo()(config, limits, events.grants, earned(config, events))
    return jnp.sum(worth, axis=0)


def least(gained: np.ndarray) -> float:
    """Lower end of the 95 % interval of a mean gain [episodes]; the mean of one episode."""
    within = half_width(gained, LEVEL) if len(gained) > 1 else 0.0
    return float(np.mean(gained)) - within


def as_that_day(grants: Grants, starts: np.ndarray) -> Autoscaler:
    """The logged behaviour: every episode [episodes] follows its own rows of the log."""
    first = jnp.asarray(starts)

    def decide(_key: Array, memory: Array, _state: ScalingState) -> tuple[Array, Grants]:
        rows = first + memory + 1
        return memory + 1, Grants(*(leaf[rows].T for leaf in grants))

    return Autoscaler(lambda _grants: jnp.int32(0), decide)


def logged_grants(log: ScalingLog, memory_gib: PyTree) -> Grants:
    """[intervals, deployments] the grants of a log without gaps; memory that is not logged is `memory_gib`."""
    columns = [without_gaps(log.columns[name]) for name in ("cpu_cores", "memory_gib", "num_replicas")]
    columns[1] = np.where(np.isfinite(columns[1]), columns[1], np.asarray(memory_gib)[None])
    return Grants(*(jnp.asarray(one, jnp.float32) for one in columns))


def events_under(log: ScalingLog, grants: Grants) -> ScalingEvents:
    """`logged_events` of a log under its `logged_grants`, which have no gaps."""
    return logged_events(log)._replace(grants=jax.tree.map(jnp.transpose, grants))


def _rewards(
    autoscaler: Autoscaler,
    load: LoggedLoad,
    twin: ApplicationTwin,
    config: AutoscalingConfig,
    limits: GrantLimits,
) -> np.ndarray:
    """[episodes] mean reward of an interval."""
    starts = load.starts
    response = twin_response(
        twin.laws, free_config(config), limits, load.rates, load.steps, load.usual, starts=starts
    )

    @jax.jit
    def play(key: Array) -> Array:
        played = follow(key, response, config, limits, autoscaler, cost_under_slo(), load.steps, starts.shape)
        return jnp.mean(jnp.sum(played.reward[load.warm_up :], axis=1), axis=0)

    return np.asarray(play(jax.random.key(1)))


def _shared_alike(starts: np.ndarray, num_members: int) -> np.ndarray:
    """At most `MOST_EPISODES` of them, as far apart as can be; a multiple of the members where there are as many."""
    number = min(len(starts), MOST_EPISODES)
    number = number // num_members * num_members or number
    return starts[np.linspace(0, len(starts) - 1, number).astype(int)]
