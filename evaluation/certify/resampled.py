"""The measures as functions of unit weights, for the bootstrap.

With every weight 1 they equal `evaluation.certify.measures`. Resampling repeats rows and so increases every distance a
little; the floor is drawn with the same weights and increases as much, so differences are not biased by it.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np

from evaluation.certify.measures import PSEUDO_COUNT, held_out_scores, square_distances
from evaluation.certify.samples import Coding, Sample
from evaluation.comparison.bootstrap import Statistic, ratio_over_units

GRID = 512
"""Points at which distribution functions are compared, at most."""
REPLICATES_AT_ONCE = 64


class Units(NamedTuple):
    """Rows of a sample and the unit that each belongs to, [rows] in [0, number of units)."""

    sample: Sample
    unit: np.ndarray

    def take(self, rows: np.ndarray) -> "Units":
        """Some rows, by index or mask."""
        return Units(self.sample.take(rows), self.unit[rows])


def thinned(part: Units, max_rows: int, seed: int) -> Units:
    """At most `max_rows` rows, drawn by `seed`, in their order."""
    if len(part.unit) <= max_rows:
        return part
    kept = np.random.default_rng(seed).permutation(len(part.unit))[:max_rows]
    return part.take(np.sort(kept))


def kl_of_codes(
    one: np.ndarray,
    one_unit: np.ndarray,
    two: np.ndarray,
    two_unit: np.ndarray,
    num_codes: int,
    num_units: int,
) -> Statistic:
    """`KL(one || two)` in nats of codes [rows] in [0, num_codes)."""
    tables = [
        np.bincount(unit * num_codes + code, minlength=num_units * num_codes).reshape(num_units, num_codes)
        for code, unit in ((one, one_unit), (two, two_unit))
    ]

    def statistic(weights: np.ndarray) -> np.ndarray:
        counts = [weights @ table + PSEUDO_COUNT for table in tables]
        p, q = (count / count.sum(axis=1, keepdims=True) for count in counts)
        return np.asarray(np.sum(p * np.log(p / q), axis=1))

    return statistic


def column_kls(coding: Coding, one: Units, two: Units, num_units: int) -> dict[str, Statistic]:
    """KL of every column; continuous columns in the reference's quantile bins."""
    codes = coding.codes(one.sample), coding.codes(two.sample)
    return {
        name: kl_of_codes(
            codes[0][:, i], one.unit, codes[1][:, i], two.unit, coding.num_codes(name), num_units
        )
        for i, name in enumerate(coding.names)
    }


def pair_kls(coarse: Coding, one: Units, two: Units, num_units: int) -> dict[tuple[str, str], Statistic]:
    """KL of every pair of columns, over the cells that occur."""
    codes = coarse.codes(one.sample), coarse.codes(two.sample)
    sizes = [coarse.num_codes(name) for name in coarse.names]
    found = {}
    for (i, first), (j, second) in combinations(enumerate(coarse.names), 2):
        both = np.concatenate([part[:, i] * sizes[j] + part[:, j] for part in codes])
        seen, cell = np.unique(both, return_inverse=True)
        cut = len(one.unit)
        found[first, second] = kl_of_codes(cell[:cut], one.unit, cell[cut:], two.unit, len(seen), num_units)
    return found


def classifier_auc(coding: Coding, one: Units, two: Units, *, seed: int) -> Statistic:
    """Held-out area under the curve of a classifier between the samples; trained once, scores resampled."""
    features = np.concatenate([coding.matrix(part.sample) for part in (one, two)])
    label = np.repeat([0, 1], [len(one.unit), len(two.unit)])
    unit = np.concatenate([one.unit, two.unit])
    score = held_out_scores(features, label, min(len(one.unit), len(two.unit)), seed=seed)
    return area_under_curve(score, label, unit)


