"""Rollouts: an environment and a policy, unrolled by one scan into a `Trajectory`.

Outcomes arrive late and under the number of the decision that earned them. While the scan runs they are only passed
out, one record for every seat and step; afterwards one scatter credits all of them at once. Decisions whose outcome is
not final at truncation are flagged (`settled` false), unless the response has drawn their fate already and fills it in.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from twin.contracts import Array, Environment, EnvironmentState, Policy, PyTree, Records, Streams, Trajectory
from twin.devices import can_spread, is_spread, spread, spreading
from twin.groups import by_group

Decide = Callable[[Array, PyTree, PyTree, PyTree], PyTree]


def rollout(
    key: Array,
    environment: Environment,
    policy: Policy,
    num_steps: int,
    streams: Streams = (),
    *,
    over_devices: bool = False,
) -> Trajectory:
    """One episode of at most `num_steps` steps in every stream, from a fresh reset.

    Args:
        key: PRNG key; the same key gives the same bits.
        environment: Where to act.
        policy: Decides from local observations.
        num_steps: Length `T` of the trajectory; streams that end earlier are padded with inactive steps.
        streams: Shape of the independent copies, for example `(256,)`.
        over_devices: Whether the devices of the machine share the streams (`twin.devices`), where they can.

    Returns:
        The trajectory, with late outcomes credited to the decisions that earned them.
    """

    def decide(key_policy: Array, observation: PyTree, legal: PyTree, _: None) -> PyTree:
        return policy(key_policy, observation, legal)

    if not (over_devices and len(streams) == 1 and can_spread(streams[0])):
        return unroll(key, environment, decide, None, num_steps, streams)
    with spreading():
        return unroll(key, environment, decide, None, num_steps, streams)


def follow(key: Array, environment: Environment, actions: PyTree, streams: Streams = ()) -> Trajectory:
    """One episode along prescribed actions, for example the logged ones.

    Args:
        key: PRNG key.
        environment: Where to act.
        actions: Leaves `[T, seats, *streams]`; values that are not legal are replaced and flagged by the environment.
        streams: Shape of the independent copies.
    """

    def decide(_key: Array, _observation: PyTree, _legal: PyTree, action: PyTree) -> PyTree:
        return action

    num_steps = jax.tree.leaves(actions)[0].shape[0]
    return unroll(key, environment, decide, actions, num_steps, streams)


def unroll(
    key: Array, environment: Environment, decide: Decide, actions: PyTree, num_steps: int, streams: Streams
) -> Trajectory:
    """The scan behind `rollout` and `follow`: `decide` gets what a policy gets and the step's prescribed action.

    Args:
        key: PRNG key.
        environment: Where to act.
        decide: (key, observation, legal, action) -> action.
        actions: Leaves [T, seats, *streams], handed to `decide` step by step; None where there are none.
        num_steps: Length `T`.
        streams: Shape of the independent copies.
    """

    def placed(tree: PyTree) -> PyTree:
        return spread(tree, streams[0]) if is_spread() else tree

    problem = environment.problem
    key_reset, key_steps = jax.random.split(key)

    def one(state: EnvironmentState, step: tuple[Array, PyTree]) -> tuple[EnvironmentState, tuple]:
        key_step, action = step
        key_policy, key_response = jax.random.split(key_step)
        before = state.problem
        observation, legal = problem.observe(before), problem.legal(before)
        active = by_group(problem, lambda _, acts: acts & ~state.done[None], problem.active(before))
        action = decide(key_policy, observation, legal, action)
        state, transition = environment.step(key_response, state, action)
        seen = (observation, problem.observe_global(before), legal, active)
        return placed(state), (seen, transition)

    first = placed(environment.reset(key_reset, streams))
    last, (seen, transition) = jax.lax.scan(one, first, (jax.random.split(key_steps, num_steps), actions))
    observation, global_observation, legal, active = seen
    bootstrap = problem.observe_global(last.problem)
    global_observation = jax.tree.map(
        lambda steps, end: jnp.concatenate([steps, end[None]]), global_observation, bootstrap
    )
    held = environment.settle(last)
    pairs = by_group(problem, lambda _, *arguments: credit(*arguments), transition.left, held, active)
    settled, outcome = (by_group(problem, lambda _, pair, part=part: pair[part], pairs) for part in (0, 1))
    reward = by_group(
        problem,
        lambda _, worth, final, acts: jnp.where(final & acts, worth, 0.0),
        problem.reward(transition.decision_info, outcome),
        settled,
        active,
    )
    return placed(Trajectory(
        observation, global_observation, legal, active, transition.action, reward, settled,
        transition.decision_info, outcome,
        transition.elapsed_s, transition.terminated, transition.done, transition.illegal, transition.response_aux,
    ))  # fmt: skip


def credit(left: Records, remaining: Records, active: Array) -> tuple[Array, PyTree]:
    """Credits late outcomes to the decisions that earned them.

    Args:
        left: Records that left the state, leaves `[T, rows, *streams]`.
        remaining: Records still held at the end, leaves `[rows, *streams]`.
        active: [T, seats, *streams], for its shape: decision `step * seats + seat`.

    Returns:
        settled [T, seats, *streams] and the outcome pytree, leaves [T, seats, *streams]; rows never settled are
        unsettled, their floats NaN and their integers -1.
    """
    num_steps, num_seats = active.shape[:2]
    streams = active.shape[2:]
    total, width = num_steps * num_seats, max(1, _size(streams))

    def flat(passed: Array, held: Array) -> Array:
        return jnp.concatenate([passed.reshape(-1, width), held.reshape(-1, width)])

    decision, settled, *leaves = (
        flat(passed, held)
        for passed, held in zip(jax.tree.leaves(left), jax.tree.leaves(remaining), strict=True)
    )
    # Out of range: dropped by the scatter
    row = jnp.where((decision >= 0) & (decision < total), decision, total)
    stream = jnp.broadcast_to(jnp.arange(width)[None], row.shape)

    def home(value: Array) -> Array:
        empty = jnp.full((total, width), _missing(value.dtype), value.dtype)
        if is_spread():
            filed = jax.vmap(lambda column, *new: column.at[new[0]].set(new[1], mode="drop"), 1, 1)(
                empty, row, value
            )
        else:
            filed = empty.at[row, stream].set(value, mode="drop")
        return filed.reshape((num_steps, num_seats, *streams))

    return home(settled), jax.tree.unflatten(
        jax.tree.structure(left.outcome), [home(leaf) for leaf in leaves]
    )


def _missing(dtype: jnp.dtype) -> float | int | bool:
    if jnp.issubdtype(dtype, jnp.floating):
        return float("nan")
    return False if dtype == jnp.bool_ else -1


def _size(streams: Streams) -> int:
    size = 1
    for length in streams:
        size *= length
    return size
