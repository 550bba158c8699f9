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

from twin.contracts import Array, PyTree
from twin.networks import MLP, apply
from twin.population.encoding import AgentEncoding

NUM_RANK_BINS = 32
"""Bins in which the chain draws a rank; evenly within a bin."""


class Drawn(NamedTuple):
    """Generated agents, [width, rows] twice."""

    hard: Array
    soft: Array


class Generator(NamedTuple):
    """A network that writes agents; pure functions."""

    init: Callable[[Array], PyTree]
    generate: Callable[[PyTree, Array, Array], Drawn]  # (parameters, key, conditions [conditions, rows])
    log_likelihood: Callable[[PyTree, Array, Array], Array] | None
    # (parameters, rows [width, rows], conditions) -> [rows] nats, ranks counted in bins; None where it has none


def draw_levels(key: Array, logits: Array, temperature: float) -> Drawn:
    """One-hot draws from `logits` [levels, rows], relaxed at `temperature`."""
    soft = jax.nn.softmax((logits + jax.random.gumbel(key, logits.shape)) / temperature, axis=0)
    levels = jnp.arange(logits.shape[0])[:, None]
    hard = (levels == jnp.argmax(soft, axis=0)[None]).astype(soft.dtype)
    return Drawn(soft + jax.lax.stop_gradient(hard - soft), soft)


def at_once(encoding: AgentEncoding, hidden: Sequence[int], noise: int, temperature: float) -> Generator:
    """Noise and conditions in, all columns out: the generator of paper 000. Its likelihood is not known."""
    network = MLP(tuple(hidden), encoding.width)

    def init(key: Array) -> PyTree:
        return network.init(key, jnp.zeros((noise + encoding.num_conditions, 1)))

    def generate(parameters: PyTree, key: Array, conditions: Array) -> Drawn:
        key_noise, key_levels = jax.random.split(key)
        drawn = jax.random.normal(key_noise, (noise, conditions.shape[1]))
        outputs = apply(network, parameters, jnp.concatenate([drawn, conditions]))
        keys = jax.random.split(key_levels, len(encoding.blocks))
        parts = []
        for block, key_block in zip(encoding.blocks, keys, strict=True):
            part = outputs[block.start : block.start + block.width]
            rank = jnp.tanh(part)
            parts.append(draw_levels(key_block, part, temperature) if block.one_hot else Drawn(rank, rank))
        return _stacked(parts)

    return Generator(init, generate, None)


def in_chain(encoding: AgentEncoding, hidden: Sequence[int], temperature: float) -> Generator:
    """One column after the other, each given the conditions and the columns before it.

        p(x | c) = product over columns k of  p(x_k | x_1 ... x_k-1, c)

    so the likelihood is known, and with it the KL of whole rows: `KL(data || p)` is the mean negative log-likelihood
    less a constant. Ranks are drawn in `NUM_RANK_BINS` bins.
    """
    blocks = encoding.blocks
    heads = [MLP(tuple(hidden), block.width if block.one_hot else NUM_RANK_BINS) for block in blocks]

    def init(key: Array) -> PyTree:
        sizes = [encoding.num_conditions + block.start for block in blocks]
        keys = jax.random.split(key, len(heads))
        return [
            head.init(one, jnp.zeros((size, 1))) for head, one, size in zip(heads, keys, sizes, strict=True)
        ]

    def generate(parameters: PyTree, key: Array, conditions: Array) -> Drawn:
        before, parts = conditions, []
        for block, head, own, key_block in zip(
            blocks, heads, parameters, jax.random.split(key, len(heads)), strict=True
        ):
            key_level, key_within = jax.random.split(key_block)
            drawn = draw_levels(key_level, apply(head, own, before), temperature)
            if not block.one_hot:
                within = jax.random.uniform(key_within, (1, conditions.shape[1])) - 0.5
                drawn = Drawn(*(_centres(codes) + 2.0 * within / NUM_RANK_BINS for codes in drawn))
            parts.append(drawn)
            before = jnp.concatenate([before, drawn.hard])
        return _stacked(parts)

    def log_likelihood(parameters: PyTree, rows: Array, conditions: Array) -> Array:
        total = jnp.zeros(rows.shape[1])
        for block, head, own in zip(blocks, heads, parameters, strict=True):
            logits = apply(head, own, jnp.concatenate([conditions, rows[: block.start]]))
            target = rows[block.start : block.start + block.width]
            codes = target if block.one_hot else _bins(target)
            total += jnp.sum(codes * jax.nn.log_softmax(logits, axis=0), axis=0)
        return total

    return Generator(init, generate, log_likelihood)


def _stacked(parts: Sequence[Drawn]) -> Drawn:
    return Drawn(*(jnp.concatenate([getattr(part, name) for part in parts]) for name in Drawn._fields))


def _centres(codes: Array) -> Array:
    """[1, rows] rank in the middle of the bin that codes [bins, rows] name."""
    centre = (2.0 * jnp.arange(NUM_RANK_BINS) + 1.0) / NUM_RANK_BINS - 1.0
    return jnp.sum(codes * centre[:, None], axis=0, keepdims=True)


def _bins(rank: Array) -> Array:
    """[bins, rows] one-hot of the bin of ranks [1, rows]."""
    index = jnp.clip(jnp.floor((rank + 1.0) / 2.0 * NUM_RANK_BINS), 0, NUM_RANK_BINS - 1)
    return (jnp.arange(NUM_RANK_BINS)[:, None] == index).astype(rank.dtype)
