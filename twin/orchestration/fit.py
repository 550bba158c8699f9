"""Fits the chance of slot mode to a log: arrivals, ways, runs, pulls of images, failures. NumPy; seconds for a day.

Runs are censored: a request that was dropped while it was served had run at least so long. Ratios of services and nodes
are therefore maximum-likelihood estimates of a censored lognormal law (expectation and maximisation, cells shrunk
towards the sum of a service's and a node's effect), and the scatter about them is a product-limit estimate.

Source: A. Dempster, N. Laird, D. Rubin, Maximum likelihood from incomplete data via the EM algorithm, 1977; E. Kaplan,
P. Meier, Nonparametric estimation from incomplete observations, 1958.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d

from logs_schema import Archive
from logs_schema.errors import ArchiveError
from logs_schema.logged_days import LoggedDays
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.encode import (
    ReplicaRows,
    SampleRows,
    SlotRows,
    describe_cluster,
    read_replicas,
    read_rows,
    read_samples,
)
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.learned import ChanceTables
from twin.placement.run_filter import DRIFT_PER_DAY, LEAST_SCATTER, RunDynamics
from twin.placement.types import COMPLETED

LOCAL, ELSEWHERE, CLOUD = range(3)
NUM_SIZES, MOST_SLOTS, NUM_QUANTILES = 4, 8, 200
MISSED = 10.0
"""Arrivals that other days have where a day at the end of a log has none: with e^-10, by chance."""
MOVED = 0.2
"""Variance by which the logarithm of a run time of a service on a node is taken to have moved since the log, when a day
begins. Of 0, .012 and .2 the expected on-time rule had .866, .901 and .916 on time a month later on `kmps`, .726, .759
and .780 on `kais`; on the day of the log .932, .932, .933 and .874, .878, .881."""


@dataclass(frozen=True)
class ChanceFitConfig:
    """How tables are made.

    Attributes:
        num_bins: Bins of the time of day.
        smooth_bins: Deviation of the kernel over the time of day, in bins.
        shrink_rows: Rows that a cell of service and node must have to count as much as the sum of their effects.
        num_rounds: Of expectation and maximisation.
    """

    num_bins: int = 96
    smooth_bins: float = 1.5
    shrink_rows: float = 20.0
    num_rounds: int = 12


class FittedCluster(NamedTuple):
    """A twin of slot mode."""

    edge: EdgeCloud
    frames: FrameConfig
    tables: ChanceTables

    def as_known(self, case: EdgeCloud) -> EdgeCloud:
        """A cluster of the same nodes and services, with the times and sizes of images that the log has."""
        return case._replace(pull_s=self.edge.pull_s, pull_mib=self.edge.pull_mib)


def fit_orchestration(
    archive: Archive, days: Sequence[dt.date], config: ChanceFitConfig | None = None
) -> FittedCluster:
    """The twin of some days.

    Raises:
        ArchiveError: the log lacks what the problem needs, or no run of it has ended.
    """
    edge, frames = describe_cluster(archive, days)
    rows = read_rows(archive, days, edge.cluster)
    return fit_rows(
        archive,
        edge,
        frames,
        rows,
        read_replicas(archive, days, edge.cluster),
        read_samples(archive, days, edge.cluster),
        len(days),
        config or ChanceFitConfig(),
    )


def fit_orchestration_days(
    days: LoggedDays, *, seed: int = 0, config: ChanceFitConfig | None = None
) -> FittedCluster:
    """As `fit_orchestration`, from Python; the seed is not used: nothing is drawn."""
    return fit_orchestration(days.archive, days.days, config)


def fit_rows(
    archive: Archive,
    edge: EdgeCloud,
    frames: FrameConfig,
    rows: SlotRows,
    replicas: ReplicaRows,
    samples: SampleRows,
    num_days: int,
    config: ChanceFitConfig,
) -> FittedCluster:
    """As `fit_orchestration`, of rows in the vocabulary of a cluster that is known already."""
    if not np.any(rows.status == COMPLETED):
        raise ArchiveError(
            "no run has ended on the days to learn from",
            where=f"{archive.path}, table requests",
            allowed="rows with start, finish and status completed",
            advice="name other days",
        )
    slot_s = edge.config.slot_s
    day_s = np.ceil(rows.arrival_s.max() / slot_s) * slot_s
    ratio, scatter = fit_runs(edge, rows, config)
    ways = fit_ways(edge, rows)
    order = np.lexsort((np.arange(len(rows.day)), rows.service))
    num_rows = np.bincount(rows.service, minlength=edge.num_services)
    down, up = fit_failures(edge, samples)
    requested_run_s, deadline_s, input_mib = (
        leaf[order].astype(np.float32) for leaf in (rows.requested_run_s, rows.deadline_s, rows.input_mib)
    )
    tables = ChanceTables(
        day_s=np.asarray(day_s, np.float32),
        rate_per_s=fit_rates(edge, rows, day_s, num_days, config),
        first_row=(np.cumsum(num_rows) - num_rows).astype(np.int32),
        num_rows=num_rows.astype(np.int32),
        requested_run_s=requested_run_s,
        deadline_s=deadline_s,
        input_mib=input_mib,
        scenario=rows.scenario[order].astype(np.int32),
        log_ratio=ratio,
        scatter=scatter,
        way_kind=ways[0],
        input_edges=ways[1],
        way_slots=ways[2],
        goes_down=down,
        comes_up=up,
    )
    pull_s = fit_pulls(edge, replicas, samples)
    spread = float(np.mean(np.exp(scatter)))
    cluster = replace(
        edge.cluster,
        run_ratio=np.exp(ratio) * spread,
        run_variance=np.full(ratio.shape, MOVED),
        dynamics=RunDynamics(max(float(np.var(scatter)), LEAST_SCATTER), drift_per_day=DRIFT_PER_DAY),
    )
    return FittedCluster(edge._replace(cluster=cluster, pull_s=pull_s), frames, tables)


def fit_rates(
    edge: EdgeCloud, rows: SlotRows, day_s: float, num_days: int, config: ChanceFitConfig
) -> np.ndarray:
    """[bins, services, sites] arrivals a second, smoothed over the time of day, as `days_seen` of the log; of times
    that no day shows straight from those before to those after."""
    bins = np.clip((rows.arrival_s / day_s * config.num_bins).astype(int), 0, config.num_bins - 1)
    shape = (config.num_bins, edge.num_services, len(edge.cluster.sites))
    counts = np.zeros(shape)
    np.add.at(counts, (bins, rows.service, rows.site), 1.0)
    seen = days_seen(bins, rows.day, num_days, config.num_bins)
    shown, hidden = np.flatnonzero(seen > 0.0), np.flatnonzero(seen <= 0.0)
    counts[shown] *= (num_days / seen[shown])[:, None, None]
    counts[hidden] = np.apply_along_axis(partial(np.interp, hidden, shown), 0, counts[shown])
    smooth = gaussian_filter1d(counts, config.smooth_bins, axis=0, mode="nearest")
    return (smooth / (num_days * day_s / config.num_bins)).astype(np.float32)


def days_seen(bins: np.ndarray, day: np.ndarray, num_days: int, num_bins: int) -> np.ndarray:
    """[bins] how many days show each time of day.

    The first day need not begin at midnight, nor the last end there: a stretch without arrivals at such an end is not
    seen where the other days have `MISSED` arrivals in it or more.
    """
    seen = np.full(num_bins, float(num_days))
    if num_days < 2:
        return seen
    counts = np.zeros((num_days, num_bins))
    np.add.at(counts, (day, bins), 1.0)
    for end, side in ((0, slice(None)), (num_days - 1, slice(None, None, -1))):
        others = (counts.sum(axis=0) - counts[end])[side] / (num_days - 1)
        begin = int(np.argmax(counts[end][side] > 0.0))
        if others[:begin].sum() >= MISSED:
            seen[side][:begin] -= 1.0
    return seen


def fit_runs(edge: EdgeCloud, rows: SlotRows, config: ChanceFitConfig) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of run over request [services, nodes], and quantiles of the scatter about it."""
    ran = (rows.node >= 0) & np.isfinite(rows.start_s) & np.isfinite(rows.finish_s)
    ran &= (rows.finish_s > rows.start_s) & (rows.requested_run_s > 0.0)
    service, node = rows.service[ran], rows.node[ran]
    value = np.log((rows.finish_s - rows.start_s)[ran] / rows.requested_run_s[ran])
    ended = rows.status[ran] == COMPLETED
    mean, deviation = np.full(len(value), value[ended].mean()), max(value[ended].std(), 1e-3)
    table = np.full((edge.num_services, edge.num_nodes), mean[0])
    for _ in range(config.num_rounds):
        expected, second = _completed(value, ended, mean, deviation)
        table = _cells(service, node, expected, table.shape, config.shrink_rows)
        mean = table[service, node]
        deviation = max(float(np.sqrt(np.mean(second - 2 * expected * mean + mean**2))), 1e-3)
    return table.astype(np.float32), _quantiles(value - mean, ended, deviation)


