"""What the server believes about the cluster: facts about nodes, and what every node holds.

kube-scheduler's questions say nothing about running pods, so the server keeps book itself: a request counts as held by
the node that it was offered to. Reported events (`POST /events`) correct this. A request of which nobody reports
anything is taken to start when it was decided and to end after its expected run time: as in training, where the log
says nothing. These assumptions never reach the decision log.
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from offline_rl.runner import Decision, Held, Node
from offline_rl.serving.asks import Ask
from offline_rl.serving.plain import Event
from offline_rl.serving.policies import Books, Question, ServedPolicy

MAX_HELD = 200_000
"""Requests in flight that are remembered; beyond that the oldest is forgotten."""
PATIENCE_S = 600.0
"""Where starts are reported: how long a request without one stays, at least."""
MAX_KINDS = 1000
"""Kinds of requests (by what they ask for), and sets of candidates, that are remembered."""
STRANGER = 0
"""Row of candidates that nobody has described."""
_SLACK = 1.000001
RESOURCES = ("cpu_cores", "memory_gib", "gpus")
_MACHINE = tuple(f"machine_{name}" for name in RESOURCES)
Wanted = tuple[tuple[str, float, float], ...]
"""(resource, amount in total, amount per machine) of what a request asks for."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A decided request that is taken to be in the system.

    Attributes:
        ask: What was asked; its names are the feasible candidates.
        node: Where it was offered, or where it was reported to run; empty where nothing was feasible.
        offered: Where it was offered; likewise.
        decided_s: When.
        propensity: Probability of that offer, once it is known.
        start_s: Reported start, None if nobody reported one.
        finish_s: Reported end.
    """

    ask: Ask
    node: str
    offered: str
    decided_s: float
    propensity: float | None = None
    start_s: float | None = None
    finish_s: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The candidates of one question, as heuristics see them.

    Attributes:
        names: In the order of the question.
        cores: [n] capacity, NaN where nobody knows it.
        committed: [n] cores asked for by what is held there.
        num_held: [n] requests held there.
        failed: Node -> why it cannot take the request now.
        unresolvable: Node -> why it never can.
        feasible: [n] bool: in neither of them.
    """

    names: tuple[str, ...]
    cores: np.ndarray
    committed: np.ndarray
    num_held: np.ndarray
    failed: dict[str, str]
    unresolvable: dict[str, str]
    feasible: np.ndarray


