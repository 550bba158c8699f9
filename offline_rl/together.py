"""Several groups of seats learn, each by an algorithm of its own, from trajectories that they make together.

KaiS trains its dispatchers and its orchestrator so (Han et al. 2021). To every group the others are part of the system.
"""

from collections.abc import Callable, Mapping

import jax

from offline_rl.algorithm import Algorithm
from offline_rl.networks import Example
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.groups import of_group


def group_example(example: Example, name: str) -> Example:
    """The shapes of one group's observations, of those of an environment with groups."""
    return Example(example.observation[name], example.legal[name], example.global_observation)


def together(learners: Mapping[str, Algorithm], num_steps: Mapping[str, int] | None = None) -> Algorithm:
    """One algorithm of an environment with groups, made of one for each.

    Args:
        learners: Group -> what learns its policy, on its own clock (`twin.groups.of_group`); made for `group_example`.
        num_steps: Group -> most decisions of a trajectory, for groups that decide rarely; all steps if not given.

    Returns:
        The algorithm; its state, info and actions are mappings by group.
    """
    lengths = num_steps or {}

    def keys(key: Array) -> dict[str, Array]:
        return dict(zip(learners, jax.random.split(key, len(learners)), strict=True))

    def init(key: Array) -> PyTree:
        return {name: learners[name].init(one) for name, one in keys(key).items()}

    def step(key: Array, state: PyTree, trajectory: Trajectory) -> tuple[PyTree, PyTree]:
        pairs = {
            name: learners[name].step(one, state[name], of_group(trajectory, name, lengths.get(name)))
            for name, one in keys(key).items()
        }
        return {name: pair[0] for name, pair in pairs.items()}, {
            name: pair[1] for name, pair in pairs.items()
        }

    def joint(policies: Mapping[str, Policy]) -> Policy:
        def policy(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
            return {
                name: policies[name](one, observation[name], legal[name]) for name, one in keys(key).items()
            }

        return policy

    def by(kind: Callable[[Algorithm], Callable[[PyTree], Policy]]) -> Callable[[PyTree], Policy]:
        return lambda state: joint({name: kind(learners[name])(state[name]) for name in learners})

    return Algorithm(init, step, by(lambda one: one.policy), by(lambda one: one.greedy))