def _completed(
    value: np.ndarray, ended: np.ndarray, mean: np.ndarray, deviation: float
) -> tuple[np.ndarray, np.ndarray]:
    """First and second moments of every logarithm, given what was seen of it."""
    from scipy.stats import norm

    z = (value - mean) / deviation
    hazard = np.exp(norm.logpdf(z) - norm.logsf(z))
    first = np.where(ended, value, mean + deviation * hazard)
    second = np.where(ended, value**2, mean**2 + deviation**2 + deviation * (mean + value) * hazard)
    return first, second


def _cells(
    service: np.ndarray, node: np.ndarray, value: np.ndarray, shape: tuple[int, int], shrink_rows: float
) -> np.ndarray:
    """Means of cells, shrunk towards the sum of a service's and a node's effect."""
    overall = value.mean()
    of_service, of_node = np.zeros(shape[0]), np.zeros(shape[1])
    for _ in range(5):
        of_service = _shrunk(service, value - overall - of_node[node], shape[0], shrink_rows)
        of_node = _shrunk(node, value - overall - of_service[service], shape[1], shrink_rows)
    usual = overall + of_service[:, None] + of_node[None]
    cell = service * shape[1] + node
    rest = _shrunk(cell, value - usual[service, node], shape[0] * shape[1], shrink_rows)
    return usual + rest.reshape(shape)


