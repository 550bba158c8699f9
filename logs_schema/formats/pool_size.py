"""The size of a pool that is not in its log: what was given, else a guess from its use, marked as one.

The largest use at once is at most the size of a machine that was full once, and more than that of no machine, unless
the log lets requests overlap that never ran together: then it is too much, and nothing in the log shows it. Facts
therefore carry a guess with the median use (over time) and the largest request, for the check of the archive.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from logs_schema.casting import float_of
from logs_schema.concurrency import use_over_time
from logs_schema.errors import ConfigError, FormatError
from logs_schema.formats.reading import ReadingOptions

GUESSED = "guessed_capacities"
"""The fact that holds, by node, the cores guessed and what the guess rests on."""
ONLY_POOL = "pool"
"""The pool that a capacity without a name is for: the only one of most logs."""
MOST_CORES = 2**31 - 1


@dataclass(frozen=True)
class PoolUse:
    """How much of a pool was in use at once, in any one unit: largest and median over time, and the largest request."""

    peak: float = 0.0
    median: float = 0.0
    largest: float = 0.0

    def guess(self, unit: float = 1.0) -> dict[str, float]:
        """The fact about a pool whose size is a guess; `unit` is cores per unit of use."""
        return {
            "cores": max(self.peak, self.largest) * unit,
            "median_use": self.median * unit,
            "largest_request": self.largest * unit,
        }


def first_of_each(jobs: "array[int]") -> np.ndarray:
    """[rows] bool: the first row of every job, by the hash of its name; an archive quarantines the others."""
    found = np.zeros(len(jobs), np.bool_)
    found[np.unique(np.asarray(jobs, np.int64), return_index=True)[1]] = True
    return found


def pool_use(start_s: np.ndarray, finish_s: np.ndarray, amount: np.ndarray) -> PoolUse:
    """Use over time of requests that hold `amount` from start to finish, all `[requests]`."""
    if not len(amount):
        return PoolUse()
    times_s, use = use_over_time(start_s, finish_s, amount)
    held_s = np.diff(times_s, append=times_s[-1])
    by_use = np.argsort(use, kind="stable")
    middle = np.searchsorted(np.cumsum(held_s[by_use]), held_s.sum() / 2)
    median = use[by_use[min(middle, len(use) - 1)]]
    return PoolUse(float(use.max(initial=0)), float(median), float(amount.max()))


def parse_capacity(text: str) -> tuple[str, float]:
    """A pool and its cores from `786432` (the only pool) or `batch=4096`; ConfigError if it reads otherwise."""
    pool, _, cores = text.rpartition("=")
    try:
        return pool or ONLY_POOL, float_of(cores.replace(",", ""))
    except ValueError:
        raise ConfigError(
            f"{text!r} is no capacity", allowed="cores, such as 786432, or POOL=CORES", advice="mend it"
        ) from None


def given_cores(given: ReadingOptions, pools: Sequence[str]) -> Mapping[str, float]:
    """Cores by pool as they were given.

    Raises:
        FormatError: A pool is not one of `pools`, or its size is no number of cores.
    """
    for name, cores in given.capacity.items():
        if name not in pools:
            raise FormatError(
                f"a capacity was given for {name!r}, which is no pool of this log",
                allowed=", ".join(pools),
                advice="name one of these, or none where there is but one",
            )
        if not (0 < cores <= MOST_CORES and math.isfinite(cores)):
            raise FormatError(
                f"a pool cannot have {cores:g} cores",
                where=f"capacity of {name}",
                allowed=f"more than 0, at most {MOST_CORES:,}",
                advice="give the number of its cores (processors)",
            )
    return given.capacity


def guesses(facts: Mapping[str, Any]) -> Mapping[str, Mapping[str, float]]:
    """The guessed capacities in the facts about a log, by node; see `PoolUse.guess`."""
    found: Mapping[str, Mapping[str, float]] = facts.get(GUESSED, {})
    return found
