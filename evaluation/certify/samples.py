"""Samples of the same columns, encoded as discrete codes and as a numeric matrix.

All samples are coded by the *reference* alone: continuous columns by its quantiles, categories by their names; values
that are not in the reference get a code of their own. So a measure compares the samples, never two codings.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from logs_schema.errors import ConfigError, first

NUM_BINS = 20
"""Quantile bins of a continuous column (Xiong et al.'s features; 20 as in the measurements this project began with)."""


@dataclass(frozen=True)
class Sample:
    """Columns of equal length: continuous ones float (NaN: unknown), categorical ones of any other kind.

    Attributes:
        continuous: Name -> [rows] float.
        categorical: Name -> [rows] labels.
    """

    continuous: Mapping[str, np.ndarray]
    categorical: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        lengths = {len(column) for column in (*self.continuous.values(), *self.categorical.values())}
        if len(lengths) != 1:
            raise ConfigError(
                "the columns of a sample have different lengths, or there is none",
                where=f"lengths {sorted(lengths)}",
                allowed="one or more columns, all of one length",
            )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter((*self.continuous.values(), *self.categorical.values()))))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns: continuous ones first."""
        return (*self.continuous, *self.categorical)

    def take(self, rows: np.ndarray) -> "Sample":
        """The sample of some rows, by index or mask."""
        return Sample(
            {name: column[rows] for name, column in self.continuous.items()},
            {name: column[rows] for name, column in self.categorical.items()},
        )


class Coding:
    """Coding of samples by a reference.

    Args:
        reference: The real sample.
        num_bins: Number of bins of a continuous column; fewer where its values repeat.

    Raises:
        ConfigError: The reference has fewer than two rows.
    """

    def __init__(self, reference: Sample, num_bins: int = NUM_BINS) -> None:
        if reference.num_rows < 2:
            raise ConfigError(
                f"a sample of {reference.num_rows} rows cannot be a reference", allowed="two rows or more"
            )
        inner = np.arange(1, num_bins) / num_bins
        self.edges: dict[str, np.ndarray] = {}
        self.grid: dict[str, np.ndarray] = {}
        for name, column in reference.continuous.items():
            known = np.sort(column[np.isfinite(column)])
            self.edges[name] = np.unique(np.quantile(known, inner)) if len(known) else np.zeros(0)
            self.grid[name] = known
        self.labels = {name: np.unique(column) for name, column in reference.categorical.items()}
        self.names = reference.names

    def num_codes(self, name: str) -> int:
        """Number of codes of a column; the last one is for values that are not in the reference."""
        if name in self.edges:
            return len(self.edges[name]) + 2
        return len(self.labels[name]) + 1

    def codes(self, sample: Sample) -> np.ndarray:
        """int64 [rows, columns] codes in [0, num_codes).

        Raises:
            ConfigError: The sample has other columns than the reference.
        """
        self._check(sample)
        coded = []
        for name in self.names:
            if name in self.edges:
                column = sample.continuous[name]
                code = np.searchsorted(self.edges[name], column, side="right")
                coded.append(np.where(np.isfinite(column), code, self.num_codes(name) - 1))
            else:
                column, labels = sample.categorical[name], self.labels[name]
                place = np.minimum(np.searchsorted(labels, column), len(labels) - 1)
                coded.append(np.where(labels[place] == column, place, self.num_codes(name) - 1))
        return np.stack(coded, axis=1).astype(np.int64)

    def matrix(self, sample: Sample) -> np.ndarray:
        """float [rows, features] for distances: ranks in [0, 1] within the reference, and unit vectors of categories
        scaled so that two different labels lie one apart."""
        self._check(sample)
        parts = []
        for name in self.names:
            if name in self.edges:
                grid, column = self.grid[name], sample.continuous[name]
                low = np.searchsorted(grid, column, side="left")
                rank = (low + np.searchsorted(grid, column, side="right")) / (2.0 * max(len(grid), 1))
                parts.append(np.where(np.isfinite(column), rank, -1.0)[:, None])
            else:
                parts.append((sample.categorical[name][:, None] == self.labels[name][None]) / np.sqrt(2.0))
        return np.concatenate(parts, axis=1).astype(float)

    def _check(self, sample: Sample) -> None:
        if set(sample.names) != set(self.names):
            raise ConfigError(
                "the samples have different columns",
                where=f"not in both: {first(sorted(set(sample.names) ^ set(self.names)))}",
                allowed=", ".join(self.names),
            )
