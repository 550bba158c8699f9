"""The arrays of the placement problem: which node an arriving request is offered to.

A *node* here is whatever a decision names: a machine, or a class of machines whose capacities are summed
(`twin.placement.encoding.fit_encoding` decides which, from the log). Resources are `RESOURCES`, in that order.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from twin.placement.cold_starts import ColdStarts
from twin.placement.disciplines import Disciplines
from twin.placement.pace import Pace
from twin.placement.priorities import Priorities
from twin.placement.run_filter import NodeLevel, RunDynamics
from twin.placement.tides import Tide
from twin.placement.timeouts import Timeouts
from twin.placement.wakes import Wakes

Leaf = Any
"""A leaf of a record: a JAX array inside programs, a NumPy array in encoded data."""

RESOURCES = ("cpu_cores", "memory_gib", "gpus")
NUM_RESOURCES = len(RESOURCES)
CORES, MEMORY, GPUS = range(NUM_RESOURCES)
"""Indices of `RESOURCES`."""

EMPTY = -1
"""`InFlight.decision` of a slot that never held a request."""
CARRIED = -2
"""`InFlight.decision` of a request that was already in the system when the episode began."""

UNKNOWN, COMPLETED, FAILED, DROPPED, REJECTED = -1, 0, 1, 2, 3
"""Status codes of an outcome. FAILED: ran and did not succeed (failed, killed). DROPPED: given up late by the system.
REJECTED: the agent refused the offer."""
STATUS_NAMES = {COMPLETED: "completed", FAILED: "failed", DROPPED: "dropped", REJECTED: "rejected"}
"""Known codes -> statuses of the table `requests`."""


@dataclass(frozen=True)
class Reaction:
    """How agents answer by how they were served lately (see `discontent`).

    Attributes:
        num_slots: Agents that a twin keeps account of.
        effect: What is added to the probability that an agent accepts, for discontent of 1.
        mean: Discontent that the usual acceptances are of.
    """

    num_slots: int
    effect: float
    mean: float


@dataclass(frozen=True)
class Repeats:
    """How clients try again (see `repeats`).

    Attributes:
        chance: That a failed request is repeated.
        delay_s: Mean time from its end until then.
        longest_s: The longest.
    """

    chance: float
    delay_s: float
    longest_s: float


@dataclass(frozen=True)
class Cluster:
    """What is fixed: the nodes and the vocabularies that integers in the arrays refer to (NumPy, never traced).

    Attributes:
        node_names: Names of the nodes, as decisions in the log name them.
        capacity: [resources, nodes] total capacity; inf where the log does not have it.
        unit_capacity: [resources, nodes] the largest single machine of the node (equal to `capacity` for machines).
        site_of_node: [nodes] index into `sites`.
        is_cloud: [nodes] True for the cloud tier.
        sites, scenarios, services, queues: Vocabularies; index 0 of the latter three is "unknown".
        rules: [num_rules, nodes] candidate sets; rule 0 allows every node.
        run_ratio: [services, nodes] how long a service runs on a node, over what is expected of it anywhere (see
            `service_times`); 1 where the log does not show it.
        run_variance: [services, nodes] variance of what is known of the logarithm of `run_ratio`.
        dynamics: How run times move (see `run_filter`); by default they stand still.
        tide, node_tide: How they rise and fall everywhere at once, and on single nodes (see `tides`); by default not.
        pressure: [services] how hard a run of each presses on the runs beside it (see `crowding`); by default, and
            where the log does not show it, empty: no run is longer for them.
        cold: Start-up times of services that have not run on a node for a while (see `cold_starts`); by default, and
            where the log does not show them, None.
        reaction: How agents answer by how they were served lately (see `discontent`); by default, and where the log
            does not show it, None.
        scarce: Resources (indices) beside cores that requests wait for (see `scarcity`); by default, and where the log
            does not show it, none.
        wakes: When nodes sleep, and how long they take to wake (see `wakes`); by default, and where the log does not
            show it, None.
        hazard: [nodes] losses per second of running there (see `hazards`); by default, and where the log does not show
            that nodes lose what runs on them, empty.
        repeats: How clients try again after failures (see `repeats`); by default, and where the log does not show it,
            None.
        awaits: Whether agents send a request only when their last one has ended (see `think_times`); by default, and
            where the log does not show it, not.
        priorities: Queues whose requests go before those of others (see `priorities`); by default, and where the log
            does not show any, None.
        disciplines: In which order nodes start what waits on them (see `disciplines`); by default, and where the log
            shows none but that of arrival, None.
        shared_waits: Whose waits requests wait for, of the nodes of a site or of all (see `shared_waits`); by default,
            and where the log does not show it, "".
        unordered: How many nodes start others before those that came first, in no order that is known (see
            `disciplines`); nothing goes by it.
        pace: How fast runs go beside others (see `pace`); by default, and where the log does not show that it matters,
            None.
        in_order: Whether a request that waits holds up those behind it on its node (see `waiting`); by default, and
            where the log does not show it, not.
        permits: [services] how many requests of each run at once on all nodes, 0 without a limit (see `waiting`); by
            default, and where the log does not show any, empty.
        concurrency: [services, nodes] the same on a node.
        timeouts: After which time runs are cut off (see `timeouts`); by default, and where the log does not show it,
            None.
        drops_late: Whether what has not begun by its deadline is given up (see `patience`); by default, and where the
            log does not show it, not.
        wait_limit_s: [services] seconds after which what waits is given up, 0 where it is not; by default, and where
            the log does not show it, empty.
        places: [nodes] how many requests run at once on each where cores are shared, 0 without a limit (see `places`);
            by default, and where the log does not show it, empty.
        kinds_by: Label by which services are told apart (see `service_kinds`); by default, and where the log does not
            show that run times go by one, "".
        agents: Agents of the training days that are known to differ from their scenario in what they accept.
        acceptance_of_agent, acceptance_of_scenario: [agents or scenarios, OFFER_KINDS] probability that an offer is
            accepted (see `service_times`); 1 where the log does not show it.
        knows_week: Whether the days of training cover every weekday. Otherwise the time of week is not shown to
            any policy (its features are 0): on a weekday never seen, whatever was learned of it would be made up.
    """

    node_names: tuple[str, ...]
    capacity: np.ndarray
    unit_capacity: np.ndarray
    site_of_node: np.ndarray
    is_cloud: np.ndarray
    sites: tuple[str, ...]
    scenarios: tuple[str, ...]
    services: tuple[str, ...]
    queues: tuple[str, ...]
    rules: np.ndarray
    run_ratio: np.ndarray
    run_variance: np.ndarray
    agents: tuple[str, ...]
    acceptance_of_agent: np.ndarray
    acceptance_of_scenario: np.ndarray
    knows_week: bool = True
    kinds_by: str = ""
    dynamics: RunDynamics = field(default_factory=RunDynamics)
    tide: Tide = field(default_factory=Tide)
    node_tide: Tide = field(default_factory=Tide)
    pressure: np.ndarray = field(default_factory=lambda: np.zeros(0))
    cold: ColdStarts | None = None
    reaction: Reaction | None = None
    scarce: tuple[int, ...] = ()
    wakes: Wakes | None = None
    hazard: tuple[float, ...] = ()
    repeats: Repeats | None = None
    awaits: bool = False
    priorities: Priorities | None = None
    disciplines: Disciplines | None = None
    unordered: int = 0
    shared_waits: str = ""
    pace: Pace | None = None
    in_order: bool = False
    permits: tuple[int, ...] = ()
    concurrency: tuple[tuple[int, ...], ...] = ()
    timeouts: Timeouts | None = None
    drops_late: bool = False
    wait_limit_s: tuple[float, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def is_ranked(self) -> bool:
        """Whether some requests go before others that came earlier (see `ranks`)."""
        return self.priorities is not None or self.disciplines is not None

    @property
    def limited(self) -> tuple[int, ...]:
        """The resources (indices) that some node has a finite amount of."""
        some = np.any((self.capacity > 0.0) & np.isfinite(self.capacity), axis=1)
        return tuple(np.flatnonzero(some).tolist())

    def tells_run(self, status: Leaf) -> Leaf:
        """Whether runs that ended so tell how long they take: failed ones do not where nodes lose what runs there."""
        completed = status == COMPLETED
        return completed if self.hazard else completed | (status == FAILED)

    @property
    def num_nodes(self) -> int:
        """Number of nodes a decision can name."""
        return len(self.node_names)


class Requests(NamedTuple):
    """Requests in hand; every leaf is [*batch] with any batch axes, `demand` is [resources, *batch].

    Nothing here is known only later: no start, no finish, no true run time.
    """

    site: Leaf  # int32, where it arrived: the site that decides
    scenario: Leaf  # int32
    service: Leaf  # int32
    queue: Leaf  # int32
    agent: Leaf  # int32, -1 where the log hides it
    rule: Leaf  # int32, index into Cluster.rules
    demand: Leaf  # [resources, *batch] total over all of its nodes; 0 where not requested
    num_nodes: Leaf  # float32 >= 1: machines it must be spread over
    expected_run_s: Leaf  # requested run time, or an estimate from the training days; never the true one
    deadline_s: Leaf  # from arrival to finish; inf without a deadline
    input_mib: Leaf  # 0 where unknown
    day_fraction: Leaf  # [0, 1): time of day of the arrival
    week_fraction: Leaf  # [0, 1): time of week, Monday 00:00 is 0
    accepts_home: Leaf  # acceptance of offers at the site of arrival, by the training days
    accepts_elsewhere: Leaf  # at another site
    accepts_cloud: Leaf  # in the cloud of another site
    # tides of run times, for answers alone: everywhere, and [nodes, *batch] of single nodes; None where no log has any
    tide: Leaf | None = None
    node_tide: Leaf | None = None
    # how ill the agent was served lately, in the log and for answers alone (see `discontent`); None where it is nothing
    discontent: Leaf | None = None
    # 1 or 0: whether it went ill in the log, NaN where that is not known; None where discontent is
    ill_in_log: Leaf | None = None
    # after which time its run is cut off, inf where it is not; None where the log shows none
    run_limit_s: Leaf | None = None


class InFlight(NamedTuple):
    """The table of requests on every node: leaves [nodes, depth, *streams]; `demand` [resources, nodes, depth, ...].

    A slot keeps its settled request until another takes the slot, so that one record at most leaves per seat and step.
    A request is waiting from its placement until `start_s`, running until `finish_s`. inf: not observed yet.
    """

    decision: Leaf  # int32; EMPTY, CARRIED or the decision's number
    arrival_s: Leaf
    start_s: Leaf
    finish_s: Leaf
    status: Leaf  # int32, UNKNOWN until finished
    expected_run_s: Leaf  # as requested, with the start-up that was due (`run_levels.filed_run_s`)
    mean_run_s: Leaf  # how long it should run there, by the log and by the pair's runs before it was placed
    service: Leaf  # int32
    demand: Leaf
    rank: Leaf = None  # of its queue or by its node's discipline (see `ranks`); None where all are alike


class Fate(NamedTuple):
    """What becomes of an offer; leaves [seats, *streams], times on the episode's clock. inf: does not happen (yet)."""

    accepted: Leaf  # bool: the agent took the offer
    start_s: Leaf
    finish_s: Leaf
    status: Leaf  # int32


