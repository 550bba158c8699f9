"""The state evaluation model from a log: every edge's computing time and replicas, and the ways between sites.

What is needed stands in `requests`: a size, the node that ran it, and how long, from start to finish. As size serves
the column that predicts held-out computing times best (`ran_requests.SIZES`). Ways are fitted where the log times
them (`ways`). Logged services are not distinguished.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from logs_schema import Archive
from logs_schema.errors import ConfigError, first
from logs_schema.logged_days import LoggedDays
from twin.assignment.compute_times import (
    QUANTILES,
    ComputeTime,
    fit_compute_times,
    fit_fallbacks,
    forecast_error,
    without_history,
)
from twin.assignment.ran_requests import COLUMNS, SIZES, RanRequests, known, never_ran, read_ran
from twin.assignment.ways import Way, fit_ways
from twin.placement.peaks import cores_in_use

_BETTER = 0.02
"""What a later size column must gain on an earlier one, relatively."""


@dataclass(frozen=True)
class EdgesFromLog:
    """What a log says of its edges: the twin of the assignment problem.

    Attributes:
        compute: Name of the edge -> its computing time over the size.
        replicas: Name -> requests at the same time: its cores over the cores of a usual request.
        size: The column that is taken for the size.
        sizes: Their distribution at `QUANTILES` places from its smallest to its largest.
        num_rows: That were used.
        notes: What the log lacks, and what stands in its place.
        sites: Name of the edge -> its site.
        classes: Name -> its class; none where unknown.
        ways: Site of arrival -> site of the edge -> way of an input; empty where the log does not time them.
        per_s: Requests a second in the busiest hour.
        fallbacks: Functions of edges without history, see `compute_times.without_history`.
        usual_cores: Of a request.
    """

    compute: Mapping[str, ComputeTime]
    replicas: Mapping[str, int]
    size: str
    sizes: tuple[float, ...]
    num_rows: int
    notes: tuple[str, ...]
    sites: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)
    ways: Mapping[str, Mapping[str, Way]] = field(default_factory=dict)
    per_s: float = 0.0
    fallbacks: Mapping[str, ComputeTime] = field(default_factory=dict)
    usual_cores: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """The edges, in the order of all arrays."""
        return tuple(self.compute)

    @property
    def mean_s(self) -> float:
        """Mean computing time of a request over all sizes and edges, each by its replicas."""
        each = [one.at(np.array(self.sizes)).mean() for one in self.compute.values()]
        return float(np.average(each, weights=list(self.replicas.values())))


def lacking(archive: Archive) -> str:
    """Why a log cannot support the assignment problem, in words; empty where it can."""
    named = ("ran_node", "offered_node", "run_s", "start", "finish", *SIZES)
    table, parts = archive.read("requests", columns=list(named)), []
    if not any(known(table, name) for name in SIZES):
        parts.append(f"no size of requests (column {', '.join(SIZES[:-1])} or {SIZES[-1]})")
    if not (known(table, "ran_node") or known(table, "offered_node")):
        parts.append("no node that ran them (column ran_node or offered_node)")
    if not (known(table, "run_s") or (known(table, "start") and known(table, "finish"))):
        parts.append("no time that they took (start and finish, or run_s)")
    if (num_nodes := archive.nodes().num_rows) < 2:
        parts.append(
            f"{num_nodes or 'no'} node{'' if num_nodes else 's'} in the table nodes, and two are needed"
        )
    return "; ".join(parts)


def fit_edges(
    archive: Archive, days: Sequence[dt.date] | None = None, size: str | None = None
) -> EdgesFromLog:
    """Learns the edges of a log.

    Args:
        archive: With requests that ran.
        days: To learn from; all where None.
        size: The column that is taken for the size; the one that predicts best where None.

    Raises:
        ConfigError: The log lacks what is needed, by name, or has too few such requests.
    """
    if reason := lacking(archive):
        raise ConfigError(
            f"the log does not tell how edges compute: {reason}",
            where=f"{archive.path}, table requests",
            allowed=", ".join(COLUMNS),
            advice="import a log that has them, or name another problem",
        )
    nodes = archive.nodes()
    names, classes = nodes["node_id"].to_pylist(), nodes["node_class"].to_pylist()
    rows, sites, cores = (
        read_ran(archive, names, days),
        nodes["site"].to_pylist(),
        nodes["cpu_cores"].to_pylist(),
    )
    errors = _size_errors(rows)
    if size is None:
        size = min(errors, key=lambda name: errors[name] * (1.0 + _BETTER * SIZES.index(name)))
    used = _sized(rows, size)
    ran = (rows.edge[used], rows.sizes[size][used], rows.seconds[used])
    compute = fit_compute_times(names, classes, *ran)
    held = rows.cores[rows.cores > 0.0]
    usual_cores = float(np.median(held)) if len(held) else 1.0
    known_cores = cores if any(cores) else _most_at_once(archive, days)
    replicas = [_replicas(one, usual_cores) for one in known_cores]
    return EdgesFromLog(
        compute=compute,
        replicas=dict(zip(names, replicas, strict=True)),
        size=size,
        sizes=tuple(np.quantile(rows.sizes[size][used], np.linspace(0.0, 1.0, QUANTILES)).tolist()),
        num_rows=int(used.sum()),
        notes=(
            *_notes(compute, size, errors, rows.num_left_out + int(np.sum(~used)), any(cores)),
            *_hosted_somewhere(archive, rows, names),
        ),
        sites=dict(zip(names, sites, strict=True)),
        classes={name: one for name, one in zip(names, classes, strict=True) if one is not None},
        ways=fit_ways(rows, sites, np.array([one or 1.0 for one in cores])),
        per_s=_busiest_hour_per_s(rows.arrival_s),
        fallbacks=fit_fallbacks(classes, *ran),
        usual_cores=usual_cores,
    )


def with_newcomers(edges: EdgesFromLog, archive: Archive) -> tuple[EdgesFromLog, list[str]]:
    """The edges with those that a later log has besides, and notes: they have no history, so their class's function."""
    nodes = archive.nodes().select(["node_id", "node_class", "site", "cpu_cores"]).to_pylist()
    new = [one for one in nodes if one["node_id"] not in edges.compute]
    compute, replicas, sites = dict(edges.compute), dict(edges.replicas), dict(edges.sites)
    for one in new:
        name = one["node_id"]
        compute[name] = without_history(edges.fallbacks, one["node_class"])
        replicas[name], sites[name] = _replicas(one["cpu_cores"], edges.usual_cores), one["site"]
    notes = _by_source({one["node_id"]: compute[one["node_id"]] for one in new}, "not there in training")
    return replace(edges, compute=compute, replicas=replicas, sites=sites), notes


