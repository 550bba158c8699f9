"""What a placement is worth, by its outcome."""

import math

import jax.numpy as jnp

from twin.contracts import Array, Trajectory
from twin.placement.types import COMPLETED, PlacementDecisionInfo, PlacementOutcome

LEAST_S = 1e-3
"""Response times and expected runs below count as this long."""


def on_time_reward(
    _worst_response: float, decision_info: PlacementDecisionInfo, outcome: PlacementOutcome
) -> Array:
    """1 where the request completed within its deadline, else 0 (KaiS and KMPS: on-time throughput)."""
    on_time = outcome.finish_s - decision_info.arrival_s <= decision_info.deadline_s
    return jnp.where(on_time & (outcome.status == COMPLETED), 1.0, 0.0)


def response_reward(
    worst_response: float, decision_info: PlacementDecisionInfo, outcome: PlacementOutcome
) -> Array:
    """Minus the log of response time over expected run, in [-log worst, log worst]; -log worst unless it completed.

    Expected is what was requested, or the service's usual run over all nodes: never the run that came, which a slow
    node makes longer. What a user feels of a slow node, and of one that is shared, is thus seen.
    """
    response_s = jnp.maximum(outcome.finish_s - decision_info.arrival_s, LEAST_S)
    ratio = response_s / jnp.maximum(decision_info.expected_run_s, LEAST_S)
    bounded = jnp.clip(ratio, 1.0 / worst_response, worst_response)
    return -jnp.log(jnp.where(outcome.status == COMPLETED, bounded, worst_response))


def lost_is_worst(trajectory: Trajectory, kind: str, worst_response: float) -> Trajectory:
    """A rollout in a twin with the least reward for requests that found no slot on the node chosen for them.

    A twin draws what comes of a request when it is placed, so that in its rollouts nothing else is left unsettled. Left
    out, those requests would favour policies that overfill nodes; metrics count them as late. In a replayed log
    unsettled requests are unknown instead.
    """
    lost = trajectory.active & ~trajectory.settled
    worst = 0.0 if kind == "on_time" else -math.log(worst_response)
    return trajectory._replace(
        reward=jnp.where(lost, worst, trajectory.reward), settled=trajectory.settled | lost
    )
