"""What a placement is worth, by its outcome."""

import jax.numpy as jnp

from twin.contracts import Array
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
