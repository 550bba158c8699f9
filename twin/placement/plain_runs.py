"""How far drawn run times depend on anything but what is usual, settled once the members are fitted.

A network that sees queues and times of day finds something about runs in them by chance: a little on the log's own
decisions, much more where another policy leads. So beside the members stands a mixture that is the same for every
offer, counted from the usual run time alone, and the members' run times are drawn towards it (the outputs of both are
averaged) as far as rows that neither was fitted to do not tell against it: the plainest within one standard error of
the likeliest (L. Breiman et al., Classification and Regression Trees, 1984).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from twin.contracts import Array, PyTree
from twin.descent import descend
from twin.networks import with_layer
from twin.placement.outcome_model import FROM_USUAL, NUM_COMPONENTS, NUM_OUTPUTS, RUN

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the members' own outputs, the plainest first."""
NUM_STEPS, LEARNING_RATE = 1_000, 0.03
"""Of the descent to the mixture that is the same for every offer."""
WITHOUT = -10.0
"""Logarithm of the weight of its components that do not count from what is usual."""


def plain_outputs(
    key: Array, log_likelihood: Callable[[Array, Array], Array], draw: Callable[[Array], Array]
) -> Array:
    """[NUM_OUTPUTS] the likeliest outputs that are the same for every offer; those of anything but run times are 0.

    Args:
        key: PRNG key for batches.
        log_likelihood: Outputs [NUM_OUTPUTS], rows [batch] -> log likelihood [batch].
        draw: Key -> rows [batch] of the training data.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, NUM_STEPS))
    weights = slice(RUN.start, RUN.start + NUM_COMPONENTS)
    of_usual = jnp.array(FROM_USUAL)
    free = jnp.zeros(NUM_OUTPUTS).at[RUN].set(1.0).at[weights].set(of_usual)
    fixed = jnp.zeros(NUM_OUTPUTS).at[weights].set(WITHOUT * (1.0 - of_usual))

    def step(carry: tuple[Array, PyTree], key_step: Array) -> tuple[tuple[Array, PyTree], None]:
        outputs, state = carry
        rows = draw(key_step)
        gradient = jax.grad(lambda one: -jnp.mean(log_likelihood(one * free + fixed, rows)))(outputs)
        return descend(optimiser, gradient, state, outputs), None

    start = jnp.zeros(NUM_OUTPUTS)
    (found, _), _ = jax.lax.scan(step, (start, optimiser.init(start)), jax.random.split(key, NUM_STEPS))
    return found * free + fixed


def drawn_to_plain(
    log_likelihood: Callable[[PyTree], Array],
    parameters: PyTree,
    plain: Array,
    weight: Array,
    output_layer: str,
) -> tuple[PyTree, Array]:
    """Draws the members' run times to the plain ones.

    Args:
        log_likelihood: Parameters of one member -> log likelihood [rows] of the rows held out.
        parameters: Of all members, leaves [members, ...].
        plain: [members, NUM_OUTPUTS] of `plain_outputs`.
        weight: [rows] of the rows held out.
        output_layer: Name of the layer that puts out `NUM_OUTPUTS` numbers.

    Returns:
        The parameters, and the share [] of the members' own outputs that is left.
    """

    def drawn(share: Array) -> PyTree:
        own, kept = parameters["params"][output_layer], jnp.ones(NUM_OUTPUTS).at[RUN].set(share)
        kernel, bias = own["kernel"] * kept[None, None], own["bias"] * kept[None] + plain * (1.0 - kept)[None]
        return with_layer(parameters, output_layer, {"kernel": kernel, "bias": bias})

    def of_rows(share: Array) -> Array:
        return jnp.mean(jax.lax.map(log_likelihood, drawn(share)), axis=0)

    shares = jnp.array(SHARES)
    each = jax.lax.map(of_rows, shares)  # [shares, rows]
    mean = each @ weight / jnp.sum(weight)
    loss = each[jnp.argmax(mean)][None] - each
    of_loss = loss @ weight / jnp.sum(weight)
    variance = ((loss - of_loss[:, None]) ** 2) @ weight / jnp.sum(weight)
    chosen = shares[jnp.argmax(of_loss <= jnp.sqrt(variance / jnp.sum(weight)))]
    return drawn(chosen), chosen
