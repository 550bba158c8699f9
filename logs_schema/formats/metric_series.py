"""Series of metrics as rows of `deployment_samples`: what importers of monitoring data share.

A series belongs to one column and one deployment (or the gateway) and is a mapping from instants to numbers. Units are
named, never guessed; counters become rates (or increases, where the column counts), and where a counter falls it was
reset: what it shows then has come since. Where it falls to far more than it ever rose by, it is a sum of counters one
of which has gone, with a pod for example: what has come since is not known. Instants are taken to the grid of
intervals, all by the same shift; those far off their place are rejected. Several series of one deployment, of its pods
say, are one number where the mapping says how they are combined.
"""

import itertools
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.errors import FormatError
from logs_schema.formats.reading import CHUNK_ROWS
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY

UNITS: Mapping[str, Mapping[str, float]] = {
    "cores": {"cores": 1.0, "millicores": 1e-3},
    "GiB": {
        "GiB": 1.0,
        "MiB": 2.0**-10,
        "KiB": 2.0**-20,
        "bytes": 2.0**-30,
        "GB": 1e9 / 2**30,
        "MB": 1e6 / 2**30,
    },
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "1/s": {"1/s": 1.0, "1/min": 1.0 / 60.0},
    "1": {"1": 1.0},
}
"""Unit of a column -> units that a metric may have, and what one of them is in the column's."""
OFF_GRID = "off_the_grid_of_intervals"
NOT_A_NUMBER, NOT_FINITE = "not_a_number", "not_finite"
FELL = "counter_of_several_fell"
FAR_MORE, LEAST_LEFT = 10.0, 0.1
"""A counter that falls is a sum one of whose parts has gone where it then shows so many times its largest rise, and
this share of what it showed before: a counter that was reset begins at zero."""
FARTHEST_OFF = 0.25
"""Of an interval: samples farther from the grid are rejected."""
QUANTITY = "quantity"
"""Unit of texts that hold a number and its own unit, `120 ms`; see `logs_schema.formats.request_values`."""
COMBINATIONS = ("sum", "mean", "max", "count")
NOT_METRICS = ("time", "interval_s", "deployment", "action_brownout")
COLUMNS = tuple(column.name for column in DEPLOYMENT_SAMPLES.columns if column.name not in NOT_METRICS)


@dataclass(frozen=True)
class MetricSeries:
    """How numbers become a column.

    Attributes:
        column: Of `deployment_samples`.
        unit: Of the numbers; that of the column if empty.
        scale: The numbers are multiplied by this as well: 0.01 for per cent, replicas for sums over them.
        counter: Whether they count up from a start.
        combine: How the numbers of several series of one deployment are one, of `COMBINATIONS`; refused if empty.
        where: Where the metric was declared, for messages.
    """

    column: str
    unit: str = ""
    scale: float = 1.0
    counter: bool = False
    combine: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if self.combine and self.combine not in COMBINATIONS:
            raise FormatError(
                f"combine is {self.combine!r}",
                where=self.where,
                allowed=", ".join(COMBINATIONS),
                advice="mend the mapping",
            )
        if self.column not in COLUMNS:
            raise FormatError(
                f"there is no column {self.column!r} of metrics",
                where=self.where,
                allowed=", ".join(COLUMNS),
                advice="name a column of deployment_samples",
            )
        allowed = self._units()
        written = () if "1" in allowed else (QUANTITY,)
        if self.unit and self.unit not in (*allowed, *written):
            raise FormatError(
                f"{self.column} cannot be given in {self.unit!r}",
                where=self.where,
                allowed=", ".join((*allowed, *written)),
                advice="name the unit of the metric",
            )

    def _units(self) -> Mapping[str, float]:
        return UNITS[DEPLOYMENT_SAMPLES.column(self.column).unit or "1"]

    @property
    def factor(self) -> float:
        """What a number is multiplied by."""
        return self.scale * self._units().get(self.unit, 1.0)

    @property
    def counts(self) -> bool:
        """Whether the column counts per interval, so that a counter's increase is meant, not its rate."""
        return self.column.startswith("num_")


