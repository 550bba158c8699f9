"""Logged requests as padded arrays: windows of consecutive requests, each with what was in flight at its start.

A window is an episode of replayed arrivals. Because it begins with the logged state of that moment, rollouts branch
off from real states however short they are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, PyTree, Streams
from twin.placement.responses import Arrivals, First, Next, Pending
from twin.placement.run_filter import NodeLevel
from twin.placement.types import EMPTY, Carried, Fate, Leaf, PlacementState, Requests


class Windows(NamedTuple):
    """`W` windows of at most `T` requests; times in seconds since `origin_s` of the window."""

    request: Requests  # leaves [T, W], demand [resources, T, W]
    arrival_s: np.ndarray  # [T, W] float32
    length: np.ndarray  # [W] int32: requests in the window, at least 1; the rest is padding
    node: np.ndarray  # [T, W] int32: the logged decision, -1 where the log does not name it
    fate: Fate  # leaves [T, W]: what came of it, inf where not known (yet)
    carried: Carried  # leaves [rows, W]: what was in flight at the first arrival
    row: np.ndarray  # [T, W] int64: row of the request in the encoded days, -1 for padding
    origin_s: np.ndarray  # [W] float64: seconds since 1970 of the window's origin
    num_overflow: Leaf  # int: carried requests that found no slot
    level: NodeLevel  # leaves [2, nodes, W]: of every node, by the runs that ended before the window
    age_s: Leaf  # [W] float32: from the end of training to the window's origin, at least 0
    # None without cold starts: [services, nodes, W] when the last runs before the window should have ended, and [T, W]
    # what was expected of requests anywhere, with the start-up that was due
    last_end_s: Leaf | None = None
    filed_s: Leaf | None = None
    # [T, W] bool: whether it may have run before its start and been driven out; None where nothing is driven out
    driven_out: Leaf | None = None
    # [T, W] bool: whether it repeats a failed one; None where clients do not try again
    repeats: Leaf | None = None
    # [T, W] from its end until its agent's next request, below 0 where that overlapped it, inf where none is known;
    # None where agents do not await their answers
    think_s: Leaf | None = None
    # [T, W] the work that was done of every run by its end, or as far as the log goes; None where runs do not slow each
    # other (see `pace`)
    work_s: Leaf | None = None

    @property
    def num_windows(self) -> int:
        """Number of windows."""
        return self.arrival_s.shape[1]

    @property
    def num_steps(self) -> int:
        """Length of the longest window a rollout can follow."""
        return self.arrival_s.shape[0]

    def valid(self) -> np.ndarray:
        """[T, W] bool: which entries hold a request."""
        return np.arange(self.num_steps)[:, None] < self.length[None]


def _where_found(windows: Windows, take: Callable[[Leaf], Leaf]) -> dict[str, Leaf]:
    """What is taken of the leaves [T, W] that only some logs have, by name."""
    leaves = {
        name: getattr(windows, name) for name in ("filed_s", "driven_out", "repeats", "think_s", "work_s")
    }
    return {name: take(leaf) for name, leaf in leaves.items() if leaf is not None}


def select(windows: Windows, chosen: np.ndarray) -> Windows:
    """The windows named by `chosen` (indices or a mask along W)."""
    lone = windows._replace(num_overflow=np.zeros(windows.num_windows))  # so that every leaf ends with W
    return jax.tree.map(lambda leaf: leaf[..., chosen], lone)._replace(num_overflow=windows.num_overflow)


def joined(parts: Sequence[Windows]) -> Windows:
    """Windows of several stretches of a log side by side; no row of one is taken for a row of another."""
    num_steps = max(part.num_steps for part in parts)
    num_carried = max(len(part.carried.node) for part in parts)

    def padded() -> Iterator[Windows]:
        num_rows = 0
        for part in parts:
            wide = pad_windows(part, num_steps, part.num_windows, num_carried)
            row = np.where(wide.row >= 0, wide.row + num_rows, wide.row)
            num_rows = int(row.max(initial=num_rows - 1)) + 1
            yield wide._replace(row=row, num_overflow=np.zeros(part.num_windows))

    whole: Windows = side_by_side(padded(), sum(part.num_windows for part in parts))
    return whole._replace(num_overflow=sum(int(part.num_overflow) for part in parts))


def side_by_side(parts: Iterable[PyTree], size: int) -> PyTree:
    """One tree or more, side by side along the last axes of their arrays, `size` long in all: each is copied as it
    comes, so that no two of them need be in memory."""
    whole, begin = None, 0
    for part in parts:
        if whole is None:
            whole = jax.tree.map(lambda leaf: np.empty((*leaf.shape[:-1], size), leaf.dtype), part)
        end = begin + jax.tree.leaves(part)[0].shape[-1]
        for filled, leaf in zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True):
            filled[..., begin:end] = leaf
        begin = end
    assert whole is not None
    return whole


def with_room(carried: Carried, num_rows: int) -> Carried:
    """The same in at least so many rows; the added ones hold nothing."""
    more = max(0, num_rows - len(carried.node))

    def longer(leaf: np.ndarray) -> np.ndarray:
        return np.pad(leaf, [(0, 0)] * (leaf.ndim - 2) + [(0, more), (0, 0)])

    wide = jax.tree.map(longer, carried)
    held = np.arange(len(wide.node))[:, None] < len(carried.node)
    decision = np.where(held, wide.request.decision, EMPTY)
    return wide._replace(node=np.where(held, wide.node, -1), request=wide.request._replace(decision=decision))


def without_waiting(windows: Windows) -> Windows:
    """The same windows, begun with what runs alone: what waits as a window begins is left out.

    Where queues go before others, the last of them may wait for days, more of them under a worse scheduler. Episodes
    are far shorter: in each of them every policy would be held to the pile that the log's scheduler has left. So it
    is where failed requests come again: what piles up then is what has failed.
    """
    carried = windows.carried
    waits = (carried.node >= 0) & np.isinf(carried.request.start_s)
    request = carried.request._replace(decision=np.where(waits, EMPTY, carried.request.decision))
    return windows._replace(carried=carried._replace(node=np.where(waits, -1, carried.node), request=request))


def lengthened(windows: Windows, num_steps: int) -> Windows:
    """The same requests in longer windows, wherever windows that overlap show that one stretch of the log goes on.

    Args:
        windows: As `cut_windows` makes them, in the order of the log.
        num_steps: Requests per window.

    Returns:
        Windows without overlap, each beginning where one of the given ones does. The last of a stretch is left out
        where it is less than half as long as wanted, and not the only one.
    """
    first, picked = [], []
    for numbers in _stretches(windows):
        step, window = _once(windows, numbers)
        starts = np.searchsorted(windows.row[step, window], windows.row[0, numbers])
        begin = 0
        for number, start in zip(numbers.tolist(), starts.tolist(), strict=True):
            left = len(step) - start
            if start >= begin and (start == 0 or 2 * left >= num_steps):
                first.append(number)
                picked.append((step[start : start + num_steps], window[start : start + num_steps]))
                begin = start + num_steps
    length = np.array([len(step) for step, _ in picked], np.int32)
    at = np.minimum(np.arange(num_steps)[:, None], length[None] - 1)
    step, window = (
        np.stack([leaf[rows] for leaf, rows in zip(leaves, at.T, strict=True)], axis=1)
        for leaves in zip(*picked, strict=True)
    )
    return _gathered(windows, np.array(first), step, window, length)


def _stretches(windows: Windows) -> list[np.ndarray]:
    """The numbers of the windows of every stretch of the log: each overlaps the one before it."""
    begin, end = windows.row[0], windows.row[windows.length - 1, np.arange(windows.num_windows)]
    breaks = 1 + np.flatnonzero((begin[1:] <= begin[:-1]) | (begin[1:] > end[:-1]))
    return np.split(np.arange(windows.num_windows), breaks)


def _once(windows: Windows, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(step, window) of every request of a stretch, each in the first window that holds it."""
    inside = windows.valid()[:, numbers].T
    window, step = np.nonzero(inside)
    _, kept = np.unique(windows.row[step, numbers[window]], return_index=True)
    return step[kept], numbers[window[kept]]


