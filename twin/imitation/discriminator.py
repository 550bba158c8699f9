"""The discriminator: is this decision with its answer, among its predecessors, from the log or from the imitation?

Xiong et al., equation 5, with D the probability that a row is *generated* (its convention; logits are high for
generated):

    loss = -E_generated[log D] - E_logged[log(1 - D)] + penalty / 2 * E_logged[|gradient of the logit|^2]

A row is a short window: the state before the decision, the decision, its answer, the answers of the decisions before it
and whether those were the same agent's, and the mean of the agent's earlier answers. The latter is where hidden
preferences that persist show.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, PyTree
from twin.imitation.config import DiscriminatorConfig
from twin.imitation.decisions import NUM_ANSWER_FEATURES
from twin.networks import MLP, apply
from twin.placement.features import NODE_FEATURES
from twin.placement.types import Cluster, Observation


class DiscriminatorLoss(NamedTuple):
    """Terms of the discriminator's loss."""

    loss: Array
    accuracy_logged: Array  # share of logged rows classified as logged
    accuracy_generated: Array


def discriminator_network(config: DiscriminatorConfig) -> MLP:
    """The network: [rows' features, *batch] -> [1, *batch] logit, high for generated."""
    return MLP(config.hidden, 1, activation=jax.nn.leaky_relu)


def num_row_features(cluster: Cluster, num_request_features: int, config: DiscriminatorConfig) -> int:
    """Number of features of a row."""
    state = len(NODE_FEATURES) + cluster.num_nodes + num_request_features
    window = NUM_ANSWER_FEATURES * config.window + (config.window - 1)
    return state + window + NUM_ANSWER_FEATURES + 1


def rows(seen: Observation, chosen: Array, answers: Array, same: Array, window: int) -> Array:
    """The discriminator's input for every decision.

    Args:
        seen: In full; leaves [F, nodes, T, W] and [R, T, W].
        chosen: [nodes, T, W] one-hot decisions, perhaps with gradients behind them.
        answers: [NUM_ANSWER_FEATURES, T, W].
        same: [T, T, W], 1 where two decisions are for the same agent, from `decisions.same_agent`.
        window: Decisions whose answers are shown, the row's own included.

    Returns:
        [row features, T, W]. Nothing in a row is later than its own answer.
    """
    num_steps = answers.shape[1]
    of_node = jnp.einsum("fntw,ntw->ftw", seen.node, chosen)
    parts = [of_node, chosen, seen.request, answers]
    step = jnp.arange(num_steps)
    for back in range(1, window):
        earlier = jnp.pad(answers, ((0, 0), (back, 0), (0, 0)))[:, :num_steps]
        before = (step[:, None] - step[None] == back).astype(jnp.float32)[:, :, None]
        parts += [earlier, jnp.sum(same * before, axis=1)[None]]
    past = same * (step[None] < step[:, None]).astype(jnp.float32)[:, :, None]
    count = jnp.sum(past, axis=1)
    mean = jnp.einsum("tsw,fsw->ftw", past, answers) / jnp.maximum(count, 1.0)[None]
    return jnp.concatenate([*parts, mean, jnp.log1p(count)[None]])


def scores_of(config: DiscriminatorConfig, parameters: PyTree, shown: Array) -> Array:
    """Logits [*batch] of rows [row features, *batch], high for generated."""
    return apply(discriminator_network(config), parameters, shown)[0]


def discriminator_loss(
    config: DiscriminatorConfig,
    parameters: PyTree,
    logged: Array,
    logged_counts: Array,
    generated: Array,
    generated_counts: Array,
) -> tuple[Array, DiscriminatorLoss]:
    """Equation 5 with a gradient penalty at logged rows.

    Args:
        config: For the network and the penalty's weight.
        parameters: Of the network.
        logged, generated: [row features, *batch].
        logged_counts, generated_counts: [*batch] bool, which rows count.

    Returns:
        The loss [] and its terms.
    """

    def mean(values: Array, counts: Array) -> Array:
        return jnp.sum(jnp.where(counts, values, 0.0)) / jnp.maximum(jnp.sum(counts), 1)

    on_logged, on_generated = (scores_of(config, parameters, shown) for shown in (logged, generated))
    cross_entropy = mean(jax.nn.softplus(-on_generated), generated_counts)
    cross_entropy += mean(jax.nn.softplus(on_logged), logged_counts)
    slope = jax.grad(lambda shown: jnp.sum(scores_of(config, parameters, shown)))(logged)
    penalty = mean(jnp.sum(slope**2, axis=0), logged_counts)
    loss = cross_entropy + 0.5 * config.gradient_penalty * penalty
    accuracy = (
        mean((on_logged < 0.0) * 1.0, logged_counts),
        mean((on_generated > 0.0) * 1.0, generated_counts),
    )
    return loss, DiscriminatorLoss(loss, *accuracy)
