"""Dispatch to nodes as a plain event loop: a simulator beside the project's own, which shares no code with it.

Requests of six services come to eight nodes at one site, at times of a Poisson process that is busier at noon. What a
run takes depends on the service, the node and chance; what else there is, a `Kind` says. The loop writes a log of the
`native` format and plays whoever decides, request by request: so a policy from that log can be judged without any books
of the project.

Work of a run is served at a rate: 1, divided by the runs of a node that is shared, less under contention, a quarter in
the slow periods of a node. At every event the work done is taken off, and the next end is scheduled anew.
"""

import csv
import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DAY_S = 86_400.0
FIRST_DAY_S = 1_700_006_400.0
"""A midnight, in seconds since 1970."""
NUM_NODES, NUM_SERVICES = 8, 6
WIDTHS = (1, 1, 2, 6, 1, 2)
"""Cores of a request of every service, where they are not all of one; the last two then ask for a GPU."""
NUM_WITH_GPUS, GPUS = 4, 2
"""Nodes with GPUs, and how many each has."""
SLOW_RATE, SLOW_S, QUICK_S = 0.25, 3_600.0, 18_000.0
THINK = 2.5
"""Mean think time of users, over what a run takes."""
WARM_S = 600.0
"""How long a service stays warm on a node."""
LONG_S, SHORT_S = 3_600.0, 7_200.0
"""Mean length of regimes in which all runs are long, and short."""
PARETO_ALPHA, PARETO_MOST, PARETO_MEAN = 1.1, 1_000.0, 4.9
BY_CHANCE = 0.3
"""Share of the logged decisions that are drawn among all nodes; the others go to the shortest queue."""


@dataclass(frozen=True)
class Kind:
    """What holds in a world.

    Attributes:
        load: Work that comes, over what the cores can do when it is dealt evenly.
        deadline: Over the mean run of the service; of heavy tails over that of the request.
        cores: Of a node; requests take one, or `WIDTHS`.
        pair_spread: Standard deviation of the logarithm of run times over services and nodes.
        shared: Whether all runs of a node share it, so that no request waits.
        contention: By how much a further run on the node slows each.
        slow_periods: Whether nodes are slow for an hour now and then.
        regimes: Whether runs are all five times as long for an hour now and then.
        cold_starts: Whether a service that did not run on a node lately takes longer there.
        heavy_tails: Whether sizes are of a bounded Pareto law, and requests declare them.
        wide: Whether requests differ in cores, and some ask for a GPU. A node starts them in order: where the first
            does not fit, the others wait behind it.
        users: Of a closed system, each of whom thinks, asks, and thinks again when the run has ended; 0: requests come
            whatever becomes of others.
    """

    load: float
    deadline: float
    cores: int = 1
    pair_spread: float = 0.5
    shared: bool = False
    contention: float = 0.0
    slow_periods: bool = False
    regimes: bool = False
    cold_starts: bool = False
    heavy_tails: bool = False
    wide: bool = False
    users: int = 0


KINDS = {
    "queueing": Kind(0.75, 1.0),
    "sharing": Kind(0.75, 1.1, cores=64, shared=True),
    "slow_periods": Kind(0.38, 1.5, cores=4, pair_spread=0.3, contention=0.15, slow_periods=True),
    "regimes": Kind(0.25, 3.0, pair_spread=0.0, regimes=True),
    "cold_starts": Kind(0.8, 0.9, cores=4, cold_starts=True),
    "heavy_tails": Kind(0.7, 3.0, pair_spread=0.0, heavy_tails=True),
    "wide": Kind(0.6, 1.5, cores=8, wide=True),
    "closed": Kind(0.75, 1.6, users=24),
}


class Job(NamedTuple):
    """A request as it comes."""

    arrival_s: float
    service: int
    declared_s: float | None  # run time that it declares, and takes
    luck: float  # what its run takes, over the mean
    deadline_s: float
    cores: int = 1
    gpus: int = 0
    user: int | None = None


@dataclass
class Run:
    """What became of a request."""

    node: int
    propensity: float
    start_s: float = math.nan
    finish_s: float = math.nan