def _most_at_once(archive: Archive, days: Sequence[dt.date] | None) -> list[float]:
    """Cores of every node, where the log has none of any: the most that its requests had at once."""
    columns = ["start", "finish", "ran_node", "offered_node", "cpu_cores", "num_nodes"]
    found: list[float] = cores_in_use(
        archive.nodes(), archive.read("requests", columns=columns, days=days)
    ).tolist()
    return found


def _replicas(cores: float | None, usual_cores: float) -> int:
    return max(1, int((cores or 1.0) // usual_cores))


def fit_edge_days(days: LoggedDays, *, seed: int = 0) -> EdgesFromLog:
    """The edges of some days of a log; `seed` is not used, as nothing is drawn."""
    return fit_edges(days.archive, list(days.days))


def _sized(rows: RanRequests, size: str) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        used: np.ndarray = rows.sizes[size] > 0.0
    return used


def _size_errors(rows: RanRequests) -> dict[str, float]:
    """Size column -> error of held-out computing times, see `forecast_error`."""
    found = {}
    for name in rows.sizes:
        used = _sized(rows, name)
        found[name] = forecast_error(rows.edge[used], rows.sizes[name][used], rows.seconds[used])
    return found


def _notes(
    compute: Mapping[str, ComputeTime], size: str, errors: Mapping[str, float], num_left: int, has_cores: bool
) -> list[str]:
    notes = _by_source(compute, "too few requests of their own")
    if not has_cores:
        notes.append(
            "no node has any cores, so each serves as many requests at once as it did in the log: a guess"
        )
    if not np.isfinite(errors.get(SIZES[0], np.inf)):
        notes.append(f"the log has no {SIZES[0]}: {size} stands for the size")
    elif size != SIZES[0]:
        notes.append(
            f"{size} stands for the size: by it held-out computing times are off by a factor of "
            f"{np.exp(errors[size]):.2f}, by {SIZES[0]} of {np.exp(errors[SIZES[0]]):.2f}"
        )
    if num_left > 0:
        notes.append(f"{num_left} requests without node, size or time, or cut short, were left out")
    return notes


def _hosted_somewhere(archive: Archive, rows: RanRequests, names: Sequence[str]) -> list[str]:
    """That services run on some edges alone and requests do not say on which, where that shows."""
    if found := never_ran(rows, len(names)):
        some = first([f"{service} on {names[edge]}" for service, edge in found])
        why = f"services never ran on edges where others from the same sites did ({some})"
    elif rows.hosts is None and archive.num_rows("replicas"):
        why = "services run where they have replicas, as the table replicas says"
    else:
        return []
    return [
        f"the log names no candidates, and {why}: requests count as able to run everywhere; map the nodes that may run "
        "a request to candidates, and name its edges in every question"
    ]


def _by_source(compute: Mapping[str, ComputeTime], why: str) -> list[str]:
    """Why edges have the functions of others, a sentence for each of these."""
    names: dict[str, list[str]] = {}
    for name, found in compute.items():
        if found.source != "own":
            names.setdefault(found.source, []).append(name)
    return [f"{first(each)}: {why}, so the function of {source}" for source, each in names.items()]


def _busiest_hour_per_s(arrival_s: np.ndarray) -> float:
    if not len(arrival_s):
        return 0.0
    hour = ((arrival_s - arrival_s[0]) // 3600.0).astype(int)
    return float(np.bincount(hour).max() / min(3600.0, max(1.0, arrival_s[-1] - arrival_s[0])))
