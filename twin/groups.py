"""Several groups of seats in one environment, each with its own observation, actions, reward and clock.

Dispatchers decide in every slot, an orchestrator once a frame. Such a problem names its groups (`Problem.groups`), and
whatever goes by seat is a mapping from group to what a problem of that group alone would have. A group's seats are
inactive at the steps between its decisions.
"""

from collections.abc import Callable
from typing import Any

from twin.contracts import Problem, PyTree


def by_group(problem: Problem, function: Callable[..., Any], *trees: PyTree) -> Any:
    """`function` (number of seats, *trees) of every group's part, as a mapping; of the whole without groups."""
    if not problem.groups:
        return function(problem.num_seats, *trees)
    parts = problem.groups.items()
    return {name: function(num_seats, *(tree[name] for tree in trees)) for name, num_seats in parts}
