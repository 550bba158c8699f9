"""The type of orchestrators, their runs, and what rules look up: the largest lack, nodes that can host or do."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from twin.contracts import Array, EnvironmentState, Response, Streams
from twin.environment import environment
from twin.orchestration.counts import Counts
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.frames import frame_problem

Orchestrate = Callable[[Array, FrameState], Scaling]
"""(key, state) -> the changes of the frame, leaves [H, *streams]."""


def played_frames(
    key: Array,
    case: EdgeCloud,
    frames: FrameConfig,
    response: Response,
    orchestrate: Orchestrate,
    num_frames: int,
    streams: Streams,
) -> Counts:
    """Totals [*streams] at the end of so many frames from the beginning of `response`, a `frame_response`."""
    system = environment(frame_problem(case, frames), response)

    def frame(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, None]:
        key_rule, key_frame = jax.random.split(key)
        return system.step(key_frame, state, orchestrate(key_rule, state.problem))[0], None

    key_reset, key_frames = jax.random.split(key)
    keys = jax.random.split(key_frames, num_frames)
    counts: Counts = jax.lax.scan(frame, system.reset(key_reset, streams), keys)[0].problem.counts
    return counts


def any_largest(key: Array | None, score: Array, allowed: Array) -> tuple[Array, Array]:
    """The allowed choice of the largest score, any of equals, and whether there is one.

    Args:
        key: For equals; None takes the first of them.
        score: [choices, *streams], finite.
        allowed: [choices, *streams] bool.

    Returns:
        int32 [*streams] (0 where there is none) and bool [*streams].
    """
    held = jnp.where(allowed, score, -jnp.inf)
    if key is None:
        return jnp.argmax(held, axis=0).astype(jnp.int32), jnp.any(allowed, axis=0)
    best = allowed & (held >= jnp.max(held, axis=0, keepdims=True))
    among = jnp.where(best, jax.random.uniform(key, best.shape), -1.0)
    return jnp.argmax(among, axis=0).astype(jnp.int32), jnp.any(allowed, axis=0)


def row_of(table: Array, index: Array) -> Array:
    """[..., *streams] the entry of `table` [choices, ..., *streams] at `index` [*streams]."""
    middle = table.ndim - 1 - index.ndim
    wide = index.reshape((1,) * (1 + middle) + index.shape)
    return jnp.take_along_axis(table, jnp.broadcast_to(wide, (1, *table.shape[1:])), axis=0)[0]


def host_score(case: EdgeCloud, state: FrameState, used_gib: Array, service: Array) -> tuple[Array, Array]:
    """Where another replica of a service could go.

    Args:
        case: The instance.
        state: The frame's state.
        used_gib: [nodes, *streams] memory taken, what this frame adds included.
        service: [*streams] int32.

    Returns:
        Share of the memory that would be left [nodes, *streams], and whether the node can host it: it is up, the rules
        allow it and there is room.
    """
    trailing = (1,) * service.ndim
    memory_gib = jnp.asarray(case.memory_gib).reshape((-1, *trailing))
    left_gib = memory_gib - used_gib - jnp.asarray(case.replica_gib)[service][None]
    hosts = jnp.moveaxis(jnp.asarray(case.hosts)[service], -1, 0)
    return left_gib / memory_gib, hosts & state.available & (left_gib >= -1e-4)
