"""Counts of a day's requests that a survey compares days by; made in one pass, batch by batch."""

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive

COLUMNS = ("arrival", "service", "site", "start", "finish", "run_s", "offered_node", "ran_node")
HOURS = 24
LEAST_S, DECADES, BINS_A_DECADE = 1e-3, 10, 20
NUM_BINS = DECADES * BINS_A_DECADE
"""Durations are counted by their logarithm, from a millisecond to four months; others are counted in the end bins."""
MAX_LABELS = 2_000
"""Labels that are told apart; of a log with more, those share a count whose checksums are alike modulo this number."""
ASPECTS = ("arrivals", "mix", "run times", "waits", "nodes")
Labels = Counter[str | int]


@dataclass(frozen=True)
class DayCounts:
    """Counts of a day's requests, separately for two random halves: two samples of one day.

    Attributes:
        day: The day.
        num_requests: Number of requests.
        arrivals: [2, hours]
        durations: "run times" and "waits" -> [2, bins]
        labels: "mix" and "nodes" -> two counts by label (requested site and service, chosen node), or by number where
            there are too many labels, see `together`.
    """

    day: dt.date
    num_requests: int
    arrivals: np.ndarray
    durations: dict[str, np.ndarray]
    labels: dict[str, tuple[Labels, Labels]]


def count_day(item: tuple[Path, dt.date]) -> DayCounts:
    """A task: the counts of one day of an archive, holding one batch of it at a time."""
    path, day = item
    arrivals = np.zeros((2, HOURS), np.int64)
    durations = {name: np.zeros((2, NUM_BINS), np.int64) for name in ("run times", "waits")}
    labels: dict[str, tuple[Labels, Labels]] = {name: (Counter(), Counter()) for name in ("mix", "nodes")}
    num_requests, random = 0, np.random.default_rng(day.toordinal())
    archive = Archive(path)
    are_waits_logged = "true_waits" not in archive.facts.get("limits", {})
    for batch in archive.scan("requests", days=[day], columns=COLUMNS):
        half = random.integers(0, 2, batch.num_rows)
        num_requests += batch.num_rows
        instant_us = {name: _numbers(batch[name].cast(pa.int64())) for name in ("arrival", "start", "finish")}
        hour = (instant_us["arrival"] // 3.6e9 % HOURS).astype(int)
        np.add.at(arrivals, (half, hour), 1)
        ran_s = (instant_us["finish"] - instant_us["start"]) / 1e6
        ran_s = np.where(np.isnan(ran_s), _numbers(batch["run_s"]), ran_s)
        waited_s = (instant_us["start"] - instant_us["arrival"]) / 1e6
        waited_s = waited_s if are_waits_logged else np.full(batch.num_rows, np.nan)
        for name, lasted_s in (("run times", ran_s), ("waits", waited_s)):
            known = np.isfinite(lasted_s)
            np.add.at(durations[name], (half[known], bin_of(lasted_s[known])), 1)
        mix = pc.binary_join_element_wise(_text(batch["site"]), _text(batch["service"]), "/")
        node = pc.coalesce(_label(batch["offered_node"]), _label(batch["ran_node"]))
        for name, column in (("mix", mix), ("nodes", node)):
            for number in (0, 1):
                _count(labels[name][number], column.filter(pa.array(half == number)))
    return DayCounts(day, num_requests, arrivals, durations, labels)


def bin_of(lasted_s: np.ndarray) -> np.ndarray:
    """The bin of every duration in seconds."""
    decades = np.log10(np.maximum(lasted_s, LEAST_S) / LEAST_S)
    return np.minimum((decades * BINS_A_DECADE).astype(int), NUM_BINS - 1)


def _numbers(column: pa.Array) -> np.ndarray:
    """[rows] float64, NaN where null."""
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def _label(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _text(column: pa.Array) -> pa.Array:
    return pc.fill_null(_label(column), "")


def _count(counts: Labels, column: pa.Array) -> None:
    """Adds a column's labels."""
    for found in pc.value_counts(column.drop_null()).to_pylist():
        counts[found["values"]] += found["counts"]
    if len(counts) > MAX_LABELS:
        counted = together(counts)
        counts.clear()
        counts.update(counted)


def together(counts: Labels) -> Labels:
    """Counts by number, below `MAX_LABELS`, in place of labels.

    A label has the same number in every sample, so that two samples of one distribution differ by no more than chance:
    if each sample kept its most frequent labels, they would differ in these.
    """
    found = Labels()
    for label, count in counts.items():
        found[label if isinstance(label, int) else crc32(label.encode()) % MAX_LABELS] += count
    return found