class Cluster:
    """Nodes, and what they hold. Not thread-safe: one thread owns it.

    Args:
        policy: Whose features the books are kept for; its nodes are known from the start.
    """

    def __init__(self, policy: ServedPolicy) -> None:
        self.hears_events = False
        self.placements: dict[str, Placement] = {}
        self._ends: list[tuple[float, str, float]] = []
        self._facts: dict[str, Node] = {}
        self._noted: dict[str, Node] = {}
        self._closed: set[str] = set()
        self._row_of: dict[str, int] = {"": STRANGER}
        self._rows = np.array([[math.nan], [0.0], [0.0]])  # cores, cores committed, requests held; by row
        self._too_small: dict[Wanted, dict[str, str]] = {}
        self._sets: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._rows_of_set: dict[tuple[str, ...], np.ndarray] = {}
        self._books: Books | None = None
        self._older: Books | None = None  # of the same policy, about fewer nodes: what they learned is kept
        self.use(policy)

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes ever heard of, in order of appearance."""
        return tuple(self._facts)

    def use(self, policy: ServedPolicy) -> None:
        """Keeps books for another policy from now on; facts that came with questions stay."""
        self._policy, self._books, self._older = policy, None, None
        for node in policy.nodes:
            if node.name not in self._facts:
                self._note(node)

    def note(self, machines: Iterable[Node]) -> None:
        """Remembers facts about nodes; what they do not say stays as it was."""
        for machine in machines:
            if self._noted.get(machine.name) is machine:
                continue
            self._noted[machine.name] = machine
            known = self._facts.get(machine.name)
            if known is None:
                self._note(machine)
            elif machine != known and (merged := _merged(known, machine)) != known:
                self._note(merged)

    def view(self, ask: Ask) -> View:
        """The candidates of a question, with what speaks against each of them."""
        names, number = self._sets.setdefault(ask.names, ask.names), len(ask.names)
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        too_small = self._nodes_too_small(ask)
        if too_small or self._closed:
            for name in names:
                if name in self._closed:
                    failed[name] = "not available"
                elif name in too_small:
                    unresolvable[name] = too_small[name]
        feasible = np.ones(number, bool)
        if failed or unresolvable:
            feasible = np.fromiter((n not in failed and n not in unresolvable for n in names), bool, number)
        cores, committed, num_held = self._rows[:, self._rows_of(names)]
        return View(
            names=names,
            cores=cores,
            committed=committed,
            num_held=num_held,
            failed=failed,
            unresolvable=unresolvable,
            feasible=feasible,
        )

    def question(self, ask: Ask, now_s: float) -> Question:
        """What the policy is asked: everything as it is now, so that it may be answered later and elsewhere."""
        return self._open(now_s).question(replace(ask.request, candidates=ask.names), now_s)

    def placement(self, ask: Ask, view: View, node: str, now_s: float) -> Placement:
        """A decision, ready to be filed: without what came with the question and is known elsewhere."""
        names = view.names if view.feasible.all() else tuple(np.array(view.names, object)[view.feasible])
        names = self._sets.setdefault(names, names)  # of equal sets of candidates one is kept
        return Placement(replace(ask, names=names, machines={}), node, node, now_s)

    def place(self, placement: Placement) -> None:
        """Files a decision; an older one about the same request is void."""
        identity, now_s = placement.ask.request_id, placement.decided_s
        self._forget(identity)
        if len(self.placements) >= MAX_HELD:
            self._forget(next(iter(self.placements)))
        run_s = self.expected_run_s(placement.ask)
        stays_s = max(run_s, PATIENCE_S) if self.hears_events else run_s
        heapq.heappush(self._ends, (now_s + stays_s, identity, now_s))
        self._hold(placement, None if self.hears_events else now_s)

    def weigh(self, placement: Placement, propensity: float | None) -> Placement:
        """Adds the propensity of a decision, which may become known later than the decision."""
        weighed = replace(placement, propensity=propensity)
        if self.placements.get(placement.ask.request_id) is placement:
            self.placements[placement.ask.request_id] = weighed
        return weighed

    def report(self, event: Event) -> Placement | None:
        """Notes a start or a finish; the request's placement, or None if the server does not hold it."""
        self.hears_events = True
        placement = self.placements.get(event.request_id)
        if placement is None:
            return None
        time_s = max(event.time_s, placement.decided_s)
        ran = event.status not in ("dropped", "rejected")
        started_s = placement.start_s if placement.start_s is not None or not ran else time_s
        has_run = ran and event.status is not None and self._is_same(event.node, placement.node)
        has_run &= placement.start_s is not None  # a start that was only assumed hides the wait
        self._forget(event.request_id, time_s if has_run else None)
        finish_s = max(time_s, started_s or 0.0) if event.status not in (None, "rejected") else None
        node = event.node or placement.node
        moved = replace(placement, node=node, start_s=started_s, finish_s=finish_s)
        if ran and placement.start_s is None:
            self._hold(moved, None)
            self._open(time_s).start(event.request_id, time_s)
        elif event.status is None:
            self._hold(moved, started_s)
        if event.status is not None:
            self._forget(event.request_id)
        return moved

    def expire(self, now_s: float) -> int:
        """Forgets requests that nobody reports about and whose time is over; how many."""
        count = 0
        while self._ends and self._ends[0][0] <= now_s:
            _, identity, decided_s = heapq.heappop(self._ends)
            placement = self.placements.get(identity)
            if placement and placement.decided_s == decided_s and placement.start_s is None:
                self._forget(identity)
                count += 1
        return count

    def expected_run_s(self, ask: Ask) -> float:
        """The run time that a request states, or the median of its service in training."""
        stated = ask.request.requested_run_s
        return self._policy.expected_run_s(ask.request.service) if stated is None else stated

    def _is_same(self, told: str | None, node: str) -> bool:
        """Whether a node that an event names is the one meant: itself, a machine of its class, or not named at all."""
        node_of = self._policy.node_of_machine
        return not told or node_of.get(told, told) == node_of.get(node, node)

    def _open(self, now_s: float) -> Books:
        """The books; after a change of nodes or policy new ones, with all that is in flight."""
        if self._books is None:
            node_of = (
                self._policy.node_of_machine
            )  # a machine is not told beside the class that stands for it
            nodes = [node for name, node in self._facts.items() if node_of.get(name, name) == name]
            self._books = self._policy.open_books(nodes, now_s)
            if self._older is not None:
                self._books.remember(self._older)
            for node in nodes:
                self._books.set_available(node.name, node.available)
            for placement in self.placements.values():
                self._enter(self._books, placement, placement.start_s)
        return self._books

    def _hold(self, placement: Placement, start_s: float | None) -> None:
        """Files a request under its node: waiting, or running without its wait having been seen."""
        name, identity = placement.node, placement.ask.request_id
        if name not in self._facts:
            self._note(Node(name))
        self.placements[identity] = placement
        self._rows[1:, self._row_of[name]] += placement.ask.request.cpu_cores, 1.0
        if self._books is not None:
            self._enter(self._books, placement, start_s)

    def _enter(self, books: Books, placement: Placement, start_s: float | None) -> None:
        request, decided_s = placement.ask.request, placement.decided_s
        assumed_s = None if self.hears_events else decided_s
        held = Held(
            arrival_s=decided_s, start_s=assumed_s if start_s is None else start_s,
            expected_run_s=self.expected_run_s(placement.ask), service=request.service,
            cpu_cores=request.cpu_cores, memory_gib=request.memory_gib, gpus=request.gpus,
        )  # fmt: skip
        books.hold(placement.ask.request_id, placement.node, held)

    def _forget(self, identity: str, ran_until_s: float | None = None) -> None:
        placement = self.placements.pop(identity, None)
        if placement is None:
            return
        row = self._row_of[placement.node]
        self._rows[1:, row] -= placement.ask.request.cpu_cores, 1.0
        if self._rows[2, row] == 0.0:
            self._rows[1, row] = 0.0  # what rounding left
        if self._books is not None:
            self._books.finish(identity, ran_until_s)

    def _note(self, node: Node) -> None:
        known = self._facts.get(node.name)
        self._facts[node.name] = node
        if known is None:
            self._row_of[node.name] = self._rows.shape[1]
            self._rows = np.concatenate([self._rows, np.zeros((3, 1))], axis=1)
            self._rows_of_set.clear()
        self._rows[0, self._row_of[node.name]] = math.nan if node.cpu_cores is None else node.cpu_cores
        (self._closed.discard if node.available else self._closed.add)(node.name)
        self._too_small.clear()
        same = known is not None and replace(known, available=node.available) == node
        if same and self._books is not None:
            if self._policy.node_of_machine.get(node.name, node.name) == node.name:
                self._books.set_available(node.name, node.available)
        else:
            self._older, self._books = self._books or self._older, None

    def _rows_of(self, names: tuple[str, ...]) -> np.ndarray:
        """[n] the row of each candidate."""
        rows = self._rows_of_set.get(names)
        if rows is None:
            if len(self._sets) >= MAX_KINDS:
                self._sets.clear()
                self._rows_of_set.clear()
            rows = np.array([self._row_of.get(name, STRANGER) for name in names], int)
            self._rows_of_set[names] = rows
        return rows

    def _nodes_too_small(self, ask: Ask) -> dict[str, str]:
        """Node -> why it can never take such a request; kept until a node changes."""
        request = ask.request
        asked = zip(RESOURCES, (request.cpu_cores, request.memory_gib, request.gpus), strict=True)
        wanted = tuple((name, amount, amount / request.num_nodes) for name, amount in asked if amount > 0.0)
        known = self._too_small.get(wanted)
        if known is None:
            if len(self._too_small) >= MAX_KINDS:
                self._too_small.clear()
            known = {
                name: trouble for name, node in self._facts.items() if (trouble := _too_small(node, wanted))
            }
            self._too_small[wanted] = known
        return known


def by_name(decision: Decision) -> dict[str, int]:
    """Node -> its position among the nodes of a decision."""
    return {name: position for position, name in enumerate(decision.nodes)}


def _merged(known: Node, told: Node) -> Node:
    facts = ("site", "is_cloud", *RESOURCES, *_MACHINE)
    said = {name: value for name in facts if (value := getattr(told, name)) is not None}
    return replace(known, available=told.available, **said)


def _too_small(node: Node, wanted: Wanted) -> str:
    """Why a node can never take the request; empty if it can, as far as anybody knows."""
    for name, total, each in wanted:
        whole, largest = getattr(node, name), getattr(node, f"machine_{name}")
        for amount, limit in ((total, whole), (each, whole if largest is None else largest)):
            if limit is not None and amount > limit * _SLACK:
                return f"asks for {amount:g} {name}, the node has {limit:g}"
    return ""
