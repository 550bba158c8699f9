"""Joint tables of columns, differentiable: what the KL and entropy terms of the generator are made of.

Every block becomes a few codes between 0 and 1 that add up to one: a one-hot block its own entries, a rank a soft
membership in `NUM_BINS` equal bins. The product of all codes with themselves, averaged over a batch, holds the joint
table of every pair of columns at once; their mean holds the marginals.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.population.encoding import AgentEncoding, Block

NUM_BINS = 10
SHARPNESS = 12.0
"""Of the soft bins, in bins: membership falls by `exp(-SHARPNESS * distance^2)`."""
SMALLEST = 1e-6
"""Added inside logarithms."""


class Tables(NamedTuple):
    """What a batch of agents looks like."""

    mean: Array  # [codes] marginals of all columns under one another
    joint: Array  # [codes, codes] mean of the products of codes


def soft_codes(blocks: tuple[Block, ...], rows: Array) -> Array:
    """[codes, rows] codes of every block under one another."""
    centre = (2.0 * jnp.arange(NUM_BINS)[:, None] + 1.0) / NUM_BINS - 1.0
    codes = []
    for block in blocks:
        part = rows[block.start : block.start + block.width]
        if not block.one_hot:
            distance = (jnp.broadcast_to(part, (NUM_BINS, part.shape[1])) - centre) * NUM_BINS / 2.0
            part = jax.nn.softmax(-SHARPNESS * distance**2, axis=0)
        codes.append(part)
    return jnp.concatenate(codes)


def tables(blocks: tuple[Block, ...], rows: Array) -> Tables:
    """The tables of agents [width, rows]."""
    codes = soft_codes(blocks, rows)
    return Tables(jnp.mean(codes, axis=1), codes @ codes.T / rows.shape[1])


def pair_share(encoding: AgentEncoding) -> np.ndarray:
    """[codes, codes] weight of every cell in a mean over pairs of columns: 0 within a column and below the diagonal.

    Where there is one column only, it is a pair with itself.
    """
    widths = [block.width if block.one_hot else NUM_BINS for block in encoding.blocks]
    column = np.repeat(np.arange(len(widths)), widths)
    num_pairs = len(widths) * (len(widths) - 1) // 2
    if num_pairs == 0:
        return np.ones((len(column), len(column)), np.float32)
    return (column[:, None] < column[None]).astype(np.float32) / num_pairs


def marginal_kl(num_columns: int, real: Tables, generated: Tables) -> Array:
    """Mean over columns of `KL(real || generated)`, nats."""
    return jnp.sum(_terms(real.mean, generated.mean)) / num_columns


def pairwise_kl(share: np.ndarray, real: Tables, generated: Tables) -> Array:
    """Mean over pairs of columns, weighted by `pair_share`, of `KL(real || generated)`, nats."""
    return jnp.sum(share * _terms(real.joint, generated.joint))


def marginal_entropy(num_columns: int, generated: Tables) -> Array:
    """Mean over columns of the entropy of their codes, nats."""
    return -jnp.sum(generated.mean * jnp.log(generated.mean + SMALLEST)) / num_columns


def _terms(real: Array, generated: Array) -> Array:
    return real * (jnp.log(real + SMALLEST) - jnp.log(generated + SMALLEST))
