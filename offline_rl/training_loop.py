"""The one training loop: experience in, updates out, whatever the algorithm and wherever the experience comes
from.

`experience(key, policy)` returns a trajectory: a random part of the logs, or a fresh rollout in a twin.
Update `u` is driven by `fold_in(key, u)`, so that a run cut into chunks, stopped and resumed computes the
same bits as one run.
"""

from collections.abc import Callable
from functools import cache, lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from offline_rl.algorithm import Algorithm, num_streams_of
from offline_rl.errors import TrainingError
from twin.contracts import Array, Environment, Policy, PyTree, Streams, Trajectory
from twin.fitting_loop import is_finite
from twin.rollout import rollout

Experience = Callable[[Array, Policy], Trajectory]


def from_logs(trajectory: Trajectory, num_streams: int) -> Experience:
    """Experience from logs: at every update a random `num_streams` of the trajectory's streams, drawn without
    replacement; the policy is ignored.

    Raises:
        TrainingError: The trajectory has fewer streams.
    """
    available = num_streams_of(trajectory)
    if not 0 < num_streams <= available:
        raise TrainingError(
            f"cannot draw {num_streams} streams from a trajectory of {available}",
            allowed=f"1 to {available}",
            advice="lower num_streams, or cut the log into more windows",
        )

    return Partial(_some_of(available, num_streams), trajectory)


@cache  # a compiled loop knows its experience by this function
def _some_of(available: int, num_streams: int) -> Callable[[Trajectory, Array, Policy], Trajectory]:
    def draw(whole: Trajectory, key: Array, _policy: Policy) -> Trajectory:
        chosen = jax.random.choice(key, available, (num_streams,), replace=False)
        return jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=-1), whole)

    return draw


def in_twin(environment: Environment, num_steps: int, streams: Streams) -> Experience:
    """Experience from rollouts of the learning policy in an environment, `num_steps` long in each of
    `streams`, which the devices of the machine share."""

    def act(key: Array, policy: Policy) -> Trajectory:
        return rollout(key, environment, policy, num_steps, streams, over_devices=True)

    return Partial(act)


def train(
    key: Array, algorithm: Algorithm, experience: Experience, num_updates: int
) -> tuple[PyTree, PyTree]:
    """Trains from scratch in one jitted loop.

    Args:
        key: PRNG key; the same key gives the same bits.
        algorithm: What learns.
        experience: What it learns from.
        num_updates: Length `U` of the run.

    Returns:
        The last state, and the info of every update, leaves [U].
    """
    key_init, key_updates = jax.random.split(key)
    state = jax.jit(algorithm.init)(key_init)
    return updates(algorithm, num_updates)(key_updates, state, as_argument(experience), 0)


# The seeds of one algorithm share one traced program, beside another that trains meanwhile
@lru_cache(maxsize=2)
def updates(algorithm: Algorithm, num_updates: int) -> Callable[..., tuple[PyTree, PyTree]]:
    """The jitted loop `(key, state, experience, first, count=num_updates) -> state, info [num_updates]` of the updates
    first, first + 1, ..., first + count - 1; info beyond `count` is zero.

    The count is an argument of the program, so that a compiler cannot treat short runs differently: however a run is
    cut, every update computes the same bits.
    """

    @jax.jit
    def run(
        key: Array, state: PyTree, experience: Experience, first: Array, count: Array
    ) -> tuple[PyTree, PyTree]:
        @partial(jax.jit, inline=True)  # traced once, for its shapes and for the loop
        def one(state: PyTree, update: Array) -> tuple[PyTree, PyTree]:
            key_experience, key_step = jax.random.split(jax.random.fold_in(key, update))
            trajectory = experience(key_experience, algorithm.policy(state))
            return algorithm.step(key_step, state, trajectory)

        def body(index: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
            state, curves = carry
            state, info = one(state, first + index)
            return state, jax.tree.map(lambda curve, value: curve.at[index].set(value), curves, info)

        shapes = jax.eval_shape(one, state, first)[1]
        curves = jax.tree.map(lambda leaf: jnp.zeros((num_updates, *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, count, body, (state, curves))

    def call(
        key: Array, state: PyTree, experience: Experience, first: int, count: int = num_updates
    ) -> tuple[PyTree, PyTree]:
        return run(key, state, experience, jnp.int32(first), jnp.int32(count))

    return call


def first_updates(info: PyTree, length: int) -> PyTree:
    """The info of the first `length` updates, as NumPy arrays."""
    return jax.tree.map(lambda curve: np.asarray(curve)[:length], info)


def no_curves(chunk: Callable[..., tuple[PyTree, PyTree]], *arguments: PyTree) -> PyTree:
    """The info of no update, leaves [0, ...], of what `updates` returned and its first three arguments."""
    shapes = jax.eval_shape(chunk, *arguments, 0)[1]
    return jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape[1:]), leaf.dtype), shapes)


def as_argument(experience: Experience) -> Experience:
    """An experience whose data travel as arguments of the program, not as constants inside it."""
    return experience if isinstance(experience, Partial) else Partial(experience)


def refuse_divergence(state: PyTree, info: PyTree, first: int) -> None:
    """Makes sure that the info of some updates, and the state after them, are finite.

    Raises:
        TrainingError: They are not; names the first such update.
    """
    bad = np.zeros(len(jax.tree.leaves(info)[0]), bool)
    for curve in jax.tree.leaves(info):
        bad |= ~np.isfinite(curve.reshape(len(bad), -1)).all(axis=1)
    if bad.any() or not is_finite(state):
        update = first + (int(np.argmax(bad)) if bad.any() else len(bad) - 1)
        raise TrainingError(
            f"training diverged: numbers are not finite from update {update} on",
            where=f"updates {first} to {first + len(bad) - 1}; what was kept before them is intact",
            advice="lower the learning rate, check the features for infinite or huge values",
        )