def _gathered(
    windows: Windows, first: np.ndarray, step: np.ndarray, window: np.ndarray, length: np.ndarray
) -> Windows:
    """Windows of the requests at (step, window) [T, W], with clocks and beginnings of the windows `first`."""
    shift_s = (windows.origin_s[window] - windows.origin_s[first][None]).astype(np.float32)
    inside = np.arange(len(step))[:, None] < length[None]
    fate = jax.tree.map(lambda leaf: leaf[step, window], windows.fate)
    return select(windows, first)._replace(
        request=jax.tree.map(lambda leaf: leaf[..., step, window], windows.request),
        arrival_s=windows.arrival_s[step, window] + shift_s,
        length=length,
        node=np.where(inside, windows.node[step, window], -1),
        fate=fate._replace(start_s=fate.start_s + shift_s, finish_s=fate.finish_s + shift_s),
        row=np.where(inside, windows.row[step, window], -1),
        **_where_found(windows, lambda leaf: leaf[step, window]),
    )


class _Walk(NamedTuple):
    """A stream's way through its window."""

    step: Array  # [] int32
    arrival_s: Array  # [T, *streams]
    length: Array  # [*streams]
    request: Requests  # leaves [T, *streams]


def choose_windows(key: Array, num_windows: int, streams: Streams) -> Array:
    """Which window every stream walks through: each its own where there are as many streams, else drawn evenly."""
    if streams == (num_windows,):
        return jnp.arange(num_windows)
    return jax.random.randint(key, streams, 0, num_windows)