def _shrunk(group: np.ndarray, value: np.ndarray, num_groups: int, shrink_rows: float) -> np.ndarray:
    total, count = np.bincount(group, value, num_groups), np.bincount(group, minlength=num_groups)
    return total / (count + shrink_rows)


def _quantiles(residual: np.ndarray, ended: np.ndarray, deviation: float) -> np.ndarray:
    """The product-limit estimate at (k + 1/2) / quantiles; a normal law beyond the last end that was seen."""
    from scipy.stats import norm

    order = np.lexsort((~ended, residual))
    left = len(residual) - np.arange(len(residual))
    survival = np.cumprod(1.0 - ended[order] / left)
    probability = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
    place = np.searchsorted(1.0 - survival, probability)
    seen = place < len(residual)
    tail = np.maximum(residual.max(), norm.ppf(probability) * deviation)
    return np.where(seen, residual[order][np.minimum(place, len(residual) - 1)], tail).astype(np.float32)


def fit_ways(edge: EdgeCloud, rows: SlotRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kinds of ways [sites, nodes], edges of sizes of inputs, distribution of slots [kinds, sizes, slots].

    Of requests that found their node empty, the start shows how many slots the way took.
    """
    cluster = edge.cluster
    same = np.arange(len(cluster.sites))[:, None] == cluster.site_of_node[None]
    kinds = np.where(same, LOCAL, np.where(cluster.is_cloud[None], CLOUD, ELSEWHERE)).astype(np.int32)
    sent = (rows.node >= 0) & np.isfinite(rows.start_s) & _found_empty(rows)
    kind, size_mib = kinds[rows.site[sent], rows.node[sent]], rows.input_mib[sent]
    edges = (
        np.quantile(size_mib, np.arange(1, NUM_SIZES) / NUM_SIZES) if sent.any() else np.zeros(NUM_SIZES - 1)
    )
    slots = np.rint((rows.start_s - rows.decided_s)[sent] / edge.config.slot_s).astype(int)
    slots = np.clip(slots, 1, MOST_SLOTS) - 1
    counts = np.zeros((3, NUM_SIZES, MOST_SLOTS))
    np.add.at(counts, (kind, (size_mib[:, None] > edges).sum(axis=1), slots), 1.0)
    counts += 1e-3 * (np.arange(MOST_SLOTS) == 0)  # nothing known: the next slot
    return (
        kinds,
        edges.astype(np.float32),
        np.cumsum(counts / counts.sum(-1, keepdims=True), -1).astype(np.float32),
    )


def _found_empty(rows: SlotRows) -> np.ndarray:
    """[rows] bool: nothing was at the node, or on its way there, when the request was sent."""
    sent = np.flatnonzero((rows.node >= 0) & np.isfinite(rows.decided_s))
    empty = np.zeros(len(rows.day), bool)
    place = rows.day[sent] * (rows.node.max() + 1) + rows.node[sent]
    end_s = np.where(np.isfinite(rows.finish_s[sent]), rows.finish_s[sent], np.inf)
    for one in np.unique(place):
        mine = sent[place == one]
        begins, ends = np.sort(rows.decided_s[mine]), np.sort(end_s[place == one])
        now = rows.decided_s[mine]
        present = np.searchsorted(begins, now, side="right") - 1 - np.searchsorted(ends, now, side="right")
        empty[mine] = present == 0
    return empty


def fit_failures(edge: EdgeCloud, samples: SampleRows) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [nodes] to go down and to come up in a slot, from what nodes report."""
    down, up = np.zeros(edge.num_nodes, np.float32), np.zeros(edge.num_nodes, np.float32)
    if samples.available.all():
        return down, up
    for node in range(edge.num_nodes):
        mine = samples.node == node
        order = np.lexsort((samples.time_s[mine], samples.day[mine]))
        state, time_s, day = (leaf[mine][order] for leaf in (samples.available, samples.time_s, samples.day))
        span = np.where(day[1:] == day[:-1], np.diff(time_s), 0.0) / edge.config.slot_s
        falls, rises = state[:-1] & ~state[1:], ~state[:-1] & state[1:]
        down[node] = falls.sum() / max(span[state[:-1]].sum(), 1.0)
        up[node] = rises.sum() / max(span[~state[:-1]].sum(), 1.0)
    return down, up


def fit_pulls(edge: EdgeCloud, replicas: ReplicaRows, samples: SampleRows) -> np.ndarray:
    """[services, nodes] seconds from when memory is taken to when the replica serves, where the node had none before.

    Memory is known at samples: it was taken after the last of them that did not show it. Medians by service, at the
    edge and in the cloud; where no image of a service was pulled there, in proportion to its memory.
    """
    tier = edge.cluster.is_cloud.astype(int)
    order = np.lexsort((replicas.time_s, replicas.day))
    hosted: dict[tuple[int, int, int], int] = {}
    found: dict[tuple[int, int], list[float]] = {}
    for row in order:
        at = int(replicas.day[row]), int(replicas.service[row]), int(replicas.node[row])
        before, after = hosted.get(at, 0), int(replicas.num_replicas[row])
        hosted[at] = after
        if before or not after or replicas.time_s[row] <= 0.0:
            continue
        until_s = float(replicas.time_s[row])
        taken_s = _taken_s(samples, at[0], at[2], until_s, float(edge.replica_gib[at[1]]))
        if taken_s is not None:
            found.setdefault((at[1], int(tier[at[2]])), []).append(until_s - taken_s)
    median = {key: float(np.median(values)) for key, values in found.items()}
    known = np.zeros((edge.num_services, 2))
    for one in range(2):
        mine = {service: value for (service, where), value in median.items() if where == one}
        per_gib = (
            np.median([value / edge.replica_gib[service] for service, value in mine.items()]) if mine else 0.0
        )
        known[:, one] = per_gib * edge.replica_gib
        known[list(mine), one] = list(mine.values())
    return known[:, tier].astype(np.float32)


def _taken_s(samples: SampleRows, day: int, node: int, until_s: float, gib: float) -> float | None:
    """When a node took the memory of a replica that serves at `until_s`; None where no sample shows it."""
    mine = np.flatnonzero((samples.day == day) & (samples.node == node))
    mine = mine[np.argsort(samples.time_s[mine])]
    last = int(np.searchsorted(samples.time_s[mine], until_s, side="right"))
    mine = mine[: last + 1]
    jumps = np.flatnonzero(np.diff(samples.memory_gib[mine]) >= gib - 1e-3)
    return float(samples.time_s[mine[jumps[-1]]]) if len(jumps) else None
