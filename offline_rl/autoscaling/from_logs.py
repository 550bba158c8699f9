"""One network for all deployments, learned from a log alone: TD3+BC over the intervals that the log holds.

An autoscaler leaves grants as they are in nearly all intervals, and within the dead zone of an action nothing changes:
the mean of what it does, which TD3+BC clones, would change nothing ever. So decisions that change something are drawn
as often as those that do not. What is learned has the form of the teacher of TD3, and is played and handed over as it
is.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.algorithms.td3_bc import TD3BCConfig, td3_bc
from offline_rl.autoscaling.teaching import HIDDEN, HORIZON_S
from offline_rl.errors import TrainingError
from offline_rl.networks import example_in
from offline_rl.training_loop import train
from offline_rl.transitions import pairs_from_logs
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.logged_intervals import logged_intervals
from twin.autoscaling.observing import observe
from twin.autoscaling.problem import legal_steps
from twin.autoscaling.rewards import Reward, earned
from twin.autoscaling.scaling_log import ScalingLog
from twin.contracts import Array, PyTree, Trajectory
from twin.legality import legalised


@dataclass(frozen=True)
class LogLearnerConfig:
    """How a network is learned from a log.

    Attributes:
        updates: Steps of gradient descent.
        batch: Moments of a step, each with all deployments.
        td3_bc: How it learns from them.
    """

    updates: int = 10_000
    batch: int = 64
    td3_bc: TD3BCConfig = field(
        default_factory=lambda: TD3BCConfig(
            horizon_s=HORIZON_S, q_weight=0.5, learning_rate=1e-3, hidden=HIDDEN
        )
    )


def logged_pairs(
    config: AutoscalingConfig, limits: GrantLimits, log: ScalingLog, reward: Reward
) -> Trajectory:
    """Each two decisions of a log that follow each other, as a stream [..., pairs] of two steps.

    Steps beyond the reach of an action are cut off there.

    Args:
        config, limits: What is decided about.
        log: Of the application.
        reward: What a decision earns.

    Raises:
        TrainingError: No two intervals follow each other that the log knows enough of.
    """
    logged = logged_intervals(config, log)
    first = np.flatnonzero(np.diff(logged.row) == 1)
    if not len(first):
        raise TrainingError(
            "the log holds no two intervals in a row before which it has no gap",
            allowed=f"{config.window + 2} intervals without a gap, or more",
            advice="learn from a log with more days, or in the twin",
        )

    legal = legal_steps(config, logged.state.grants)
    always = jnp.ones(logged.state.grants.replicas.shape, bool)
    ended = jnp.zeros(len(logged.row), bool)
    whole = Trajectory(
        observation=observe(config, limits, logged.state),
        global_observation=(),
        legal=legal,
        active=always,
        action=legalised(logged.action, legal)[0],
        reward=reward(config, limits, logged.events.grants, earned(config, logged.events)),
        settled=always,
        decision_info=(),
        outcome=(),
        elapsed_s=jnp.full(len(logged.row), config.interval_s),
        terminated=ended,
        done=ended,
        illegal=~always,
    )
    return jax.tree.map(lambda leaf: jnp.stack([leaf[..., first], leaf[..., first + 1]]), whole)


def evened(pairs: Trajectory, dead_zone: float) -> Trajectory:
    """Pairs of a log, those whose first decision changes something repeated until they are as many as the others."""
    changes = np.any([np.abs(leaf[0]) > dead_zone for leaf in jax.tree.leaves(pairs.action)], axis=(0, 1))
    moving, resting = np.flatnonzero(changes), np.flatnonzero(~changes)
    if len(moving) < len(resting):
        moving = np.resize(moving, len(resting) if len(moving) else 0)
    chosen = np.concatenate([resting, moving])
    return jax.tree.map(lambda leaf: leaf[..., chosen], pairs)


def learn_from_log(key: Array, pairs: Trajectory, config: LogLearnerConfig | None = None) -> PyTree:
    """Parameters of a network that learned from a log (`logged_pairs`, `evened`)."""
    config = config or LogLearnerConfig()
    algorithm = td3_bc(example_in(pairs), config.td3_bc)
    state, _ = train(key, algorithm, pairs_from_logs(pairs, config.batch), config.updates)
    return state.params.actor
