"""The server's state of the cluster: facts about nodes, and what every node holds.

kube-scheduler's questions contain no running pods, so the server keeps a ledger itself: a request counts as held by
the node that it was offered to. Reported events (`POST /events`) correct this. A request without any report is taken
to start when it was decided and to end after its expected run time: as in training, where the log has no outcome.
These assumptions never reach the decision log, and an event that comes after the assumed end still counts for
`PATIENCE_S`. Whether starts are reported is learned from what becomes of requests: most of those that left were
reported, or most were not.

Everything is bounded, and nothing stays for ever: not the requests, not the names of nodes that only questions name
(*guests*: forgotten when they hold nothing and there are too many), not a start of which no end is reported.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from logs_schema.calendar import DAY_S
from offline_rl.runner import Decision, Held, Node
from offline_rl.serving.errors import QueryError
from offline_rl.serving.inventory import Inventory
from offline_rl.serving.placed import MAX_CANDIDATES, CandidateSets, Overdue, PlacedRequest
from offline_rl.serving.plain import RequestEvent
from offline_rl.serving.policies import LedgerBooks, Question, ServedPolicy
from offline_rl.serving.queries import PlacementQuery, shown_instant
from offline_rl.serving.tallies import MAX_GUESTS, Tallies, cores_of

MAX_HELD = 200_000
"""Requests in flight that are remembered; beyond that the oldest is forgotten."""
PATIENCE_S = 600.0
"""Where starts are reported: how long a request without one stays, at least; else how long its late events count."""
LOST_S = 30 * DAY_S
"""How long a request that was reported to start stays without an end, at least; and at least ten times its run."""
GUESTS_AGAIN_S = 1.0
"""Seconds at least between two openings of the policy's books for the sake of guests; and fifty times what one took."""
EARLY_S = 5.0
"""How long before its decision, or its start, an event may lie: clocks differ so much, and it counts as of then."""
NEWS_WEIGHT = 0.02
"""Least weight of the last request that left, in the share of those of which something was reported."""


