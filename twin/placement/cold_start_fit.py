"""Fits start-ups (`cold_starts`) to the runs of a log.

The start-up of a service is the median of what its runs after an idle time took beyond the tables, less a level of the
node around then, by its runs without start-up. The memory is the one that forecasts best. All of it counts only where
it forecasts halves of the log that it was not fitted on better than tables alone, of all runs or of those without
start-up, beyond chance and by a share of the variance: where there are no cold starts, nothing changes.
Parts of start-ups by pair, of services that are always on some nodes, have to do so beside start-ups without them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from twin.placement.cold_starts import ColdStarts, filed_runs_s, last_ends_s
from twin.placement.cross_validation import clear_gain, halves_in_turn, stretches
from twin.placement.evictions import ROOMS, others_since
from twin.placement.service_times import RunRatios, blocks_of, run_ratios
from twin.records import at_rows

MEMORIES_S = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 2_400.0, 4_800.0, 9_600.0)
"""Idle times that are tried."""
LEAST_SLOWNESS = 0.1
MOST_PART = 3.0
"""Of a start-up, that a service pays on one node."""
ROUNDS = 4
"""Of least squares, in which start-ups and slowness settle."""
MAX_RUNS = 60_000
"""Runs of a log that start-ups are fitted on: the last ones."""
MIN_RUNS = 320
FEWEST = 20
"""Runs after an idle time, and others, without which there is nothing to fit; and runs that a service needs to count
for as much as all services."""
BLOCK = 16
"""Consecutive runs of a node that are taken to be of one time."""
CLEAR = 2.0
"""Standard errors that the advantage of other services over idle times must exceed."""
LEAST_GAIN = 0.001
"""Of the variance of logarithms of run times: less is not worth a state of its own. More may hide among runs of any
length: prompt caches of language models made up a 400th, and were worth a hundredth of the requests on time."""
LEAST_GAIN_OF_PARTS = 0.01
"""The same, that parts of start-ups by pair must gain beside whole ones."""
_LEAST_SHARE = 0.25
"""Of a run, that is left without its start-up, or else it says nothing about the tables."""


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
    share = cold.due(arrival_s - np.where(np.isneginf(last_s), begin_s, last_s), others, service, node)
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
    runs = at_rows(_Runs(service, node, run_s, expected_s, idle_s, others), rows)
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
    found, by_rooms = trial.errors(_fit_rooms, begun), False
    if found is not None and found.gain > most:
        by_rooms = clear_gain(least - found.errors, trial.stretch, CLEAR) > 0.0
    if not by_rooms and kept is None:
        return None
    if found is not None:
        least = found.errors if by_rooms else least
        of_pairs = trial.errors(_fit_parts, begun)
        assert of_pairs is not None, "the same runs are cold at first"
        least_gain = LEAST_GAIN_OF_PARTS * float(trial.plain.mean())
        if clear_gain(least - of_pairs.errors, trial.stretch, CLEAR) > least_gain:
            return _fit_parts(runs, begun, shape)[1]
    return (_fit_rooms(runs, begun, shape) if by_rooms or kept is None else _fit(runs, kept, shape))[1]


_Fit = Callable[[_Runs, ColdStarts, tuple[int, int]], tuple[np.ndarray, ColdStarts]]


class _Tried(NamedTuple):
    errors: np.ndarray  # [rows] squared
    gain: float  # over tables without start-ups, 0 where not clear of chance


class _Trial:
    """Start-ups fitted on either half of a log and held against the other."""

    def __init__(self, runs: _Runs, shape: tuple[int, int]) -> None:
        self.stretch = stretches(len(runs.node))
        self._shape = shape
        self._runs, self._turns = runs, halves_in_turn(self.stretch)
        self.plain = np.empty(len(runs.node))
        for fitted, held in self._turns:
            tables = run_ratios(*at_rows(runs, fitted)[:4], shape).ratio
            self.plain[held] = _errors(at_rows(runs, held), tables, None)

    def errors(self, fit: _Fit, begun: ColdStarts) -> _Tried | None:
        """How well it forecasts what it was not fitted on; None where too few runs are cold, or warm, by it."""
        is_cold = _is_cold(self._runs, begun)
        if min(np.sum(each[half]) for half, _ in self._turns for each in (is_cold, ~is_cold)) < FEWEST:
            return None
        errors, without = np.empty(len(self.plain)), np.empty(len(self.plain))
        for fitted, held in self._turns:
            tables, found = fit(at_rows(self._runs, fitted), begun, self._shape)
            errors[held] = _errors(at_rows(self._runs, held), tables, found)
            without[held] = _errors(at_rows(self._runs, held), tables, None)
        gain = min(clear_gain(each - errors, self.stretch) for each in (self.plain, without))
        return _Tried(errors, gain)


def warm_runs_s(cold: ColdStarts, service: np.ndarray, run_s: np.ndarray, share: np.ndarray) -> np.ndarray:
    """[rows] run times without the share [rows] of a start-up that was due; NaN where that is nearly all."""
    left_s = run_s - cold.startup_s[service] * share
    return np.where(left_s > _LEAST_SHARE * run_s, left_s, np.nan)


def _is_cold(runs: _Runs, cold: ColdStarts) -> np.ndarray:
    flat = cold if cold.slowness is None else replace(cold, slowness=np.ones(len(cold.slowness)))
    return np.asarray(flat.due(runs.idle_s, runs.others, runs.service, runs.node) > 0.5)


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
        share = found.due(runs.idle_s, runs.others, runs.service, runs.node)
        warm_s = warm_runs_s(found, runs.service, runs.run_s, share)
    return run_ratios(runs.service, runs.node, warm_s, runs.expected_s, shape).ratio, found


def _fit_rooms(runs: _Runs, begun: ColdStarts, shape: tuple[int, int]) -> tuple[np.ndarray, ColdStarts]:
    """The same by other services: the room that forecasts best of all nodes alike, then of each."""
    found, errors = [], []
    for room in ROOMS:
        tried = replace(begun, room=np.full(shape[1], room))
        is_cold = _is_cold(runs, tried)
        if min(is_cold.sum(), (~is_cold).sum()) < FEWEST:
            continue
        found.append(_fit(runs, tried, shape))
        errors.append(float(_errors(runs, *found[-1]).sum()))
    ratio, best = found[int(np.argmin(errors))]
    for _ in range(2):
        ratio, best = _settled(
            runs, ratio, replace(best, room=_best_rooms(runs, ratio, best, shape[1])), shape
        )
    return ratio, best


def _fit_parts(runs: _Runs, begun: ColdStarts, shape: tuple[int, int]) -> tuple[np.ndarray, ColdStarts]:
    """The same with a part of every pair."""
    ratio, found = _fit_rooms(runs, begun, shape)
    for _ in range(2):
        found = replace(found, part=np.ones(shape) if found.part is None else found.part)
        ratio, found = _settled(runs, ratio, found, shape)
        found = replace(found, room=_best_rooms(runs, ratio, found, shape[1]))
    return _settled(runs, ratio, found, shape)


def _best_rooms(runs: _Runs, ratio: np.ndarray, cold: ColdStarts, num_nodes: int) -> np.ndarray:
    """[nodes] the room that forecasts the runs of each best, start-ups given."""
    errors = [
        np.bincount(runs.node, _errors(runs, ratio, replace(cold, room=np.full(num_nodes, room))), num_nodes)
        for room in ROOMS
    ]
    return np.asarray(ROOMS)[np.argmin(errors, axis=0)]


def _settled(
    runs: _Runs, ratio: np.ndarray, cold: ColdStarts, shape: tuple[int, int]
) -> tuple[np.ndarray, ColdStarts]:
    """Start-ups of services, slowness of nodes and, where there are any, parts of pairs by least squares of
    log(run / forecast), in turns (Gauss-Newton), drawn to the usual start-up and to 1, and the tables without them."""
    for _ in range(ROUNDS):
        for number in range(2 if cold.part is None else 3):
            cold = _stepped(runs, ratio, cold, number)
        share = cold.due(runs.idle_s, runs.others, runs.service, runs.node)
        warm_s = warm_runs_s(cold, runs.service, runs.run_s, share)
        ratio = run_ratios(runs.service, runs.node, warm_s, runs.expected_s, shape).ratio
    return ratio, cold


def _stepped(runs: _Runs, ratio: np.ndarray, cold: ColdStarts, number: int) -> ColdStarts:
    """The start-ups (0), slowness (1) or parts (2) a step on."""
    assert cold.slowness is not None, "of start-ups by other services"
    share = cold.due(runs.idle_s, runs.others, runs.service, runs.node)
    startup_s, slowness = cold.startup_s[runs.service], cold.slowness[runs.node]
    forecast_s = runs.expected_s * ratio[runs.service, runs.node] + startup_s * share
    error = np.log(runs.run_s / forecast_s)
    error = error - _levels(error, share < 0.5, runs.node)
    if number == 0:
        usual_s = float(np.sum(startup_s * share) / np.maximum(share.sum(), 1e-9))
        step = _steps(error, share / forecast_s, runs.service, cold.startup_s, usual_s)
        return replace(cold, startup_s=np.maximum(step, 0.0))
    if number == 1:
        step = _steps(error, startup_s * share / slowness / forecast_s, runs.node, cold.slowness, 1.0)
        return replace(cold, slowness=np.maximum(step, LEAST_SLOWNESS))
    assert cold.part is not None, "only then"
    pair = runs.service * cold.part.shape[1] + runs.node
    whole = replace(cold, part=None).due(runs.idle_s, runs.others, runs.service, runs.node)
    step = _steps(error, startup_s * whole / forecast_s, pair, cold.part.ravel(), 1.0)
    return replace(cold, part=np.clip(step, 0.0, MOST_PART).reshape(cold.part.shape))


def _steps(
    error: np.ndarray, slope: np.ndarray, group: np.ndarray, value: np.ndarray, usual: float
) -> np.ndarray:
    """[groups] values a Gauss-Newton step on, drawn to the usual one by `FEWEST` rows' worth of slopes."""
    square, product = (np.bincount(group, slope * each, len(value)) for each in (slope, error))
    moved = slope > 0.0
    doubt = FEWEST * float(np.mean(slope[moved] ** 2)) if moved.any() else 1.0
    return np.asarray(value + (product + doubt * (usual - value)) / (square + doubt))


def _errors(runs: _Runs, ratio: np.ndarray, cold: ColdStarts | None) -> np.ndarray:
    """[rows] squared errors of the logarithm of run times, less their mean over the node's runs around then."""
    forecast_s = runs.expected_s * ratio[runs.service, runs.node]
    if cold is not None:
        share = cold.due(runs.idle_s, runs.others, runs.service, runs.node)
        forecast_s = forecast_s + cold.startup_s[runs.service] * share
    error = np.log(runs.run_s / forecast_s)
    return np.asarray((error - _levels(error, np.ones(len(error), bool), runs.node, prior=0.0)) ** 2)


def _levels(values: np.ndarray, counts: np.ndarray, node: np.ndarray, prior: float = 4.0) -> np.ndarray:
    """[rows] mean of the values that count over the node's block of `BLOCK` runs, drawn to 0 by `prior` runs' worth."""
    block = blocks_of(node, BLOCK)
    total, count = np.bincount(block, np.where(counts, values, 0.0)), np.bincount(block, counts)
    return np.asarray((total / np.maximum(count + prior, 1.0))[block])
