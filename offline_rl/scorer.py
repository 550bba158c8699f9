"""An actor that scores every choice alike: one small network is shared by all nodes, or by all waiting jobs.

It serves observations that are a pair: what is seen of every choice [F, choices, seats, *streams], and the context
that all of them share [R, seats, *streams] (the request in hand, the pool). Permuting the choices permutes the scores.
Without `identity` the weights do not know how many choices there are: one policy decides among any number of them.

    h_c     = relu(W x_c + V_c context + b_c)          V_c, b_c are the same for all choices unless `identity`
    h_c     = relu(W' h_c + P' mean of h over the legal choices + b')        every further layer
    score_c = w h_c
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from offline_rl.errors import TrainingError
from offline_rl.losses import mask_logits
from offline_rl.networks import Actor, Example, parts_of
from twin.contracts import Array, PyTree
from twin.networks import Dense


@dataclass(frozen=True)
class ScorerConfig:
    """How choices are scored.

    Attributes:
        hidden: Widths of the layers, at least one.
        identity: Every choice has context weights and a bias of its own: it can learn that a service runs well on
            one node, and is bound to the nodes it was trained on.
        pooled: Further layers also see the mean over all legal choices, so a score can depend on the others.
    """

    hidden: tuple[int, ...] = (64, 32)
    identity: bool = True
    pooled: bool = True


class ChoiceScorer(nn.Module):
    """The network: (choices [F, choices, *streams], context [R, *streams], legal [choices, *streams]) -> scores
    [choices, *streams]."""

    hidden: Sequence[int]
    identity: bool
    pooled: bool

    @nn.compact
    def __call__(self, choices: Array, context: Array, legal: Array) -> Array:
        """Scores every choice, legal or not."""
        width, num_choices = self.hidden[0], choices.shape[1]
        batch = context.shape[1:]
        own = Dense(width, name="choice")(choices)
        if self.identity:
            shared = Dense(width * num_choices, name="context")(context).reshape(width, num_choices, *batch)
        else:
            shared = Dense(width, name="context")(context)[:, None]
        hidden = nn.relu(own + shared)
        for index, width in enumerate(self.hidden[1:]):
            mixed = Dense(width, name=f"layer_{index}")(hidden)
            if self.pooled:
                mixed = mixed + Dense(width, name=f"pool_{index}")(_mean_over_legal(hidden, legal))[:, None]
            hidden = nn.relu(mixed)
        return Dense(1, scale=0.01, name="score")(hidden)[0]


def _mean_over_legal(hidden: Array, legal: Array) -> Array:
    """[H, *streams] from hidden [H, choices, *streams]; zero where nothing is legal."""
    weight = legal.astype(hidden.dtype)
    count = jnp.maximum(jnp.sum(weight, axis=0), 1.0)
    return jnp.sum(hidden * weight[None], axis=1) / count[None]


def scorer(example: Example, config: ScorerConfig | None = None) -> Actor:
    """The scoring actor for these shapes.

    Args:
        example: Shapes of what a policy sees: the observation a pair (choices [F, choices, seats], context [R, seats]),
            the action one leaf.
        config: How to score.

    Returns:
        The actor. Without `identity` it serves any number of choices, whatever the example's.

    Raises:
        TrainingError: The observation is not such a pair, or there is no hidden layer.
    """
    config = config or ScorerConfig()
    _refuse_other_shapes(example)
    if not config.hidden:
        raise TrainingError(
            "a scorer needs a hidden layer", where="ScorerConfig.hidden", allowed="one width or more"
        )
    network = ChoiceScorer(config.hidden, config.identity, config.pooled)

    def init(key: Array) -> PyTree:
        observation, legal = jax.tree.map(jnp.zeros_like, (example.observation, example.legal))
        mask = jax.tree.leaves(legal)[0]
        return network.init(key, *parts_of(observation), mask)

    def logits(params: PyTree, observation: PyTree, legal: PyTree) -> PyTree:
        (mask,), structure = jax.tree.flatten(legal)
        scores = cast(Array, network.apply(params, *parts_of(observation), mask))
        return jax.tree.unflatten(structure, [mask_logits(scores, mask)])

    return Actor(init, logits)


def _refuse_other_shapes(example: Example) -> None:
    leaves, masks = jax.tree.leaves(example.observation), jax.tree.leaves(example.legal)
    shapes = [leaf.shape for leaf in leaves], [mask.shape for mask in masks]
    fitting = len(leaves) == 2 and len(masks) == 1 and leaves[0].ndim == leaves[1].ndim + 1
    if not fitting or leaves[0].shape[1] != masks[0].shape[0]:
        raise TrainingError(
            "this observation cannot be scored choice by choice",
            where=f"observation of shapes {shapes[0]}, legality of shapes {shapes[1]}",
            allowed="a pair (choices [F, choices, seats], context [R, seats]) and one action leaf",
            advice="use offline_rl.networks.actor",
        )