class Carried(NamedTuple):
    """What was in flight when an episode began, a row each; leaves [rows, *streams], `demand` [resources, rows, ...].

    A table of every node's slots is empty for the most part, and logs are cut into many windows: this is what is kept.
    """

    node: Leaf  # int32, -1 in rows that hold nothing
    slot: Leaf  # int32, of the node's row in the table
    request: InFlight  # what had been observed of it
    fate: Fate  # what becomes of it
    work_s: Leaf = None  # what is left of its work (see `pace`); None where runs do not slow each other


class PlacementEvents(NamedTuple):
    """The placement problem's `Outcome.observed_events`."""

    clock_s: (
        Leaf  # [*streams]: when the next decision is due; exact, where a sum of elapsed times would round
    )
    accepted: Leaf  # [seats, *streams] bool: answers to the offers just made
    start_s: Leaf  # [nodes, depth, *streams]: observed starts, inf where not observed yet
    finish_s: Leaf  # [nodes, depth, *streams]: observed finishes, inf where not observed yet
    status: Leaf  # [nodes, depth, *streams] int32, meaningful where the finish is observed
    request: Requests  # [seats, *streams]: the next requests
    active: Leaf  # [seats, *streams] bool: seats that hold a request
    available: Leaf  # [nodes, *streams] bool: nodes that can be offered
    # only in the first outcome: what was in the system already, the level of every node (leaves [2, nodes, *streams]),
    # the time from the end of training to the clock's zero [*streams], and when services should have ended on nodes
    # [services, nodes, *streams]
    carried: InFlight | None = None
    level: NodeLevel | None = None
    age_s: Leaf | None = None
    last_end_s: Leaf | None = None
    # int32 [*streams]: the place of the request in its window, where requests do not come in the order of the log
    place: Leaf | None = None


