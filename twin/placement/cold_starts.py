"""What a run takes more where its service has not run for a while: containers to start, images to pull, caches to fill.

    run = run time by the tables + start-up of the service * r / (1 + r),     r = (idle time / memory) ** 4
                                   or ... * slowness of the node * part,      r = (others since / room of the node) ** 8

*Idle* is the time since the last run of the service on the node should have ended by the tables: arrival and usual run
of the last request that the node took. Every side can compute that, from the log, in rollouts and in service; where no
run is known, it is the time since the log, the rollout or the service began.

Where nodes keep what they loaded until others need the room (weights of models, images), a service is cold by the
number of *other services that ran there since* (`evictions`), whatever time that took, and nodes have unlike room and
load unlike fast. Which of the two holds is what forecasts the log better, beyond chance; idle times where that cannot
be told. Some services may always be on some nodes, whatever else runs there (replicas of a data set, images that are
pinned): *part* is what share of the start-up a service pays on a node, where the log shows that it differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from twin.placement.evictions import due_by_others, others_since
from twin.placement.service_times import rows_by_group

SHARPNESS = 4.0
"""Power of the idle time: at half the memory 6 % of the start-up are due, at twice the memory 94 %."""
MOST_MEMORIES = 100.0
"""Idle times count up to so many memories."""


@dataclass(frozen=True)
class ColdStarts:
    """Start-up times of services.

    Attributes:
        memory_s: Idle time after which half of the start-up is due.
        startup_s: [services].
        room: [nodes] number of other services that have run there since, after which half of the start-up is due; None:
            the idle time counts instead.
        slowness: [nodes] what start-ups are multiplied by; with `room` alone.
        part: [services, nodes] the same of every pair; with `room` alone, None: all are alike.
    """

    memory_s: float
    startup_s: np.ndarray
    room: np.ndarray | None = None
    slowness: np.ndarray | None = None
    part: np.ndarray | None = None

    def due(
        self, idle_s: np.ndarray, others: np.ndarray, service: np.ndarray, node: np.ndarray
    ) -> np.ndarray:
        """[rows] share of the start-up of a service that is due on a node, by the idle time or the services since."""
        if self.room is None:
            return np.asarray(due(idle_s, self.memory_s))
        return np.asarray(due_by_others(others, self.room[node]) * self.factor[service, node])

    @property
    def factor(self) -> np.ndarray:
        """[services, nodes] what start-ups are multiplied by where services are driven out."""
        assert self.slowness is not None, "of start-ups by other services"
        all_alike = np.ones((len(self.startup_s), len(self.slowness)))
        return self.slowness * (all_alike if self.part is None else self.part)


def cold_starts_of(content: Mapping[str, Any]) -> ColdStarts:
    """The start-ups that an encoding's JSON holds."""
    of_nodes = (
        None if content.get(name) is None else np.array(content[name], float)
        for name in ("room", "slowness", "part")
    )
    return ColdStarts(content["memory_s"], np.array(content["startup_s"], float), *of_nodes)


def due(idle_s: Any, memory_s: float, np: Any = np) -> Any:
    """Share of the start-up, in [0, 1], that is due after an idle time (any array; below 0 while a run lasts)."""
    power = np.clip(idle_s / memory_s, 0.0, MOST_MEMORIES) ** SHARPNESS
    return power / (1.0 + power)


def last_ends_s(pair: np.ndarray, ends_s: np.ndarray, begin_s: np.ndarray | float = -np.inf) -> np.ndarray:
    """[rows] when the last of the pair's earlier runs should have ended.

    Args:
        pair: [rows] index of service and node, in order of arrival; -1 where no node took the request.
        ends_s: [rows] when each should have ended by the tables.
        begin_s: [rows] or one for all: where no earlier run is known.
    """
    found = np.full(len(pair), -np.inf)
    for here in rows_by_group(pair):
        if pair[here[0]] >= 0:
            found[here[1:]] = np.maximum.accumulate(ends_s[here])[:-1]
    return np.where(np.isneginf(found), begin_s, found)


def filed_runs_s(
    cold: ColdStarts,
    arrival_s: np.ndarray,
    service: np.ndarray,
    pair: np.ndarray,
    expected_s: np.ndarray,
    ratio: np.ndarray,
    begin_s: np.ndarray | float,
) -> np.ndarray:
    """[rows] what is expected of requests anywhere, with the start-up that was due there: expected + due / ratio.

    The tables multiply it by the ratio. Where no run is expected there is no start-up either.

    Args:
        cold: Start-up times.
        arrival_s, service, pair: [rows] in order of arrival, `pair` as of `last_ends_s`.
        expected_s: [rows] what is expected of them anywhere, without.
        ratio: [rows] of the tables, on their nodes.
        begin_s: [rows] or one for all: when the log begins. Services that it has not shown on a node are taken to have
            run there until then.
    """
    ends_s, idle_s, others, node = arrival_s + expected_s * ratio, np.zeros(0), np.zeros(0), pair
    if cold.room is None:
        idle_s = arrival_s - last_ends_s(pair, ends_s, begin_s)
    else:
        others = others_since(pair, ends_s, (len(cold.startup_s), len(cold.room)))
        node = pair % len(cold.room)
    startup_s = cold.startup_s[service] * cold.due(idle_s, others, service, node)
    return np.asarray(expected_s + np.where((pair >= 0) & (expected_s > 0.0), startup_s / ratio, 0.0))
