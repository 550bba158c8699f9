"""Kinds of a service: requests that take longer on some nodes than on others by a label beside their service.

Where data sets lie on some nodes, projects or users have their caches there, or inputs are fetched from the site that
asks, how long a run takes on a node depends on the service and on what else the request says, and no table of services
and nodes has that:

    log(run / expected) = overall + of the node + of the kind on that node + scatter,   kind = (service, label)

So where left-out halves of a log are forecast better by kinds, beyond chance and by a share of the variance, the
services of the vocabulary are such kinds ("ocr of maps"), and whatever is learned of services (run times and levels,
start-ups, places) is learned of them. The services themselves stay beside them, for labels that are rare or unknown.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twin.conventions import KIND, KINDS_BY
from twin.placement.columns import amount, index_of, label_index
from twin.placement.cross_validation import MIN_RUNS, forecasts_better
from twin.placement.service_times import RunRatios, median_by, run_ratios, shrunk_means, without_history
from twin.placement.types import Cluster
from twin.records import at_rows

MAX_KINDS = 120
"""Kinds kept, the most frequent first; the others are their service."""
RUNS_A_NODE = 4
"""Runs of a kind for every node, without which it is its service."""

Labels = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Indices [rows] of services, scenarios and queues."""


class _KindRuns(NamedTuple):
    """Runs of a log in order of arrival; leaves [rows]."""

    service: np.ndarray
    kind: np.ndarray
    node: np.ndarray
    run_s: np.ndarray
    stated_s: np.ndarray  # NaN where the request does not state its run time


def service_index(rows: pa.Table, cluster: Cluster) -> np.ndarray:
    """[rows] int32 index of every request among the services of the vocabulary: its kind, where that is one of them."""
    service = label_index(rows, "service", cluster.services)
    if not cluster.kinds_by:
        return service
    kind = index_of(_names(rows, cluster.kinds_by), cluster.services, missing=-1)
    return np.where(kind < 0, service, kind).astype(np.int32)


def labels_of(rows: pa.Table, cluster: Cluster) -> Labels:
    """Indices [rows] of services, scenarios and queues."""
    return (
        service_index(rows, cluster),
        label_index(rows, "scenario", cluster.scenarios),
        label_index(rows, "queue", cluster.queues),
    )


def usual_of_services(
    cluster: Cluster, rows: pa.Table, service: np.ndarray, run_s: np.ndarray
) -> list[float]:
    """[services] medians of the run times [rows] that are known, of services with kinds over all of these.

    Args:
        cluster: With the vocabulary.
        rows: Of the training days.
        service: [rows] of `service_index`.
        run_s: [rows] logged run time in seconds, NaN where unknown.
    """
    found = median_by(service, run_s, len(cluster.services))
    if cluster.kinds_by:
        logged = label_index(rows, "service", cluster.services)
        whole = median_by(logged, run_s, len(cluster.services))
        for one in np.unique(logged).tolist():
            found[one] = whole[one]
    return found


def services_too(
    ratios: RunRatios, cluster: Cluster, rows: pa.Table, node: np.ndarray, run_s: np.ndarray
) -> RunRatios:
    """Tables of kinds with those of the services themselves over all of their runs: for labels that are none of the
    vocabulary's.

    Args:
        ratios: Leaves [services, nodes], by `service_index`.
        cluster, rows: As above.
        node: [rows] index, -1 where the log does not name it.
        run_s: [rows] logged run time in seconds, NaN where unknown.
    """
    if not cluster.kinds_by:
        return ratios
    logged = label_index(rows, "service", cluster.services)
    usual_s = np.array(median_by(logged, run_s, len(cluster.services)))
    stated_s = amount(rows, "requested_run_s", np.nan)
    expected_s = np.where(np.isnan(stated_s), usual_s[logged], stated_s)
    whole, named = run_ratios(logged, node, run_s, expected_s, ratios.ratio.shape), np.unique(logged)
    ratio, variance = ratios.ratio.copy(), ratios.variance.copy()
    ratio[named], variance[named] = whole.ratio[named], whole.variance[named]
    return RunRatios(ratio, variance)


