"""Rounds drawn from what a log says of its edges: its computing times, replicas and sizes, with ways by rule.

Most logs do not time the ways between edges, and none has rounds. So edges lie anywhere in the unit square, and a MiB
over one unit of distance takes a time that is drawn anew for every round: a scheduler trained on such rounds has met
ways from hardly noticeable ones to ways as long as computing.
"""

import math
from dataclasses import dataclass

import numpy as np

from logs_schema.errors import ConfigError
from twin.assignment.from_logs import EdgesFromLog
from twin.assignment.types import Costs


@dataclass(frozen=True)
class LogRoundsConfig:
    """Laws of the rounds; ranges are uniform, ends included.

    Attributes:
        num_requests: Of a round.
        num_edges: Of a round, drawn among those of the log; all of them, at most `MAX_EDGES`, where None.
        backlogs: Range of the number of earlier requests of either kind on every edge.
        ways: Range of the time of a MiB over one unit of distance, over its mean computing time; logarithmic.
    """

    num_requests: int = 100
    num_edges: int | None = None
    backlogs: tuple[int, int] = (0, 7)
    ways: tuple[float, float] = (0.01, 1.0)

    def __post_init__(self) -> None:
        if self.num_requests < 1 or (self.num_edges is not None and self.num_edges < 2):
            raise ConfigError(
                f"rounds of {self.num_requests} requests and {self.num_edges} edges",
                where="rounds of a log",
                allowed="1 request or more, 2 edges or more",
            )
        if not 0 <= self.backlogs[0] <= self.backlogs[1] or not 0.0 < self.ways[0] <= self.ways[1]:
            raise ConfigError(
                f"backlogs {self.backlogs}, ways {self.ways}",
                where="rounds of a log",
                allowed="rising ranges; backlogs of 0 or more, ways of more than 0",
            )


MAX_EDGES = 20
"""Edges of a round where nothing else is asked for: the network is the same for any number."""


class LogRounds:
    """Draws rounds.

    Args:
        edges: Of the log.
        config: Laws.

    Raises:
        ConfigError: The log has fewer edges than a round needs.
    """

    def __init__(self, edges: EdgesFromLog, config: LogRoundsConfig) -> None:
        self.config, num_known = config, len(edges.compute)
        self.num_edges = min(num_known, MAX_EDGES) if config.num_edges is None else config.num_edges
        if self.num_edges > num_known:
            raise ConfigError(
                f"rounds of {self.num_edges} edges",
                where="rounds of a log",
                allowed=f"2 to {num_known}: its nodes",
            )
        self._sizes = np.array(edges.sizes)  # [quantiles]
        replicas = np.array([edges.replicas[name] for name in edges.compute], float)
        seconds = np.stack([one.at(self._sizes) for one in edges.compute.values()])
        self._work_s = seconds / replicas[:, None]  # [known edges, quantiles]
        self._s_per_size = float(np.mean(seconds) / np.mean(self._sizes))

    def draw(self, rng: np.random.Generator, num_rounds: int) -> Costs:
        """Costs of rounds; leaves [rounds, ...]."""
        config, batch, num_edges = self.config, num_rounds, self.num_edges
        known = np.argsort(rng.random((batch, len(self._work_s))), axis=1)[:, :num_edges]
        xy = rng.uniform(size=(batch, num_edges, 2))
        distance = np.linalg.norm(xy[:, :, None] - xy[:, None], axis=-1)  # [rounds, edges, edges]
        low, high = (math.log(one) for one in config.ways)
        scale = self._s_per_size * np.exp(rng.uniform(low, high, size=batch))
        distance *= scale[:, None, None]
        shape = (batch, config.num_requests)
        place = rng.random(shape)
        source, predicted = rng.integers(num_edges, size=(2, *shape))
        local_s, _, returning_s = self._backlog(rng, known, distance)
        transferred_s, arriving_s, other_s = self._backlog(rng, known, distance)
        rows = np.arange(batch)[:, None]
        return Costs(
            work_s=self._seconds(known[:, None, :], place[..., None]),
            transfer_s=self._size(place)[..., None] * distance[rows, source],
            result_s=self._size(rng.random(shape))[..., None] * distance[rows, predicted],
            source=source,
            local_s=local_s,
            arriving_s=arriving_s,
            transferred_s=transferred_s,
            returning_s=np.maximum(returning_s, other_s),
        )

    def _backlog(
        self, rng: np.random.Generator, known: np.ndarray, distance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[rounds, edges] of earlier requests: computing over all replicas, the longest way here, the longest back."""
        low, most = self.config.backlogs
        shape = (*known.shape, most)
        there = np.arange(most) < rng.integers(low, most, size=known.shape, endpoint=True)[..., None]
        place = rng.random(shape)
        work_s = np.sum(self._seconds(known[..., None], place) * there, axis=-1)

        def way_s(sizes: np.ndarray) -> np.ndarray:
            end = rng.integers(known.shape[1], size=shape)
            along = np.take_along_axis(distance, end.reshape(*known.shape, most), axis=-1)
            return np.max(sizes * along * there, axis=-1, initial=0.0)

        return work_s, way_s(self._size(place)), way_s(self._size(rng.random(shape)))

    def _size(self, place: np.ndarray) -> np.ndarray:
        """Sizes at places in their distribution, 0 to 1."""
        return np.interp(place, np.linspace(0.0, 1.0, len(self._sizes)), self._sizes)

    def _seconds(self, known: np.ndarray, place: np.ndarray) -> np.ndarray:
        """Computing over all replicas of known edges, for sizes at places in their distribution; both broadcast."""
        along = place * (len(self._sizes) - 1)
        below = np.minimum(along.astype(int), len(self._sizes) - 2)
        share = along - below
        return (1.0 - share) * self._work_s[known, below] + share * self._work_s[known, below + 1]