@dataclass(frozen=True, slots=True)
class CandidateView:
    """The candidates of one question, as given to heuristics.

    Attributes:
        names: In the order of the question.
        cores: [n] capacity, NaN where it is unknown.
        committed: [n] cores requested by what is held there.
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


class LiveCluster:
    """Nodes, and what they hold. Not thread-safe: one thread owns it.

    Args:
        policy: Whose features the books are kept for; its nodes are known from the start.
    """

    def __init__(self, policy: ServedPolicy) -> None:
        self.inventory, self.tallies = Inventory(), Tallies()
        self.placements: dict[str, PlacedRequest] = {}
        # Share of the requests that left of which something was reported
        self._reported, self._num_left = (0.0, 0)
        self._ends: list[tuple[float, str, float, bool]] = []
        self._sets = CandidateSets()
        self._overdue = Overdue(self._sets)
        self._books: LedgerBooks | None = None
        # of the same policy, about fewer nodes: what they learned is kept
        self._older: LedgerBooks | None = None
        self._guests_in_books: frozenset[str] = frozenset()
        self._new_guests, self._guests_after_s = False, -math.inf
        self.use(policy)

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes of training and of the inventory, in order of appearance."""
        return tuple(self.inventory.facts)

    @property
    def hears_events(self) -> bool:
        """Whether starts and ends are reported, judged by the requests that left."""
        return self._reported > 0.5

    def use(self, policy: ServedPolicy) -> None:
        """Keeps books for another policy from now on; the inventory stays."""
        self._policy, self._books, self._older = policy, None, None
        self.inventory.train(policy.nodes, policy.node_of_machine)
        self.tallies.set_facts(self.inventory.facts)

    def stock(self, nodes: Iterable[Node]) -> None:
        """Takes an inventory in place of the last one; nodes of training keep their facts from training, but those that
        it does not name are not available."""
        before = self.inventory.facts
        self.inventory.state(nodes)
        facts = self.inventory.facts
        self.tallies.set_facts(self.inventory.facts)
        if before.keys() != facts.keys() or any(
            replace(before[name], available=node.available) != node for name, node in facts.items()
        ):
            self._close_books()
        elif self._books is not None:
            for node in self._of_policy(facts.values()):
                self._books.set_available(node.name, node.available)

    def view(self, query: PlacementQuery) -> CandidateView:
        """The candidates of a question, with the reasons against each of them."""
        names, number = self.tallies.interned(query.names), len(query.names)
        own = self.inventory.own(query)
        failed, unresolvable = self.inventory.verdicts(query, own)
        feasible = np.ones(number, bool)
        if failed or unresolvable:
            feasible = np.fromiter((n not in failed and n not in unresolvable for n in names), bool, number)
        cores, committed, num_held = self.tallies.of(names)
        if own:
            for position, name in enumerate(names):
                if name in own:
                    cores[position] = cores_of(own[name])
        return CandidateView(names, cores, committed, num_held, failed, unresolvable, feasible)

    def question(self, query: PlacementQuery, now_s: float) -> Question:
        """The question for the policy: everything as it is now, so that it may be answered later and elsewhere."""
        return self._question(self._open(now_s).question, query, now_s)

    def rule_question(self, query: PlacementQuery, now_s: float) -> Question:
        """The same of the rule that stands in for the policy; only for a policy that has one."""
        return self._question(self._open(now_s).rule_question, query, now_s)

    def _question(self, about: Callable[..., Question], query: PlacementQuery, now_s: float) -> Question:
        request = replace(query.request, candidates=query.names)
        own = {node.name: node for node in self._of_policy(self.inventory.own(query).values())}
        if not own:
            return about(request, now_s)
        known = self._of_policy(self.inventory.facts.values())
        nodes = {node.name: node for node in known} | own
        return about(request, now_s, tuple(nodes.values()))

    def placement(self, query: PlacementQuery, view: CandidateView, node: str, now_s: float) -> PlacedRequest:
        """A decision, ready to be filed: without what came with the question and is known elsewhere."""
        names = view.names if view.feasible.all() else tuple(np.array(view.names, object)[view.feasible])
        names = self._sets.shared(names)
        return self._with_startup(PlacedRequest(replace(query, names=names, machines={}), node, node, now_s))

    def void(self, identity: str) -> None:
        """Takes back what was decided about a request: it is asked about anew, and must not meet itself."""
        self._forget(identity)
        self._overdue.pop(identity)

    def place(self, placement: PlacedRequest) -> tuple[int, int]:
        """Files a decision; an older one about the same request is void.

        Returns:
            How many other requests were forgotten for it, and of how many the candidates were.
        """
        now_s = placement.decided_s
        self.void(placement.query.request_id)
        forgotten = self._make_room()
        run_s = self.expected_run_s(placement.query)
        stays_s = max(run_s, PATIENCE_S) if self.hears_events else run_s
        self._expect_end(now_s + stays_s, placement)
        self._hold(placement, None if self.hears_events else now_s)
        return forgotten

    def weigh(self, placement: PlacedRequest, propensity: float | None) -> PlacedRequest:
        """Adds the propensity of a decision, which may become known later than the decision."""
        identity = placement.query.request_id
        known = self.placements.get(identity)
        if known is not None and known.query is placement.query:  # it may have begun since
            self.placements[identity] = replace(known, propensity=propensity)
        weighed = replace(placement, propensity=propensity)
        self._overdue.weigh(placement, weighed)
        return weighed

    def refuse_impossible(self, event: RequestEvent) -> None:
        """QueryError where an event lies before the decision or the start of its request."""
        placement = self.placements.get(event.request_id) or self._overdue.get(event.request_id)
        if placement is None or event.is_now:
            return
        is_end = event.status is not None and placement.start_s is not None
        after_s = max(placement.decided_s, placement.start_s or 0.0) if is_end else placement.decided_s
        if event.time_s < after_s - EARLY_S:
            raise QueryError(
                f"a request cannot {'start' if event.status is None else 'end'} before it was "
                f"{'started' if after_s > placement.decided_s else 'decided'}; this event does not count",
                where=f"request {event.request_id}, time: {shown_instant(event.time_s)}",
                allowed=f"{shown_instant(after_s)} or later",
                advice="send seconds since 1970 or ISO 8601 with its zone; without time it is now",
            )

    def report(self, event: RequestEvent) -> PlacedRequest | None:
        """Notes a start or a finish; the request's placement; None, and nothing noted, if it is not held."""
        overdue = self._overdue.pop(event.request_id)
        placement = overdue or self.placements.get(event.request_id)
        if placement is None:
            return None
        if overdue is not None:  # it counted as one that nobody reports
            self._note_departure(was_reported=True)
        self._note_departure(was_reported=True)
        time_s = max(event.time_s, placement.decided_s)
        node, is_first = event.node or placement.node, placement.start_s is None
        here = event.status != "rejected" and self._is_same(event.node, placement.node)
        if event.status is not None:
            return self._ended(placement, event, time_s, here=here)
        if overdue is None and node == placement.node:
            return self._started(placement, time_s) if is_first else placement
        self._forget(event.request_id, refused=not here)
        moved = replace(placement, node=node, start_s=time_s if is_first else placement.start_s)
        moved = moved if here else self._with_startup(moved)
        # while starts are not heard the books assume one, and no wait: the reported one goes in its place
        self._hold(moved, None if is_first and self.hears_events else moved.start_s)
        if is_first:
            self._open(time_s).start(event.request_id, time_s)
            self._expect_end_of_run(moved, time_s)
        return moved

    def _ended(
        self, placement: PlacedRequest, event: RequestEvent, time_s: float, *, here: bool
    ) -> PlacedRequest:
        """A request has left; its placement with the end. An end says nothing of when it began, nor of its wait."""
        # a start that was only assumed hides the wait, and an end before it the run
        has_run = here and placement.start_s is not None and event.time_s >= placement.start_s
        has_run &= event.status not in ("dropped", "rejected")
        failed = event.status in ("failed", "killed")
        self._forget(event.request_id, time_s if has_run else None, refused=not here, failed=failed)
        finish_s = None if event.status == "rejected" else max(time_s, placement.start_s or 0.0)
        return replace(placement, node=event.node or placement.node, finish_s=finish_s)

    def _started(self, placement: PlacedRequest, time_s: float) -> PlacedRequest:
        """A request began to run where it is held; its placement with the start. In the books it stays the same one."""
        identity, before = placement.query.request_id, self._books
        started = self.placements[identity] = replace(placement, start_s=time_s)
        books = self._open(time_s)  # those that are opened anew know of the start
        if books is before and not books.start(identity, time_s):  # they had assumed one
            books.correct_start(identity, time_s, waited=self.hears_events)
        self._expect_end_of_run(started, time_s)
        return started

    def expire(self, now_s: float) -> int:
        """Takes requests without reports out of the load when their time is over; returns how many."""
        count = 0
        while self._ends and self._ends[0][0] <= now_s:
            end = heapq.heappop(self._ends)
            if self._is_current(end):
                placement = self.placements[end[1]]
                self._forget(end[1])
                self._overdue.keep(placement, now_s + PATIENCE_S)
                self._note_departure(was_reported=False)
                count += 1
        self._overdue.forget(now_s)
        return count

    def expected_run_s(self, query: PlacementQuery) -> float:
        """The run time to expect of a request, by what it states, its labels and its agent."""
        return self._policy.expected_run_s(query.request)

    def _is_same(self, reported: str | None, node: str) -> bool:
        """Whether a node that an event names is the one meant: itself, a machine of its class, or not named at all."""
        node_of = self._policy.node_of_machine
        return not reported or node_of.get(reported, reported) == node_of.get(node, node)

    def _open(self, now_s: float) -> LedgerBooks:
        """The books; after a change of nodes or policy new ones, with all that is in flight."""
        if self._new_guests and now_s >= self._guests_after_s:
            self._close_books()
        if self._books is None:
            begun_s = time.monotonic()
            nodes = list(self._of_policy(self.inventory.facts.values()))
            if self._policy.any_nodes:
                guests = [name for name in self.tallies.guests() if self._is_guest(name)]
                self._guests_in_books = frozenset(guests[:MAX_GUESTS])
                nodes += map(Node, self._guests_in_books)
            self._books = self._policy.open_books(nodes, now_s)
            if self._older is not None:
                self._books.remember(self._older)
            for node in nodes:
                self._books.set_available(node.name, node.available)
            for placement in self.placements.values():
                self._enter(self._books, placement, placement.start_s)
            self._new_guests = False
            self._guests_after_s = now_s + max(GUESTS_AGAIN_S, 50.0 * (time.monotonic() - begun_s))
        return self._books

    def _close_books(self) -> None:
        self._older, self._books = self._books or self._older, None

    def _of_policy(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """The nodes in the policy's input: a machine is not among them, beside the class that stands for it."""
        node_of = self._policy.node_of_machine
        return (node for node in nodes if node_of.get(node.name, node.name) == node.name)

    def _is_guest(self, name: str) -> bool:
        """Whether neither the inventory nor the policy knows a node; a machine is known with its class."""
        return name not in self.inventory.facts and name not in self._policy.node_of_machine

    def _hold(self, placement: PlacedRequest, start_s: float | None) -> None:
        """Files a request under its node: waiting, or running without its wait having been seen."""
        name, identity = placement.node, placement.query.request_id
        if self._policy.any_nodes and self._is_guest(name):
            self._new_guests |= name not in self._guests_in_books
        self.placements[identity] = placement
        self._sets.take(placement)
        self.tallies.add(name, placement.query.request.cpu_cores)
        if self._books is not None:
            self._enter(self._books, placement, start_s)

    def _make_room(self) -> tuple[int, int]:
        """Forgets what is too much: requests; and candidates, whose requests stay and count as before."""
        num_forgotten = num_stripped = 0
        while len(self.placements) >= MAX_HELD:
            self._forget(next(iter(self.placements)))
            num_forgotten += 1
        while self._sets.num_names > MAX_CANDIDATES:
            identity = self._sets.oldest
            self._sets.give(identity)
            self._overdue.strip(identity)
            if identity in self.placements:
                self.placements[identity] = self.placements[identity].bare()
            num_stripped += 1
        return num_forgotten, num_stripped

    def _with_startup(self, placement: PlacedRequest) -> PlacedRequest:
        """The placement with the start-up that is due on its node."""
        if self._books is None or not placement.node:
            return placement
        due_s = self._books.startup_s(placement.node, self._held(placement, None))
        return replace(placement, startup_s=due_s) if due_s != placement.startup_s else placement

    def _held(self, placement: PlacedRequest, start_s: float | None) -> Held:
        request, decided_s = placement.query.request, placement.decided_s
        assumed_s = None if self.hears_events else decided_s
        return Held(
            arrival_s=decided_s,
            start_s=assumed_s if start_s is None else start_s,
            expected_run_s=self.expected_run_s(placement.query),
            service=request.service,
            cpu_cores=request.cpu_cores,
            memory_gib=request.memory_gib,
            gpus=request.gpus,
        )

    def _enter(self, books: LedgerBooks, placement: PlacedRequest, start_s: float | None) -> None:
        held = self._held(placement, start_s)
        books.hold(placement.query.request_id, placement.node, held, startup_s=placement.startup_s)

    def _forget(
        self, identity: str, ran_until_s: float | None = None, *, refused: bool = False, failed: bool = False
    ) -> None:
        placement = self.placements.pop(identity, None)
        if placement is None:
            return
        self._sets.give(identity)
        self.tallies.remove(placement.node, placement.query.request.cpu_cores)
        if self._books is not None:
            self._books.finish(identity, ran_until_s, refused=refused, failed=failed)

    def _expect_end_of_run(self, placement: PlacedRequest, began_s: float) -> None:
        stays_s = max(LOST_S, 10.0 * self.expected_run_s(placement.query))
        self._expect_end(began_s + stays_s, placement)

    def _expect_end(self, end_s: float, placement: PlacedRequest) -> None:
        """Remembers when a request is to be forgotten if no more is reported about it."""
        if len(self._ends) > 2 * len(self.placements) + 1000:  # most are about older decisions
            self._ends = [end for end in self._ends if self._is_current(end)]
            heapq.heapify(self._ends)
        has_start = placement.start_s is not None
        heapq.heappush(self._ends, (end_s, placement.query.request_id, placement.decided_s, has_start))

    def _is_current(self, end: tuple[float, str, float, bool]) -> bool:
        _, identity, decided_s, has_start = end
        placement = self.placements.get(identity)
        return (
            placement is not None
            and placement.decided_s == decided_s
            and (placement.start_s is not None) == has_start
        )

    def _note_departure(self, *, was_reported: bool) -> None:
        self._num_left += 1
        self._reported += max(NEWS_WEIGHT, 1.0 / self._num_left) * (was_reported - self._reported)


def by_name(decision: Decision) -> dict[str, int]:
    """Node -> its position among the nodes of a decision."""
    return {name: position for position, name in enumerate(decision.nodes)}
