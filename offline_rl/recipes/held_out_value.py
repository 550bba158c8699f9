"""What a policy is worth on held-out windows of the log: the doubly robust estimate of one decision.

    value = mean of  q(s, pi(s)) + 1{a = pi(s)} / mu(a | s) * (r - q(s, a))      over logged (s, a, r), settled

with `q` the reward predicted by the direct method and `mu` the clone, neither learned from these windows. It is right
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
from offline_rl.values import summed_action_value
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
        key: PRNG key of the reward model.
        train: Windows that the reward model is learned from.
        held_out: Windows that policies are valued on.
        example, network: Shapes, and the network of reward model, clone and policies.
        clone: Parameters of the clone of the logged behaviour.
        num_updates, num_streams: Gradient steps of the reward model, windows in each.
        is_share: Whether rewards are shares in [0, 1].

    Returns:
        The value of parameters.
    """
    method = direct_method(example, DirectMethodConfig(is_share), network)
    key_init, key_run = jax.random.split(key)
    begun = jax.jit(method.init)(key_init)
    state, _ = updates(method, num_updates)(key_run, begun, from_logs(train, num_streams), 0)

    @jax.jit
    def value(params: PyTree, reward_model: PyTree, clone: PyTree, log: Trajectory) -> Array:
        observation, legal, action = choices_of(log)
        reward, usable = time_as_stream((log.reward, log.active & log.settled & ~log.illegal))
        chosen = greedy(network.logits(params, observation, legal))
        scores = network.logits(reward_model, observation, legal)
        log_propensity = joint_log_prob(network.logits(clone, observation, legal), action)
        weight = jnp.minimum(jnp.exp(-log_propensity), LARGEST_WEIGHT) * _alike(chosen, action)
        of_chosen, of_logged = (_predicted_reward(scores, one, is_share) for one in (chosen, action))
        return weighted_mean(of_chosen + weight * (reward - of_logged), usable.astype(jnp.float32))

    return lambda params: float(value(params, state.actor, clone, held_out))


def _alike(one: PyTree, other: PyTree) -> Array:
    """1 where all leaves of two actions are equal, [seats, *streams]."""
    parts = jax.tree.leaves(jax.tree.map(jnp.equal, one, other))
    return jnp.all(jnp.stack(parts), axis=0).astype(jnp.float32)


def _predicted_reward(scores: PyTree, action: PyTree, is_share: bool) -> Array:
    """Rewards of choices by the direct method."""
    total = summed_action_value(scores, action)
    return jax.nn.sigmoid(total) if is_share else total