class Dispatcher(ABC):
    """A policy in the loop; `started` and `finished` are for those that keep books."""

    @abstractmethod
    def choose(self, number: int, job: Job, in_flight: Sequence[float]) -> tuple[int, float]:
        """A node, and the probability with which it was chosen.

        `in_flight` counts the requests of every node; inf where this one could never run.
        """

    def started(self, number: int, at_s: float) -> None:  # noqa: B027
        """A request began to run."""

    def finished(self, number: int, at_s: float) -> None:  # noqa: B027
        """A run ended."""


class ShortestQueue(Dispatcher):
    """The node with the fewest requests, ties by chance; some decisions among all nodes."""

    def __init__(self, seed: int, by_chance: float = 0.0) -> None:
        self._random, self._by_chance = np.random.default_rng(seed), by_chance

    def choose(self, number: int, job: Job, in_flight: Sequence[float]) -> tuple[int, float]:
        shortest, legal = np.asarray(in_flight) == min(in_flight), np.isfinite(in_flight)
        chance = self._by_chance * legal / legal.sum() + (1.0 - self._by_chance) * shortest / shortest.sum()
        node = int(self._random.choice(NUM_NODES, p=chance))
        return node, float(chance[node])


class World:
    """A cluster of a kind: its run times, and the requests of its days.

    Args:
        kind: What holds.
        seed: Of what is fixed.
        deadlines: Whether requests have deadlines.
        drift: Standard deviation by which logarithms of run times have moved; one node then has half its speed.
        per_day: Requests a day.
    """

    def __init__(
        self, kind: Kind, seed: int, *, deadlines: bool = True, drift: float = 0.0, per_day: int = 6_000
    ) -> None:
        random, moved = np.random.default_rng(seed), np.random.default_rng((seed, 1))
        self.kind, self.deadlines, self.per_day = kind, deadlines, per_day
        self.share = random.dirichlet(np.full(NUM_SERVICES, 3.0))
        base = np.exp(random.normal(0.0, 0.5, NUM_SERVICES))
        pair = np.exp(random.normal(0.0, 1.0, (NUM_SERVICES, NUM_NODES)) * kind.pair_spread)
        self.cores = np.array(WIDTHS if kind.wide else (1,) * NUM_SERVICES)
        self.gpus = np.array((0,) * 4 + ((1,) * 2 if kind.wide else (0,) * 2))
        self.node_gpus = np.where(np.arange(NUM_NODES) < NUM_WITH_GPUS, GPUS if kind.wide else 0, 0)
        at_once = NUM_NODES * (1 if kind.shared else kind.cores)
        self.unit_s = math.inf
        for asked, there in ((self.cores, at_once), (self.gpus, int(self.node_gpus.sum()))):
            whole = float(((self.share * asked) @ (base[:, None] * pair)).mean())
            if whole > 0.0:  # the scarcer of both bears the load
                self.unit_s = min(self.unit_s, kind.load * there * DAY_S / per_day / whole)
        pair = pair * np.exp(drift * moved.normal(size=pair.shape))
        if drift:
            pair[:, moved.integers(NUM_NODES)] *= 2.0
        self.mean_s = self.unit_s * base[:, None] * pair
        self.deadline_s = kind.deadline * self.unit_s * base
        users = np.random.default_rng((seed, 2))
        self.share_of_user = users.dirichlet(9.0 * self.share + 0.3, kind.users)
        think_s = np.exp(users.normal(0.0, 0.4, kind.users))
        self.think_s = THINK * self.unit_s * think_s / think_s.mean() if kind.users else think_s

    def jobs(self, day: int, num_days: int, seed: int) -> list[Job]:
        """The requests of some days, by the thinning of a Poisson process."""
        random, kind = np.random.default_rng(seed), self.kind
        time_s, end_s = day * DAY_S, (day + num_days) * DAY_S
        change_s, is_long, found = time_s, False, []
        while True:
            time_s += random.exponential(DAY_S / self.per_day / 1.3)
            if time_s >= end_s:
                return found
            if 1.3 * random.random() > 1.0 + 0.3 * math.sin(2.0 * math.pi * time_s / DAY_S):
                continue
            service = int(random.choice(NUM_SERVICES, p=self.share))
            luck, declared_s, deadline_s = (
                math.exp(random.normal(-0.045, 0.3)),
                None,
                float(self.deadline_s[service]),
            )
            if kind.heavy_tails:
                declared_s, luck = self.unit_s * _pareto(random.random()) / PARETO_MEAN, 1.0
                deadline_s = kind.deadline * declared_s + self.unit_s
            if kind.regimes:
                if time_s > change_s:
                    is_long = not is_long
                    change_s = time_s + random.exponential(LONG_S if is_long else SHORT_S)
                luck *= 3.0 if is_long else 0.6
            asked = int(self.cores[service]), int(self.gpus[service])
            found.append(Job(time_s, service, declared_s, luck, deadline_s, *asked))

    def write(self, jobs: Sequence[Job], runs: Sequence[Run], folder: Path) -> None:
        """A log of the `native` format: `nodes.csv` and `requests.csv`."""
        folder.mkdir(parents=True)
        nodes = [
            {"node_id": f"n{node}", "node_class": "gpu" if gpus else "machine", "site": "here", "tier": "edge",
             "cpu_cores": self.kind.cores, "virtual": "false"} | self._of_wide(gpus)
            for node, gpus in enumerate(self.node_gpus.tolist())
        ]  # fmt: skip
        requests = [
            self._row(number, job, run) for number, (job, run) in enumerate(zip(jobs, runs, strict=True))
        ]
        for name, rows in (("nodes", nodes), ("requests", requests)):
            with (folder / f"{name}.csv").open("w", newline="") as file:
                table = csv.DictWriter(file, list(rows[0]))
                table.writeheader()
                table.writerows(rows)

    def _row(self, number: int, job: Job, run: Run) -> dict[str, object]:
        row = {
            "request_id": number, "arrival": FIRST_DAY_S + job.arrival_s, "site": "here", "service": f"s{job.service}",
            "status": "completed", "cpu_cores": job.cores, "offered_node": f"n{run.node}", "accepted": "true",
            "start": FIRST_DAY_S + run.start_s, "finish": FIRST_DAY_S + run.finish_s,
            "ran_node": f"n{run.node}", "propensity": run.propensity,
        }  # fmt: skip
        known = {} if job.declared_s is None else {"requested_run_s": job.declared_s}
        deadline = {"deadline_s": job.deadline_s} if self.deadlines else {}
        agent = {} if job.user is None else {"agent": f"u{job.user}"}
        return row | known | deadline | agent | self._of_wide(job.gpus)

    def _of_wide(self, gpus: int) -> dict[str, object]:
        return {"gpus": gpus} if self.kind.wide else {}