class PlacementState(NamedTuple):
    """The whole state of the bookkeeping; nothing in it is ahead of its time."""

    clock_s: Leaf  # [*streams]
    request: Requests  # leaves [seats, *streams]
    active: Leaf  # [seats, *streams] bool
    available: Leaf  # [nodes, *streams] bool
    in_flight: InFlight
    recent_wait_s: Leaf  # [nodes, *streams]: decayed sum of waits observed on the node
    recent_starts: Leaf  # [nodes, *streams]: decayed number of starts observed on the node
    num_overflow: Leaf  # [*streams] int32: requests that found no slot; they are never settled
    levels: "RunLevels | None" = None  # None where run times stand still
    # [services, nodes, *streams] when the last run there should have ended; None without cold starts
    last_end_s: Leaf | None = None


class RunLevels(NamedTuple):
    """What was learned from runs that ended: what is added to the logarithm of `Cluster.run_ratio`."""

    pair: Leaf  # [services, nodes, *streams]
    pair_variance: Leaf  # the same, but for what levels have wandered since the end of training
    node: NodeLevel  # leaves [2, nodes, *streams]
    age_s: Leaf  # [*streams] from the end of training to the clock's zero


class Observation(NamedTuple):
    """What a policy observes. Names, units and ranges: `twin.placement.features`."""

    node: Leaf  # [node features, nodes, seats, *streams]
    request: Leaf  # [request features, seats, *streams]


class PlacementDecisionInfo(NamedTuple):
    """What is known of a decision at once; leaves [*batch], `demand` [resources, *batch]."""

    node: Leaf  # int32: the decision
    site: Leaf  # int32: where the request arrived
    agent: Leaf  # int32, -1 where hidden
    off_site: Leaf  # bool: offered a node of another site than the one where it arrived
    arrival_s: Leaf
    expected_run_s: Leaf
    deadline_s: Leaf  # inf without a deadline
    demand: Leaf


class PlacementOutcome(NamedTuple):
    """What came of a decision; leaves [*batch], times on the episode's clock, inf while not observed, NaN if lost."""

    start_s: Leaf
    finish_s: Leaf
    status: Leaf  # int32; an offer was accepted unless it is REJECTED
