"""`twin.assignment.objective` inside JAX programs, for training: the same numbers for batches and samples."""

import jax
import jax.numpy as jnp

from twin.assignment.types import Costs
from twin.contracts import Array


def makespan_s(costs: Costs, edge: Array) -> Array:
    """[*batch] the objective of assignments [*batch, Z]; the costs' batch axes are those of `edge`."""
    return completion_s(costs, edge).max(axis=-1)


def completion_s(costs: Costs, edge: Array) -> Array:
    """[*batch, Q] when the last request of every edge is answered."""
    num_edges = costs.local_s.shape[-1]
    on = jax.nn.one_hot(edge, num_edges, dtype=bool)  # [*batch, Z, Q]
    stays = on & (edge == costs.source)[..., None]
    sent = on & ~stays

    def total(where: Array) -> Array:
        return jnp.sum(jnp.where(where, costs.work_s, 0.0), axis=-2)

    def longest(where: Array, of_pair: Array) -> Array:
        return jnp.max(jnp.where(where, of_pair, 0.0), axis=-2)

    arriving_s = jnp.maximum(costs.arriving_s, longest(sent, costs.transfer_s))
    returning_s = jnp.maximum(costs.returning_s, longest(on, costs.result_s))
    before_s = jnp.maximum(costs.local_s + total(stays), arriving_s)
    return before_s + costs.transferred_s + total(sent) + returning_s
