"""Evaluated decisions as plain columns: one row for every active decision of one policy on one stretch of days.

Metrics read these columns and nothing else, so that the same metric applies to a replay, a twin and the truth. Every
row has a *unit*: the block (a day, or a stretch of requests within a day) that the bootstrap draws as a whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np

from logs_schema.errors import ConfigError
from twin.placement.types import COMPLETED, REJECTED, Cluster, PlacementDecisionInfo, PlacementOutcome

NEEDS = ("deadlines", "sites", "answers", "agents", "waits", "run_times", "statuses", "capacities")
"""Information that a metric may need of a log; `Decisions.missing` maps what the log lacks to the reason."""


@dataclass(frozen=True)
class Decisions:
    """One evaluated policy as columns of `[rows]`; times in seconds on the clock of the row's own window.

    Attributes:
        unit: Label of the resampling block; policies judged on the same days share labels.
        day: Calendar day, as `datetime.date.toordinal`.
        agent: Index of the requesting agent, -1 where unknown.
        site: Where the request arrived.
        node: The decision.
        off_site: Placed at another site than the one where it arrived.
        accepted: The agent accepted the offer.
        arrival_s, start_s, finish_s: inf for what never happens; NaN where the record was lost.
        status: As in `twin.placement.types`.
        expected_run_s: The requested run time, or an estimate; never the true run time.
        deadline_s: From arrival to finish; inf without a deadline.
        demand: [resources, rows] requested in total.
        settled: The outcome is final; other rows are censored.
        span_s: The row's share of its window's length: the sum over a window's rows is the window.
        begin_s, end_s: Begin and end of the row's window on its clock.
        capacity: [resources] of all nodes together; inf where unknown.
        missing: Need (one of `NEEDS`) -> the reason why the log does not meet it.
    """

    unit: np.ndarray
    day: np.ndarray
    agent: np.ndarray
    site: np.ndarray
    node: np.ndarray
    off_site: np.ndarray
    accepted: np.ndarray
    arrival_s: np.ndarray
    start_s: np.ndarray
    finish_s: np.ndarray
    status: np.ndarray
    expected_run_s: np.ndarray
    deadline_s: np.ndarray
    demand: np.ndarray
    settled: np.ndarray
    span_s: np.ndarray
    begin_s: np.ndarray
    end_s: np.ndarray
    capacity: np.ndarray
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Number of decisions."""
        return len(self.unit)

    @property
    def num_censored(self) -> int:
        """Number of decisions whose outcome is not known."""
        return int(np.sum(~self.settled))

    @property
    def lost(self) -> np.ndarray:
        """[rows] bool: the record was lost, since the node had no free slot for requests in flight; counts as late."""
        return ~self.settled & np.isnan(self.finish_s)

    @property
    def judged(self) -> np.ndarray:
        """[rows] bool: whether the request succeeded is known, because it is settled or lost."""
        return self.settled | self.lost

    @property
    def started(self) -> np.ndarray:
        """[rows] bool: the request is known to have begun to run."""
        return np.isfinite(self.start_s) & self.accepted

    @property
    def ran(self) -> np.ndarray:
        """[rows] bool: start and end of the request are known."""
        return self.started & np.isfinite(self.finish_s) & self.settled

    @property
    def wait_s(self) -> np.ndarray:
        """[rows] from arrival to start, at least 0; meaningful where `started`."""
        return np.maximum(self.start_s - self.arrival_s, 0.0)

    @property
    def run_s(self) -> np.ndarray:
        """[rows] from start to finish, at least 0; meaningful where `ran`."""
        with np.errstate(invalid="ignore"):
            return np.maximum(self.finish_s - self.start_s, 0.0)

    @property
    def on_time(self) -> np.ndarray:
        """[rows] bool: accepted, completed, and finished within the deadline."""
        with np.errstate(invalid="ignore"):
            within = self.finish_s - self.arrival_s <= self.deadline_s
        return self.settled & self.accepted & (self.status == COMPLETED) & within


_PER_LOG = ("demand", "capacity", "missing")


class PlayedDecisions(Protocol):
    """The part of a rollout that metrics read: a `Trajectory` or a part of one; leaves [T, seats, *streams]."""

    @property
    def active(self) -> Any:
        """Whether the seat decided."""

    @property
    def settled(self) -> Any:
        """Whether the outcome is final."""

    @property
    def decision_info(self) -> Any:
        """A `PlacementDecisionInfo`."""

    @property
    def outcome(self) -> Any:
        """A `PlacementOutcome`."""


