"""Levels of run times with plain numbers: the filter of `twin.placement.run_filter`, one node or pair at a time."""

import numpy as np

from twin.placement.run_filter import RunDynamics

DYNAMICS = RunDynamics(
    scatter=0.2, offset=0.05, node_variance=0.1, node_memory_s=60.0, drift_per_day=0.5, aged_per_day=0.3
)


class LevelsLoop:
    """Levels of run times with plain numbers: one node and one pair at a time."""

    def __init__(self, num_nodes: int, age_s: float) -> None:
        self.slow = {node: [0.0, 0.09 / 86_400.0 * age_s] for node in range(num_nodes)}
        self.fast = {node: [0.0, 0.1] for node in range(num_nodes)}
        self.pair: dict[tuple[int, int], list[float]] = {}
        self.age_s = age_s

    def of_node(self, node: int) -> tuple[float, float]:
        return tuple(one + other for one, other in zip(self.slow[node], self.fast[node], strict=True))

    def of_pair(self, service: int, node: int, clock_s: float) -> tuple[float, float]:
        mean, variance = self.pair.get((service, node), (0.0, 0.1))
        return mean, variance + self.wandered(clock_s)

    def wandered(self, clock_s: float) -> float:
        """Of a pair's variance, since the log: while nothing was seen, and since then."""
        return (0.09 * self.age_s + 0.25 * clock_s) / 86_400.0

    def mean(self, service: int, node: int) -> float:
        return self.pair.get((service, node), (0.0, 0.0))[0] + self.of_node(node)[0]

    def told(self, service: int, node: int) -> float:
        """What the answers are told of it."""
        return min(max(self.mean(service, node), -1.5), 1.5)

    @staticmethod
    def innovation(residual: float, mean: float, variance: float) -> float:
        most = 2.0 * (0.2 + variance) ** 0.5
        return min(max(residual - mean, -most), most) - 0.05

    def pair_ran(self, service: int, node: int, clock_s: float, residual: float) -> None:
        (mean, variance), of_node = self.of_pair(service, node, clock_s), self.of_node(node)
        gain = variance / (variance + of_node[1] + 0.2)
        mean += gain * self.innovation(residual, mean + of_node[0], variance + of_node[1])
        self.pair[service, node] = [mean, (1.0 - gain) * variance - self.wandered(clock_s)]

    def move_on(self, elapsed_s: float, residuals: dict[int, list[float]]) -> None:
        for node in self.slow:
            keep = np.exp(-elapsed_s / 60.0)
            self.slow[node][1] += 0.25 / 86_400.0 * elapsed_s
            self.fast[node] = [keep * self.fast[node][0], 0.1 + keep**2 * (self.fast[node][1] - 0.1)]
            told = [self.innovation(one, *self.of_node(node)) for one in residuals.get(node, [])]
            if told:
                whole = self.of_node(node)[1] + 0.2 / len(told)
                for part in (self.slow, self.fast):
                    gain = part[node][1] / whole
                    part[node] = [part[node][0] + gain * sum(told) / len(told), part[node][1] * (1.0 - gain)]
