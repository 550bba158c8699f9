"""Joint tables of columns, differentiable: what the KL and entropy terms of the generator are made of.

Every block becomes a few codes between 0 and 1 that add up to one: a one-hot block its own entries, a rank a soft
membership in `NUM_BINS` equal bins. The product of all codes with themselves, averaged over a batch, holds the joint
table of every pair of columns, and the marginals on its diagonal blocks.
"""

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.population.encoding import AgentEncoding, Block

NUM_BINS = 10
SMALLEST = 1e-6
"""Added inside logarithms."""
SHARPNESS = 12.0
"""Of the soft bins, in bins: membership falls by `exp(-SHARPNESS * distance^2)`."""


def soft_codes(blocks: tuple[Block, ...], rows: Array) -> tuple[list[Array], Array]:
    """Codes of every block, and all of them under one another; [codes, rows]."""
    centre = (2.0 * jnp.arange(NUM_BINS)[:, None] + 1.0) / NUM_BINS - 1.0
    codes = []
    for block in blocks:
        part = rows[block.start : block.start + block.width]
        if not block.one_hot:
            distance = (jnp.broadcast_to(part, (NUM_BINS, part.shape[1])) - centre) * NUM_BINS / 2.0
            part = jax.nn.softmax(-SHARPNESS * distance**2, axis=0)
        codes.append(part)
    return codes, jnp.concatenate(codes)


def joint_table(blocks: tuple[Block, ...], rows: Array) -> Array:
    """[codes, codes] mean of the products of codes over the rows."""
    _, codes = soft_codes(blocks, rows)
    return codes @ codes.T / rows.shape[1]


def bounds(encoding: AgentEncoding) -> list[tuple[int, int]]:
    """Where the codes of every block begin and end."""
    ends = np.cumsum([block.width if block.one_hot else NUM_BINS for block in encoding.blocks]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def marginal_kl(where: list[tuple[int, int]], real: Array, generated: Array) -> Array:
    """Mean over columns of `KL(real || generated)`, from joint tables."""
    parts = [_kl(jnp.sum(real[a:b, a:b], axis=1), jnp.sum(generated[a:b, a:b], axis=1)) for a, b in where]
    return jnp.mean(jnp.stack(parts))


def pairwise_kl(where: list[tuple[int, int]], real: Array, generated: Array) -> Array:
    """Mean over pairs of columns of `KL(real || generated)`; of the one column where there is only one."""
    if len(where) == 1:
        return marginal_kl(where, real, generated)
    parts = [
        _kl(real[a:b, c:d], generated[a:b, c:d]) for i, (a, b) in enumerate(where) for c, d in where[i + 1 :]
    ]
    return jnp.mean(jnp.stack(parts))


def marginal_entropy(where: list[tuple[int, int]], table: Array) -> Array:
    """Mean over columns of the entropy of their codes, nats."""
    parts = []
    for a, b in where:
        share = jnp.sum(table[a:b, a:b], axis=1)
        parts.append(-jnp.sum(share * jnp.log(share + SMALLEST)))
    return jnp.mean(jnp.stack(parts))


def _kl(real: Array, generated: Array) -> Array:
    return jnp.sum(real * (jnp.log(real + SMALLEST) - jnp.log(generated + SMALLEST)))
