"""Kinds of agents: what an agent keeps to itself and is, for a whole episode.

A one-step likelihood cannot tell an agent who refuses every second offer from two agents of whom one refuses all.
Here every agent is of one of `K` equally likely hidden kinds, and its answers depend on it. In rollouts the kind is a
hash of the stream's seed and the agent, so nothing is carried along. In logs it is summed out, over all that a window
shows of an agent:

    log sum_k exp(sum_i log p(y_i | x_i, k)) - log K

Agents whom the log hides are of a new kind at every request.
"""

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array


def kind_of(seeds: Array, agent: Array, step: Array, num_kinds: int) -> Array:
    """The kind of every agent in every stream.

    Args:
        seeds: uint32 [*streams].
        agent: int32 [..., *streams]; -1 where hidden.
        step: int32, broadcastable to `agent`: number of the decision, which stands for a hidden agent.
        num_kinds: How many there are.

    Returns:
        int32 [..., *streams] in [0, num_kinds).
    """
    name = jnp.where(agent < 0, -2 - jnp.broadcast_to(step, agent.shape), agent).astype(jnp.uint32)
    seed = seeds.reshape((1,) * (agent.ndim - seeds.ndim) + seeds.shape)
    mixed = _scrambled(_scrambled(seed) ^ _scrambled(name * np.uint32(0x9E3779B1) + np.uint32(1)))
    return ((mixed >> 8).astype(jnp.int32) % num_kinds).astype(jnp.int32)


def _scrambled(value: Array) -> Array:
    """A bijection of uint32 that mixes all bits (the finaliser of MurmurHash3)."""
    value = (value ^ (value >> 16)) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> 13)) * np.uint32(0xC2B2AE35)
    return value ^ (value >> 16)


def same_agent(agent: Array, valid: Array) -> Array:
    """[T, T, *streams] float32: 1 where two valid decisions ask for the same known agent, or are the same decision."""
    num_steps = agent.shape[0]
    itself = jnp.eye(num_steps, dtype=bool).reshape((num_steps, num_steps) + (1,) * (agent.ndim - 1))
    together = (agent[:, None] == agent[None]) & (agent[:, None] >= 0)
    return ((together | itself) & valid[:, None] & valid[None]).astype(jnp.float32)


def marginal_log_likelihood(of_kind: Array, same: Array, valid: Array) -> Array:
    """Mean over decisions of the log likelihood with the kinds summed out.

    Args:
        of_kind: [kinds, T, *streams] log likelihood of every answer, were its agent of this kind.
        same: [T, T, *streams] from `same_agent`; the identity for a mixture of kinds of every answer's own.
        valid: [T, *streams] bool.

    Returns:
        [] sum over groups of `log mean_k exp(sum of the group)`, divided by the number of valid decisions.
    """
    of_kind = jnp.where(valid[None], of_kind, 0.0)
    of_group = jnp.einsum("st...,kt...->ks...", same, of_kind)
    size = jnp.maximum(jnp.sum(same, axis=1), 1.0)
    summed = jax.nn.logsumexp(of_group, axis=0) - np.log(of_kind.shape[0])
    return jnp.sum(jnp.where(valid, summed / size, 0.0)) / jnp.maximum(jnp.sum(valid), 1)
