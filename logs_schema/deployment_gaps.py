"""Where samples of deployments are missing: intervals without rows, deployments that appear or vanish, metrics that are
known in some rows alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.errors import first
from logs_schema.tables import GATEWAY

NAMED_SHARE, NAMED_S = 0.01, 3600.0
"""Gaps are named from this share of the intervals, or this length on."""
LATE_INTERVALS = 10
"""By how many intervals the first or last row of a deployment lies within the log before it appears or vanishes."""
KNOWN_SHARE = 0.95
"""Metrics of a deployment that are known in fewer of its rows are named."""
COLUMNS = ("time", "interval_s", "deployment")


@dataclass
class Presence:
    """Which intervals have rows, batch by batch in order of time.

    Attributes:
        lengths: Lengths of intervals; of several nothing is said here, for a fit refuses them.
        spans: Deployment -> its first and last interval, and how many it has.
        num_intervals: Intervals with rows.
        longest: Length of the longest gap in intervals, and the interval after it.
    """

    lengths: set[float] = field(default_factory=set)
    spans: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    num_intervals: int = 0
    longest: tuple[int, int] = (0, 0)
    _last: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the intervals of a batch."""
        lengths = batch["interval_s"].to_numpy(zero_copy_only=False)
        self.lengths |= set(np.unique(lengths).tolist())
        if not len(batch) or len(self.lengths) != 1 or min(self.lengths) <= 0.0:
            return
        time_s = pc.cast(batch["time"], pa.int64()).to_numpy(zero_copy_only=False) / 1e6
        places = np.round(time_s / lengths).astype(np.int64)
        for name, is_its in by_deployment(batch):
            mine = np.unique(places[is_its])
            begin, end, number = self.spans.get(name, (int(mine[0]), int(mine[0]) - 1, 0))
            number += int((mine > end).sum())
            self.spans[name] = min(begin, int(mine[0])), max(end, int(mine[-1])), number
        distinct = np.unique(places)
        if self._last is not None:
            distinct = np.concatenate([[self._last], distinct[distinct > self._last]])
        self.num_intervals += len(distinct) - (self._last is not None)
        gaps = np.diff(distinct) - 1
        if len(gaps) and gaps.max() > self.longest[0]:
            self.longest = int(gaps.max()), int(distinct[1 + int(gaps.argmax())])
        self._last = int(distinct[-1])

    def warnings(self) -> Iterator[str]:
        """The gaps in words."""
        if not self.spans or len(self.lengths) != 1:
            return
        (interval_s,) = self.lengths
        begin, end = (pick(span[side] for span in self.spans.values()) for side, pick in ((0, min), (1, max)))
        number = end - begin + 1
        share, longest_s = 1.0 - self.num_intervals / number, self.longest[0] * interval_s
        if share > NAMED_SHARE or longest_s >= NAMED_S:
            yield (
                f"{max(share, 0.001):.1%} of the intervals have no row; the longest gap lasts {longest_s / 60:,.0f} "
                f"min, to {_shown(self.longest[1] * interval_s)}: nothing is put in their place"
            )
        for name, (mine, last, had) in sorted(self.spans.items()):
            gaps = [f"appears on {_shown(mine * interval_s)}"] if mine > begin + LATE_INTERVALS else []
            gaps += [f"has no row after {_shown(last * interval_s)}"] if last < end - LATE_INTERVALS else []
            lacks = 1.0 - had / min(self.num_intervals, last - mine + 1)
            gaps += [f"has no row in {lacks:.0%} of its intervals"] if lacks > 1.0 - KNOWN_SHARE else []
            if gaps:
                yield f"{name} {', '.join(gaps)}: it is learned from what there is"


@dataclass
class PartlyKnown:
    """In how many rows of a deployment each column has a number, batch by batch.

    Attributes:
        columns: The columns.
        counts: Deployment -> rows that need a number, and rows that have it, by column.
    """

    columns: tuple[str, ...]
    counts: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch; what is not called needs no response time."""
        called = ~np.asarray(pc.fill_null(pc.equal(batch["request_rate_per_s"], 0.0), False), bool)
        needed = np.stack(
            [called if name.startswith("response_") else np.ones(len(batch), bool) for name in self.columns]
        )
        known = np.stack([np.asarray(pc.is_valid(batch[name]), bool) for name in self.columns]) & needed
        for name, is_its in by_deployment(batch):
            count = np.stack([flags[:, is_its].sum(axis=1) for flags in (needed, known)])
            self.counts[name] = self.counts.get(name, 0) + count

    def warnings(self) -> Iterator[str]:
        """What is known in some rows alone, in words."""
        for place, column in enumerate(self.columns):
            shares = {
                name: known[place] / max(needed[place], 1)
                for name, (needed, known) in self.counts.items()
                if name != GATEWAY
            }
            partly = {name: share for name, share in shares.items() if 0.0 < share < KNOWN_SHARE}
            if partly:
                yield (
                    f"{column} is known in {min(partly.values()):.0%} of the rows of {first(sorted(partly))}: was it "
                    "asked for with another step, or is it measured less often? Rows without it are not learned from"
                )


def by_deployment(batch: pa.RecordBatch) -> Iterator[tuple[str, np.ndarray]]:
    """Each deployment of a batch, and bool by row: whether it is of it."""
    column = batch["deployment"]
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    names, code = column.dictionary.cast(pa.string()).to_pylist(), np.asarray(column.indices)
    for index in np.unique(code).tolist():
        yield names[index], code == index


def _shown(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M} UTC"
