"""What is fixed before any array is made: nodes, vocabularies, estimates and scales, all from the training days.

An `Encoding` is fitted once, on training days, and travels with the twin and the policy: whatever is encoded later,
on whatever day, means the same. Values unseen in training are "unknown" (index 0), never a new index.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.calendar import DAY_S, DAYS_A_WEEK
from logs_schema.errors import ConfigError, first
from logs_schema.records import with_tuples
from twin.placement.acceptance import fit_acceptance
from twin.placement.bookkeeping import VIEWS, PlacementConfig
from twin.placement.cold_starts import cold_starts_of
from twin.placement.columns import (
    amount,
    decided_node,
    instant_s,
    node_index,
    refused,
    vocabulary,
)
from twin.placement.crowding import crowded_runs
from twin.placement.disciplines import disciplines_of
from twin.placement.hazards import fit_runs_and_hazards, run_log
from twin.placement.naming import class_names, wants_classes
from twin.placement.pace import fit_slowing, pace_of
from twin.placement.peaks import cores_in_use, depth_of
from twin.placement.pieces import pieces
from twin.placement.priorities import QueuedRuns, fit_priorities, priorities_of
from twin.placement.queue_nodes import bound_queues, with_sets
from twin.placement.reported_ends import ReportedEnds, reported_ends_of, with_amended_ends
from twin.placement.run_filter import RunDynamics, fit_dynamics, runs_of
from twin.placement.run_habits import RunHabits, expected_s_of, fit_run_habits, run_habits_of
from twin.placement.run_labels import LabelledRuns, RunLabels, fit_run_labels, run_labels_of
from twin.placement.service_kinds import Labels, labels_of, services_too, usual_of_services, with_kinds
from twin.placement.service_times import OFFER_KINDS, without_history
from twin.placement.slots import num_views
from twin.placement.think_times import fit_returns
from twin.placement.tides import Tide, fit_tides
from twin.placement.timeouts import timeouts_of
from twin.placement.types import NUM_RESOURCES, RESOURCES, Cluster, Reaction, Repeats
from twin.placement.waiting import fit_waits
from twin.placement.wakes import fit_wakes, wakes_of

GRANULARITIES = ("auto", "node", "class")
MAX_ROWS = 1 << 20
"""Requests that estimates are made from, about at most; of more, stretches spread evenly over the training days."""
COLUMNS = (
    "arrival", "site", "scenario", "agent", "service", "queue", "cpu_cores", "num_nodes", "requested_run_s",
    "deadline_s", "candidates", "offered_node", "ran_node", "accepted", "start", "finish", "run_s", "status",
    "memory_gib", "gpus", "input_mib",
)  # fmt: skip
_ARRAYS = {name for name, each in Cluster.__dataclass_fields__.items() if each.type is np.ndarray}
_OTHERS: dict[str, Any] = {"site_of_node": np.int64, "is_cloud": np.bool_, "rules": np.bool_}
_WHERE_FOUND = {
    "scarce", "wakes", "hazard", "repeats", "awaits", "priorities", "disciplines", "unordered", "pace", "in_order",
    "shared_waits", "permits", "concurrency", "timeouts", "drops_late", "wait_limit_s", "places", "kinds_by",
}  # fmt: skip
"""Fields that are written only where the log shows them."""


@dataclass(frozen=True)
class Encoding:
    """How the days of one archive become arrays.

    Attributes:
        cluster: Nodes and vocabularies.
        node_of_name: Name of a logged node -> index of the node that decisions name (several machines may share one).
        by_class: True where decisions name node classes.
        run_of_service_s: Median logged run time of every service of the vocabulary; the stand-in for requests that
            state no run time.
        states_run: Whether requests state their run time (batch jobs).
        problem: The placement problem's configuration for this archive.
        train_days: The days it was fitted on.
        run_labels: What scenario and queue say of run times that are not stated; None: nothing.
        nodes_of_queue: Nodes that a queue's requests may use where they list no candidates, of queues that the log
            shows to be bound to some (see `queue_nodes`).
        run_habits: What agents say of run times, stated or not; None: nothing.
        reported_ends: How the ends of logged runs are amended; None: not at all.
    """

    cluster: Cluster
    node_of_name: dict[str, int]
    by_class: bool
    run_of_service_s: tuple[float, ...]
    states_run: bool
    problem: PlacementConfig
    train_days: tuple[dt.date, ...]
    run_labels: RunLabels | None = None
    nodes_of_queue: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    run_habits: RunHabits | None = None
    reported_ends: ReportedEnds | None = None

    @property
    def trained_until_s(self) -> float:
        """Seconds since 1970 of the end of the last training day."""
        return day_start_s(max(self.train_days)) + DAY_S

    @property
    def num_views(self) -> int:
        """Number of nodes, or of as many as take as long (`slots.num_views`)."""
        return num_views(self.cluster.num_nodes, self.problem.depth)

    def to_json(self) -> str:
        """The encoding as JSON text; `from_json` reads it back."""
        values = {name: getattr(self.cluster, name) for name in Cluster.__dataclass_fields__}
        cluster = {name: _plain(one) for name, one in values.items() if name not in _WHERE_FOUND or one}
        content = {
            "cluster": cluster,
            "node_of_name": self.node_of_name,
            "by_class": self.by_class,
            "run_of_service_s": list(self.run_of_service_s),
            "states_run": self.states_run,
            "problem": {name: getattr(self.problem, name) for name in PlacementConfig.__dataclass_fields__},
            "train_days": [day.isoformat() for day in self.train_days],
        }
        if self.run_labels is not None:
            content["run_labels"] = _plain(self.run_labels)
        if self.nodes_of_queue:
            content["nodes_of_queue"] = dict(self.nodes_of_queue)
        if self.run_habits is not None:
            content["run_habits"] = _plain(self.run_habits)
        if self.reported_ends is not None:
            content["reported_ends"] = _plain(self.reported_ends)
        return json.dumps(content, indent=1, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Encoding:
        """The encoding that `to_json` wrote."""
        content = json.loads(text)
        cluster: dict[str, Any] = {
            name: np.array(value, _OTHERS.get(name, np.float64)) if name in _ARRAYS else value
            for name, value in with_tuples(content["cluster"]).items()
        }
        # Earlier twins have one rate for both
        cluster["dynamics"] = RunDynamics(
            **{"aged_per_day": cluster["dynamics"].get("drift_per_day", 0.0)} | cluster["dynamics"]
        )
        cluster |= {name: Tide(**cluster.get(name, {})) for name in ("tide", "node_tide")}
        if cold := cluster.get("cold"):
            cluster["cold"] = cold_starts_of(cold)
        if reaction := cluster.get("reaction"):
            cluster["reaction"] = Reaction(**reaction)
        cluster["wakes"] = wakes_of(cluster.get("wakes"))
        cluster["repeats"] = (repeats := cluster.get("repeats")) and Repeats(**repeats)
        cluster["timeouts"] = timeouts_of(cluster.get("timeouts"))
        cluster["priorities"] = priorities_of(cluster.get("priorities"))
        cluster["disciplines"] = disciplines_of(cluster.get("disciplines"))
        cluster["concurrency"] = tuple(map(tuple, cluster.get("concurrency", ())))
        cluster["pace"] = pace_of(cluster.get("pace"))
        cluster["acceptance_of_agent"] = cluster["acceptance_of_agent"].reshape(-1, len(OFFER_KINDS))
        return Encoding(
            cluster=Cluster(**cluster),
            node_of_name=content["node_of_name"],
            by_class=content["by_class"],
            run_of_service_s=tuple(content["run_of_service_s"]),
            states_run=content["states_run"],
            problem=PlacementConfig(**content["problem"]),
            train_days=tuple(dt.date.fromisoformat(day) for day in content["train_days"]),
            run_labels=run_labels_of(content.get("run_labels")),
            nodes_of_queue={name: tuple(each) for name, each in content.get("nodes_of_queue", {}).items()},
            run_habits=run_habits_of(content.get("run_habits")),
            reported_ends=reported_ends_of(content.get("reported_ends")),
        )


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {name: _plain(one) for name, one in vars(value).items() if one is not None}
    return value.tolist() if isinstance(value, np.ndarray) else value


def fit_encoding(
    archive: Archive, train_days: Sequence[dt.date], *, granularity: str = "auto", view: str = "summary"
) -> Encoding:
    """Fits vocabularies, estimates and scales on the training days.

    Args:
        archive: The log archive.
        train_days: Days to learn from, at least one, all in the archive.
        granularity: "node": decisions name machines; "class": they name node classes, capacities summed;
            "auto": classes where requests span several nodes or there are more than 64 nodes, else machines.
        view: What a site observes of the others, see `PlacementConfig`.

    Returns:
        The encoding. Its `problem.depth` is twice the largest number of requests ever in flight on a node in the
        training days (1.5 times above 256), its `problem.time_unit_s` the median run time.

    Raises:
        ConfigError: Unknown granularity or view, no training day, a day without rows.
    """
    _refuse_unknown(archive, train_days, granularity, view)
    nodes, until_s = archive.nodes(), day_start_s(max(train_days)) + DAY_S
    looked_at = list(pieces(archive, sorted(train_days), most=MAX_ROWS, columns=COLUMNS))
    rows, looked_at, ends = with_amended_ends(looked_at, nodes, until_s)
    by_class = granularity == "class" or (granularity == "auto" and wants_classes(nodes, rows))
    run_s = _run_s(rows, until_s)
    cluster, node_of_name, node = _cluster(nodes, rows, by_class, run_s)
    service, *_ = labels = labels_of(rows, cluster)
    run_of_service = usual_of_services(cluster, rows, service, run_s)
    bound = bound_queues(rows, labels[2], node, cluster.queues, cluster.num_nodes)
    cluster = replace(cluster, rules=with_sets(cluster.rules, bound))
    run_labels = _run_labels(rows, cluster, labels, node, run_s, run_of_service)
    expected_s, shape = expected_run_s(rows, labels, run_of_service, run_labels), cluster.run_ratio.shape
    asked, agents = rows["requested_run_s"].is_valid().to_numpy(), rows["agent"].to_pylist()
    habits = fit_run_habits(service, agents, node, run_s, expected_s, shape, asked)
    expected_s = expected_run_s(rows, labels, run_of_service, run_labels, habits)
    arrival_s, start_s = instant_s(rows, "arrival"), instant_s(rows, "start")
    finish_s = np.minimum(instant_s(rows, "finish"), until_s)
    usual, reaction = fit_acceptance(rows, cluster, node, until_s)
    stretch = np.repeat(np.arange(len(looked_at)), [int(wanted.sum()) for _, wanted in looked_at])
    taken = np.where(refused(rows), -1, node)
    log = run_log(rows, until_s, labels, taken, run_s, expected_s, stretch)
    alike = cluster.node_names if by_class else nodes["node_class"].to_pylist()
    (ratios, cold, filed_s), hazard, timeouts, run_s = fit_runs_and_hazards(log, until_s, shape, alike)
    ratios = services_too(ratios, cluster, rows, node, run_s)
    runs = runs_of(arrival_s, finish_s, run_s, filed_s, service, node, ratios.ratio)
    cores, capacity = amount(rows, "cpu_cores", 1.0), cluster.capacity[0]
    queued = QueuedRuns(labels[2], taken, arrival_s, start_s, finish_s, cores, stretch)
    priorities = fit_priorities(queued, capacity, len(cluster.queues))
    crowded = crowded_runs(runs, start_s, service, filed_s, ratios.ratio)
    moves = not by_class and (priorities is None or not priorities.preempts)
    pace, pressure, crowded = fit_slowing(crowded, cores, capacity, len(cluster.services), by_works=moves)
    tide, node_tide = fit_tides(crowded, pressure, cluster.num_nodes)
    cluster = replace(
        cluster,
        knows_week=len({day.weekday() for day in train_days}) == DAYS_A_WEEK,
        run_ratio=ratios.ratio,
        run_variance=ratios.variance,
        cold=cold,
        dynamics=fit_dynamics(runs, cluster.num_nodes),
        tide=tide,
        node_tide=node_tide,
        pressure=pressure,
        reaction=reaction,
        wakes=None if by_class else fit_wakes(arrival_s, start_s, log.finish_s, taken, stretch, alike),
        hazard=hazard,
        **fit_returns(log),
        priorities=priorities,
        pace=pace,
        timeouts=None if pace else timeouts,
        **fit_waits(rows, queued, (service, expected_s), cluster, (priorities, pace), by_class=by_class),
        agents=usual.agents,
        acceptance_of_agent=usual.of_agent,
        acceptance_of_scenario=usual.of_scenario,
    )
    problem = _problem(archive, train_days, rows, run_s, view)
    depth = depth_of([table for table, _ in looked_at], node_of_name, cluster.num_nodes, until_s)
    return Encoding(
        cluster, node_of_name, by_class, tuple(run_of_service), rows["requested_run_s"].null_count < 0.5 * len(rows),
        replace(problem, depth=depth), tuple(train_days), run_labels, bound, habits, ends,
    )  # fmt: skip


def _problem(
    archive: Archive, train_days: Sequence[dt.date], rows: pa.Table, run_s: np.ndarray, view: str
) -> PlacementConfig:
    """The problem of the log, but for its depth."""
    typical_s = float(np.nanmedian(run_s)) if np.isfinite(run_s).any() else 60.0
    gap_s = _gap_s(archive, train_days, instant_s(rows, "arrival"))
    return PlacementConfig(
        time_unit_s=max(0.1 * typical_s, 1e-3),
        memory_s=max(50.0 * gap_s, typical_s),
        reward="on_time" if rows["deadline_s"].null_count < 0.5 * len(rows) else "response",
        view=view,
    )


def _refuse_unknown(archive: Archive, train_days: Sequence[dt.date], granularity: str, view: str) -> None:
    if granularity not in GRANULARITIES:
        raise ConfigError(f"unknown granularity {granularity!r}", allowed=", ".join(GRANULARITIES))
    if view not in VIEWS:
        raise ConfigError(f"unknown view {view!r}", allowed=", ".join(VIEWS))
    missing = sorted(set(train_days) - set(archive.days("requests")))
    if train_days and not missing:
        return
    days = archive.days("requests")
    raise ConfigError(
        f"training days without requests: {first(missing)}" if train_days else "no training days",
        where=f"{len(train_days)} training days given",
        allowed=f"the {len(days)} days with requests, {days[0]} to {days[-1]}" if days else "an archive with requests",
    )  # fmt: skip


def _gap_s(archive: Archive, train_days: Sequence[dt.date], arrival_s: np.ndarray) -> float:
    """Mean time between requests; of a long log only some arrivals are looked at, over the whole of it."""
    num_requests = archive.num_rows_on("requests", train_days)
    return float(np.ptp(arrival_s)) / max(len(arrival_s), num_requests, 1)


def expected_run_s(
    rows: pa.Table, labels: Labels, run_of_service_s: Sequence[float], run_labels: RunLabels | None,
    run_habits: RunHabits | None = None, own_run_s: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """[rows] the requested run time, else the median of the service, by what scenario and queue say of it; by what is
    usual of the agent, and of such requests. `own_run_s`: see `expected_s_of`."""
    service, scenario, queue = labels
    usual_s = np.asarray(run_of_service_s)[service]
    if run_labels is not None:
        usual_s = usual_s * run_labels.factor(service, scenario, queue)
    asked_s = amount(rows, "requested_run_s", np.nan)
    found_s = np.where(np.isnan(asked_s), usual_s, asked_s)
    agents, is_asked = rows["agent"].to_pylist(), ~np.isnan(asked_s)
    return expected_s_of(run_habits, service, agents, found_s, is_asked, own_run_s)


def _run_labels(
    rows: pa.Table, cluster: Cluster, labels: Labels, node: np.ndarray, run_s: np.ndarray,
    run_of_service_s: Sequence[float],
) -> RunLabels | None:  # fmt: skip
    is_stated = np.isfinite(amount(rows, "requested_run_s", np.nan))
    usual_s = np.where(is_stated, np.nan, np.asarray(run_of_service_s)[labels[0]])
    num_labels = len(cluster.services), len(cluster.scenarios), len(cluster.queues)
    return fit_run_labels(LabelledRuns(*labels, node, run_s, usual_s), cluster.num_nodes, num_labels)


def day_start_s(day: dt.date) -> float:
    """Seconds since 1970 of a day's midnight (UTC)."""
    return (day - dt.date(1970, 1, 1)).days * DAY_S


