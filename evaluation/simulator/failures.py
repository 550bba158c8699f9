"""Planned failures: outages of nodes, and delays of transfers.

When a node goes down, its waiting and running requests fail, and offers to it while it
is down fail at once; it comes back empty. A link that is down delays: a transfer that would begin meanwhile begins
when it is back, from all of its faults. A slow link stretches the transfers that begin meanwhile.
"""

from collections.abc import Iterator

import jax.numpy as jnp

from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.world import World
from twin.contracts import Array
from twin.placement.types import Leaf


def on_clock(world: World, today: DayConditions, begin_s: float | Array) -> DayConditions:
    """The day's numbers with the times of its failures on a clock that is zero at `begin_s` ([] or [*streams])."""
    if not (world.outages or world.link_faults):
        return today
    begin = jnp.asarray(begin_s, jnp.float32)

    def shifted(day_times: Leaf) -> Leaf:
        times = jnp.asarray(day_times)
        return times.reshape(times.shape + (1,) * begin.ndim) - begin[None, None]

    return today._replace(
        down_from_s=shifted(today.down_from_s),
        down_to_s=shifted(today.down_to_s),
        fault_from_s=shifted(today.fault_from_s),
        fault_to_s=shifted(today.fault_to_s),
    )


def _beside(day_windows: Leaf, streams_ndim: int) -> Array:
    """[places, failures, *streams or ones]."""
    windows = jnp.asarray(day_windows)
    return windows.reshape(windows.shape + (1,) * (2 + streams_ndim - windows.ndim))


def is_up(world: World, today: DayConditions, clock_s: Array) -> Array:
    """[nodes, *streams] bool: which nodes can take requests at `clock_s` [*streams]."""
    num_nodes = today.speed.shape[0]
    if not world.outages:
        return jnp.ones((num_nodes, *clock_s.shape), bool)
    from_s, to_s = (_beside(one, clock_s.ndim) for one in (today.down_from_s, today.down_to_s))
    down = jnp.any((from_s <= clock_s[None, None]) & (clock_s[None, None] < to_s), axis=1)
    return jnp.broadcast_to(~down, (num_nodes, *clock_s.shape))


def next_down_s(world: World, today: DayConditions, after_s: Array) -> Array:
    """[nodes, *streams] when each node goes down next after `after_s` [nodes, *streams]; inf: never."""
    if not world.outages:
        return jnp.full_like(after_s, jnp.inf)
    from_s = _beside(today.down_from_s, after_s.ndim - 1)
    return jnp.min(jnp.where(from_s > after_s[:, None], from_s, jnp.inf), axis=1)


def way_s(world: World, today: DayConditions, link: Array, begin_s: Array, undisturbed_s: Array) -> Array:
    """Time that a transfer takes which would begin at `begin_s`.

    Args:
        world: Whether links ever fail.
        today: The day's numbers, their failures on the clock of `begin_s`.
        link: int32 [*batch], kind of link.
        begin_s: [*batch]; its last axes are those of the failures' times.
        undisturbed_s: [*batch] what it takes on a sound link.

    Returns:
        [*batch] seconds, the wait for the link included.
    """
    if not world.link_faults:
        return undisturbed_s
    by_begin = sorted(enumerate(world.link_faults), key=lambda pair: pair[1].from_s)
    starts_s, stretch = begin_s, jnp.ones_like(undisturbed_s)
    for index, fault in by_begin:
        if fault.slowdown == float("inf"):
            for meets, to_s in _meetings(today, index, link, starts_s):
                starts_s = jnp.where(meets, to_s, starts_s)
    for index, fault in by_begin:
        if fault.slowdown < float("inf"):
            for meets, _ in _meetings(today, index, link, starts_s):
                stretch = jnp.where(meets, jnp.maximum(stretch, fault.slowdown), stretch)
    delay_s = jnp.where(starts_s > begin_s, starts_s - begin_s, 0.0)
    return delay_s + stretch * undisturbed_s


def _meetings(today: DayConditions, fault: int, link: Array, begin_s: Array) -> Iterator[tuple[Array, Array]]:
    """For every kind of link: [*batch] bool, which transfers would begin during a fault of the day, and its end."""
    for kind in range(today.fault_from_s.shape[0]):
        from_s, to_s = (jnp.asarray(one)[kind, fault] for one in (today.fault_from_s, today.fault_to_s))
        from_s, to_s = (one.reshape((1,) * (begin_s.ndim - one.ndim) + one.shape) for one in (from_s, to_s))
        yield (link == kind) & (begin_s >= from_s) & (begin_s < to_s), to_s
