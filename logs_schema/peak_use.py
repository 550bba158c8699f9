"""The largest use of every node at once, from a log read once in order of arrival.

A request holds its resources from start to finish. No request starts before it arrives, so once all arrivals before
an instant have been read, every change of use before it is known and can be settled; only later changes are
kept. Memory is one batch plus the requests waiting or running at one instant, however long the log is.
At one instant, those that end leave before those that start arrive.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RESOURCES = ("cpu_cores", "memory_gib", "gpus")
COLUMNS = (
    "arrival", "site", *RESOURCES, "start", "finish", "status", "ran_node", "ran_nodes", "offered_node", "accepted",
)  # fmt: skip
OF_SITE = "site\n"
"""Before the name of a site that is a place; no node's name has a line break."""
NEVER_US = np.iinfo(np.int64).max
UNKNOWN_US = np.iinfo(np.int64).min


@dataclass
class PeakUse:
    """Peaks of concurrent use, by place.

    Attributes:
        places: Names of places in order of first use; a place is a node or a site.
        peak: Largest use per place and resource `[places, 3]`, in the order of `RESOURCES`.
        num_without_node: Requests that began to run on an unknown node.
        offered: Names of nodes: where the log does not say where a request ran, it is the one of them that it was
            offered to, as twins take it.
    """

    places: dict[str, int] = field(default_factory=dict)
    peak: np.ndarray = field(default_factory=lambda: np.zeros((0, len(RESOURCES))))
    num_without_node: int = 0
    offered: frozenset[str] = frozenset()
    _use: np.ndarray = field(default_factory=lambda: np.zeros((0, len(RESOURCES))))
    _times_us: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    _place: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    _change: np.ndarray = field(default_factory=lambda: np.zeros((0, len(RESOURCES))))

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes the next rows of `requests` with `COLUMNS`, in order of arrival."""
        if not batch.num_rows:
            return
        start, finish = _micros(batch["start"]), _micros(batch["finish"])
        running = np.asarray(pc.equal(batch["status"].cast(pa.string()), "running"))
        finish = np.where((finish == UNKNOWN_US) & running, NEVER_US, finish)
        runs = np.flatnonzero((start != UNKNOWN_US) & (finish > start))
        requested = np.stack([np.asarray(batch[name].fill_null(0.0)) for name in RESOURCES], axis=1)
        for row, place, share in self._places(batch, runs):
            change = requested[row] * share
            ends = finish[row] < NEVER_US
            self._times_us = np.concatenate([self._times_us, start[row], finish[row][ends]])
            self._place = np.concatenate([self._place, place, place[ends]])
            self._change = np.concatenate([self._change, change, -change[ends]])
        self._settle(int(_micros(batch["arrival"]).max()))

    def finish(self) -> "PeakUse":
        """Settles what is left once all rows are read."""
        self._settle(NEVER_US)
        return self

    def _places(
        self, batch: pa.RecordBatch, runs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Row, place and share `[n], [n], [n, 1]` of all that the rows `runs` occupy, in three parts."""
        whole = np.ones((len(runs), 1))
        yield runs, self._labels(batch["site"], OF_SITE)[runs], whole
        node = self._labels(self._nodes(batch), "")[runs]
        spread = np.asarray(pc.list_value_length(batch["ran_nodes"]).fill_null(0))[runs] > 0
        alone = ~spread & (node >= 0)
        yield runs[alone], node[alone], whole[alone]
        rows, places, shares = [], [], []
        for row in runs[spread].tolist():
            nodes = batch["ran_nodes"][row].as_py()
            rows += [row] * len(nodes)
            places += [self._place_of(name) for name in nodes]
            shares += [1 / len(nodes)] * len(nodes)
        self._grow()
        yield np.array(rows, np.int64), np.array(places, np.int64), np.array(shares).reshape(-1, 1)
        self.num_without_node += int((~spread & (node < 0)).sum())

    def _nodes(self, batch: pa.RecordBatch) -> pa.Array:
        """Where every request ran, or else is taken to have run; null where that is unknown."""
        offered = pc.cast(batch["offered_node"], pa.string())
        known = pc.is_in(offered, value_set=pa.array(sorted(self.offered), pa.string()))
        known = pc.and_(known, pc.fill_null(batch["accepted"], True))
        return pc.coalesce(pc.cast(batch["ran_node"], pa.string()), pc.if_else(known, offered, None))

    def _labels(self, column: pa.Array, prefix: str) -> np.ndarray:
        """Place of every row by its label, -1 where it is null."""
        encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
        places = [self._place_of(f"{prefix}{name}") for name in encoded.dictionary.to_pylist()]
        self._grow()
        codes = np.asarray(encoded.indices.fill_null(-1))
        return np.append(np.array(places, np.int64), -1)[codes]

    def _place_of(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places))

    def _grow(self) -> None:
        num_new = len(self.places) - len(self.peak)
        self.peak = np.pad(self.peak, ((0, num_new), (0, 0)))
        self._use = np.pad(self._use, ((0, num_new), (0, 0)))

    def _settle(self, until_us: int) -> None:
        """Plays all changes before an instant, place by place in order of time."""
        due = self._times_us < until_us
        times_us, place, change = self._times_us[due], self._place[due], self._change[due]
        self._times_us, self._place = self._times_us[~due], self._place[~due]
        self._change = self._change[~due]
        if not len(place):
            return
        order = np.lexsort((change.max(axis=1) > 0, times_us, place))
        place, change = place[order], change[order]
        first = np.flatnonzero(np.diff(place, prepend=-1))
        total = np.cumsum(change, axis=0)
        before = np.zeros_like(change[first])
        before[1:] = total[first[1:] - 1]
        length = np.diff(np.append(first, len(place)))
        use = total + np.repeat(self._use[place[first]] - before, length, axis=0)
        self.peak[place[first]] = np.maximum(self.peak[place[first]], np.maximum.reduceat(use, first, axis=0))
        self._use[place[first]] = use[first + length - 1]


def _micros(column: pa.Array) -> np.ndarray:
    """Instants in microseconds since 1970, `UNKNOWN_US` where null."""
    return np.asarray(column.cast(pa.int64()).fill_null(UNKNOWN_US))