def _run_s(rows: pa.Table, until_s: float) -> np.ndarray:
    """[rows] logged run time; NaN where start or finish is unknown, or not known yet at `until_s`."""
    finish_s = instant_s(rows, "finish")
    return np.where(finish_s <= until_s, finish_s, np.nan) - instant_s(rows, "start")


def _cluster(
    nodes: pa.Table, rows: pa.Table, by_class: bool, run_s: np.ndarray
) -> tuple[Cluster, dict[str, int], np.ndarray]:
    """The cluster, the node that each name stands for, and the node of every row, -1 for none."""
    if by_class:
        names = class_names(nodes, decided_node(rows), pc.list_flatten(rows["candidates"]))
    else:
        names = nodes["node_id"].to_pylist()
    distinct = tuple(dict.fromkeys(names))
    index = np.array([distinct.index(name) for name in names])
    per_machine = np.stack([amount(nodes, name, np.nan) for name in RESOURCES])
    if np.isnan(per_machine[2]).all():
        per_machine[2] = 0.0
    per_machine = np.where(np.isnan(per_machine), np.inf, per_machine)
    if not per_machine[0].any():
        per_machine[0] = cores_in_use(nodes, rows)
    total, unit = np.zeros((NUM_RESOURCES, len(distinct))), np.zeros((NUM_RESOURCES, len(distinct)))
    for one in range(len(distinct)):
        total[:, one] = per_machine[:, index == one].sum(axis=1)
        unit[:, one] = per_machine[:, index == one].max(axis=1)
    leader = [int(np.flatnonzero(index == one)[0]) for one in range(len(distinct))]
    site_names, tiers = nodes["site"].to_pylist(), nodes["tier"].to_pylist()
    sites = tuple(dict.fromkeys([*(site_names[i] for i in leader), *pc.unique(rows["site"]).to_pylist()]))
    node_of_name = {name: int(i) for name, i in zip(nodes["node_id"].to_pylist(), index, strict=True)}
    node_of_name |= {name: one for one, name in enumerate(distinct)}
    scenarios, services = (vocabulary(rows[kind].to_pylist()) for kind in ("scenario", "service"))
    cluster = Cluster(
        node_names=distinct,
        capacity=total,
        unit_capacity=unit,
        site_of_node=np.array([sites.index(site_names[i]) for i in leader]),
        is_cloud=np.array([tiers[i] == "cloud" for i in leader]),
        sites=sites,
        scenarios=scenarios,
        services=services,
        queues=vocabulary(rows["queue"].to_pylist()),
        rules=_rules(rows, node_of_name, len(distinct)),
        **without_history(len(services), len(distinct), len(scenarios)),
    )
    node = node_index(rows, node_of_name, len(distinct))
    return with_kinds(cluster, rows, node, run_s), node_of_name, node


def candidate_set(
    names: Sequence[str] | None, node_of_name: dict[str, int], num_nodes: int
) -> tuple[bool, ...]:
    """[nodes] which nodes the candidate list allows; all of them where there is no list or none of it is known."""
    allowed = {node_of_name[name] for name in names or () if name in node_of_name}
    return tuple(not allowed or node in allowed for node in range(num_nodes))


def _rules(rows: pa.Table, node_of_name: dict[str, int], num_nodes: int) -> np.ndarray:
    """[rules, nodes] the distinct candidate sets of the training days; rule 0 allows every node."""
    lists = {tuple(names or ()) for names in rows["candidates"].to_pylist()}
    sets = {candidate_set(names, node_of_name, num_nodes) for names in lists}
    everything = tuple([True] * num_nodes)
    return np.array([everything, *sorted(sets - {everything})])
