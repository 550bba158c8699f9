"""What the plain loop of slot mode shows of itself: the features of nodes and requests, one number after another."""

import math


class SlotView:
    """The observations of a `SlotLoop`, from its queues, nodes and deployment."""

    def observe_nodes(self) -> tuple[list[list[list[float]]], list[list[float]]]:
        """[sites][features][nodes] as every site sees the nodes, and [features][nodes] what moves, in full."""
        unit = 1.0
        loads = [self._load(node, unit) for node in range(self.num_nodes)]
        means = self._site_means(loads)
        seen = []
        for site in range(self.num_sites):
            request = self.hand[site]
            same = [
                0
                if request is None
                else sum(one["service"] == request["service"] for one in self._public(node))
                for node in range(self.num_nodes)
            ]
            same_means = self._site_means([[count] for count in same])
            columns = []
            for node in range(self.num_nodes):
                own = self.site_of_node[node] == site
                load = loads[node] if own else means[self.site_of_node[node]]
                replicas = 0 if request is None else self.replicas[request["service"]][node]
                count = same[node] if own else same_means[self.site_of_node[node]][0]
                columns.append(
                    [1.0, float(own), float(self.cloud[node]), *load[:3], 1.0 / self.cores[node], *load[3:],
                     *self._expected(node, load, request),
                     math.log1p(replicas), math.log1p(count), 1.0 - self.used_gib[node] / self.memory_gib[node]]
                )  # fmt: skip
            seen.append([list(row) for row in zip(*columns, strict=True)])
        return seen, [list(row) for row in zip(*loads, strict=True)]

    def _expected(self, node: int, load: list[float], request: dict[str, float] | None) -> list[float]:
        """Usual run, core time, slack and acceptance, for a world of which nothing is known beforehand."""
        run_s, deadline_s = (0.0, 0.0) if request is None else (request["work_s"], request["deadline_s"])
        needed = 1.0 / self.cores[node]
        is_free = load[0] - math.expm1(load[3]) >= needed - 1e-3
        left_s = deadline_s - (0.0 if is_free else math.expm1(load[6]))
        slack = -2.0 if left_s <= 0.0 else max(-2.0, min(2.0, math.log(left_s / max(run_s, 1e-6))))
        return [math.log1p(run_s), math.log1p(run_s * needed), slack, 1.0]

    def _site_means(self, loads: list[list[float]]) -> list[list[float]]:
        means = []
        for site in range(len(self.world.all_sites)):
            rows = [load for load, where in zip(loads, self.site_of_node, strict=True) if where == site]
            means.append([sum(column) / len(rows) for column in zip(*rows, strict=True)])
        return means

    def _load(self, node: int, unit: float) -> list[float]:
        running = waiting = 0
        work_s = oldest_s = 0.0
        for one in self._public(node):
            left_s = one["work_s"]
            if one["start_s"] < math.inf:
                running += 1
                left_s = max(left_s - (self.clock_s - one["start_s"]), 0.0)
            else:
                waiting += 1
                oldest_s = max(oldest_s, self.clock_s - one["sent_s"])
            work_s += left_s
        cores, (recent_s, starts) = self.cores[node], self.recent[node]
        mean_s = recent_s / max(starts, 1e-3)
        return [
            1.0 - running / cores, 1.0, 0.0, math.log1p(waiting / cores), math.log1p(running),
            math.log1p(waiting), math.log1p(work_s / cores / unit), math.log1p(oldest_s / unit),
            math.log1p(max(mean_s, 0.0) / unit), math.log1p(starts),
        ]  # fmt: skip

    def observe_request(self, site: int) -> list[float]:
        """[features] of the request in hand and the queue behind it, for a world without vocabulary of its own."""
        request, queue = self.hand[site], self.queues[site]
        empty = {
            "work_s": 0.0,
            "deadline_s": 0.0,
            "input_mib": 0.0,
            "arrival_s": self.clock_s,
            "scenario": -1,
        }
        one = empty | {"service": -1} if request is None else request
        arrival_s = 0.0 if request is None else one["arrival_s"]
        day = 2 * math.pi * arrival_s / 86_400.0
        numbers = [
            math.log1p(1.0), 0.0, 0.0, 0.0, math.log1p(one["work_s"]), math.log1p(one["deadline_s"]), 1.0,
            math.log1p(one["input_mib"]), math.sin(day), math.cos(day), math.sin(day / 7), math.cos(day / 7),
        ]  # fmt: skip
        flags = [float(index == site) for index in range(len(self.world.all_sites))]
        flags += [float(index == one["scenario"] + 1) for index in range(len(self.world.scenarios) + 1)]
        flags += [float(index == one["service"] + 1) for index in range(len(self.world.services) + 1)]
        waited_s = self.clock_s - one["arrival_s"]
        oldest_s = max((self.clock_s - each["arrival_s"] for each in queue), default=0.0)
        return [*numbers, *flags, 1.0, math.log1p(waited_s), math.log1p(len(queue)), math.log1p(oldest_s)]
