"""Kinds of agents: a hidden property that an agent has for a whole episode.

A one-step likelihood cannot distinguish an agent that refuses every second offer from two agents, one refusing all.
Here every agent is of one of `K` hidden kinds for a whole episode, and its answers depend on it. A gate gives the
probabilities of the kinds, from what is observed at the agent's first request of the episode: the queue it finds may be
of its own making. In logs the kind is summed out, over all that a window shows of an agent:

    log sum_k w_k(x_first) exp(sum_i log p(y_i | x_i, k))

In rollouts it is drawn at the first request and remembered. Agents whom the log hides are new at every request.
"""

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.placement.randomisation import scrambled

NUM_SLOTS = 128
"""Agents are distinguished by their index modulo this."""


def slot_of(agent: Array) -> Array:
    """The place of an agent in the memory of kinds; -1 for hidden agents. Shape as given."""
    return jnp.where(agent < 0, -1, agent % NUM_SLOTS).astype(jnp.int32)


def uniform_hash(seeds: Array, slot: Array, step: Array) -> Array:
    """What decides the kind of an agent in a stream: a hash, so the same at every call.

    Args:
        seeds: uint32 [*streams].
        slot: int32 [..., *streams] from `slot_of`.
        step: int32, broadcastable to `slot`: number of the decision, which stands for a hidden agent.

    Returns:
        [..., *streams] uniform in (0, 1).
    """
    name = jnp.where(slot < 0, -2 - jnp.broadcast_to(step, slot.shape), slot).astype(jnp.uint32)
    seed = seeds.reshape((1,) * (slot.ndim - seeds.ndim) + seeds.shape)
    mixed = scrambled(scrambled(seed) ^ scrambled(name * np.uint32(0x9E3779B1) + np.uint32(1)))
    return ((mixed >> 8).astype(jnp.float32) + 0.5) * np.float32(2.0**-24)


def drawn_kind(log_weight: Array, luck: Array) -> Array:
    """int32 [*batch]: the kind that `luck` [*batch] picks by the distribution function of `log_weight` [K, *batch]."""
    below = jnp.cumsum(jnp.exp(log_weight), axis=0)
    return jnp.sum((luck[None] >= below)[:-1], axis=0, dtype=jnp.int32)


def at_first_request(values: Array, same: Array) -> Array:
    """Values [K, T, *streams] of every decision replaced by those of its agent's first decision in the window."""
    first = jnp.argmax(same > 0.0, axis=1)
    return jnp.take_along_axis(values, first[None], axis=1)


def same_agent(agent: Array, valid: Array) -> Array:
    """[T, T, *streams] float32: 1 where two valid decisions are for the same known agent, or are the same decision."""
    num_steps = agent.shape[0]
    itself = jnp.eye(num_steps, dtype=bool).reshape((num_steps, num_steps) + (1,) * (agent.ndim - 1))
    together = (agent[:, None] == agent[None]) & (agent[:, None] >= 0)
    return ((together | itself) & valid[:, None] & valid[None]).astype(jnp.float32)


def marginal_log_likelihood(of_kind: Array, log_weight: Array, same: Array, valid: Array) -> Array:
    """Mean over decisions of the log likelihood with the kinds summed out.

    Args:
        of_kind: [kinds, T, *streams] log likelihood of every answer, were its agent of this kind.
        log_weight: [kinds, T, *streams] log probability of the kinds, from what was seen before every decision.
        same: [T, T, *streams] from `same_agent`; the identity for a mixture of kinds of every answer's own.
        valid: [T, *streams] bool.

    Returns:
        [] sum over groups of `log sum_k w_k exp(sum of the group)`, divided by the number of valid decisions.
    """
    of_kind = jnp.where(valid[None], of_kind, 0.0)
    of_group = jnp.einsum("st...,kt...->ks...", same, of_kind)
    size = jnp.maximum(jnp.sum(same, axis=1), 1.0)
    summed = jax.nn.logsumexp(of_group + at_first_request(log_weight, same), axis=0)
    return jnp.sum(jnp.where(valid, summed / size, 0.0)) / jnp.maximum(jnp.sum(valid), 1)
