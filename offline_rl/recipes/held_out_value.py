"""What a policy is worth on held-out windows of the log: the doubly robust estimate of one decision.

    value = mean of  q(s, pi(s)) + 1{a = pi(s)} / mu(a | s) * (r - q(s, a))      over logged (s, a, r), settled

with `q` the direct method's worth of a choice and `mu` the clone, neither learned from these windows. It is right
where either is; it looks one decision ahead, so it is a means to tune learners from logs with, no judge of them: what
a decision does to later requests is not in it (M. Dudik, J. Langford and L. Li, Doubly robust policy evaluation and
learning, 2011). Weights are cut off at `LARGEST_WEIGHT`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from offline_rl.algorithm import choices_of, time_as_stream
from offline_rl.algorithms import DirectMethodConfig, direct_method
from offline_rl.distributions import greedy, joint_log_prob
from offline_rl.losses import weighted_mean
from offline_rl.networks import Actor, Example
from offline_rl.training_loop import from_logs, updates
from offline_rl.values import total_worth
from twin.contracts import Array, PyTree, Trajectory

LARGEST_WEIGHT = 20.0

Value = Callable[[PyTree], float]
"""Parameters of a policy's actor -> what its greedy policy is worth, in units of the reward."""


def held_out_value(
    key: Array,
    train: Trajectory,
    held_out: Trajectory,
    example: Example,
    network: Actor,
    clone: PyTree,
    num_updates: int,
    num_streams: int,
    *,
    is_share: bool,
) -> Value:
    """The estimate for actors of one network.

    Args:
        key: PRNG key of the worths that are learned.
        train: Windows that they are learned from.
        held_out: Windows that policies are valued on.
        example, network: Shapes, and the network of worths, clone and policies.
        clone: Parameters of the clone of the logged behaviour.
        num_updates, num_streams: Gradient steps of the worths, windows in each.
        is_share: Whether rewards are shares in [0, 1].

    Returns:
        The value of parameters.
    """
    method = direct_method(example, DirectMethodConfig(is_share), network)
    key_init, key_run = jax.random.split(key)
    begun = jax.jit(method.init)(key_init)
    state, _ = updates(method, num_updates)(key_run, begun, from_logs(train, num_streams), 0)

    @jax.jit
    def value(params: PyTree, worths: PyTree, clone: PyTree, seen: Trajectory) -> Array:
        observation, legal, action = choices_of(seen)
        reward, usable = time_as_stream((seen.reward, seen.active & seen.settled & ~seen.illegal))
        mine = greedy(network.logits(params, observation, legal))
        scores = network.logits(worths, observation, legal)
        logged = joint_log_prob(network.logits(clone, observation, legal), action)
        weight = jnp.minimum(jnp.exp(-logged), LARGEST_WEIGHT) * _alike(mine, action)
        own, theirs = (_worth(scores, choice, is_share) for choice in (mine, action))
        return weighted_mean(own + weight * (reward - theirs), usable.astype(jnp.float32))

    return lambda params: float(value(params, state.actor, clone, held_out))


def _alike(one: PyTree, other: PyTree) -> Array:
    """1 where all leaves of two actions are equal, [seats, *streams]."""
    parts = jax.tree.leaves(jax.tree.map(jnp.equal, one, other))
    return jnp.all(jnp.stack(parts), axis=0).astype(jnp.float32)


def _worth(scores: PyTree, action: PyTree, is_share: bool) -> Array:
    """Values of choices by the direct method, in units of the reward."""
    total = total_worth(scores, action)
    return jax.nn.sigmoid(total) if is_share else total
