"""What a run takes more where its service has not run for a while: containers to start, images to pull, caches to fill.

    run = run time by the tables + start-up of the service * r / (1 + r),     r = (idle time / memory) ** 4

*Idle* is the time since the last run of the service on the node should have ended by the tables: arrival and usual run
of the last request that the node took. Every side can compute that, from the log, in rollouts and in service; where no
run is known, it is the time since the log, the rollout or the service began.

The start-up of a service is the median of what its runs after an idle time took beyond the tables, less a level of the
node around then, by its runs without start-up. The memory is the one that forecasts best. All of it counts only where
it forecasts halves of the log that it was not fitted on better than tables alone, of all runs or of those without
start-up, beyond chance and by a share of the variance: where there are no cold starts, nothing changes.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twin.placement.service_times import RunRatios, blocks_of, rows_by_group, run_ratios

MEMORIES_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 2_400.0, 4_800.0, 9_600.0)
"""Idle times that are tried."""
SHARPNESS = 4.0
"""Power of the idle time: at half the memory 6 % of the start-up are due, at twice the memory 94 %."""
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
    """

    memory_s: float
    startup_s: np.ndarray


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
    idle_s = arrival_s - last_ends_s(pair, arrival_s + expected_s * ratio, begin_s)
    startup_s = cold.startup_s[service] * due(idle_s, cold.memory_s)
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

    last_s = last_ends_s(pair, arrival_s + expected_s * ratios.ratio[service, node])
    cold = fit_cold_starts(service, node, run_s, expected_s, arrival_s - last_s, shape)
    if cold is None:
        return RunTables(ratios, None, expected_s)
    begin_s = arrival_s[np.searchsorted(stretch, stretch)]  # of the stretch of every row
    warm_s = warm_runs_s(cold, service, run_s, arrival_s - np.where(np.isneginf(last_s), begin_s, last_s))
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

    def some(self, rows: np.ndarray) -> "_Runs":
        return _Runs(*(leaf[rows] for leaf in self))


def fit_cold_starts(
    service: np.ndarray,
    node: np.ndarray,
    run_s: np.ndarray,
    expected_s: np.ndarray,
    idle_s: np.ndarray,
    shape: tuple[int, int],
) -> ColdStarts | None:
    """The start-up times of a log.

    Args:
        service, node: [rows] indices, in order of arrival; node -1 where the log does not name it.
        run_s: [rows] logged run time in seconds, NaN where unknown.
        expected_s: [rows] what was expected of it anywhere.
        idle_s: [rows] since the last run of the pair should have ended, negative while one should run; rows where it
            is inf are left out.
        shape: Numbers of services and nodes.

    Returns:
        The start-up times; None where they forecast no better than tables alone, beyond chance.
    """
    known = (node >= 0) & (np.nan_to_num(run_s) > 0.0) & (expected_s > 0.0) & np.isfinite(idle_s)
    rows = np.flatnonzero(known)[-MAX_RUNS:]
    if len(rows) < MIN_RUNS:
        return None
    runs = _Runs(service, node, run_s, expected_s, idle_s).some(rows)
    stretch = np.arange(len(rows)) * NUM_BLOCKS // len(rows)
    halves = stretch % 2 == 0, stretch % 2 == 1
    plain = np.empty(len(rows))
    for fitted, held in (halves, halves[::-1]):
        tables = run_ratios(*runs.some(fitted)[:4], shape).ratio
        plain[held] = _errors(runs.some(held), tables, None)
    best, most = None, LEAST_GAIN * float(plain.mean())
    for memory_s in MEMORIES_S:
        cold = due(runs.idle_s, memory_s) > 0.5
        if min(*(np.sum(cold[half]) for half in halves), *(np.sum(~cold[half]) for half in halves)) < FEWEST:
            continue
        errors, without = np.empty(len(rows)), np.empty(len(rows))
        for fitted, held in (halves, halves[::-1]):
            tables, found = _fit(runs.some(fitted), memory_s, shape)
            errors[held] = _errors(runs.some(held), tables, found)
            without[held] = _errors(runs.some(held), tables, None)
        gain = min(_beyond_chance(each - errors, stretch) for each in (plain, without))
        if gain > most:
            best, most = memory_s, gain
    return None if best is None else _fit(runs, best, shape)[1]


def _beyond_chance(gains: np.ndarray, stretch: np.ndarray) -> float:
    """Mean of the gains [rows] over the stretches; 0 where it is not clear of chance."""
    each = np.bincount(stretch, gains) / np.bincount(stretch)
    mean, error = float(each.mean()), float(each.std(ddof=1)) / np.sqrt(NUM_BLOCKS)
    return mean if mean > BEYOND_CHANCE * error else 0.0


def warm_runs_s(cold: ColdStarts, service: np.ndarray, run_s: np.ndarray, idle_s: np.ndarray) -> np.ndarray:
    """[rows] run times without what was due for their start; NaN where that is nearly all."""
    left_s = run_s - cold.startup_s[service] * due(idle_s, cold.memory_s)
    return np.where(left_s > _LEAST_SHARE * run_s, left_s, np.nan)


def _fit(runs: _Runs, memory_s: float, shape: tuple[int, int]) -> tuple[np.ndarray, ColdStarts]:
    """Ratios of the tables [services, nodes] without start-ups, and the start-ups."""
    is_cold = due(runs.idle_s, memory_s) > 0.5
    warm_s, found = np.where(is_cold, np.nan, runs.run_s), ColdStarts(memory_s, np.zeros(shape[0]))
    for _ in range(2):
        ratio = run_ratios(runs.service, runs.node, warm_s, runs.expected_s, shape).ratio
        usual_s = runs.expected_s * ratio[runs.service, runs.node]
        level = _levels(np.log(runs.run_s / usual_s), ~is_cold, runs.node)
        beyond_s = runs.run_s * np.exp(-level) - usual_s
        overall = float(np.median(beyond_s[is_cold]))
        startup_s = np.zeros(shape[0])
        for one in np.unique(runs.service[is_cold]):
            own = beyond_s[is_cold & (runs.service == one)]
            startup_s[one] = (len(own) * np.median(own) + FEWEST * overall) / (len(own) + FEWEST)
        found = ColdStarts(memory_s, np.maximum(startup_s, 0.0))
        warm_s = warm_runs_s(found, runs.service, runs.run_s, runs.idle_s)
    return run_ratios(runs.service, runs.node, warm_s, runs.expected_s, shape).ratio, found


def _errors(runs: _Runs, ratio: np.ndarray, cold: ColdStarts | None) -> np.ndarray:
    """[rows] squared errors of the logarithm of run times, less their mean over the node's runs around then."""
    forecast_s = runs.expected_s * ratio[runs.service, runs.node]
    if cold is not None:
        forecast_s = forecast_s + cold.startup_s[runs.service] * due(runs.idle_s, cold.memory_s)
    error = np.log(runs.run_s / forecast_s)
    return np.asarray((error - _levels(error, np.ones(len(error), bool), runs.node, prior=0.0)) ** 2)


def _levels(values: np.ndarray, counts: np.ndarray, node: np.ndarray, prior: float = 4.0) -> np.ndarray:
    """[rows] mean of the values that count over the node's block of `BLOCK` runs, drawn to 0 by `prior` runs' worth."""
    block = blocks_of(node, BLOCK)
    total, count = np.bincount(block, np.where(counts, values, 0.0)), np.bincount(block, counts)
    return np.asarray((total / np.maximum(count + prior, 1.0))[block])
