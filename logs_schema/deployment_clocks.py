"""Whether metrics of an application move together: where clocks of their sources stand apart, one follows the other."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.deployment_gaps import by_deployment
from logs_schema.tables import GATEWAY

MOST_ROWS = 20_000
"""Rows of a deployment that are looked at: the first."""
MOST_LAG = 20
"""Intervals by which metrics may be apart."""
LEAST_PAIRS, LEAST_MOVED, TIMES_MOVED = 200, 0.3, 2.0
"""Changes are held against those of other intervals where there are so many; named is a correlation of so much, and so
many times that of the same interval."""
COLUMNS = ("time", "interval_s", "deployment", "request_rate_per_s", "cpu_cores_used", "num_replicas")


@dataclass
class Clocks:
    """Rates and use of deployments, and the rate of the gateway, batch by batch.

    Attributes:
        rows: Deployment -> number of the interval, rate, cores used by all replicas; by batch.
        interval_s: Length of an interval.
    """

    rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    interval_s: float = 0.0

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep the rows of a batch, as far as they are looked at."""
        lengths = batch["interval_s"].to_numpy(zero_copy_only=False)
        if not len(batch) or lengths.min() <= 0.0:
            return
        self.interval_s = float(lengths[0])
        time_s = pc.cast(batch["time"], pa.int64()).to_numpy(zero_copy_only=False) / 1e6
        rate, used, replicas = (
            pc.cast(batch[name], pa.float64()).to_numpy(zero_copy_only=False) for name in COLUMNS[3:]
        )
        table = np.stack([np.round(time_s / self.interval_s), rate, used * replicas])
        for name, is_its in by_deployment(batch):
            kept = self.rows.setdefault(name, [])
            if sum(one.shape[1] for one in kept) < MOST_ROWS:
                kept.append(table[:, is_its][:, :MOST_ROWS])

    def warnings(self) -> Iterator[str]:
        """Metrics of which one follows the other, in words."""
        whole = {name: np.concatenate(parts, axis=1) for name, parts in self.rows.items()}
        if not whole:
            return
        begin = min(one[0].min() for one in whole.values())
        length = int(max(one[0].max() for one in whole.values()) - begin) + 1
        # Beyond: instants of other units, which a fit refuses
        if not LEAST_PAIRS + MOST_LAG < length <= 100 * MOST_ROWS:
            return
        dense = {name: _dense(one, int(begin), length) for name, one in whole.items()}
        users = dense.pop(GATEWAY, None)
        works = [(rate, work) for rate, work in dense.values()]
        calls = [] if users is None else [(users[0], rate) for rate, _ in dense.values()]
        for late, early, pairs in (
            ("cpu_cores_used", "request_rate_per_s", works),
            ("request_rate_per_s of the deployments", "that of the gateway", calls),
        ):
            lag, moved, usual = _lag(pairs)
            if lag:
                yield (
                    f"{late} moves with {early} of {abs(lag)} intervals {'before' if lag > 0 else 'after'} "
                    f"(correlation of their changes {moved:.2f}, in the same interval {usual:.2f}): do the clocks of "
                    f"their sources stand {abs(lag) * self.interval_s:g} s apart, or is the window of a query longer "
                    "than the interval?"
                )


def _dense(table: np.ndarray, begin: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Changes of rate and work from interval to interval, in units of their spread; NaN where one is not known."""
    places = table[0].astype(np.int64) - begin
    found = []
    for values in table[1:]:
        series = np.full(length, np.nan)
        series[places] = values
        change = np.diff(series)
        spread = np.nanstd(change) if np.isfinite(change).any() else 0.0
        found.append(change / spread if spread > 0.0 else np.full(length - 1, np.nan))
    return found[0], found[1]


def _lag(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[int, float, float]:
    """By how many intervals the second of all pairs follows the first, 0 for none; the correlation there and at 0."""
    moved = np.zeros(2 * MOST_LAG + 1)
    for place, lag in enumerate(range(-MOST_LAG, MOST_LAG + 1)):
        products, number = 0.0, 0
        for one, other in pairs:
            early, late = (one[: len(one) - lag], other[lag:]) if lag >= 0 else (one[-lag:], other[:lag])
            both = np.isfinite(early) & np.isfinite(late)
            products, number = products + float(early[both] @ late[both]), number + int(both.sum())
        moved[place] = products / number if number >= LEAST_PAIRS else 0.0
    best = int(moved.argmax())
    is_apart = moved[best] > max(LEAST_MOVED, TIMES_MOVED * moved[MOST_LAG])
    return best - MOST_LAG if is_apart else 0, float(moved[best]), float(moved[MOST_LAG])
