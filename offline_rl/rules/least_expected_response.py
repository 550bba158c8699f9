"""The least expected response rule: the offer that is expected to end first, refusals counted as another try.

    score = - ln((delay + run) / acceptance) - price * ln(1 + usual core-time) * (1 + busy)
            - toll * ln(1 + running) * ln(1 + usual run)

The run is the log's mean of the request's service on the node, longer where a crowd slows it; the delay follows from
queue and transfer (`offers`). Price and toll are those of `expected_on_time`, for requests that come later and for
those that run there; without them a request takes what is soonest for itself. It needs no deadlines.
"""

import jax.numpy as jnp

from offline_rl.numpy_rules import LEAST_ACCEPTANCE
from offline_rl.replica_scores import TINY
from offline_rl.rules.offers import OfferEstimates, cost_to_others, expected_delay, expected_run
from twin.contracts import Array, PyTree


def least_expected_response(params: PyTree, offers: OfferEstimates) -> Array:
    """Scores of the offers [choices, *batch]; `params`: `latency` [3], `per_mib` [3], `wait_scale`, `crowding` [3],
    `price`, `toll`, in time units."""
    response = expected_delay(params, offers) + expected_run(params, offers)
    accepted = jnp.log(jnp.maximum(offers.acceptance, LEAST_ACCEPTANCE))
    return accepted - jnp.log(jnp.maximum(response, TINY)) - cost_to_others(params, offers)
