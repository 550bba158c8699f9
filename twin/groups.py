"""Several groups of seats in one environment, each with its own observation, actions, reward and clock.

Dispatchers decide in every slot, an orchestrator once a frame. Such a problem names its groups (`Problem.groups`), and
whatever goes by seat is a mapping from group to what a problem of that group alone would have. A group's seats are
inactive at the steps between its decisions; `of_group` leaves those steps out, so that every learner can learn of it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from twin.contracts import Array, Problem, PyTree, Trajectory


def by_group(problem: Problem, function: Callable[..., Any], *trees: PyTree) -> Any:
    """`function` (number of seats, *trees) of every group's part, as a mapping; of the whole without groups."""
    if not problem.groups:
        return function(problem.num_seats, *trees)
    parts = problem.groups.items()
    return {name: function(num_seats, *(tree[name] for tree in trees)) for name, num_seats in parts}


def of_group(trajectory: Trajectory, name: str, num_steps: int | None = None) -> Trajectory:
    """What one group did, on its own clock: a step is a step at which one of its seats decides.

    The time until the next such step is its `elapsed_s`; an end in between is an end of the step. Streams with fewer
    decisions are padded with inactive steps.

    Args:
        trajectory: Of an environment with groups.
        name: Of the group.
        num_steps: Length of what is returned, at least the most decisions of a stream (later ones are left out); that
            of the trajectory if not given.

    Returns:
        A trajectory as of a problem without groups; the global observation is the one that all groups share.

    Raises:
        ConfigError: There is no such group, or no such number of steps.
    """
    names: list[str] = list(trajectory.active) if isinstance(trajectory.active, dict) else []
    length = trajectory.elapsed_s.shape[0]
    num_steps = length if num_steps is None else num_steps
    if name not in names or not 0 < num_steps <= length:
        raise ConfigError(
            f"{num_steps} steps of a group {name!r}",
            where="of_group",
            allowed=f"1 to {length} steps of one of {names}",
        )
    at, following = _own_steps(jnp.any(trajectory.active[name], axis=1), num_steps)

    def own(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: _rows(leaf, at), tree)

    own_parts = {
        field: own(getattr(trajectory, field)[name])
        for field in (
            "observation",
            "legal",
            "active",
            "action",
            "reward",
            "settled",
            "decision_info",
            "outcome",
            "illegal",
        )
    }
    seen = jnp.concatenate([at[:1], following])
    clock_s = _since_start(trajectory.elapsed_s)
    num_ends = _since_start(trajectory.terminated.astype(jnp.int32))
    decides = jnp.any(own_parts["active"], axis=1)
    return Trajectory(
        **own_parts,
        global_observation=jax.tree.map(lambda leaf: _rows(leaf, seen), trajectory.global_observation),
        elapsed_s=jnp.where(decides, _rows(clock_s, following) - _rows(clock_s, at), 0.0),
        terminated=decides & (_rows(num_ends, following) > _rows(num_ends, at)),
        done=_rows(trajectory.done, following - 1),
        response_aux=None if trajectory.response_aux is None else own(trajectory.response_aux[name]),
    )


def _own_steps(decides: Array, num_steps: int) -> tuple[Array, Array]:
    """Steps [num_steps, *streams] at which a group decides, then others; and what follows each, `T` after the last.

    Args:
        decides: [T, *streams] bool.
        num_steps: How many are wanted.
    """
    length = decides.shape[0]
    order = jnp.argsort(~decides, axis=0, stable=True).astype(jnp.int32)
    number = jnp.arange(1, length + 1, dtype=jnp.int32).reshape((-1,) + (1,) * (decides.ndim - 1))
    later = jnp.concatenate([order[1:], jnp.full_like(order[:1], length)])
    following = jnp.where(number < jnp.sum(decides, axis=0, dtype=jnp.int32)[None], later, length)
    return order[:num_steps], following[:num_steps]


def _rows(leaf: Array, row: Array) -> Array:
    """Rows [N, *streams] of leaves [T, ..., *streams]."""
    between = (1,) * (leaf.ndim - row.ndim)
    index = row.reshape(row.shape[:1] + between + row.shape[1:])
    return jnp.take_along_axis(leaf, index, axis=0)


def _since_start(value: Array) -> Array:
    """Sums [T + 1, *streams] of what came before each step."""
    return jnp.concatenate([jnp.zeros_like(value[:1]), jnp.cumsum(value, axis=0)])
