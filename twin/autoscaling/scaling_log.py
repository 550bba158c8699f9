"""Table `deployment_samples` as dense arrays: intervals by deployments, gaps as NaN.

Intervals of one length stand on a grid from the first to the last; an interval without rows is a gap, and nothing is
put in its place. Which intervals are *censored* is defined here: where users' requests failed or a deployment worked at
its capacity, the rate that arrived is not the rate that was asked for, and response times depend on what had queued
before.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.calendar import DAY_S
from logs_schema.deployment_checks import NEEDED_OF_DEPLOYMENTS, NEEDED_OF_GATEWAY
from logs_schema.errors import ArchiveError, first
from logs_schema.tables import GATEWAY

TABLE = "deployment_samples"
CENSORED_FAILURES = 0.02
CENSORED_USE = 0.95
DEPLOYMENT_COLUMNS = (
    "cpu_cores", "memory_gib", "num_replicas", "ready_replicas", "cpu_cores_used", "memory_gib_used",
    "request_rate_per_s", "response_s", "num_failures",
)  # fmt: skip
MOST_GAPS, MOST_ROWS = 100, 1_000_000
"""Longer logs than so many intervals, of which fewer than one in so many has a row, are refused: clocks were wrong."""
P95_OF_EXPONENTIAL = 2.9957
"""95 % quantile of an exponential time over its mean."""
GATEWAY_COLUMNS = ("request_rate_per_s", "response_s", "response_p95_s", "response_p99_s", "num_failures")


@dataclass(frozen=True)
class ScalingLog:
    """A log of grants and metrics.

    Attributes:
        deployments: Their names, sorted.
        interval_s: Length of an interval.
        time_s: [intervals] their beginnings, since midnight (UTC) of the first day.
        columns: Column -> [intervals, deployments], NaN where the log says nothing.
        gateway: Column -> [intervals].
        assumed: What the log does not tell and is taken to be, in words.
    """

    deployments: tuple[str, ...]
    interval_s: float
    time_s: np.ndarray
    columns: dict[str, np.ndarray]
    gateway: dict[str, np.ndarray]
    assumed: tuple[str, ...] = ()

    @property
    def lacks(self) -> list[str]:
        """Columns, by deployment, without which the laws of stations cannot be learned."""
        lacking = [
            f"{name} ({column})"
            for index, name in enumerate(self.deployments)
            for column in NEEDED_OF_DEPLOYMENTS
            if not np.isfinite(self.columns[column][:, index]).any()
        ]
        return lacking + [
            f"{GATEWAY} ({column})"
            for column in NEEDED_OF_GATEWAY
            if not np.isfinite(self.gateway[column]).any()
        ]

    @property
    def is_logged(self) -> np.ndarray:
        """[intervals] bool: the log says something of them; they are gaps between its rows elsewhere."""
        said: np.ndarray = np.isfinite(np.column_stack([*self.columns.values(), *self.gateway.values()])).any(
            axis=1
        )
        return said

    @property
    def memory_granted(self) -> np.ndarray:
        """[intervals, deployments] GiB a replica; 1 where a deployment's is never logged."""
        memory = self.columns["memory_gib"]
        found: np.ndarray = np.where(np.isnan(memory).all(axis=0), 1.0, memory)
        return found

    @property
    def censored(self) -> np.ndarray:
        """[intervals] bool: demand is not what arrived, or is not known."""
        requests = np.maximum(self.gateway["request_rate_per_s"] * self.interval_s, 1.0)
        failing = np.nan_to_num(self.gateway["num_failures"], nan=0.0) > CENSORED_FAILURES * requests
        with np.errstate(invalid="ignore"):
            use = self.columns["cpu_cores_used"] / self.columns["cpu_cores"]
            crowded = np.any(use > CENSORED_USE, axis=1)
        return failing | crowded | ~np.isfinite(self.gateway["request_rate_per_s"])


