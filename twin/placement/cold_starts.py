"""What a run takes more where its service has not run for a while: containers to start, images to pull, caches to fill.

    run = run time by the tables + start-up of the service * r / (1 + r),     r = (idle time / memory) ** 4
                                   or ... * slowness of the node,             r = (others since / room of the node) ** 8

*Idle* is the time since the last run of the service on the node should have ended by the tables: arrival and usual run
of the last request that the node took. Every side can compute that, from the log, in rollouts and in service; where no
run is known, it is the time since the log, the rollout or the service began.

Where nodes keep what they loaded until others need the room (weights of models, images), a service is cold by the
number of *other services that ran there since* (`evictions`), whatever time that took, and nodes have unlike room and
load unlike fast. Which of the two holds is what forecasts the log better, beyond chance; idle times where that cannot
be told.

The start-up of a service is the median of what its runs after an idle time took beyond the tables, less a level of the
node around then, by its runs without start-up. The memory is the one that forecasts best. All of it counts only where
it forecasts halves of the log that it was not fitted on better than tables alone, of all runs or of those without
start-up, beyond chance and by a share of the variance: where there are no cold starts, nothing changes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from twin.placement.evictions import ROOMS, due_by_others, others_since
from twin.placement.service_times import RunRatios, blocks_of, rows_by_group, run_ratios

MEMORIES_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 2_400.0, 4_800.0, 9_600.0)
"""Idle times that are tried."""
SHARPNESS = 4.0
"""Power of the idle time: at half the memory 6 % of the start-up are due, at twice the memory 94 %."""
LEAST_SLOWNESS = 0.1
DOUBT = 30.0
"""Cold runs that a node needs to count for as much as all nodes do."""
MOST_MEMORIES = 100.0
"""Idle times count up to so many memories."""
MAX_RUNS = 60_000
"""Runs of a log that start-ups are fitted on: the last ones."""
MIN_RUNS = 320
FEWEST = 20
"""Runs after an idle time, and others, without which there is nothing to fit; and runs that a service needs to count
for as much as all services."""
BLOCK = 16
"""Consecutive runs of a node that are taken to be of one time."""
NUM_BLOCKS, BEYOND_CHANCE = 16, 4.0
"""Stretches of a log over which the advantage is averaged, and standard errors that it must exceed."""
CLEAR = 2.0
"""The same between start-ups by idle times and by other services."""
LEAST_GAIN = 0.01
"""Of the variance of logarithms of run times: less is not worth a state of its own."""
_LEAST_SHARE = 0.25
"""Of a run, that is left without its start-up, or else it says nothing about the tables."""


@dataclass(frozen=True)
class ColdStarts:
    """Start-up times of services.

    Attributes:
        memory_s: Idle time after which half of the start-up is due.
        startup_s: [services].
        room: [nodes] number of other services that have run there since, after which half of the start-up is due; None:
            the idle time counts instead.
        slowness: [nodes] what start-ups are multiplied by; with `room` alone.
    """

    memory_s: float
    startup_s: np.ndarray
    room: np.ndarray | None = None
    slowness: np.ndarray | None = None

    def due(self, idle_s: np.ndarray, others: np.ndarray, node: np.ndarray) -> np.ndarray:
        """[rows] share of the start-up of the service that is due on a node, by the idle time or the services since."""
        if self.room is None or self.slowness is None:
            return np.asarray(due(idle_s, self.memory_s))
        return np.asarray(due_by_others(others, self.room[node]) * self.slowness[node])


def cold_starts_of(content: Mapping[str, Any]) -> ColdStarts:
    """The start-ups that the JSON of an encoding, or the setting of a contract, holds."""
    room, slowness = (
        None if content.get(name) is None else np.array(content[name], float) for name in ("room", "slowness")
    )
    return ColdStarts(content["memory_s"], np.array(content["startup_s"], float), room, slowness)


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
        if len(here) and pair[here[0]] >= 0:
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
    startup_s = cold.startup_s[service] * cold.due(idle_s, others, node)
    return np.asarray(expected_s + np.where((pair >= 0) & (expected_s > 0.0), startup_s / ratio, 0.0))


class RunTables(NamedTuple):
    """How long runs take, by a log: ratios of services on nodes, start-ups, and what was expected of every row [rows]
    with the start-up that was due."""

    ratios: RunRatios
    cold: ColdStarts | None
    filed_s: np.ndarray


def fit_run_tables(
    arrival_s: np.ndarray,
    service: np.ndarray,
    node: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    stretch: np.ndarray,
    shape: tuple[int, int],
) -> RunTables:
    """The tables of a log.

    Args:
        arrival_s: [rows] in order within a stretch.
        service, node: [rows] indices; node -1 where no node took the request.
        run_s: [rows] logged run time in seconds, NaN where unknown.
        expected_s: [rows] what was expected of it anywhere.
        stretch: [rows] index, ascending, of the part of the log that a row is from.
        shape: Numbers of services and nodes.
    """
    ratios = run_ratios(service, node, run_s, expected_s, shape)
    if not np.any(node >= 0):
        return RunTables(ratios, None, expected_s)
    num_pairs = shape[0] * shape[1]
    pair = np.where(node >= 0, stretch * num_pairs + service * shape[1] + node, -1)

    ends_s = arrival_s + expected_s * ratios.ratio[service, node]
    last_s, others = last_ends_s(pair, ends_s), others_since(pair, ends_s, shape)
    cold = fit_cold_starts(service, node, run_s, expected_s, arrival_s - last_s, others, shape)
    if cold is None:
        return RunTables(ratios, None, expected_s)
    begin_s = arrival_s[np.searchsorted(stretch, stretch)]  # of the stretch of every row
    share = cold.due(arrival_s - np.where(np.isneginf(last_s), begin_s, last_s), others, node)
    warm_s = warm_runs_s(cold, service, run_s, share)
    ratios = run_ratios(service, node, warm_s, expected_s, shape)
    ratio = ratios.ratio[service, node]
    return RunTables(ratios, cold, filed_runs_s(cold, arrival_s, service, pair, expected_s, ratio, begin_s))


class _Runs(NamedTuple):
    """Runs of a log in order of arrival; leaves [rows]."""

    service: np.ndarray
    node: np.ndarray
    run_s: np.ndarray
    expected_s: np.ndarray
    idle_s: np.ndarray
    others: np.ndarray

    def some(self, rows: np.ndarray) -> "_Runs":
        return _Runs(*(leaf[rows] for leaf in self))


def fit_cold_starts(
    service: np.ndarray,
    node: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    idle_s: np.ndarray,
    others: np.ndarray,
    shape: tuple[int, int],
) -> ColdStarts | None:
    """The start-up times of a log.

    Args:
        service, node: [rows] indices, in order of arrival; node -1 where the log does not name it.
        run_s: [rows] logged run time in seconds, NaN where unknown.
        expected_s: [rows] what was expected of it anywhere.
        idle_s: [rows] since the last run of the pair should have ended, negative while one should run; rows where it
            is inf are left out.
        others: [rows] services that should have ended there since (`others_since`).
        shape: Numbers of services and nodes.

    Returns:
        The start-up times; None where they forecast no better than tables alone, beyond chance.
    """
    known = (node >= 0) & (np.nan_to_num(run_s) > 0.0) & (expected_s > 0.0) & np.isfinite(idle_s)
    rows = np.flatnonzero(known)[-MAX_RUNS:]
    if len(rows) < MIN_RUNS:
        return None
    runs = _Runs(service, node, run_s, expected_s, idle_s, others).some(rows)
    trial = _Trial(runs, shape)
    most = LEAST_GAIN * float(trial.plain.mean())
    kept, least = None, trial.plain
    for memory_s in MEMORIES_S:
        begun = ColdStarts(memory_s, np.zeros(shape[0]))
        found = trial.errors(_fit, begun)
        if found is not None and found.gain > most:
            kept, least, most = begun, found.errors, found.gain
    memory_s = MEMORIES_S[0] if kept is None else kept.memory_s
    begun = ColdStarts(memory_s, np.zeros(shape[0]), np.full(shape[1], ROOMS[0]), np.ones(shape[1]))
    found = trial.errors(_fit_rooms, begun)
    if (
        found is not None
        and found.gain > most
        and clear_gain(least - found.errors, trial.stretch, CLEAR) > 0.0
    ):
        return _fit_rooms(runs, begun, shape)[1]
    return None if kept is None else _fit(runs, kept, shape)[1]


_Fit = Callable[[_Runs, ColdStarts, tuple[int, int]], tuple[np.ndarray, ColdStarts]]


class _Tried(NamedTuple):
    errors: np.ndarray  # [rows] squared
    gain: float  # over tables without start-ups, 0 where not clear of chance


class _Trial:
    """Start-ups fitted on either half of a log and held against the other."""

    def __init__(self, runs: _Runs, shape: tuple[int, int]) -> None:
        self.stretch = np.arange(len(runs.node)) * NUM_BLOCKS // len(runs.node)
        self._shape = shape
        self._runs, self._halves = runs, (self.stretch % 2 == 0, self.stretch % 2 == 1)
        self.plain = np.empty(len(runs.node))
        for fitted, held in self._turns():
            tables = run_ratios(*runs.some(fitted)[:4], shape).ratio
            self.plain[held] = _errors(runs.some(held), tables, None)

    def errors(self, fit: _Fit, begun: ColdStarts) -> _Tried | None:
        """How well it forecasts what it was not fitted on; None where too few runs are cold, or warm, by it."""
        is_cold = _is_cold(self._runs, begun)
        if min(np.sum(each[half]) for half in self._halves for each in (is_cold, ~is_cold)) < FEWEST:
            return None
        errors, without = np.empty(len(self.plain)), np.empty(len(self.plain))
        for fitted, held in self._turns():
            tables, found = fit(self._runs.some(fitted), begun, self._shape)
            errors[held] = _errors(self._runs.some(held), tables, found)
            without[held] = _errors(self._runs.some(held), tables, None)
        gain = min(clear_gain(each - errors, self.stretch, BEYOND_CHANCE) for each in (self.plain, without))
        return _Tried(errors, gain)

    def _turns(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        return self._halves, self._halves[::-1]


def clear_gain(gains: np.ndarray, stretch: np.ndarray, deviations: float) -> float:
    """Mean of the gains [rows] over the stretches; 0 where it is not clear of chance, by so many standard errors."""
    each = np.bincount(stretch, gains) / np.bincount(stretch)
    mean, error = float(each.mean()), float(each.std(ddof=1)) / np.sqrt(NUM_BLOCKS)
    return mean if mean > deviations * error else 0.0


def warm_runs_s(cold: ColdStarts, service: np.ndarray, run_s: np.ndarray, share: np.ndarray) -> np.ndarray:
    """[rows] run times without the share [rows] of a start-up that was due; NaN where that is nearly all."""
    left_s = run_s - cold.startup_s[service] * share
    return np.where(left_s > _LEAST_SHARE * run_s, left_s, np.nan)


def _is_cold(runs: _Runs, cold: ColdStarts) -> np.ndarray:
    flat = cold if cold.slowness is None else replace(cold, slowness=np.ones(len(cold.slowness)))
    return np.asarray(flat.due(runs.idle_s, runs.others, runs.node) > 0.5)


def _fit(runs: _Runs, begun: ColdStarts, shape: tuple[int, int]) -> tuple[np.ndarray, ColdStarts]:
    """Ratios of the tables [services, nodes] without start-ups, and the start-ups."""
    is_cold = _is_cold(runs, begun)
    warm_s, found = np.where(is_cold, np.nan, runs.run_s), begun
    for _ in range(2):
        ratio = run_ratios(runs.service, runs.node, warm_s, runs.expected_s, shape).ratio
        usual_s = runs.expected_s * ratio[runs.service, runs.node]
        level = _levels(np.log(runs.run_s / usual_s), ~is_cold, runs.node)
        beyond_s = runs.run_s * np.exp(-level) - usual_s
        if begun.slowness is not None:
            beyond_s = beyond_s / begun.slowness[runs.node]
        overall = float(np.median(beyond_s[is_cold]))
        startup_s = np.zeros(shape[0])
        for one in np.unique(runs.service[is_cold]):
            own = beyond_s[is_cold & (runs.service == one)]
            startup_s[one] = (len(own) * np.median(own) + FEWEST * overall) / (len(own) + FEWEST)
        found = replace(begun, startup_s=np.maximum(startup_s, 0.0))
        share = found.due(runs.idle_s, runs.others, runs.node)
        warm_s = warm_runs_s(found, runs.service, runs.run_s, share)
    return run_ratios(runs.service, runs.node, warm_s, runs.expected_s, shape).ratio, found


def _fit_rooms(runs: _Runs, begun: ColdStarts, shape: tuple[int, int]) -> tuple[np.ndarray, ColdStarts]:
    """The same by other services: the room that forecasts best of all nodes alike, then of each, and how much slower
    each loads."""
    found, errors = [], []
    for room in ROOMS:
        tried = replace(begun, room=np.full(shape[1], room))
        is_cold = _is_cold(runs, tried)
        if min(is_cold.sum(), (~is_cold).sum()) < FEWEST:
            continue
        found.append(_fit(runs, tried, shape))
        errors.append(np.bincount(runs.node, _errors(runs, *found[-1]), shape[1]))
    ratio, best = found[int(np.argmin(np.sum(errors, axis=1)))]
    rooms = np.array([one.room[0] for _, one in found if one.room is not None])
    own = replace(
        best,
        room=rooms[
            np.argmin(
                [
                    np.bincount(
                        runs.node, _errors(runs, ratio, replace(best, room=np.full(shape[1], room))), shape[1]
                    )
                    for room in rooms
                ],
                axis=0,
            )
        ],
    )
    ratio, best = _fit(runs, own, shape)
    slowness = _slowness(runs, ratio, best, shape[1])
    return _fit(runs, replace(best, slowness=slowness), shape)


def _slowness(runs: _Runs, ratio: np.ndarray, cold: ColdStarts, num_nodes: int) -> np.ndarray:
    """[nodes] how much longer start-ups take on each than anywhere, drawn to 1 by how few there were."""
    rows = _is_cold(runs, cold) & (cold.startup_s[runs.service] > 0.0)
    usual_s = runs.expected_s * ratio[runs.service, runs.node]
    slowness = np.ones(num_nodes)
    for node in np.unique(runs.node[rows]):
        here = rows & (runs.node == node)
        share = np.median((runs.run_s - usual_s)[here] / cold.startup_s[runs.service[here]])
        slowness[node] = max((here.sum() * share + DOUBT) / (here.sum() + DOUBT), LEAST_SLOWNESS)
    return slowness


def _errors(runs: _Runs, ratio: np.ndarray, cold: ColdStarts | None) -> np.ndarray:
    """[rows] squared errors of the logarithm of run times, less their mean over the node's runs around then."""
    forecast_s = runs.expected_s * ratio[runs.service, runs.node]
    if cold is not None:
        share = cold.due(runs.idle_s, runs.others, runs.node)
        forecast_s = forecast_s + cold.startup_s[runs.service] * share
    error = np.log(runs.run_s / forecast_s)
    return np.asarray((error - _levels(error, np.ones(len(error), bool), runs.node, prior=0.0)) ** 2)


def _levels(values: np.ndarray, counts: np.ndarray, node: np.ndarray, prior: float = 4.0) -> np.ndarray:
    """[rows] mean of the values that count over the node's block of `BLOCK` runs, drawn to 0 by `prior` runs' worth."""
    block = blocks_of(node, BLOCK)
    total, count = np.bincount(block, np.where(counts, values, 0.0)), np.bincount(block, counts)
    return np.asarray((total / np.maximum(count + prior, 1.0))[block])
