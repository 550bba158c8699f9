"""Networks that write agents: all columns at once, or one column after the other.

Levels are drawn by the Gumbel trick, so that gradients reach the generator through the draw: `hard` carries the
one-hot of the largest entry forward and the gradient of the relaxed draw backward (straight-through), `soft` is the
relaxed draw. Statistics of a batch want `soft` (straight-through noise spoils a pairwise KL), adversaries want `hard`,
which looks like the real thing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, PyTree
from twin.networks import MLP, apply, shifted
from twin.population.encoding import AgentEncoding

NUM_RANK_BINS = 32
"""Bins in which the chain draws a rank; evenly within a bin."""
SETTLING_STEPS = 20
SMALLEST = 1e-7
"""Added to shares inside logarithms."""


class DrawnRows(NamedTuple):
    """Generated agents, [width, rows] twice."""

    hard: Array
    soft: Array


class AgentGenerator(NamedTuple):
    """A network that writes agents; pure functions."""

    init: Callable[[Array], PyTree]
    generate: Callable[[PyTree, Array, Array], DrawnRows]  # (parameters, key, conditions [conditions, rows])
    # (parameters, rows [width, rows], conditions) -> [rows] nats, ranks counted in bins; None where it has none
    log_likelihood: Callable[[PyTree, Array, Array], Array] | None
    # (parameters, rows, conditions) -> parameters with which every column is as frequent as in the rows
    settle: Callable[[PyTree, Array, Array], PyTree] | None


def draw_levels(key: Array, logits: Array, temperature: float) -> DrawnRows:
    """One-hot draws from `logits` [levels, rows], relaxed at `temperature`."""
    soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape)) / temperature, axis=0)
    levels = jnp.arange(logits.shape[0])[:, None]
    hard = (levels == jnp.argmax(soft, axis=0)[None]).astype(soft.dtype)
    return DrawnRows(soft + jax.lax.stop_gradient(hard - soft), soft)


def at_once(encoding: AgentEncoding, hidden: Sequence[int], noise: int, temperature: float) -> AgentGenerator:
    """Noise and conditions in, all columns out: the generator of Xiong et al.. Its likelihood is not known."""
    network = MLP(tuple(hidden), encoding.width)

    def init(key: Array) -> PyTree:
        return network.init(key, jnp.zeros((noise + encoding.num_conditions, 1)))

    def generate(parameters: PyTree, key: Array, conditions: Array) -> DrawnRows:
        key_noise, key_levels = jax.random.split(key)
        drawn = jax.random.normal(key_noise, (noise, conditions.shape[1]))
        outputs = apply(network, parameters, jnp.concatenate([drawn, conditions]))
        keys = jax.random.split(key_levels, len(encoding.blocks))
        parts = []
        for block, key_block in zip(encoding.blocks, keys, strict=True):
            part = outputs[block.start : block.start + block.width]
            rank = jnp.tanh(part)
            parts.append(
                draw_levels(key_block, part, temperature) if block.one_hot else DrawnRows(rank, rank)
            )
        return DrawnRows(
            *(jnp.concatenate([getattr(part, name) for part in parts]) for name in DrawnRows._fields)
        )

    return AgentGenerator(init, generate, None, None)


class _Layout(NamedTuple):
    """Where the heads of a chain read and write; arrays."""

    sees: np.ndarray  # [heads, conditions + width] 1 for the conditions and the columns before its own
    start: np.ndarray  # [heads] first row of its column
    is_rank: np.ndarray  # [heads] bool
    unused: np.ndarray  # [heads, room, 1] -inf at outputs that it does not have, else 0
    room: int  # outputs of the widest head


def _layout(encoding: AgentEncoding) -> _Layout:
    blocks, before = encoding.blocks, encoding.num_conditions
    widths = np.array([block.width if block.one_hot else NUM_RANK_BINS for block in blocks])
    start = np.array([block.start for block in blocks])
    sees = np.arange(before + encoding.width)[None] < before + start[:, None]
    room = int(widths.max())
    unused = np.where(np.arange(room)[None] < widths[:, None], 0.0, -np.inf)[:, :, None].astype(np.float32)
    return _Layout(
        sees.astype(np.float32), start, np.array([not block.one_hot for block in blocks]), unused, room
    )


def in_chain(encoding: AgentEncoding, hidden: Sequence[int], temperature: float) -> AgentGenerator:
    """One column after the other, each given the conditions and the columns before it.

        p(x | c) = product over columns k of  p(x_k | x_1 ... x_k-1, c)

    so the likelihood is known, and with it the KL of whole rows: `KL(data || p)` is the mean negative log-likelihood
    less a constant. A search that stops early leaves columns off by a little: `settle` moves the biases of every head
    until, over all training rows, each level is predicted as often as it occurs. Ranks are drawn in `NUM_RANK_BINS`
    bins. Every column has a head of its own; the heads are one network mapped over stacked parameters, blind to what
    comes later, so that one small program serves any table.
    """
    layout, width = _layout(encoding), encoding.width
    network = MLP(tuple(hidden), layout.room)

    def init(key: Array) -> PyTree:
        size = encoding.num_conditions + width
        return jax.vmap(lambda one: network.init(one, jnp.zeros((size, 1))))(
            jax.random.split(key, len(layout.start))
        )

    def logits(parameters: PyTree, sees: Array, unused: Array, conditions: Array, rows: Array) -> Array:
        """[room, rows] of one head."""
        return apply(network, parameters, jnp.concatenate([conditions, rows]) * sees[:, None]) + unused

    def generate(parameters: PyTree, key: Array, conditions: Array) -> DrawnRows:
        num_rows = conditions.shape[1]

        def write(before: DrawnRows, head: tuple) -> tuple[DrawnRows, None]:
            own, key_head, sees, start, is_rank, unused = head
            key_level, key_within = jax.random.split(key_head)
            level_logits = logits(own, sees, unused, conditions, before.hard[:width])
            drawn = draw_levels(key_level, level_logits, temperature)
            within = 2.0 * (jax.random.uniform(key_within, (1, num_rows)) - 0.5) / NUM_RANK_BINS
            first = jnp.arange(layout.room)[:, None] == 0
            parts = (
                jnp.where(is_rank, jnp.where(first, _centres(codes[:bins]) + within, 0.0), codes)
                for codes in drawn
            )
            after = (
                jax.lax.dynamic_update_slice(whole, part, (start, 0))  # what it writes beyond its column, the
                for whole, part in zip(before, parts, strict=True)  # next head writes over
            )
            return DrawnRows(*after), None

        bins = min(NUM_RANK_BINS, layout.room)
        empty = jnp.zeros((width + layout.room, num_rows))
        keys = jax.random.split(key, len(layout.start))
        heads = (parameters, keys, *(jnp.asarray(part) for part in layout[:4]))
        drawn, _ = jax.lax.scan(write, DrawnRows(empty, empty), heads)
        return DrawnRows(*(part[:width] for part in drawn))

    def log_likelihood(parameters: PyTree, rows: Array, conditions: Array) -> Array:
        def of_head(own: PyTree, sees: Array, start: Array, is_rank: Array, unused: Array) -> Array:
            log_probabilities = jax.nn.log_softmax(logits(own, sees, unused, conditions, rows), axis=0)
            codes = _codes(rows, start, is_rank, layout.room)
            return jnp.sum(jnp.where(unused == 0.0, codes * log_probabilities, 0.0), axis=0)

        parts = (jnp.asarray(part) for part in layout[:4])
        return jnp.sum(jax.vmap(of_head)(parameters, *parts), axis=0)

    @jax.jit
    def settle(parameters: PyTree, rows: Array, conditions: Array) -> PyTree:
        def of_head(head: tuple) -> PyTree:
            own, sees, start, is_rank, unused = head
            wanted = _codes(rows, start, is_rank, layout.room).mean(axis=1)
            level_logits = logits(own, sees, unused, conditions, rows)
            return shifted(own, f"Dense_{len(hidden)}", _bias(level_logits, wanted, unused[:, 0] == 0.0))

        parts = (jnp.asarray(part) for part in layout[:4])
        return jax.lax.map(of_head, (parameters, *parts))  # one after the other: all rows at once are many

    return AgentGenerator(init, generate, log_likelihood, settle)


def _centres(codes: Array) -> Array:
    """[1, rows] rank in the middle of the bin that codes [bins, rows] name."""
    centre = (2.0 * jnp.arange(codes.shape[0]) + 1.0) / NUM_RANK_BINS - 1.0
    return jnp.sum(codes * centre[:, None], axis=0, keepdims=True)


def _bias(logits: Array, wanted: Array, is_used: Array) -> Array:
    """[room] what to add to the `logits` [room, rows] so that the levels in use are as frequent as `wanted` [room]."""

    def step(bias: Array, _: None) -> tuple[Array, None]:
        found = jax.nn.softmax(logits + bias[:, None], axis=0).mean(axis=1)
        move = jnp.log(wanted + SMALLEST) - jnp.log(found + SMALLEST)
        return bias + jnp.where(is_used, move, 0.0), None

    return jax.lax.scan(step, jnp.zeros(len(wanted)), None, length=SETTLING_STEPS)[0]


def _codes(rows: Array, start: Array, is_rank: Array, room: int) -> Array:
    """[room, rows] one-hot of the column that begins at row `start`, a rank's by its bin; what is behind it is any."""
    padded = jnp.concatenate([rows, jnp.zeros((room, rows.shape[1]))])
    column = jax.lax.dynamic_slice(padded, (start, 0), (room, padded.shape[1]))
    return jnp.where(is_rank, _bins(column[:1], room), column)


def _bins(rank: Array, room: int) -> Array:
    """[room, rows] one-hot of the bin of ranks [1, rows]."""
    index = jnp.clip(jnp.floor((rank + 1.0) / 2.0 * NUM_RANK_BINS), 0, NUM_RANK_BINS - 1)
    return (jnp.arange(room)[:, None] == index).astype(rank.dtype)