def area_under_curve(score: np.ndarray, label: np.ndarray, unit: np.ndarray) -> Statistic:
    """Probability that a row of label 1 scores higher than one of label 0 (ties count half), rows weighted by units."""
    levels, place = np.unique(score, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.searchsorted(place[order], np.arange(len(levels)))

    def some(weights: np.ndarray) -> np.ndarray:
        row = weights[:, unit[order]]
        above = np.add.reduceat(row * (label[order] == 1), starts, axis=1)
        below = np.add.reduceat(row * (label[order] == 0), starts, axis=1)
        beaten = np.cumsum(below, axis=1) - 0.5 * below
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((above * beaten).sum(axis=1) / (above.sum(axis=1) * below.sum(axis=1)))

    return _in_parts(some)


def kernel_distance(coding: Coding, one: Units, two: Units, num_units: int) -> Statistic:
    """Unbiased squared MMD under a Gaussian kernel of the first sample's median distance.

    Units drawn several times are not compared with their own copies.
    """
    rows = [coding.matrix(part.sample) for part in (one, two)]
    squares = square_distances(rows[0], rows[0])
    median = float(np.median(squares[np.triu_indices(len(rows[0]), 1)]))
    width = median if median > 0 else 1.0
    units = one.unit, two.unit
    sums = {
        (i, j): _by_unit(np.exp(-square_distances(rows[i], rows[j]) / width), units[i], units[j], num_units)
        for i, j in ((0, 0), (1, 1), (0, 1))
    }
    sizes = [np.bincount(unit, minlength=num_units).astype(float) for unit in units]

    def within(weights: np.ndarray, which: int) -> np.ndarray:
        kernel, size = sums[which, which], sizes[which]
        apart = kernel - np.diag(np.diag(kernel))
        pairs = np.outer(size, size) - np.diag(size**2)
        total = np.einsum("ri,ij,rj->r", weights, apart, weights) + weights @ (np.diag(kernel) - size)
        count = np.einsum("ri,ij,rj->r", weights, pairs, weights) + weights @ (size**2 - size)
        return np.asarray(total / count)

    def statistic(weights: np.ndarray) -> np.ndarray:
        across = np.einsum("ri,ij,rj->r", weights, sums[0, 1], weights)
        across /= (weights @ sizes[0]) * (weights @ sizes[1])
        return within(weights, 0) + within(weights, 1) - 2.0 * across

    return statistic


def distribution_distances(
    one: np.ndarray, one_unit: np.ndarray, two: np.ndarray, two_unit: np.ndarray, num_units: int
) -> tuple[Statistic, Statistic]:
    """Kolmogorov-Smirnov distance and relative earth mover's distance of two columns; unknown values are left out.

    Both on a grid of at most 512 quantiles of the values; the earth mover's distance over the first one's deviation.
    """
    known = [np.isfinite(values) for values in (one, two)]
    values = [one[known[0]], two[known[1]]]
    units = [one_unit[known[0]], two_unit[known[1]]]
    pooled = np.unique(np.concatenate(values))
    grid = pooled if len(pooled) <= GRID else np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, GRID)))
    spread = float(np.std(values[0])) or 1.0
    gaps = np.diff(grid)
    cells = [
        np.bincount(unit * len(grid) + np.searchsorted(grid, column), minlength=num_units * len(grid))
        for column, unit in zip(values, units, strict=True)
    ]
    tables = [cell.reshape(num_units, len(grid)) for cell in cells]

    def distance(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = [np.cumsum(weights @ table, axis=1) for table in tables]
            first, second = (share / share[:, -1:] for share in shares)
        return np.asarray(np.abs(first - second))

    def kolmogorov_smirnov(weights: np.ndarray) -> np.ndarray:
        return np.asarray(distance(weights).max(axis=1))

    def earth_mover(weights: np.ndarray) -> np.ndarray:
        return np.asarray(distance(weights)[:, :-1] @ gaps) / spread

    return kolmogorov_smirnov, earth_mover


def mean_of(values: np.ndarray, unit: np.ndarray, num_units: int) -> Statistic:
    """Mean of a column; unknown values are left out."""
    known = np.isfinite(values)
    total = np.bincount(unit[known], weights=values[known], minlength=num_units)
    return ratio_over_units(total, np.bincount(unit[known], minlength=num_units))


def _by_unit(kernel: np.ndarray, row_unit: np.ndarray, column_unit: np.ndarray, num_units: int) -> np.ndarray:
    """[units, units] sums of a kernel matrix over the rows and columns of every pair of units."""
    member = [np.eye(num_units)[unit] for unit in (row_unit, column_unit)]
    return np.asarray(member[0].T @ kernel @ member[1])


def _in_parts(some: Statistic) -> Statistic:
    """The same statistic, a few replicates at a time, so that memory stays small."""

    def all_of(weights: np.ndarray) -> np.ndarray:
        starts = range(0, len(weights), REPLICATES_AT_ONCE)
        return np.concatenate([some(weights[start : start + REPLICATES_AT_ONCE]) for start in starts])

    return all_of