def take(tree: PyTree, window: Array) -> PyTree:
    """The chosen windows' part of leaves [..., W] -> [..., *streams]."""
    return jax.tree.map(lambda leaf: jnp.take(jnp.asarray(leaf), window, axis=-1, mode="clip"), tree)


def _at(leaf: Array, step: Array, axis_of_time: int, *, keepdims: bool) -> Array:
    step = step.astype(jnp.uint32)  # as in `fold_slots`
    return jax.lax.dynamic_index_in_dim(jnp.asarray(leaf), step, axis_of_time, keepdims)


def in_hand(request: Requests, step: Array) -> Requests:
    """The requests of one step, of leaves [..., T, *streams], with a seat axis: [..., 1, *streams]."""
    time = -np.ndim(request.site)
    return Requests(*jax.tree.map(lambda leaf: _at(leaf, step, time, keepdims=True), request))


def of_each(leaf: Array, place: Array) -> Array:
    """[..., *streams] of leaves [..., T, *streams], each stream at a `place` [*streams] of its own."""
    axis = leaf.ndim - place.ndim - 1
    where = jnp.broadcast_to(place, (*leaf.shape[:axis], 1, *place.shape))
    return jnp.squeeze(jnp.take_along_axis(leaf, where, axis=axis), axis)


def asked(request: Requests, place: Array) -> Requests:
    """As `in_hand`, each stream at a place [*streams] of its own."""
    found = jax.tree.map(
        lambda leaf: jnp.expand_dims(of_each(jnp.asarray(leaf), place), -1 - place.ndim), request
    )
    return Requests(*found)


def first_of(windows: Windows, window: Array, clock_s: Array, request: Requests) -> First:
    """How episodes in the chosen windows [*streams] begin, with these requests at their time."""
    return First(
        clock_s,
        request,
        jnp.ones((1, *window.shape), bool),
        jnp.zeros(window.shape, bool),
        take(windows.carried, window),
        take(windows.level, window),
        take(windows.age_s, window),
        take(windows.last_end_s, window),
    )


def replayed_arrivals(windows: Windows) -> Arrivals:
    """Arrivals from history: every stream walks through one window, in the logged order and at the logged times.

    With as many streams as windows each stream has its own; otherwise windows are drawn with replacement at reset.
    """

    def init(key: Array, streams: Streams) -> tuple[_Walk, First]:
        window = choose_windows(key, windows.num_windows, streams)
        walk = _Walk(
            jnp.int32(0),
            take(windows.arrival_s, window),
            take(windows.length, window),
            take(windows.request, window),
        )
        return walk, first_of(windows, window, walk.arrival_s[0], in_hand(walk.request, walk.step))

    def following(
        _key: Array, walk: _Walk, state: PlacementState, _fate: Fate, _pending: Pending
    ) -> tuple[_Walk, Next]:
        step = walk.step + 1
        done = step >= walk.length
        inside = jnp.minimum(step, walk.arrival_s.shape[0] - 1)
        clock_s = jnp.where(done, state.clock_s, _at(walk.arrival_s, inside, 0, keepdims=False))
        request = in_hand(walk.request, inside)
        return walk._replace(step=step), Next(clock_s, request, ~done[None], done)

    return Arrivals(init, following)


def pad_windows(windows: Windows, num_steps: int, num_windows: int, num_carried: int = 0) -> Windows:
    """The same windows in larger arrays; added windows repeat the first one, added steps the last entry, and added
    rows of what was in flight (`num_carried` at least) hold nothing."""
    step = np.minimum(np.arange(num_steps), windows.num_steps - 1)
    window = np.where(np.arange(num_windows) < windows.num_windows, np.arange(num_windows), 0)
    wide = select(windows, window)

    def longer(leaf: np.ndarray, axis: int) -> np.ndarray:
        return np.take(leaf, step, axis=axis)

    valid = np.arange(num_steps)[:, None] < wide.length[None]
    return wide._replace(
        request=jax.tree.map(lambda leaf: longer(leaf, -2), wide.request),
        arrival_s=longer(wide.arrival_s, 0),
        carried=with_room(wide.carried, num_carried),
        node=np.where(valid, longer(wide.node, 0), -1),
        fate=jax.tree.map(lambda leaf: longer(leaf, 0), wide.fate),
        row=np.where(valid, longer(wide.row, 0), -1),
        **_where_found(wide, lambda leaf: longer(leaf, 0)),
    )
