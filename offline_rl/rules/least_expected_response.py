"""The least expected response rule: the offer that is expected to end first, refusals counted as another try.

    score = - ln((delay + run) / acceptance)

The run is the log's mean of the request's service on the node, longer where a crowd slows it; the delay follows from
queue and transfer (`offers`).
It needs no deadlines, and is what `expected_on_time` is without them.
"""

import jax.numpy as jnp

from offline_rl.numpy_rules import LEAST_ACCEPTANCE
from offline_rl.rules.offers import OfferEstimates, expected_delay, expected_run
from twin.contracts import Array, PyTree

_TINY = 1e-6


def least_expected_response(params: PyTree, offers: OfferEstimates) -> Array:
    """Scores of the offers [choices, *batch]; `params`: `latency` [3], `per_mib` [3], `wait_scale`, `crowding` [3], in
    time units."""
    response = expected_delay(params, offers) + expected_run(params, offers)
    return jnp.log(jnp.maximum(offers.acceptance, LEAST_ACCEPTANCE)) - jnp.log(jnp.maximum(response, _TINY))
