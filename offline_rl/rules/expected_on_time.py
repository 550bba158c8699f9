"""The expected on-time rule: the offer that is likeliest to be accepted and to end within the deadline.

    score = acceptance * Phi(ln((deadline - delay) / run) / spread)
            - price * ln(1 + usual core-time) * (1 + busy)
            - toll * ln(1 + running) * ln(1 + usual run) - haste * ln(1 + delay + run)

`delay` is the longer of queue and transfer and `run` the usual run, longer where a crowd slows it (`offers`), `Phi` the
normal distribution function: run times scatter lognormally about what is expected. The price keeps scarce cores for
requests that come later, the toll is for those that run there already, where a crowd slows runs. Haste is small and
decides between offers that are equally sure, or equally late; without a deadline every end is on time, so it decides.
"""

import jax.numpy as jnp
from jax.scipy.special import ndtr

from offline_rl.replica_scores import share_on_time
from offline_rl.rules.offers import OfferEstimates, cost_to_others, expected_delay, expected_run
from twin.contracts import Array, PyTree

HASTE = 1e-3
"""Share of a request's worth that a response e times as long costs."""


def expected_on_time(params: PyTree, offers: OfferEstimates) -> Array:
    """Scores of the offers.

    Args:
        params: `latency` [3], `per_mib` [3], `wait_scale`, `crowding` [3], `spread`, `price`, `toll`, `haste`; time
            units.
        offers: From `read_offers`.

    Returns:
        [choices, *batch] at most 1.
    """
    delay, run = expected_delay(params, offers), expected_run(params, offers)
    on_time = share_on_time(jnp, ndtr, offers.deadline - delay, run, params["spread"])
    cost = cost_to_others(params, offers) + params["haste"] * jnp.log1p(delay + run)
    return offers.acceptance * on_time - cost
