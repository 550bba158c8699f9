"""How one column of agents becomes numbers that a generator can write, and back.

    labels, amounts of few values    one-hot over the most frequent ones, one more for the others together
    amounts of many values           rank in the training rows, evenly spread over [-1, 1] (quantile transform)
    what others determine            not generated at all but looked up, so that it is never contradicted
    what never changes               not generated

Ranks are what mattered most in our measurements: a generator that writes raw amounts gets their tails and steps wrong.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from logs_schema.errors import first
from twin.population.errors import PopulationError

MAX_LEVELS = 128
GRID_SIZE = 2048
TIED_SHARE = 0.05
"""An amount whose neighbours in order are equal more often than this has steps: only logged values come back."""


@dataclass(frozen=True)
class Levels:
    """One-hot over levels; `rest` lists the values that share the last level, with their shares.

    Labels are strings, amounts floats (NaN is a level of its own).
    """

    name: str
    levels: tuple[Any, ...]
    rest: tuple[Any, ...]
    rest_share: tuple[float, ...]
    is_amount: bool

    @property
    def width(self) -> int:
        """Rows of the block."""
        return len(self.levels) + bool(self.rest)

    def encode(self, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """float32 [width, rows]; unseen values count as the rest, and are refused where there is none.

        Raises:
            PopulationError: A value was not in the training rows and there is no level for the rest.
        """
        index = np.full(len(values), -1)
        for place, level in enumerate(self.levels):
            index[_equal(values, level)] = place
        unseen = index < 0
        if unseen.any() and not self.rest:
            raise PopulationError(
                f"{int(unseen.sum())} values were not among the training rows",
                where=f"column {self.name}: {first(sorted(set(values[unseen].tolist())))}",
                allowed=first(self.levels),
                advice="fit the population on days that hold these values, or leave the rows out",
            )
        index = np.where(unseen, len(self.levels), index)
        return (index[None] == np.arange(self.width)[:, None]).astype(np.float32)

    def decode(self, block: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """[rows] values: the level of the largest entry; of the rest, one by its share."""
        index = np.argmax(block, axis=0)
        values = np.array([*self.levels, self.levels[0]] if self.rest else self.levels)[index]
        others = np.flatnonzero(index == len(self.levels))
        if len(others):
            drawn = random.choice(len(self.rest), len(others), p=np.array(self.rest_share))
            replacement = np.array(self.rest)[drawn]
            values = values.astype(np.result_type(values, replacement)) if not self.is_amount else values
            values[others] = replacement
        return values


@dataclass(frozen=True)
class Ranks:
    """The rank of an amount within the training rows, 1 x [-1, 1]."""

    name: str
    grid: tuple[float, ...]
    stepped: bool

    @property
    def width(self) -> int:
        """Rows of the block."""
        return 1

    def encode(self, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """float32 [1, rows]; equal values are spread evenly over the ranks that they share."""
        grid = np.asarray(self.grid)
        low, high = (np.searchsorted(grid, values, side=side) for side in ("left", "right"))
        place = low + random.random(len(values)) * np.maximum(high - low, 0)
        if not self.stepped:
            place = np.interp(values, grid, np.arange(len(grid)) + 0.5)
        return (2.0 * np.clip(place / len(grid), 0.0, 1.0) - 1.0).astype(np.float32)[None]

    def decode(self, block: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """[rows] amounts within the range of the training rows."""
        grid = np.asarray(self.grid)
        place = (np.clip(block[0].astype(float), -1.0, 1.0) + 1.0) / 2.0 * len(grid)
        if self.stepped:
            return grid[np.minimum(place.astype(int), len(grid) - 1)]
        return np.interp(place - 0.5, np.arange(len(grid)), grid)


def levels_of(name: str, values: np.ndarray, *, is_amount: bool) -> Levels:
    """The levels of a column, the most frequent first (ties in order of value)."""
    found, count = np.unique(values, return_counts=True)
    order = np.argsort(-count, kind="stable")
    found, count = found[order], count[order]
    if len(found) <= MAX_LEVELS:
        return Levels(name, tuple(found.tolist()), (), (), is_amount)
    share = count[MAX_LEVELS:] / count[MAX_LEVELS:].sum()
    return Levels(
        name,
        tuple(found[:MAX_LEVELS].tolist()),
        tuple(found[MAX_LEVELS:].tolist()),
        tuple(share.tolist()),
        is_amount,
    )


def ranks_of(name: str, values: np.ndarray) -> Ranks:
    """The ranks of a column of known amounts."""
    ordered = np.sort(values)
    stepped = float(np.mean(np.diff(ordered) == 0.0)) > TIED_SHARE
    size = min(len(ordered), GRID_SIZE)
    if stepped:
        grid = ordered[((np.arange(size) + 0.5) / size * len(ordered)).astype(int)]
    else:
        grid = np.quantile(ordered, np.linspace(0.0, 1.0, size))
    return Ranks(name, tuple(grid.tolist()), stepped)


def _equal(values: np.ndarray, level: Any) -> np.ndarray:
    if isinstance(level, float) and np.isnan(level):
        return np.isnan(values)
    return np.asarray(values == level)