@dataclass
class Samples:
    """Rows in the making, packed: months of samples are more than a dictionary a row would leave room for.

    Attributes:
        interval_s: Length of an interval.
        shift_s: By how much instants stand behind the grid.
        rows: Deployment -> number of the interval -> row.
        columns: Column -> its numbers by row, NaN where there is none, as far as one was given.
        num_rows: Rows so far.
    """

    interval_s: float
    shift_s: float = 0.0
    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    columns: dict[str, "array[float]"] = field(default_factory=dict)
    num_rows: int = 0
    # Of how many numbers those of a column are
    _combined: dict[str, "array[float]"] = field(default_factory=dict)
    _met: set[int] = field(default_factory=set)  # hashes of the lines that are combined: none counts twice

    def off_grid(self, time_s: float) -> bool:
        """Whether an instant stands too far from its place on the grid."""
        place = (time_s - self.shift_s) / self.interval_s
        return abs(place - round(place)) > FARTHEST_OFF

    def add(
        self,
        metric: MetricSeries,
        deployment: str,
        times_s: Iterable[float],
        numbers: Iterable[float],
        labels: str = "",
    ) -> list[int]:
        """Takes a series whose instants stand on the grid; `labels` name it in messages.

        Returns:
            Which of the numbers, by place, are those of a counter of several that fell: nothing is filed for them.

        Raises:
            FormatError: The column has a number for this deployment and interval already, or the series has several.
        """
        values = np.asarray(list(numbers), float) * metric.factor
        instants_s = np.asarray(list(times_s), float)
        known = np.flatnonzero(np.isfinite(values))  # a counter is not reset by what is no number
        values, instants_s = values[known], instants_s[known]
        places = np.round((instants_s - self.shift_s) / self.interval_s).astype(np.int64)
        distinct, counts = np.unique(places, return_counts=True)
        if len(distinct) < len(places):
            raise FormatError(
                f"a series of '{deployment}' has several samples in one interval of {self.interval_s:g} s",
                where=f"{metric.where} {self._shown(int(distinct[counts > 1][0]))}".strip(),
                allowed="one sample an interval",
                advice="query the range with the interval as its step, name a shorter interval_s in the mapping, or "
                "say there that several samples are one: resample = true",
            )
        fell: list[int] = []
        if metric.counter:
            order = np.argsort(places)
            places, values, lost = self._increases(metric, places[order], values[order])
            fell = known[order][1:][lost].tolist()
        for place, value in zip(places.tolist(), values.tolist(), strict=True):
            self._put(metric, deployment, place, value, f"{metric.where} {labels}".strip())
        return fell

    def add_one(
        self,
        metric: MetricSeries,
        deployment: str,
        time_s: float,
        number: float,
        where: str,
        series: str = "",
    ) -> None:
        """Takes one number of a gauge or rate, as `add` does; `series` tells those that are combined apart."""
        place = round((time_s - self.shift_s) / self.interval_s)
        if metric.combine and math.isfinite(number):
            mark = hash((metric, deployment, series, place))
            if mark in self._met:
                raise FormatError(
                    f"two lines give {metric.column} of '{series}' in one interval",
                    where=f"{where} {self._shown(place)}".strip(),
                    allowed="one line a series and interval",
                    advice="name the column that tells its series apart, such as that of the pod, as series_column",
                )
            self._met.add(mark)
        self._put(metric, deployment, place, number * metric.factor, where)

    def _put(self, metric: MetricSeries, deployment: str, place: int, value: float, where: str) -> None:
        if not math.isfinite(value):
            return
        row = self.rows.setdefault(deployment, {}).setdefault(place, self.num_rows)
        self.num_rows = max(self.num_rows, row + 1)
        numbers = self._numbers(metric.column, row + 1)
        if metric.combine:
            self._combine(metric, numbers, row, value)
            return
        if not math.isnan(numbers[row]):
            raise FormatError(
                f"two series give {metric.column} of '{deployment}' at one instant",
                where=f"{where} {self._shown(place)}".strip(),
                allowed="one series a deployment, one number an interval",
                advice='say in the mapping how they are combined: combine = "sum", or "mean" where the column is of a '
                "replica, as cpu_cores and cpu_cores_used are; or in the query: sum by (deployment) (...), avg by; of "
                "lines, check their instants",
            )
        numbers[row] = value

    def _combine(self, metric: MetricSeries, numbers: "array[float]", row: int, value: float) -> None:
        counts = self._combined.setdefault(metric.column, array("d"))
        counts.extend(itertools.repeat(0.0, row + 1 - len(counts)))
        counts[row] += 1.0
        before = numbers[row]
        if metric.combine == "count":
            numbers[row] = counts[row]
        elif math.isnan(before):
            numbers[row] = value
        elif metric.combine == "mean":
            numbers[row] = before + (value - before) / counts[row]
        else:
            numbers[row] = before + value if metric.combine == "sum" else max(before, value)

    def _numbers(self, column: str, num_rows: int) -> "array[float]":
        """The numbers of a column, of so many rows at least."""
        numbers = self.columns.setdefault(column, array("d"))
        numbers.extend(itertools.repeat(math.nan, num_rows - len(numbers)))
        return numbers

    def row(self, place: int, deployment: str) -> dict[str, float]:
        """What is known of a deployment in the interval that begins at `place` times its length, by column."""
        row = self.rows.get(deployment, {}).get(place, self.num_rows)
        known = {name: numbers[row] for name, numbers in self.columns.items() if row < len(numbers)}
        return {name: number for name, number in known.items() if not math.isnan(number)}

    def forget(self, metric: MetricSeries, deployment: str) -> None:
        """Leaves a column of a deployment unknown at every instant."""
        numbers = self._numbers(metric.column, self.num_rows)
        for row in self.rows.get(deployment, {}).values():
            numbers[row] = math.nan

    def fill(self, metric: MetricSeries, gateway: bool, number: float) -> None:
        """Gives a column one number in every row of the gateway, or in all the others, that has none."""
        numbers = self._numbers(metric.column, self.num_rows)
        for deployment, by_place in self.rows.items():
            if (deployment == GATEWAY) == gateway:
                for row in by_place.values():
                    if math.isnan(numbers[row]):
                        numbers[row] = number * metric.factor

    def _shown(self, place: int) -> str:
        at = datetime.fromtimestamp(place * self.interval_s, UTC)
        return f"at {at:%Y-%m-%d %H:%M:%S} UTC"

    def _increases(
        self, metric: MetricSeries, places: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places, rates or increases from each to the next, and bool: whether a part of the counter went there."""
        step, together = np.diff(values), np.maximum(np.diff(places), 1)
        fell = step < 0.0
        per_interval = np.where(fell, values[1:], step) / together
        rise = per_interval[~fell].max(initial=0.0)
        lost = (
            fell & (per_interval > FAR_MORE * rise) & (values[1:] > LEAST_LEFT * values[:-1]) & (rise > 0.0)
        )
        per_interval = np.where(lost, np.nan, per_interval)
        return places[:-1], per_interval if metric.counts else per_interval / self.interval_s, lost

    def as_rows(self) -> Iterator[list[dict[str, Any]]]:
        """The rows in order of time, some at a time, all with the same columns."""
        deployments = sorted(self.rows)
        place, row = (
            np.fromiter(itertools.chain.from_iterable(each(self.rows[one]) for one in deployments), np.int64)
            for each in (dict.keys, dict.values)
        )
        rank = np.repeat(np.arange(len(deployments)), [len(self.rows[one]) for one in deployments])
        at = np.stack([place, rank, row])[:, np.lexsort((rank, place))]
        columns = {name: self._numbers(name, self.num_rows) for name in sorted(self.columns)}
        columns = {name: numbers for name, numbers in columns.items() if not np.isnan(numbers).all()}
        whole = {"num_replicas", "num_failures", "action_replicas"}

        def value(name: str, row: int) -> float | None:
            number = columns[name][row]
            return None if math.isnan(number) else float(round(number)) if name in whole else number

        for begin in range(0, self.num_rows, CHUNK_ROWS):
            yield [
                {
                    "time": place * self.interval_s,
                    "interval_s": self.interval_s,
                    "deployment": deployments[rank],
                    **{name: value(name, row) for name in columns},
                }
                for place, rank, row in at[:, begin : begin + CHUNK_ROWS].T.tolist()
            ]


def shift_of(times_s: np.ndarray, interval_s: float) -> float:
    """By how much most instants stand behind the grid, in [-interval / 2, interval / 2]."""
    if not len(times_s):
        return 0.0
    first_s = times_s[0]
    around_s = (times_s - first_s + 0.5 * interval_s) % interval_s - 0.5 * interval_s
    behind_s = first_s + float(np.median(around_s))
    return float((behind_s + 0.5 * interval_s) % interval_s - 0.5 * interval_s)


def interval_of(series: Iterable[np.ndarray], where: str) -> float:
    """The usual distance of a series' instants, in whole seconds; FormatError where there is none.

    Series are looked at one by one, for their clocks may stand a few seconds apart.
    """
    found = [np.round(np.diff(np.unique(times_s))) for times_s in series]
    steps, counts = np.unique(np.concatenate([*found, []]), return_counts=True)
    usual = float(steps[len(counts) - 1 - np.argmax(counts[::-1])]) if len(steps) else 0.0
    if usual < 1.0:
        raise FormatError(
            "the length of an interval cannot be inferred",
            where=where,
            allowed="instants at least a second apart",
            advice="name interval_s in the mapping",
        )
    return usual


def refuse_uneven(interval_s: float, where: str, advice: str) -> None:
    """FormatError where a day is not a whole number of intervals: twins count them from midnight.

    Args:
        interval_s: Length of an interval.
        where: What it is of.
        advice: What to do, with `{}` for the nearest length that is allowed.
    """
    if abs(DAY_S / interval_s - round(DAY_S / interval_s)) < 1e-9:
        return
    divisors = (one for one in range(1, int(DAY_S) + 1) if DAY_S % one == 0)
    nearest = min(divisors, key=lambda one: abs(one - interval_s))
    raise FormatError(
        f"a day is not a whole number of intervals of {interval_s:g} s",
        where=where,
        allowed="a length that divides 86,400 s",
        advice=advice.format(nearest),
    )


def placed(times_s: np.ndarray, interval_s: float, sweep_s: float = 0.0) -> dict[float, float]:
    """Instant -> its place on the grid, where intervals follow each other whatever their instants.

    Instants at most `sweep_s` after the first of them are of one interval. Where more than one and a half of the usual
    distance passes, or of the interval if that is longer, a gap of one interval or more is left.
    """
    distinct = np.unique(times_s)
    if not len(distinct):
        return {}
    begins = [float(distinct[0])]
    index = np.zeros(len(distinct), int)
    for row, instant in enumerate(distinct.tolist()):
        if instant - begins[-1] > sweep_s:
            begins.append(instant)
        index[row] = len(begins) - 1
    usual_s = interval_s
    if len(begins) > 1:
        usual_s = max(interval_s, float(np.quantile(np.diff(begins), 0.5, method="lower")))
    places = [round(begins[0] / interval_s)]
    for before, instant in itertools.pairwise(begins):
        gap = instant - before > 1.5 * usual_s
        places.append(max(places[-1] + 2, round(instant / interval_s)) if gap else places[-1] + 1)
    return {float(instant): places[row] * interval_s for instant, row in zip(distinct, index, strict=True)}


def deployment_named(name: str, gateway: str | None) -> str:
    """The name under which a deployment is filed: `gateway` for the one that the mapping names as such."""
    return GATEWAY if gateway is not None and name == gateway else name