def decisions_from(
    trajectory: PlayedDecisions,
    cluster: Cluster,
    *,
    unit: np.ndarray,
    day: np.ndarray,
    window_s: np.ndarray | None = None,
) -> Decisions:
    """Flattens a rollout of the placement problem to one row per active decision.

    Args:
        trajectory: Of the placement problem; streams are windows (days).
        cluster: For the capacity and the number of sites.
        unit: Resampling block; anything that broadcasts to `[T, seats, *streams]`, for example one value a
            stream.
        day: Calendar day as an ordinal; broadcasts likewise.
        window_s: Length of every window from its first arrival, > 0; broadcasts to `[*streams]`. Up to its
            last arrival if None.

    Returns:
        The columns; `missing` is what they show to be unmet: no deadline, no agent, one site, no capacity.
    """
    active = np.asarray(trajectory.active)
    decision_info: PlacementDecisionInfo = trajectory.decision_info
    outcome: PlacementOutcome = trajectory.outcome

    def column(value: object, dtype: type = np.float64) -> np.ndarray:
        return np.broadcast_to(np.asarray(value), active.shape)[active].astype(dtype)

    streams = active.shape[2:]
    arrival_s = np.asarray(decision_info.arrival_s, np.float64)
    begin_s = np.min(arrival_s, axis=(0, 1), where=active, initial=np.inf)
    if window_s is None:
        window_s = np.max(arrival_s, axis=(0, 1), where=active, initial=-np.inf) - begin_s
    length_s = np.broadcast_to(np.asarray(window_s, np.float64), streams)
    num_active = active.sum(axis=(0, 1))
    status = column(outcome.status, np.int64)
    decisions = Decisions(
        unit=column(unit, np.int64),
        day=column(day, np.int64),
        agent=column(decision_info.agent, np.int64),
        site=column(decision_info.site, np.int64),
        node=column(decision_info.node, np.int64),
        off_site=column(decision_info.off_site, np.bool_),
        accepted=status != REJECTED,
        arrival_s=column(decision_info.arrival_s),
        start_s=column(outcome.start_s),
        finish_s=column(outcome.finish_s),
        status=status,
        expected_run_s=column(decision_info.expected_run_s),
        deadline_s=column(decision_info.deadline_s),
        demand=np.stack([column(amount) for amount in np.moveaxis(np.asarray(decision_info.demand), 1, 0)]),
        settled=column(trajectory.settled, np.bool_),
        span_s=column(length_s / np.maximum(num_active, 1)),
        begin_s=column(begin_s),
        end_s=column(begin_s + length_s),
        capacity=np.asarray(cluster.capacity, np.float64).sum(axis=1),
    )
    return replace(decisions, missing=_unmet(decisions, len(cluster.sites)))


def _unmet(decisions: Decisions, num_sites: int) -> dict[str, str]:
    unmet = {}
    if not np.any(np.isfinite(decisions.deadline_s)):
        unmet["deadlines"] = "no request has a deadline"
    if not np.any(decisions.agent >= 0):
        unmet["agents"] = "the log does not name the requesting agents"
    if num_sites < 2:
        unmet["sites"] = "there is only one site"
    if not (np.isfinite(decisions.capacity[0]) and decisions.capacity[0] > 0.0):
        unmet["capacities"] = "the log does not give the nodes' cores"
    return unmet


def plain_decisions(
    unit: np.ndarray, day: np.ndarray, choice: np.ndarray, arrival_s: np.ndarray, finish_s: np.ndarray
) -> Decisions:
    """Decisions with only the choice, the arrival and the finish of every request.

    Args:
        unit: [rows] resampling block.
        day: [rows] calendar day as an ordinal.
        choice: [rows] the decision.
        arrival_s, finish_s: [rows] on one clock; all requests start at once and complete.

    Returns:
        The columns; metrics that need more are not applicable.
    """
    zero, yes = np.zeros(len(unit), np.int64), np.ones(len(unit), np.bool_)
    nothing = np.zeros(len(unit))
    return Decisions(
        unit=unit, day=day, agent=zero - 1, site=zero, node=choice, off_site=~yes, accepted=yes, arrival_s=arrival_s,
        start_s=arrival_s, finish_s=finish_s, status=np.full(len(unit), COMPLETED, np.int64), expected_run_s=nothing,
        deadline_s=np.full(len(unit), np.inf), demand=nothing[None], settled=yes, span_s=nothing, begin_s=nothing,
        end_s=nothing, capacity=np.array([np.inf]),
        missing={need: "not known of these decisions" for need in NEEDS if need not in ("waits", "run_times")},
    )  # fmt: skip


def concatenate(parts: Sequence[Decisions]) -> Decisions:
    """Joins the decisions of one policy on several stretches of days; what any part lacks, the whole lacks.

    Raises:
        ConfigError: There is nothing to join, or the parts come from clusters of different capacity.
    """
    if not parts:
        raise ConfigError("no decisions to join", advice="judge the policy on at least one day")
    if any(not np.array_equal(part.capacity, parts[0].capacity) for part in parts):
        raise ConfigError(
            "decisions of different clusters cannot be joined", advice="compare each cluster on its own"
        )
    columns = [column.name for column in fields(Decisions) if column.name not in _PER_LOG]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in columns}
    demand = np.concatenate([part.demand for part in parts], axis=1)
    missing = {need: reason for part in parts for need, reason in part.missing.items()}
    return Decisions(**joined, demand=demand, capacity=parts[0].capacity, missing=missing)
