"""How wide the ensemble's durations are, settled once its members are fitted.

Members that are each right are together too wide, by what they disagree about. So the scales of all of them are
multiplied by one factor for waits and one for run times: those under which rows that no member was fitted to are
likeliest in the members' mixture (pool, then calibrate: R. Rahaman and A. H. Thiery, Uncertainty quantification and
deep ensembles, NeurIPS 2021).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree
from twin.networks import shifted
from twin.placement.outcome_model import NUM_OUTPUTS, RUN_SCALES, WAIT_SCALES

LOG_FACTORS = tuple(0.1 * step for step in sorted(range(-10, 11), key=abs))
"""Logarithms of the factors tried, the least change first: of equally likely ones the first is taken."""


def calibrate_spread(
    log_likelihood: Callable[[PyTree], Array], parameters: PyTree, weight: Array, output_layer: str
) -> tuple[PyTree, Array]:
    """Chooses the factor for waits and then, with it, the one for run times.

    Args:
        log_likelihood: Parameters of one member -> log likelihood [rows] of the rows held out.
        parameters: Of all members, leaves [members, ...].
        weight: [rows] of the rows held out.
        output_layer: Name of the layer whose biases are the logarithms of the scales.

    Returns:
        The parameters with the scales multiplied, and the factors [2] for waits and run times.
    """

    def pooled(shift: Array) -> Array:
        each = jax.lax.map(log_likelihood, shifted(parameters, output_layer, shift))
        return jnp.sum(weight * jax.nn.logsumexp(each, axis=0))

    log_factors = jnp.array(LOG_FACTORS)

    def settle(chosen: Array, scales: Array) -> tuple[Array, Array]:
        tried = jnp.where(scales[None], log_factors[:, None], chosen[None])
        best = jnp.argmax(jax.lax.map(pooled, tried))
        return tried[best], jnp.exp(log_factors)[best]

    both = jnp.stack(
        [jnp.zeros(NUM_OUTPUTS, bool).at[scales].set(True) for scales in (WAIT_SCALES, RUN_SCALES)]
    )
    chosen, factors = jax.lax.scan(settle, jnp.zeros(NUM_OUTPUTS), both)  # one program for the two
    return shifted(parameters, output_layer, chosen), factors
