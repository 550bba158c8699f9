"""Consecutive rounds of assignment: requests wait for the next round and are assigned together, or go at once.

Every replica of an edge serves one request after the other. True computing times vary around a true function, and the
scheduler's functions are off by an unknown factor for each edge; it observes which requests have begun and ended.
Backlogs are carried over from round to round.

    at_once       every request goes, at its arrival, to the edge with the earliest expected response
    together      requests of a round are assigned by a solver of the assignment problem, on the backlogs of that moment
"""

from collections.abc import Callable
from dataclasses import dataclass, field

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


class Region:
    """One drawn region with all of its requests; the same for every policy.

    Attributes:
        arrival_s: [Z] when requests come.
        expected: What the scheduler believes; `costs.work_s` over replicas.
        true_s: [Z, Q] computing on one replica.
        replicas: [Q].
    """

    def __init__(self, config: RoundsConfig, seed: int) -> None:
        rng = np.random.default_rng(seed)
        drawn: AssignmentInstance = row_of(draw_instances(rng, config.region, 1), 0)
        self.replicas = drawn.edges.replicas.astype(int)
        scatter = np.exp(config.spread * rng.normal(size=drawn.costs.work_s.shape) - 0.5 * config.spread**2)
        self.true_s = drawn.costs.work_s * self.replicas * scatter
        off = np.exp(config.function_error * rng.normal(size=len(self.replicas)))
        edges: Edges = drawn.edges._replace(compute=drawn.edges.compute * off[:, None])
        requests: RoundRequests = drawn.requests
        self.expected = costs_of(edges, requests, config.region.transfer_s)
        mean_s = 1.0 / np.sum(
            1.0 / drawn.costs.work_s.mean(axis=0)
        )  # one request's share of the whole region
        self.arrival_s = np.cumsum(rng.exponential(mean_s / config.load, len(self.true_s)))


def responses_at_once(region: Region) -> np.ndarray:
    """[Z] response times where every request goes at once where its answer is expected first."""
    books = _QueueBooks(region)
    for request, now_s in enumerate(region.arrival_s.tolist()):
        books.look(now_s)
        books.send(request, books.soonest(request, now_s), now_s)
    return books.finish_s - region.arrival_s


def responses_together(region: Region, interval_s: float, solver: Solver) -> np.ndarray:
    """[Z] response times where requests wait for the next round.

    Args:
        region: The region and its load.
        interval_s: Time between rounds.
        solver: Solver of each round's assignment problem.
    """
    books = _QueueBooks(region)
    number = np.ceil(region.arrival_s / interval_s).astype(int)
    for one in np.unique(number):
        requests, now_s = np.flatnonzero(number == one), float(one * interval_s)
        books.look(now_s)
        edge = solver(books.costs(requests, now_s))
        sent = region.expected.transfer_s[requests, edge]
        for place in np.argsort(sent, kind="stable"):
            books.send(int(requests[place]), int(edge[place]), now_s)
    return books.finish_s - region.arrival_s


class _QueueBooks:
    """When replicas become free in truth, and by the scheduler's estimate, which uses observed begins and ends."""

    def __init__(self, region: Region) -> None:
        self.region = region
        most, num_requests = region.replicas.max(), len(region.arrival_s)
        self._exists = np.arange(most) < region.replicas[:, None]
        self.true_free_s = np.where(self._exists, 0.0, np.inf)  # [Q, replicas]
        self.free_s = self.true_free_s.copy()
        self.start_s, self.end_s, self.finish_s = (np.zeros(num_requests) for _ in range(3))
        self._place, self._work_s = np.zeros(num_requests, int), np.zeros(num_requests)
        self._open = np.zeros(0, int)

    def look(self, now_s: float) -> None:
        """The estimate: from observed begins and ends; the remaining work is taken at its expectation."""
        self._open = self._open[self.end_s[self._open] > now_s]
        work_s, begun_s = self._work_s[self._open], np.maximum(now_s - self.start_s[self._open], 0.0)
        left_s = np.bincount(self._place[self._open], np.maximum(work_s - begun_s, 0.0), self.free_s.size)
        self.free_s = np.where(self._exists, now_s + left_s.reshape(self.free_s.shape), np.inf)

    def soonest(self, request: int, now_s: float) -> int:
        """The edge where the request's answer is expected first."""
        costs, replicas = self.region.expected, self.region.replicas
        way_s = np.where(np.arange(len(replicas)) == costs.source[request], 0.0, costs.transfer_s[request])
        start_s = np.maximum(self.free_s.min(axis=1), now_s + way_s)
        return int(np.argmin(start_s + costs.work_s[request] * replicas + costs.result_s[request]))

    def costs(self, requests: np.ndarray, now_s: float) -> Costs:
        """A round's costs with the backlogs of this moment."""
        expected = self.region.expected
        left_s = np.where(np.isfinite(self.free_s), np.maximum(self.free_s - now_s, 0.0), 0.0).sum(axis=1)
        work_s, transfer_s, result_s = (of_pair[requests] for of_pair in expected[:3])
        nothing = np.zeros(len(left_s))
        source, held_s = expected.source[requests], left_s / self.region.replicas
        return Costs(work_s, transfer_s, result_s, source, held_s, nothing, nothing, nothing)

    def send(self, request: int, edge: int, now_s: float) -> None:
        """Sends a request: its place in the queue is the replica that is free first."""
        region = self.region
        way_s = 0.0 if region.expected.source[request] == edge else region.expected.transfer_s[request, edge]
        replica = int(self.true_free_s[edge].argmin())
        start_s = max(self.true_free_s[edge, replica], now_s + way_s)
        end_s = start_s + region.true_s[request, edge]
        work_s = region.expected.work_s[request, edge] * region.replicas[edge]
        self.true_free_s[edge, replica] = end_s
        self.free_s[edge, replica] = max(self.free_s[edge, replica], now_s + way_s) + work_s
        self.start_s[request], self.end_s[request], self._work_s[request] = start_s, end_s, work_s
        self._place[request] = edge * self.free_s.shape[1] + replica
        self._open = np.append(self._open, request)
        self.finish_s[request] = end_s + region.expected.result_s[request, edge]