def with_kinds(cluster: Cluster, rows: pa.Table, node: np.ndarray, run_s: np.ndarray) -> Cluster:
    """A cluster whose services are kinds, where the log shows that run times on nodes go by them.

    Args:
        cluster: Of the log, services as logged, without tables.
        rows: Of the training days, in order of arrival.
        node: [rows] index, -1 where the log does not name it.
        run_s: [rows] logged run time in seconds, NaN where unknown.
    """
    service = label_index(rows, "service", cluster.services)
    stated_s = amount(rows, "requested_run_s", np.nan)
    known = np.flatnonzero((node >= 0) & (np.nan_to_num(run_s) > 0.0) & ~(stated_s <= 0.0))
    if len(known) < MIN_RUNS:
        return cluster
    for by in KINDS_BY:
        told = _told_apart(cluster, rows, by)
        if told is not None:
            runs = at_rows(_KindRuns(service, service_index(rows, told), node, run_s, stated_s), known)
            if _forecast_better(runs, len(cluster.services), len(told.services), cluster.num_nodes):
                return told
    return cluster


def _told_apart(cluster: Cluster, rows: pa.Table, by: str) -> Cluster | None:
    """The cluster with the kinds of a label beside its services; None where the label says no more than they do."""
    found = pc.value_counts(_names(rows, by).drop_null())
    often = [
        (-count, name)
        for name, count in zip(
            found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True
        )
        if count >= RUNS_A_NODE * cluster.num_nodes and name not in cluster.services
    ]
    kinds = [name for _, name in sorted(often)[:MAX_KINDS]]
    if len(kinds) < len(cluster.services):  # of which one is "unknown"
        return None
    services = (*cluster.services, *kinds)
    tables = without_history(len(services), cluster.num_nodes, len(cluster.scenarios))
    ratio, variance = tables["run_ratio"], tables["run_variance"]
    return replace(cluster, services=services, kinds_by=by, run_ratio=ratio, run_variance=variance)


def _names(rows: pa.Table, by: str) -> pa.Array:
    """[rows] names of kinds; null where the service or the label is."""
    service, label = (pc.cast(rows[name], pa.string()) for name in ("service", by))
    return pc.binary_join_element_wise(service, label, KIND)


def _forecast_better(runs: _KindRuns, num_services: int, num_kinds: int, num_nodes: int) -> bool:
    """Whether kinds on nodes forecast left-out halves better than services on nodes, times what the label says of
    a service anywhere."""

    def errors(fitted: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        some, left_out = at_rows(runs, fitted), at_rows(runs, held)
        seen, plain = _residuals(some, left_out, some.service, left_out.service, (num_services, num_nodes))
        of_kind, _ = shrunk_means(seen, some.kind, num_kinds)
        _, told = _residuals(some, left_out, some.kind, left_out.kind, (num_kinds, num_nodes))
        return (plain - of_kind[left_out.kind]) ** 2, told**2

    return forecasts_better(len(runs.node), errors)


def _residuals(
    some: _KindRuns, other: _KindRuns, index: np.ndarray, other_index: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """[rows] of some runs and of others, log(run / expected) by tables [services or kinds, nodes] of the former."""
    usual_s = np.array(median_by(index, some.run_s, shape[0]))
    expected_s, others_s = (
        np.where(np.isnan(runs.stated_s), usual_s[of], runs.stated_s)
        for runs, of in ((some, index), (other, other_index))
    )
    ratio = run_ratios(index, some.node, some.run_s, expected_s, shape).ratio
    return (
        np.log(some.run_s / (expected_s * ratio[index, some.node])),
        np.log(other.run_s / (others_s * ratio[other_index, other.node])),
    )
