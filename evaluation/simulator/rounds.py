"""Consecutive rounds of assignment: requests wait for the next round and are assigned together, or go at once.

Every replica of an edge serves one request after the other. True computing times vary around a true function, and the
scheduler's functions may be off; it observes which requests have begun and ended, and which edges are there.
Backlogs are carried over from round to round. What an edge has not finished when it leaves is lost and waits for the
next round, as if it had just come.

    at_once       every request goes, at its arrival, to the edge with the earliest expected response
    together      requests of a round are assigned by a solver of the assignment problem, on the backlogs of that moment
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from logs_schema.errors import ConfigError
from twin.assignment.instances import InstanceConfig, costs_of, draw_instances
from twin.assignment.types import AssignmentInstance, Costs, Edges, RoundRequests, row_of

Solver = Callable[[Costs], np.ndarray]
"""The costs of a round -> [Z] edges."""


@dataclass(frozen=True)
class RoundsConfig:
    """A region and its load.

    Attributes:
        region: Distribution of edges and sizes, and all requests.
        load: Offered work over the capacity of all replicas.
        spread: Deviation of the logarithm of true computing times around their function.
        function_error: Deviation of the logarithm of the factor by which the scheduler's function of an edge is off.
    """

    region: InstanceConfig = field(default_factory=lambda: InstanceConfig(10, 5, 2000, backlogs=(0, 0)))
    load: float = 0.8
    spread: float = 0.3
    function_error: float = 0.1

    def __post_init__(self) -> None:
        if not 0.0 < self.load < 1.0:
            raise ConfigError(f"a load of {self.load}", where="rounds", allowed="more than 0, less than 1")
        if min(self.spread, self.function_error) < 0.0:
            raise ConfigError("a deviation is negative", where="rounds", allowed="0 or more")


class Absence(NamedTuple):
    """An edge that is not there for a while, on the clock of the arrivals."""

    edge: int
    from_s: float
    to_s: float


@dataclass(frozen=True)
class Region:
    """Edges with all of their requests; the same for every policy.

    Attributes:
        arrival_s: [Z] when requests come, ascending.
        expected: What the scheduler believes; `costs.work_s` over replicas.
        true_s: [Z, Q] computing on one replica.
        true_way_s: [Z, Q] of inputs; 0 where a request stays.
        true_back_s: [Z, Q] of results.
        replicas: [Q].
        absences: When which edges are not there.
    """

    arrival_s: np.ndarray
    expected: Costs
    true_s: np.ndarray
    true_way_s: np.ndarray
    true_back_s: np.ndarray
    replicas: np.ndarray
    absences: tuple[Absence, ...] = ()


def ways_of(costs: Costs) -> np.ndarray:
    """[Z, Q] ways of inputs, 0 where a request stays."""
    stays = costs.source[:, None] == np.arange(costs.work_s.shape[1])
    return np.where(stays, 0.0, costs.transfer_s)


def draw_region(config: RoundsConfig, seed: int) -> Region:
    """One drawn region with all of its requests."""
    rng = np.random.default_rng(seed)
    drawn: AssignmentInstance = row_of(draw_instances(rng, config.region, 1), 0)
    replicas = drawn.edges.replicas.astype(int)
    scatter = np.exp(config.spread * rng.normal(size=drawn.costs.work_s.shape) - 0.5 * config.spread**2)
    true_s = drawn.costs.work_s * replicas * scatter
    off = np.exp(config.function_error * rng.normal(size=len(replicas)))
    edges: Edges = drawn.edges._replace(compute=drawn.edges.compute * off[:, None])
    requests: RoundRequests = drawn.requests
    expected = costs_of(edges, requests, config.region.transfer_s)
    mean_s = 1.0 / np.sum(1.0 / drawn.costs.work_s.mean(axis=0))  # one request's share of the whole region
    arrival_s = np.cumsum(rng.exponential(mean_s / config.load, len(true_s)))
    return Region(arrival_s, expected, true_s, ways_of(expected), expected.result_s, replicas)


class PlayedRounds(NamedTuple):
    """What became of every request; leaves [Z]."""

    edge: np.ndarray
    decided_s: np.ndarray
    start_s: np.ndarray
    finish_s: np.ndarray
    num_again: np.ndarray  # how often it was assigned again because its edge had left


def play_at_once(
    region: Region, choose: Callable[["QueueBooks", int, float], int] | None = None
) -> PlayedRounds:
    """Every request goes at its arrival.

    Args:
        region: The region and its load.
        choose: (books, request, time) -> edge; the one with the earliest expected response where None.
    """
    choose = choose or (lambda books, request, now_s: books.soonest(request, now_s))

    def decide(books: "QueueBooks", requests: np.ndarray, now_s: float) -> None:
        for request in requests.tolist():
            books.send(request, choose(books, request, now_s), now_s)

    return _play(region, decide, lambda time_s: time_s)


def play_together(region: Region, interval_s: float, solver: Solver) -> PlayedRounds:
    """Requests wait for the next round."""

    def decide(books: "QueueBooks", requests: np.ndarray, now_s: float) -> None:
        edge = solver(books.costs(requests))
        way_s = region.expected.transfer_s[requests, edge]
        for place in np.argsort(way_s, kind="stable"):
            books.send(int(requests[place]), int(edge[place]), now_s)

    return _play(region, decide, lambda time_s: float(np.ceil(time_s / interval_s)) * interval_s)


def responses_at_once(region: Region) -> np.ndarray:
    """[Z] response times where every request goes at once where its answer is expected first."""
    return play_at_once(region).finish_s - region.arrival_s


def responses_together(region: Region, interval_s: float, solver: Solver) -> np.ndarray:
    """[Z] response times where requests wait for the next round."""
    return play_together(region, interval_s, solver).finish_s - region.arrival_s


def _play(
    region: Region,
    decide: Callable[["QueueBooks", np.ndarray, float], None],
    moment: Callable[[float], float],
) -> PlayedRounds:
    """Goes from decision to decision; `moment`: when what happens at a time is decided about."""
    books = QueueBooks(region)
    due = [(moment(time_s), request) for request, time_s in enumerate(region.arrival_s.tolist())]
    due += [(moment(one.from_s), len(due)) for one in region.absences]  # nobody: what is lost then is seen
    heapq.heapify(due)
    while due:
        now_s, requests = due[0][0], set()
        while due and due[0][0] == now_s:
            requests.add(heapq.heappop(due)[1])
        requests.discard(len(region.arrival_s))
        requests.update(books.look(now_s))
        waiting = np.array(sorted(requests), int)
        possible = np.isfinite(books.work_s(waiting)).any(axis=1) if len(waiting) else np.zeros(0, bool)
        for request in waiting[~possible].tolist():
            heapq.heappush(
                due, (moment(max(books.next_return_s(now_s), np.nextafter(now_s, np.inf))), request)
            )
        if possible.any():
            decide(books, waiting[possible], now_s)
    return PlayedRounds(books.edge, books.decided_s, books.start_s, books.finish_s, books.num_again)


class QueueBooks:
    """When replicas become free in truth, and by the scheduler's estimate, which uses observed begins and ends.

    Which replica takes what waits on an edge is seen when it begins; until then the estimate hands it to the one that
    is expected to be free first.
    """

    def __init__(self, region: Region) -> None:
        self.region = region
        most, num_requests = region.replicas.max(), len(region.arrival_s)
        self._exists = np.arange(most) < region.replicas[:, None]
        self.true_free_s = np.where(self._exists, 0.0, np.inf)  # [Q, replicas]
        self.free_s = self.true_free_s.copy()
        self.start_s, self.end_s, self.finish_s, self.decided_s = (np.zeros(num_requests) for _ in range(4))
        self._there_s = np.zeros(num_requests)
        self._left_s: np.ndarray = np.zeros(len(region.replicas))
        self.edge, self.num_again = np.full(num_requests, -1), np.zeros(num_requests, int)
        self._place, self._work_s = np.zeros(num_requests, int), np.zeros(num_requests)
        self._open = np.zeros(0, int)
        self._leaving = sorted(region.absences, key=lambda one: one.from_s)
        self.is_there = np.ones(len(region.replicas), bool)

    def look(self, now_s: float) -> list[int]:
        """Observes what has happened until now; returns the requests that were lost with an edge.

        The remaining work is taken at its expectation.
        """
        lost: list[int] = []
        while self._leaving and self._leaving[0].from_s <= now_s:
            lost += self._leave(self._leaving.pop(0))
        if self.region.absences:
            self.is_there[:] = True
            for one in self.region.absences:
                if one.from_s <= now_s < one.to_s:
                    self.is_there[one.edge] = False
        self._open = self._open[self.end_s[self._open] > now_s]
        work_s, begun_s = self._work_s[self._open], np.maximum(now_s - self.start_s[self._open], 0.0)
        left_s = np.maximum(work_s - begun_s, 0.0)
        self._left_s = np.bincount(self.edge[self._open], left_s, len(self.is_there))
        runs = self.start_s[self._open] <= now_s
        taken_s = np.bincount(self._place[self._open[runs]], left_s[runs], self.free_s.size)
        self.free_s = np.where(self._exists, now_s + taken_s.reshape(self.free_s.shape), np.inf)
        for request in self._open[~runs].tolist():  # in the order in which they were sent
            self._expect(request)
        return lost

    def _expect(self, request: int) -> None:
        """Takes a request that waits on its edge, or is on its way, into the estimate."""
        free_s = self.free_s[self.edge[request]]
        first = int(free_s.argmin())
        free_s[first] = max(free_s[first], self._there_s[request]) + self._work_s[request]

    def work_s(self, requests: int | np.ndarray) -> np.ndarray:
        """[requests, Q], or [Q] of one: expected computing over replicas; inf on edges that are not there."""
        found: np.ndarray = np.where(self.is_there, self.region.expected.work_s[requests], np.inf)
        return found

    def next_return_s(self, now_s: float) -> float:
        """When the next of the edges that are away now is back."""
        return min(one.to_s for one in self.region.absences if one.from_s <= now_s < one.to_s)

    def soonest(self, request: int, now_s: float) -> int:
        """The edge where the request's answer is expected first."""
        costs, replicas = self.region.expected, self.region.replicas
        way_s = np.where(np.arange(len(replicas)) == costs.source[request], 0.0, costs.transfer_s[request])
        start_s = np.maximum(self.free_s.min(axis=1), now_s + way_s)
        return int(np.argmin(start_s + self.work_s(request) * replicas + costs.result_s[request]))

    def costs(self, requests: np.ndarray) -> Costs:
        """A round's costs with the backlogs of this moment: what was seen last, and what was sent since."""
        expected = self.region.expected
        transfer_s, result_s = (of_pair[requests] for of_pair in expected[1:3])
        nothing = np.zeros(len(self._left_s))
        source, held_s = expected.source[requests], self._left_s / self.region.replicas
        return Costs(self.work_s(requests), transfer_s, result_s, source, held_s, nothing, nothing, nothing)

    def send(self, request: int, edge: int, now_s: float) -> None:
        """Sends a request: its place in the queue is the replica that is free first."""
        region = self.region
        true_way_s = region.true_way_s[request, edge]
        way_s = 0.0 if region.expected.source[request] == edge else region.expected.transfer_s[request, edge]
        replica = int(self.true_free_s[edge].argmin())
        start_s = max(self.true_free_s[edge, replica], now_s + true_way_s)
        end_s = start_s + region.true_s[request, edge]
        work_s = region.expected.work_s[request, edge] * region.replicas[edge]
        self.true_free_s[edge, replica] = end_s
        self._there_s[request], self._left_s[edge] = now_s + way_s, self._left_s[edge] + work_s
        self.start_s[request], self.end_s[request], self._work_s[request] = start_s, end_s, work_s
        self._place[request] = edge * self.free_s.shape[1] + replica
        self._open = np.append(self._open, request)
        self.edge[request], self.decided_s[request] = edge, now_s
        self._expect(request)
        self.finish_s[request] = end_s + region.true_back_s[request, edge]

    def _leave(self, absence: Absence) -> list[int]:
        """An edge goes with all that it has not finished, and is free again when it is back."""
        held = (self.edge == absence.edge) & (self.end_s > absence.from_s) & (self.decided_s < absence.from_s)
        lost: list[int] = np.flatnonzero(held).tolist()
        self.true_free_s[absence.edge, self._exists[absence.edge]] = absence.to_s
        self.end_s[lost], self.num_again[lost] = absence.from_s, self.num_again[lost] + 1
        return lost
