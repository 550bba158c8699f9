"""Several groups of seats learn, each by an algorithm of its own, from trajectories that they make together.

KaiS trains its dispatchers and its orchestrator so (Han et al. 2021). To every group the others are part of the system,
which changes while they learn; where they learn in turns, it stands still meanwhile.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm
from offline_rl.networks import Example
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.groups import of_group


class TogetherState(NamedTuple):
    """What all groups know, and whose turn it is."""

    groups: dict[str, PyTree]  # group -> its learner's state
    update: Array  # [] int32: updates made


def group_example(example: Example, name: str) -> Example:
    """The shapes of one group's observations, of those of an environment with groups."""
    return Example(example.observation[name], example.legal[name], example.global_observation)


def together(
    learners: Mapping[str, Algorithm],
    num_steps: Mapping[str, int] | None = None,
    updates_per_turn: int | None = None,
) -> Algorithm:
    """One algorithm of an environment with groups, made of one for each.

    A group's policy is asked only where something is legal to it in some stream.

    Args:
        learners: Group -> what learns its policy, on its own clock (`twin.groups.of_group`); made for `group_example`.
        num_steps: Group -> most decisions of a trajectory, for groups that decide rarely; all steps if not given.
        updates_per_turn: Updates in which one group learns, before the next one does; the others act, and keep their
            state to the bit. None: all learn from every trajectory.

    Returns:
        The algorithm; info and actions are mappings by group. The info of a group that stands still is zero.
    """
    lengths = num_steps or {}

    def keys(key: Array) -> dict[str, Array]:
        return dict(zip(learners, jax.random.split(key, len(learners)), strict=True))

    def learns(name: str, update: Array) -> Array:
        place = list(learners).index(name)
        return (update // (updates_per_turn or 1)) % len(learners) == place

    def init(key: Array) -> TogetherState:
        return TogetherState(
            {name: learners[name].init(one) for name, one in keys(key).items()}, jnp.int32(0)
        )

    def one_step(name: str, key: Array, state: PyTree, trajectory: Trajectory) -> tuple[PyTree, PyTree]:
        return learners[name].step(key, state, of_group(trajectory, name, lengths.get(name)))

    def step(key: Array, state: TogetherState, trajectory: Trajectory) -> tuple[TogetherState, PyTree]:
        def learned(name: str, key: Array) -> tuple[PyTree, PyTree]:
            own = partial(one_step, name, key)
            if updates_per_turn is None:
                return own(state.groups[name], trajectory)
            info = _zeros(own, state.groups[name], trajectory)[1]
            return jax.lax.cond(
                learns(name, state.update), own, lambda kept, _: (kept, info), state.groups[name], trajectory
            )

        pairs = {name: learned(name, one) for name, one in keys(key).items()}
        groups, info = ({name: pair[part] for name, pair in pairs.items()} for part in (0, 1))
        return TogetherState(groups, state.update + 1), info

    def acting(kind: Callable[[Algorithm], Callable[[PyTree], Policy]], state: TogetherState) -> Policy:
        policies = {name: kind(one)(state.groups[name]) for name, one in learners.items()}

        def policy(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
            return {
                name: _where_legal(policies[name], one, observation[name], legal[name])
                for name, one in keys(key).items()
            }

        return policy

    return Algorithm(
        init, step, partial(acting, lambda one: one.policy), partial(acting, lambda one: one.greedy)
    )


def _where_legal(policy: Policy, key: Array, observation: PyTree, legal: PyTree) -> PyTree:
    """What a policy does, if anything is legal in any stream; else zeros, without the work."""
    is_any = jnp.any(jnp.stack([jnp.any(leaf) for leaf in jax.tree.leaves(legal)]))
    seen = (key, observation, legal)
    return jax.lax.cond(is_any, policy, lambda *_: _zeros(policy, *seen), *seen)


def _zeros(function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """Zeros of the shapes that a function returns."""
    return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), jax.eval_shape(function, *arguments))
