"""The rules of slot mode once more, as a plain Python loop over dicts and lists: one system, one slot after another.

Written from the rules (docstrings of `evaluation.simulator.slots`; KaiS II and KMPS II-III with the CPU leak
repaired), not from their array code, with which it shares nothing but the world's numbers of the day and the first
deployment. It is fed the same uniform numbers. With `single` every time is rounded to float32 as the arrays' are, so
that the two can be compared event by event over long runs; without it the loop is as fast as plain Python is.
"""

import math
import statistics
from typing import Any

import numpy as np

from tests.reference.slot_loop_view import SlotView

NORMAL = statistics.NormalDist()
Request = dict[str, Any]


class SlotLoop(SlotView):
    """One system: queues at access points, nodes with replicas, a deployment that may change."""

    def __init__(
        self, world: Any, today: Any, config: Any, replicas: np.ndarray, *, single: bool = False
    ) -> None:
        self.world, self.today, self.config = world, today, config
        self.round = (lambda value: float(np.float32(value))) if single else (lambda value: value)
        self.single = np.float32 if single else float
        self.num_sites, self.num_nodes = len(world.sites), len(world.nodes)
        self.site_of_node = [world.all_sites.index(node.site) for node in world.nodes]
        self.cloud = [node.tier == "cloud" for node in world.nodes]
        self.cores = [node.cpu_cores for node in world.nodes]
        self.memory_gib = [node.memory_gib for node in world.nodes]
        self.link = today.link.tolist()
        self.replicas = [[int(replicas[s, n]) for n in range(self.num_nodes)] for s in range(len(replicas))]
        self.used_gib = [
            sum(self.replicas[s][n] * float(today.memory_gib[s]) for s in range(len(replicas)))
            for n in range(self.num_nodes)
        ]
        self.changes: list[dict[str, Any] | None] = [None] * config.changes
        self.agents = [np.flatnonzero(today.agent_site == site).tolist() for site in range(self.num_sites)]
        self.share = np.diff(today.agent_cumulative, prepend=0.0)
        self.site_share = [float(self.share[agents].sum()) for agents in self.agents]
        order = [agent for agents in self.agents for agent in agents]
        self.order, self.cumulative = order, np.cumsum(self.share[order], dtype=np.float32).tolist()
        self.services = today.service_cumulative.T.tolist()
        self.estimate_s = [float(work) for work in today.work_s]
        self.node_estimate_s = list(self.estimate_s)
        self.done_here: list[tuple[int, float, float]] = []
        self.queues: list[list[Request]] = [[] for _ in range(self.num_sites)]
        self.hand: list[Request | None] = [None] * self.num_sites
        self.held: list[list[Request]] = [[] for _ in range(self.num_nodes)]
        self.clock_s, self.slot, self.decisions = 0.0, 0, 0
        self.next_s: list[float] = []
        self.recent = [[0.0, 0.0] for _ in range(self.num_nodes)]
        self.log: dict[int, Request] = {}
        self.counts = dict.fromkeys(
            ("arrived", "turned_away", "dropped_waiting", "sent", "refused", "dropped_at_node", "failed", "finished",
             "on_time"), 0,
        )  # fmt: skip
        self.amounts = dict.fromkeys(("forwarded_mib", "pulled_mib", "core_s", "energy_j"), 0.0)

    def begin(self, numbers: list[float]) -> None:
        """An empty system; one uniform number for each site's first arrival."""
        self.next_s = [self.round(self._gap(site, 0.0, number)) for site, number in enumerate(numbers)]

    # Legality and what is seen

    def legal(self, site: int) -> list[bool]:
        """Nodes that host the service of the request in hand and have a place (and, as an option, room now)."""
        request = self.hand[site]
        service = 0 if request is None else request["service"]
        legal = []
        for node in range(self.num_nodes):
            replicas, held = (0 if request is None else self.replicas[service][node]), self._public(node)
            possible = replicas > 0 and self._up(node, self.clock_s) and len(held) < self.config.node_places
            if possible and self.config.only_where_room:
                same = sum(one["service"] == service for one in held)
                possible = same < replicas and len(held) < self.cores[node]
            legal.append(possible)
        return legal

    def active(self, site: int) -> bool:
        """Whether the site has a request that can be sent."""
        return self.hand[site] is not None and any(self.legal(site))

    def _public(self, node: int) -> list[Request]:
        """Requests that the access points believe at the node: until the answer is back, or the drop is known."""
        return [one for one in self.held[node] if one["finish_s"] > self.clock_s]

    # One slot

    def step(self, nodes: list[int | None], numbers: list[list[float]], change: list | None = None) -> None:
        """Sends the requests in hand to `nodes` (None: not active), then plays one slot.

        Args:
            nodes: For every site the node, or None.
            numbers: [4 + 5 * arrivals][sites] uniform numbers.
            change: (node, change) pairs for the deployment, as in `Orchestration` (services from 1).
        """
        if change is not None:
            for node, what in change:
                self._schedule(node, what)
        until_s = self.round((self.slot + 1) * self.config.slot_s)
        taken = [self._public(node) for node in range(self.num_nodes)]
        room = [self.config.node_places - len(held) for held in taken]
        for site, node in enumerate(nodes):
            if node is not None:
                self._send(site, node, room, [row[site] for row in numbers[:4]])
            self.decisions += 1
        for node in range(self.num_nodes):
            self._serve(node, until_s)
        self._carry_out(until_s)
        for site in range(self.num_sites):
            for one in range(self.config.arrivals_per_slot):
                self._arrive(site, [row[site] for row in numbers[4 + 5 * one : 9 + 5 * one]], until_s)
            late = [one for one in self.queues[site] if one["late_s"] < until_s]
            self.counts["dropped_waiting"] += len(late)
            self.queues[site] = [one for one in self.queues[site] if one["late_s"] >= until_s]
        self.slot += 1
        self._learn(until_s)
        self._observe(until_s)
        self.clock_s = until_s
        self.amounts["energy_j"] += self.config.power.idle_w_per_node * self.num_nodes * self.config.slot_s
        for site, queue in enumerate(self.queues):
            self.hand[site] = min(queue, key=lambda one: (one["key"], one["arrival_s"])) if queue else None

    def _gap(self, site: int, time_s: float, number: float) -> float:
        def rate(at_s: float) -> float:
            cycle = math.cos(2 * math.pi * at_s / float(self.today.day_s))
            return (
                float(self.today.rate_per_s)
                * self.site_share[site]
                * (1 - float(self.today.amplitude) * cycle)
            )

        exponential = -math.log1p(-number)
        return exponential / rate(time_s + 0.5 * exponential / rate(time_s))

    def _quantile(self, law: Any, number: float) -> float:
        if law.name == "constant":
            return 1.0
        if law.name == "exponential":
            return -math.log1p(-number)
        if not law.name.startswith("lognormal"):
            raise ValueError(f"the loop does not know the law {law.name}")
        return math.exp(law.spread * NORMAL.inv_cdf(number) - 0.5 * law.spread**2)

    def _arrive(self, site: int, numbers: list[float], until_s: float) -> None:
        arrival_s = self.next_s[site]
        if arrival_s > until_s or arrival_s >= float(self.today.day_s):
            return
        self.counts["arrived"] += 1
        low = self.single(sum(self.site_share[:site]))
        mark = self.single(low + self.single(self.single(self.site_share[site]) * self.single(numbers[0])))
        agent = self.order[min(sum(bool(mark >= edge) for edge in self.cumulative), len(self.order) - 1)]
        scenario = int(self.today.agent_scenario[agent])
        service = min(
            sum(numbers[1] >= edge for edge in self.services[scenario]), len(self.services[scenario]) - 1
        )
        deadline_s = float(self.today.deadline_s[service, scenario])
        late_s = self.round(arrival_s + deadline_s)
        request = {
            "site": site,
            "agent": agent,
            "scenario": scenario,
            "service": service,
            "arrival_s": arrival_s,
            "deadline_s": deadline_s,
            "late_s": late_s,
            "work_s": float(self.today.work_s[service]) * self._quantile(self.world.size, numbers[2]),
            "input_mib": float(self.today.input_mib[service]) * self._quantile(self.world.input, numbers[3]),
        }
        keys = {"fifo": arrival_s, "delay_greedy": late_s, "hybrid": self.estimate_s[service]}
        request["key"] = keys[self.config.eap_queue.name]
        if len(self.queues[site]) < self.config.queue_places:
            self.queues[site].append(request)
        else:
            self.counts["turned_away"] += 1
        self.next_s[site] = self.round(arrival_s + self._gap(site, arrival_s, numbers[4]))

    def _way(self, link: int, mib: float, number: float) -> float:
        kind = (self.world.local, self.world.cross_site, self.world.wan)[link]
        return kind.latency_s * self._quantile(kind.noise, number) + mib / kind.bandwidth_mib_per_s

    def _send(self, site: int, node: int, room: list[int], numbers: list[float]) -> None:
        request = self.hand[site]
        assert request is not None
        self.queues[site].remove(request)
        self.counts["sent"] += 1
        self.log[self.decisions] = request
        link, config = self.link[site][node], self.config
        agrees = not config.agents_answer or numbers[0] < self.today.accepts[link, request["agent"]]
        request |= {"node": node, "sent_s": self.clock_s, "start_s": math.inf, "end_s": math.inf}
        request |= {"finish_s": math.inf, "status": "open", "seen_start": False, "seen_finish": False}
        if room[node] <= 0 or not agrees:
            request["status"] = "refused"
            self.counts["refused"] += 1
            return
        room[node] -= 1
        output_mib = float(self.today.output_mib[request["service"]])
        arrives_s = self.round(self.clock_s + self._way(link, request["input_mib"], numbers[1]))
        speed = float(self.today.speed[node]) * float(self.today.affinity[request["service"], node])
        request |= {
            "arrives_s": arrives_s,
            "left_s": request["work_s"] * self._quantile(self.world.run, numbers[2]) / speed,
            "back_s": self._way(link, output_mib, numbers[3]) if output_mib else 0.0,
        }
        keys = {
            "fifo": arrives_s,
            "delay_greedy": request["late_s"],
            "hybrid": self.node_estimate_s[request["service"]],
        }
        request["key"] = keys[config.node_queue.name]
        self.held[node].append(request)
        self.amounts["forwarded_mib"] += request["input_mib"] if link else 0.0
        self.amounts["energy_j"] += config.power.j_per_mib * (request["input_mib"] + output_mib)

    def _serve(self, node: int, until_s: float) -> None:
        here = [one for one in self.held[node] if one["status"] == "open"]
        served = [one for one in here if one["start_s"] < math.inf]
        shared = self.world.nodes[node].discipline == "ps"
        rate = min(1.0, self.cores[node] / len(served)) if shared and served else 1.0
        for one in served:
            able_s = rate * (until_s - self.clock_s)
            if one["left_s"] <= able_s:
                one["end_s"] = min(self.round(self.clock_s + one["left_s"] / rate), until_s)
                one["finish_s"] = self.round(one["end_s"] + one["back_s"])
                one["status"] = "completed"
                took_s = one["finish_s"] - one["sent_s"]
                self.done_here.append((one["service"], took_s, one["end_s"] - one["start_s"]))
            worked_s = min(one["left_s"], able_s)
            self.amounts["core_s"] += worked_s
            self.amounts["energy_j"] += self.config.power.busy_w_per_core * worked_s
            one["left_s"] = self.round(one["left_s"] - able_s)
        for one in here:
            if one["status"] == "open" and not self._up(node, until_s):
                one |= {"status": "failed", "end_s": until_s, "finish_s": until_s}
                self.counts["failed"] += 1
            waits = one["start_s"] == math.inf
            if one["status"] == "open" and one["late_s"] < until_s and (waits or self.config.drop_served):
                one |= {"status": "dropped", "end_s": until_s, "finish_s": until_s}
                self.counts["dropped_at_node"] += 1
        here = [one for one in here if one["status"] == "open"]
        served = [one for one in here if one["start_s"] < math.inf]
        waiting = [one for one in here if one["start_s"] == math.inf and one["arrives_s"] <= until_s]
        for one in sorted(waiting, key=lambda each: (each["key"], each["arrives_s"])):
            same = sum(other["service"] == one["service"] for other in served)
            if same < self.replicas[one["service"]][node] and (shared or len(served) < self.cores[node]):
                one["start_s"] = until_s
                served.append(one)

    def _up(self, node: int, time_s: float) -> bool:
        """Whether the node is up, by the plan of the world's day."""
        down = (one for one in self.world.outages if one.node == self.world.nodes[node].name)
        return not any(one.from_s <= time_s < one.to_s for one in down if int(self.today.day) in one.days)

    def _learn(self, until_s: float) -> None:
        """The hybrid strategy: new estimates at the end of a long slot, and urgent requests promoted."""
        if self.slot % self.config.slots_per_promotion:
            return
        keep = self.config.estimate_memory
        for service in {service for service, _, _ in self.done_here}:
            took = [(whole, alone) for which, whole, alone in self.done_here if which == service]
            for estimates, column in ((self.estimate_s, 0), (self.node_estimate_s, 1)):
                mean_s = sum(row[column] for row in took) / len(took)
                estimates[service] = keep * estimates[service] + (1 - keep) * mean_s
        self.done_here = []
        levels = (
            (self.config.eap_queue, self.queues, self.estimate_s),
            (self.config.node_queue, self.held, self.node_estimate_s),
        )
        for strategy, queues, estimates in levels:
            for one in (one for queue in queues for one in queue if strategy.name == "hybrid"):
                expected_s = estimates[one["service"]]
                urgent = one["key"] < 0 or one["late_s"] - expected_s <= until_s
                one["key"] = -1.0 / one["late_s"] if urgent else expected_s

    def _observe(self, until_s: float) -> None:
        """What the access points hear by `until_s`: starts at once, finishes when the answer is back."""
        keep = math.exp(-(until_s - self.clock_s) / 300.0)
        for node, held in enumerate(self.held):
            recent = self.recent[node]
            recent[0], recent[1] = recent[0] * keep, recent[1] * keep
            for one in held:
                if one["start_s"] < math.inf and not one["seen_start"]:
                    one["seen_start"] = True
                    recent[0] += one["start_s"] - one["sent_s"]
                    recent[1] += 1.0
                if one["finish_s"] <= until_s and one["status"] == "completed":
                    self.counts["finished"] += 1
                    self.counts["on_time"] += one["finish_s"] <= one["late_s"]
            self.held[node] = [one for one in held if one["finish_s"] > until_s]

    # The deployment

    def _schedule(self, node: int, change: int) -> None:
        service, adds = abs(change) - 1, change > 0
        if change == 0 or service >= len(self.replicas) or not 0 <= node < self.num_nodes:
            return
        if None not in self.changes:
            return
        needs_gib, due_s = float(self.today.memory_gib[service]), self.clock_s
        under_way = [one for one in self.changes if one and not one["adds"]]
        leaving = sum(one["service"] == service and one["node"] == node for one in under_way)
        if adds:
            if not self.world.may_host(self.world.nodes[node], self.world.services[service]):
                return
            if self.used_gib[node] + needs_gib > self.memory_gib[node] + 1e-4:
                return
            self.used_gib[node] += needs_gib
            if self.replicas[service][node] == 0:
                image_mib = self.config.image_mib_per_gib * needs_gib
                link = self.world.local if self.cloud[node] else self.world.wan
                due_s = self.round(due_s + link.latency_s + image_mib / link.bandwidth_mib_per_s)
                pulled_mib = 0.0 if self.cloud[node] else image_mib
                self.amounts["pulled_mib"] += pulled_mib
                self.amounts["energy_j"] += self.config.power.j_per_mib * pulled_mib
        elif self.replicas[service][node] <= leaving:
            return
        free = self.changes.index(None)
        self.changes[free] = {"service": service, "node": node, "adds": adds, "due_s": due_s}

    def _carry_out(self, until_s: float) -> None:
        for index, change in enumerate(self.changes):
            if change is None:
                continue
            service, node = change["service"], change["node"]
            busy = sum(one["service"] == service and one["status"] == "open" for one in self.held[node])
            if change["adds"] and change["due_s"] <= until_s:
                self.replicas[service][node] += 1
            elif not change["adds"] and busy < self.replicas[service][node]:
                self.replicas[service][node] -= 1
                self.used_gib[node] -= float(self.today.memory_gib[service])
            else:
                continue
            self.changes[index] = None
