"""The placement rules once more, as a plain Python event loop over dicts and lists, one decision at a time.

Written from the rules (docstrings of `twin.placement`), not from their array code: requests are dicts in a list, every
request carries its own fate, and what may be known of it is asked of the clock. Slow and obvious.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from twin.placement.bookkeeping import PlacementConfig
from twin.placement.types import COMPLETED, FAILED, REJECTED, RESOURCES, UNKNOWN, Cluster

LATEST_S = 1e30
NOT_ASKED = ("demand", "tide", "node_tide", "discontent", "ill_in_log", "run_limit_s")
"""Fields of `Requests` that are not one number that a caller says."""

Request = dict[str, Any]
Fate = dict[str, Any]


class PlacementLoop:
    """One stream of the placement problem.

    A fate is {"accepted", "start_s", "finish_s", "status"}; it is stored with the request and looked at only where
    the clock has passed it.
    """

    def __init__(self, cluster: Cluster, config: PlacementConfig) -> None:
        self.cluster, self.config = cluster, config
        self.clock_s = 0.0
        self.request: Request = {}
        self.in_flight: list[list[Request]] = [[] for _ in cluster.node_names]
        self.recent_wait_s = [0.0] * cluster.num_nodes
        self.recent_starts = [0.0] * cluster.num_nodes
        self.outcomes: dict[int, Fate] = {}
        self.num_overflow = 0
        self.num_decisions = 0

    def begin(self, clock_s: float, request: Request, carried: Sequence[tuple[int, Request]] = ()) -> None:
        """The first request, and (node, request) pairs that were in the system already."""
        self.clock_s, self.request = clock_s, request
        for node, one in carried:
            self.in_flight[node].append(one)

    def legal(self) -> list[bool]:
        """What could ever run there by the largest machine and the candidate set; everything where nothing could."""
        possible = [self._fits(node) for node in range(self.cluster.num_nodes)]
        return possible if any(possible) else [True] * len(possible)

    def _fits(self, node: int) -> bool:
        asked = self.request
        if not self.cluster.rules[asked["rule"], node]:
            return False
        for resource in range(len(RESOURCES)):
            share = asked["demand"][resource] / asked["num_nodes"]
            if share > self.cluster.unit_capacity[resource, node] * 1.000001:
                return False
            if asked["demand"][resource] > self.cluster.capacity[resource, node] * 1.000001:
                return False
        return True

    def decide(self, node: int, fate: Fate, clock_s: float, following: Request) -> None:
        """Offers the request in hand to `node`, then moves the clock to the next request."""
        number, held = self.num_decisions, self.in_flight[node]
        self.num_decisions += 1
        if not fate["accepted"]:
            self.outcomes[number] = {"start_s": math.inf, "finish_s": math.inf, "status": REJECTED}
        elif len(held) >= self.config.depth:
            self.num_overflow += 1
        else:
            held.append(
                {**self.request, "decision": number, "arrival_s": self.clock_s, "fate": fate, "seen": False}
            )
        self._move(clock_s)
        self.request = following

    def _move(self, clock_s: float) -> None:
        keep = math.exp(-(clock_s - self.clock_s) / self.config.memory_s)
        self.clock_s = clock_s
        for node, held in enumerate(self.in_flight):
            settled = [one for one in held if one["fate"]["finish_s"] <= min(clock_s, LATEST_S)]
            self.recent_wait_s[node] *= keep
            self.recent_starts[node] *= keep
            for one in held:
                if not one["seen"] and one["fate"]["start_s"] <= clock_s:
                    one["seen"] = True
                    self.recent_wait_s[node] += one["fate"]["start_s"] - one["arrival_s"]
                    self.recent_starts[node] += 1.0
            self.outcomes |= {one["decision"]: one["fate"] for one in settled if one["decision"] >= 0}
            self.in_flight[node] = [one for one in held if one["fate"]["finish_s"] > min(clock_s, LATEST_S)]

    def look_ahead(self) -> None:
        """Settles every request whose fate is drawn, as at the end of a rollout."""
        self._move(math.inf)

    def in_the_way(self, one: Request, runs: bool, node: int) -> bool:
        """Whether a request on a node counts for the one in hand: all do where no queue goes before another, and what
        waits comes in order of arrival."""
        if self.cluster.disciplines is not None and self.cluster.disciplines.of_node[node]:
            own = self._key({**self.request, "arrival_s": self.clock_s}, node)
            return runs or (one["key"] if "key" in one else self._key(one, node)) <= own
        ranks = self.cluster.priorities
        if ranks is None or ranks.rank[one["queue"]] <= ranks.rank[self.request["queue"]]:
            return True
        return runs and not ranks.preempts

    def waiting_beside(self, node: int) -> int:
        """How many wait on the nodes that share with this one what is waited for."""
        sites = self.cluster.site_of_node
        alike = [
            other
            for other in range(len(sites))
            if self.cluster.shared_waits == "all" or sites[other] == sites[node]
        ]
        return sum(one["fate"]["start_s"] > self.clock_s for other in alike for one in self.in_flight[other])

    def _key(self, one: Request, node: int) -> float:
        """Whose is lower begins first, of those that wait on a node."""
        orders = [
            one["arrival_s"],
            one["expected_run_s"],
            one["arrival_s"] + one["deadline_s"],
            -one["arrival_s"],
        ]
        assert self.cluster.disciplines is not None
        return orders[self.cluster.disciplines.of_node[node]]

    def availability_s(self, node: int, passing: bool = True) -> float:
        """Time until those already on the node leave room for the request in hand, by their fates."""
        capacity, asked, held = self.cluster.capacity[:, node], self.request["demand"], []
        passing &= self.cluster.priorities is not None
        halfway = 0.5 if self.cluster.concurrency else 1.0
        passing |= bool(self.cluster.concurrency)
        for one in self.in_flight[node]:
            if not self.in_the_way(one, one["fate"]["start_s"] <= self.clock_s, node):
                continue
            start_s, finish_s = one["fate"]["start_s"], one["fate"]["finish_s"]
            if math.isinf(finish_s):
                begun_s = self.clock_s if math.isinf(start_s) else start_s
                finish_s = max(begun_s + one["expected_run_s"], self.clock_s)
            elif math.isinf(start_s):
                continue
            begun_s = -math.inf
            if passing and math.isfinite(start_s):
                begun_s = self.clock_s + halfway * (start_s - self.clock_s)
            held.append((finish_s, one["demand"], begun_s))

        def enough(time_s: float) -> bool:
            for resource, limit in enumerate(capacity):
                if 0.0 < limit < math.inf:
                    used = sum(demand[resource] for end_s, demand, from_s in held if from_s <= time_s < end_s)
                    if used + min(asked[resource], limit) > limit * 1.00001:
                        return False
            return True

        times_s = sorted([self.clock_s, *(end_s for end_s, *_ in held)])
        room_s = next(time_s for time_s in times_s if enough(time_s))
        if self.cluster.in_order:
            ahead = [
                one["fate"]["start_s"] for one in self.in_flight[node] if one["fate"]["start_s"] < math.inf
            ]
            room_s = max([room_s, *ahead])
        service = self.request["service"]
        if self.cluster.concurrency and (most := self.cluster.concurrency[service][node]):
            room_s = self._until_one_leaves(room_s, most, self.in_flight[node])
        if self.cluster.permits and (most := self.cluster.permits[service]):
            room_s = self._until_one_leaves(room_s, most, [one for there in self.in_flight for one in there])
        return room_s - self.clock_s

    def _until_one_leaves(self, from_s: float, most: int, there: list[dict[str, Any]]) -> float:
        """When fewer than `most` of the requested service run there; those that wait count from halfway on."""
        spans = []
        for one in there:
            start_s, finish_s = one["fate"]["start_s"], one["fate"]["finish_s"]
            if one["service"] != self.request["service"] or (math.isinf(start_s) and math.isfinite(finish_s)):
                continue
            start_s = self.clock_s if math.isinf(start_s) else start_s
            finish_s = start_s + one["expected_run_s"] if math.isinf(finish_s) else finish_s
            spans.append((0.5 * (self.clock_s + start_s), finish_s))
        for time_s in sorted([from_s, *(end_s for _, end_s in spans if end_s > from_s)]):
            if sum(begin_s <= time_s < end_s for begin_s, end_s in spans) < most:
                return time_s
        raise AssertionError("the last one leaves")

    def stretch(self, node: int) -> float:
        """Mean log of the runs that are fated on a node, over what is usual there, drawn to 0."""
        residuals = []
        for one in self.in_flight[node]:
            fate, usual_s = one["fate"], self.cluster.run_ratio[one["service"], node] * one["expected_run_s"]
            run_s = fate["finish_s"] - fate["start_s"]
            if fate["status"] in (COMPLETED, FAILED) and 0.0 < run_s < math.inf:
                residuals.append(min(max(math.log(run_s / usual_s), -1.5), 1.5))
        return sum(residuals) / (len(residuals) + 1)

    def crowding(self, node: int) -> float:
        """Pressure of the runs on a node, by the share of the usual run that each is beside it."""
        request, found = self.request, 0.0
        if not len(self.cluster.pressure):
            return found
        usual_s = self.cluster.run_ratio[request["service"], node] * request["expected_run_s"]
        first_s = self.clock_s + self.availability_s(node)
        for one in self.in_flight[node]:
            start_s, finish_s = one["fate"]["start_s"], one["fate"]["finish_s"]
            if start_s < math.inf:
                finish_s = start_s + one["expected_run_s"] if finish_s == math.inf else finish_s
                common_s = max(min(finish_s, first_s + usual_s) - max(start_s, first_s), 0.0)
                found += self.cluster.pressure[one["service"]] * common_s / usual_s
        return min(max(found, -3.0), 3.0)

    def _load(self, node: int) -> list[float]:
        """Dynamic features of a node: free shares, waiting share, counts, backlog, oldest and recent waits."""
        unit, capacity = self.config.time_unit_s, self.cluster.capacity[:, node]
        used, waiting_cores, running, waiting, work, oldest = [0.0] * len(RESOURCES), 0.0, 0, 0, 0.0, 0.0
        for one in self.in_flight[node]:
            left_s = one["expected_run_s"]
            if one["seen"]:
                running += 1
                used = [before + more for before, more in zip(used, one["demand"], strict=True)]
                left_s = max(left_s - (self.clock_s - one["fate"]["start_s"]), 0.0)
            else:
                waiting += 1
                waiting_cores += one["demand"][0]
                oldest = max(oldest, self.clock_s - one["arrival_s"])
            work += left_s * one["demand"][0]
        free = [1.0 - u / c if c > 0.0 else 0.0 for u, c in zip(used, capacity, strict=True)]
        cores = max(capacity[0], 1e-9)
        mean_wait = self.recent_wait_s[node] / max(self.recent_starts[node], 1e-3)
        return [
            *free,
            math.log1p(waiting_cores / cores),
            math.log1p(running),
            math.log1p(waiting),
            math.log1p(work / cores / unit),
            math.log1p(oldest / unit),
            math.log1p(max(mean_wait, 0.0) / unit),
            math.log1p(self.recent_starts[node]),
        ]

    def observe_nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """[features, nodes] as the site that decides sees them, and in full."""
        cluster, home, free = self.cluster, self.request["site"], len(RESOURCES)
        loads = np.array([self._load(node) for node in range(cluster.num_nodes)])
        shown = loads.copy()
        for node, site in enumerate(cluster.site_of_node):
            if site != home and self.config.view == "summary":
                shown[node] = loads[cluster.site_of_node == site].mean(axis=0)
        fixed, needed = [], []
        for node in range(cluster.num_nodes):
            same = float(cluster.site_of_node[node] == home)
            fixed.append([float(self._fits(node)), same, float(cluster.is_cloud[node])])
            needed.append([self.request["demand"][0] / cluster.capacity[0, node]])
        views = []
        for view, delayed in ((shown, 1.0), (loads, 0.0)):  # answers know themselves when there is a place
            expected = [
                self._expected(node, view[node], needed[node][0], delayed * self._place_s(node))
                for node in range(len(needed))
            ]
            views.append(np.hstack([fixed, view[:, :free], needed, view[:, free:], expected]).T)
        local, full = views
        return local.astype(np.float32), full.astype(np.float32)

    def _expected(self, node: int, load: np.ndarray, needed: float, delay_s: float) -> list[float]:
        """Usual run, core time, slack and acceptance of the request in hand on a node, its load as it is shown."""
        asked, unit = self.request, self.config.time_unit_s
        run_s = self.cluster.run_ratio[asked["service"], node] * asked["expected_run_s"] + delay_s
        free, waiting, backlog = load[0], math.expm1(load[3]), math.expm1(load[6])
        slack = 0.0
        if math.isfinite(asked["deadline_s"]):
            left_s = asked["deadline_s"] - (0.0 if free - waiting >= needed - 1e-3 else backlog * unit)
            slack = max(-2.0, min(2.0, math.log(left_s / run_s))) if left_s > 1e-6 else -2.0
        away = "accepts_cloud" if self.cluster.is_cloud[node] else "accepts_elsewhere"
        here = "accepts_home" if self.cluster.site_of_node[node] == asked["site"] else away
        return [math.log1p(run_s / unit), math.log1p(run_s * needed / unit), slack, asked[here]]

    def _place_s(self, node: int) -> float:
        """How long the request in hand waits for a place of its service on a node, by what is expected."""
        service = self.request["service"]
        most = self.cluster.concurrency[service][node] if self.cluster.concurrency else 0
        own = [one for one in self.in_flight[node] if one["service"] == service]
        if most == 0 or len(own) < most:
            return 0.0
        ratio, left_s = self.cluster.run_ratio[service, node], 0.0
        for one in own:
            elapsed_s = self.clock_s - one["fate"]["start_s"] if one["seen"] else 0.0
            left_s += max(one["expected_run_s"] * ratio - elapsed_s, 0.0)
        return left_s / most

    def observe_request(self) -> np.ndarray:
        """[features] of the request in hand."""
        asked, unit, cluster = self.request, self.config.time_unit_s, self.cluster
        finite = math.isfinite(asked["deadline_s"])
        day, week = 2 * math.pi * asked["day_fraction"], 2 * math.pi * asked["week_fraction"]
        numbers = [
            *(math.log1p(amount) for amount in asked["demand"]),
            math.log1p(asked["num_nodes"] - 1.0),
            math.log1p(asked["expected_run_s"] / unit),
            math.log1p(asked["deadline_s"] / unit) if finite else 0.0,
            float(finite),
            math.log1p(asked["input_mib"]),
            *(math.sin(day), math.cos(day), math.sin(week), math.cos(week)),
        ]
        vocabularies = {"site": "sites", "scenario": "scenarios", "service": "services", "queue": "queues"}
        flags: list[float] = []
        for kind, names in vocabularies.items():
            flags += [float(i == asked[kind]) for i in range(len(getattr(cluster, names)))]
        return np.array(numbers + flags, np.float32)

    def reward(self, arrival_s: float, asked: Request, outcome: Fate) -> float:
        """Worth of a settled decision: on time or not, or minus the log of response time over expected run."""
        completed = outcome["status"] == COMPLETED
        response_s = outcome["finish_s"] - arrival_s
        if self.config.reward == "on_time":
            return float(completed and response_s <= asked["deadline_s"])
        worst = self.config.worst_response
        if not completed:
            return -math.log(worst)
        return -math.log(min(max(response_s / max(asked["expected_run_s"], 1e-3), 1.0 / worst), worst))


def request_at(requests: Any, *index: int) -> Request:
    """One request of `Requests` arrays [*batch] as a dict of Python numbers."""
    others = [name for name in requests._fields if name not in NOT_ASKED]
    one = {name: getattr(requests, name)[index].item() for name in others}
    return {**one, "demand": [float(values[index]) for values in requests.demand]}


def carried_in(windows: Any, window: int) -> list[tuple[int, Request]]:
    """(node, request) pairs that were in flight when a window begins."""
    table, fate = windows.carried.request, windows.carried.fate  # where ranks stand for queues
    pairs = []
    for row in np.flatnonzero(windows.carried.node[:, window] >= 0):
        node, at = windows.carried.node[row, window], (row, window)
        one = {
            "decision": -2,
            "service": int(table.service[at]),
            "queue": 0 if table.rank is None else int(np.nan_to_num(table.rank[at], posinf=0.0)),
            "key": 0.0 if table.rank is None else float(table.rank[at]),
            "arrival_s": float(table.arrival_s[at]),
            "expected_run_s": float(table.expected_run_s[at]),
            "demand": [float(values[at]) for values in table.demand],
            "seen": bool(np.isfinite(table.start_s[at])),
            "fate": {
                "start_s": float(fate.start_s[at]),
                "finish_s": float(fate.finish_s[at]),
                "status": int(fate.status[at]),
            },
        }
        pairs.append((int(node), one))
    return pairs


NEVER: Fate = {"accepted": True, "start_s": math.inf, "finish_s": math.inf, "status": UNKNOWN}