def read_scaling_log(
    archive: Archive,
    days: Sequence[dt.date] | None = None,
    deployments: Sequence[str] | None = None,
    *,
    whole: bool = True,
) -> ScalingLog:
    """Reads a log.

    Where a mean response time is never logged and the 95 % quantile is, the mean is taken to be that of an exponential
    time; `assumed` says so.

    Args:
        archive: With table `deployment_samples`.
        days: Which days; all if None.
        deployments: Which deployments, in this order; all of them, sorted, if None.
        whole: Whether the metrics that the laws of stations are learned from have to be there.

    Raises:
        ArchiveError: There are no samples, intervals of several lengths, of none or off the grid, instants far from all
            others, no rows of the gateway, or no deployment with grants, rate and response; or a deployment asked for
            is not there.
    """
    table = archive.read(TABLE, days=days)
    if not len(table):
        raise ArchiveError(
            "the log holds no samples of deployments", where=f"{archive.path}: table {TABLE}",
            allowed="rows of deployments and of the gateway", advice="import a log with this table",
        )  # fmt: skip
    interval_s = _interval_of(table, archive)
    time_s = np.asarray(pc.cast(table["time"], pa.int64())) / 1e6
    begin_s = np.floor(time_s.min() / DAY_S) * DAY_S
    row = np.round((time_s - begin_s) / interval_s).astype(int)
    _refuse_off_grid(archive, time_s - begin_s, row, interval_s)
    first_row = row.min()
    num_rows = row.max() - first_row + 1
    _refuse_far_apart(archive, row, num_rows, begin_s, interval_s)
    names = np.asarray(table["deployment"].cast(pa.string()))
    found = sorted(set(names) - {GATEWAY})
    deployments = tuple(found if deployments is None else deployments)
    if missing := sorted(set(deployments) - set(found)):
        raise ArchiveError(
            f"the log does not know {first(missing)}", where=f"{archive.path}: table {TABLE}, column deployment",
            allowed=", ".join(found), advice="use a log of the same application",
        )  # fmt: skip
    place = {name: index for index, name in enumerate(deployments)}
    is_gateway = names == GATEWAY
    if not is_gateway.any() or not deployments:
        raise ArchiveError(
            "the log does not tell what users saw" if deployments else "the log holds the gateway alone",
            where=f"{archive.path}: table {TABLE}, column deployment",
            allowed=f"rows of deployments, and rows of '{GATEWAY}': rate and response time from end to end",
            advice="import the metrics of the ingress or front end under that name",
        )
    column = np.array([place.get(name, -1) for name in names])
    of_deployment = column >= 0

    def dense(name: str, chosen: np.ndarray, width: int) -> np.ndarray:
        values = np.full((num_rows, width), np.nan)
        values[row[chosen] - first_row, np.maximum(column[chosen], 0)] = _numbers(table[name])[chosen]
        return values

    columns = {name: dense(name, of_deployment, len(deployments)) for name in DEPLOYMENT_COLUMNS}
    gateway = {name: dense(name, is_gateway, 1)[:, 0] for name in GATEWAY_COLUMNS}
    columns["ready_replicas"] = ready_or_granted(columns)
    tail_s = dense("response_p95_s", of_deployment, len(deployments))
    assumed = _means_of_tails(
        {"deployments": (columns, tail_s), GATEWAY: (gateway, gateway["response_p95_s"])}
    )
    time_s = (np.arange(num_rows) + first_row) * interval_s
    log = ScalingLog(deployments, interval_s, time_s, columns, gateway, assumed)
    if whole and log.lacks:
        raise ArchiveError(
            "the log does not tell what some deployments were granted or how they answered",
            where=f"{archive.path}: table {TABLE}: {first(log.lacks)}",
            allowed=f"values in {', '.join(NEEDED_OF_DEPLOYMENTS)}",
            advice="import these metrics, or leave the deployments out",
        )
    return log


def without_gaps(values: np.ndarray) -> np.ndarray:
    """Columns [rows, ...] with gaps filled by what stood before them (after them, at the beginning)."""
    filled = values.copy()
    for column in filled.T:
        known = np.flatnonzero(np.isfinite(column))
        if len(known):
            place = np.clip(np.searchsorted(known, np.arange(len(column)), side="right") - 1, 0, None)
            column[:] = column[known[place]]
    return filled


def ready_or_granted(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Replicas that were ready; of a deployment of which that is never logged, those granted."""
    ready = columns["ready_replicas"]
    found: np.ndarray = np.where(np.isnan(ready).all(axis=0), columns["num_replicas"], ready)
    return found


def _means_of_tails(tails: dict[str, tuple[dict[str, np.ndarray], np.ndarray]]) -> tuple[str, ...]:
    """Fills means that are never logged from 95 % quantiles, and says so; who -> columns, 95 % quantiles."""
    filled = []
    for who, (columns, tail_s) in tails.items():
        if np.isnan(columns["response_s"]).all() and np.isfinite(tail_s).any():
            columns["response_s"] = tail_s / P95_OF_EXPONENTIAL
            filled.append(
                f"mean response times of the {who}: a third of the 95 % quantile, as of exponential times"
            )
    return tuple(filled)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _interval_of(table: pa.Table, archive: Archive) -> float:
    lengths = np.unique(_numbers(table["interval_s"]))
    if len(lengths) > 1:
        raise ArchiveError(
            "the log has intervals of several lengths",
            where=f"{archive.path}: table {TABLE}, column interval_s",
            allowed=f"one length; there are {first(f'{one:g} s' for one in lengths)}",
            advice="import the metrics with one step",
        )
    if lengths[0] <= 0.0:
        raise ArchiveError(
            f"the log has intervals of {lengths[0]:g} s", where=f"{archive.path}: table {TABLE}, column interval_s",
            allowed="seconds, more than 0", advice="import the metrics with the step that they were measured with",
        )  # fmt: skip
    return float(lengths[0])


def _refuse_far_apart(
    archive: Archive, row: np.ndarray, num_rows: int, begin_s: float, interval_s: float
) -> None:
    """ArchiveError where the longest gap between samples is nearly all of the log."""
    sampled = np.unique(row)
    if num_rows <= MOST_ROWS or num_rows <= MOST_GAPS * len(sampled):
        return
    gap = int(np.argmax(np.diff(sampled)))
    ends = [
        dt.datetime.fromtimestamp(begin_s + float(one) * interval_s, dt.UTC) for one in sampled[gap : gap + 2]
    ]
    raise ArchiveError(
        f"the samples lie too far apart: there is none between {ends[0]:%Y-%m-%d %H:%M} and {ends[1]:%Y-%m-%d %H:%M}",
        where=f"{archive.path}: table {TABLE}, column time",
        allowed=f"samples in one of {MOST_GAPS} intervals of {interval_s:g} s, at least",
        advice="leave rows out whose clock was wrong, or name the days ([days] first_day, last_day)",
    )


def _refuse_off_grid(archive: Archive, time_s: np.ndarray, row: np.ndarray, interval_s: float) -> None:
    off = np.flatnonzero(np.abs(time_s - row * interval_s) > 0.01 * interval_s)
    if len(off):
        raise ArchiveError(
            f"{len(off)} samples do not stand on the grid of intervals of {interval_s:g} s",
            where=f"{archive.path}: table {TABLE}, column time, rows {first(off)}",
            allowed="instants a whole number of intervals after midnight (UTC)",
            advice="query the metrics with one step, aligned",
        )