def _pareto(uniform: float) -> float:
    """A size of the bounded Pareto law from 1 to `PARETO_MOST`."""
    most = PARETO_MOST**PARETO_ALPHA
    return float((-(uniform * most - uniform - most) / most) ** (-1.0 / PARETO_ALPHA))


@dataclass
class _Node:
    left_s: dict[int, float] = field(default_factory=dict)  # work left of the runs
    queue: list[int] = field(default_factory=list)
    speed: float = 1.0
    now_s: float = 0.0
    version: int = 0  # of the end that is scheduled
    warm_s: list[float] = field(default_factory=lambda: [-math.inf] * NUM_SERVICES)


def play(world: World, jobs: Sequence[Job], dispatcher: Dispatcher, seed: int) -> list[Run]:
    """Plays requests from an empty cluster until all have ended."""
    loop = Loop(world, dispatcher, seed)
    loop.play(jobs)
    return loop.runs


class Loop:
    """Plays requests event by event; `jobs` and `runs` are those so far."""

    def __init__(self, world: World, dispatcher: Dispatcher, seed: int) -> None:
        self.world, self._dispatcher = world, dispatcher
        self._random, self._order = np.random.default_rng(seed), count()
        self._nodes = [_Node() for _ in range(NUM_NODES)]
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.jobs: list[Job] = []
        self.runs: list[Run] = []

    def play(self, jobs: Sequence[Job]) -> None:
        """Plays requests until all have ended."""
        self.jobs = list(jobs)
        for number, job in enumerate(jobs):
            self.at(job.arrival_s, self.arrive, number)
        self.go_on(jobs[0].arrival_s, jobs[-1].arrival_s)

    def go_on(self, begin_s: float, last_s: float) -> None:
        self._last_s = last_s
        if self.world.kind.slow_periods:
            for row in range(NUM_NODES):
                self.at(begin_s + self._random.exponential(QUICK_S), self._change_speed, row)
        while self._events:
            time_s, _, event, numbers = heapq.heappop(self._events)
            event(time_s, *numbers)

    def at(self, time_s: float, event: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (time_s, next(self._order), event, arguments))

    def _rate(self, node: _Node) -> float:
        kind, beside = self.world.kind, max(len(node.left_s) - 1, 0)
        slowed = 1.0 + beside if kind.shared else 1.0 + kind.contention * beside
        return node.speed / slowed

    def _move(self, node: _Node, time_s: float) -> None:
        done_s = self._rate(node) * (time_s - node.now_s)
        node.left_s = {number: left_s - done_s for number, left_s in node.left_s.items()}
        node.now_s = time_s

    def _schedule(self, row: int, time_s: float) -> None:
        node = self._nodes[row]
        node.version += 1
        if node.left_s:
            self.at(
                time_s + max(min(node.left_s.values()), 0.0) / self._rate(node), self._end, row, node.version
            )

    def arrive(self, time_s: float, number: int) -> None:
        job, has_gpus = self.jobs[number], self.world.node_gpus
        in_flight = [
            len(node.left_s) + len(node.queue) if job.gpus <= gpus else math.inf
            for node, gpus in zip(self._nodes, has_gpus, strict=True)
        ]
        row, propensity = self._dispatcher.choose(number, job, in_flight)
        self.runs.append(Run(row, propensity))
        node = self._nodes[row]
        self._move(node, time_s)
        node.queue.append(number)
        self._start_waiting(row, time_s)
        self._schedule(row, time_s)

    def _start_waiting(self, row: int, time_s: float) -> None:
        """Starts those that wait, in order, until one does not fit."""
        node, world = self._nodes[row], self.world
        while node.queue:
            together = [self.jobs[number] for number in (*node.left_s, node.queue[0])]
            if sum(job.cores for job in together) > world.kind.cores:
                return
            if sum(job.gpus for job in together) > world.node_gpus[row]:
                return
            self._start(row, node.queue.pop(0), time_s)

    def _start(self, row: int, number: int, time_s: float) -> None:
        node, job, world = self._nodes[row], self.jobs[number], self.world
        mean_s = float(world.mean_s[job.service, row]) if job.declared_s is None else job.declared_s
        run_s = mean_s * job.luck
        if world.kind.cold_starts:
            is_cold = time_s - node.warm_s[job.service] > WARM_S
            run_s = 0.5 * run_s + (1.2 * world.unit_s if is_cold else 0.0)
            node.warm_s[job.service] = time_s
        node.left_s[number] = run_s
        self.runs[number].start_s = time_s
        self._dispatcher.started(number, time_s)

    def _end(self, time_s: float, row: int, version: int) -> None:
        node = self._nodes[row]
        if version != node.version:
            return
        self._move(node, time_s)
        number = min(node.left_s, key=node.left_s.__getitem__)
        del node.left_s[number]
        node.warm_s[self.jobs[number].service] = time_s
        self.has_ended(time_s, number)
        self._start_waiting(row, time_s)
        self._schedule(row, time_s)

    def has_ended(self, time_s: float, number: int) -> None:
        self.runs[number].finish_s = time_s
        self._dispatcher.finished(number, time_s)

    def _change_speed(self, time_s: float, row: int) -> None:
        node = self._nodes[row]
        self._move(node, time_s)
        node.speed = SLOW_RATE if node.speed == 1.0 else 1.0
        if time_s < self._last_s:
            self.at(
                time_s + self._random.exponential(SLOW_S if node.speed < 1.0 else QUICK_S),
                self._change_speed,
                row,
            )
        self._schedule(row, time_s)


class Outcome(NamedTuple):
    """Of a day, the first twentieth of its requests left out: it begins empty."""

    on_time: float
    mean_response_s: float
    p95_response_s: float


def outcome(jobs: Sequence[Job], runs: Sequence[Run]) -> Outcome:
    """What came of the requests."""
    rest = slice(len(jobs) // 20, None)
    response_s = np.array(
        [run.finish_s - job.arrival_s for job, run in zip(jobs[rest], runs[rest], strict=True)]
    )
    deadline_s = np.array([job.deadline_s for job in jobs[rest]])
    return Outcome(
        float(np.mean(response_s <= deadline_s)),
        float(response_s.mean()),
        float(np.quantile(response_s, 0.95)),
    )
