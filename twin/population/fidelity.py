"""Fidelity to agents that training has not seen: what early stopping goes by, instead of a loss.

Mean KL over all pairs of columns, scenario and part of the day among them, on coarse codes, in nats; and how much of
the real mass lies on codes that are generated at all. The certificate has finer measures; these are cheap.
"""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import jax
import numpy as np

from twin.contracts import Array
from twin.population.encoding import NUM_PARTS, AgentEncoding

NUM_BINS = 8
PSEUDO_COUNT = 0.5
NUM_GENERATED = 4096


class GeneratorFidelity(NamedTuple):
    """How one look at a generator went."""

    pairs: float  # mean KL of pairs, nats
    coverage: float  # share of the real mass, over all columns, on levels that are generated


def coarse_codes(
    encoding: AgentEncoding, rows: np.ndarray, conditions: np.ndarray
) -> tuple[np.ndarray, list[int]]:
    """int [columns, rows] codes of every generated column and of the conditions, and how many codes each has."""
    found, sizes = [], []
    for block in encoding.blocks:
        part = rows[block.start : block.start + block.width]
        if block.one_hot:
            found.append(np.argmax(part, axis=0))
            sizes.append(block.width)
        else:
            found.append(np.clip((part[0] + 1.0) / 2.0 * NUM_BINS, 0, NUM_BINS - 1).astype(int))
            sizes.append(NUM_BINS)
    cell = encoding.cells(conditions)
    found += [cell // NUM_PARTS, cell % NUM_PARTS]
    return np.stack(found), [*sizes, len(encoding.scenarios), NUM_PARTS]


def mean_pairwise_kl(real: np.ndarray, generated: np.ndarray, sizes: list[int]) -> float:
    """Mean over pairs of rows of codes [columns, agents] of `KL(real || generated)`, nats, over cells of either."""
    total = []
    for i, j in combinations(range(len(sizes)), 2):
        cells = sizes[i] * sizes[j]
        one, two = (
            np.bincount(codes[i] * sizes[j] + codes[j], minlength=cells) for codes in (real, generated)
        )
        seen = one + two > 0
        p, q = (count[seen] + PSEUDO_COUNT for count in (one, two))
        p, q = p / p.sum(), q / q.sum()
        total.append(float(np.sum(p * np.log(p / q))))
    return float(np.mean(total))


class Reference(NamedTuple):
    """Real agents that training has not seen."""

    encoding: AgentEncoding
    codes: np.ndarray
    sizes: list[int]
    conditions: np.ndarray  # [conditions, generated] those of the real agents, repeated

    @staticmethod
    def of(encoding: AgentEncoding, rows: np.ndarray, conditions: np.ndarray) -> "Reference":
        """The reference of encoded agents."""
        codes, sizes = coarse_codes(encoding, rows, conditions)
        return Reference(encoding, codes, sizes, np.resize(conditions.T, (NUM_GENERATED, len(conditions))).T)

    def judge(self, key: Array, draw: Callable[[Array, np.ndarray], Array]) -> GeneratorFidelity:
        """How agents drawn by `draw(key, conditions)` compare."""
        drawn = np.asarray(jax.device_get(draw(key, self.conditions)))
        generated, _ = coarse_codes(self.encoding, drawn, self.conditions)
        covered = []
        for row, size in enumerate(self.sizes[: len(self.encoding.blocks)]):
            present = np.bincount(generated[row], minlength=size) > 0
            covered.append(float(np.mean(present[self.codes[row]])))
        return GeneratorFidelity(mean_pairwise_kl(self.codes, generated, self.sizes), float(np.mean(covered)))
