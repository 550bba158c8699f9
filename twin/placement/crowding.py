"""Crowding by composition: how much longer runs take beside others, by the services of those.

    log(run / table) = sum over the runs beside it of (pressure of their service) * (share of the usual run beside them)

Counted beside a run are those that were on the node when it was offered; they arrived before, so that a run that takes
long is not charged with what came because it took long. Pressures are one number for all services and one more for
each (ridge regression; A. Hoerl and R. Kennard, 1970), beside a slope by the usual run itself: where declared times are
noisy, runs that are taken for short last longer, and spend a larger share beside others. How far pressures are drawn
together is what forecasts stretches of the log best that they were not fitted on; what is not better there than no
pressure at all, beyond chance, is dropped.
"""

from typing import NamedTuple

import numpy as np

from twin.placement.run_filter import BEYOND_CHANCE, NUM_BLOCKS, LoggedRuns

MAX_RUNS = 20_000
"""Runs of a log that pressures are fitted on: the last ones."""
TAILS = 0.005
"""Share of the residuals, at either end, that count no more than the one at its border."""
MIN_RUNS = 20 * NUM_BLOCKS
RIDGES = (1.0, 10.0, 100.0, 1_000.0, np.inf)
"""Runs' worth of doubt that a service differs from the others; inf: none does."""


class CrowdedRuns(NamedTuple):
    """Accepted requests of a log in order of arrival, on one clock in seconds; leaves [rows]."""

    arrival_s: np.ndarray
    start_s: np.ndarray  # not finite where it never ran
    finish_s: np.ndarray  # when it left the node; not finite: never seen there
    node: np.ndarray  # -1 where the log does not name it
    service: np.ndarray
    usual_s: np.ndarray  # its run time by the tables
    residual: np.ndarray  # log(run / usual), NaN where unknown


def crowded_runs(
    runs: LoggedRuns, start_s: np.ndarray, service: np.ndarray, expected_s: np.ndarray, ratio: np.ndarray
) -> CrowdedRuns:
    """Runs of a log with their starts, services and expected run times [rows], by its ratios [services, nodes]."""
    known = runs.node >= 0
    usual_s = np.full(len(known), np.nan)
    usual_s[known] = expected_s[known] * ratio[service[known], runs.node[known]]
    return CrowdedRuns(runs.arrival_s, start_s, runs.finish_s, runs.node, service, usual_s, runs.residual)


def fit_pressure(runs: CrowdedRuns, num_services: int) -> np.ndarray:
    """How hard a run of every service presses on the runs beside it.

    Returns:
        [services] what is added to the logarithm of a run time by a run beside it all along; empty where no pressure
        forecasts the log better than none, beyond chance.
    """
    known = _known(runs)
    if len(known) < MIN_RUNS:
        return np.zeros(0)
    runs = CrowdedRuns(*(leaf[known[-MAX_RUNS:][0] :] for leaf in runs))
    rows = _known(runs)
    beside = time_beside(runs, rows, num_services)
    least, most = np.quantile(runs.residual[rows], (TAILS, 1.0 - TAILS))
    return _fit(beside, runs.usual_s[rows], np.clip(runs.residual[rows], least, most))


def uncrowded(runs: CrowdedRuns, pressure: np.ndarray) -> np.ndarray:
    """[rows] the residuals less what the runs beside them account for, by the pressures [services] of `fit_pressure`;
    NaN where unknown."""
    if not len(pressure):
        return runs.residual
    rows = _known(runs)
    found = np.full(len(runs.residual), np.nan)
    found[rows] = runs.residual[rows] - time_beside(runs, rows, len(pressure)) @ pressure
    return found


def _known(runs: CrowdedRuns) -> np.ndarray:
    """The rows of which residual, start and node are known."""
    return np.flatnonzero(np.isfinite(runs.residual) & np.isfinite(runs.start_s) & (runs.node >= 0))


def time_beside(runs: CrowdedRuns, rows: np.ndarray, num_services: int) -> np.ndarray:
    """[rows, services] the share of its usual run that each of some runs (indices) spends beside others, by service.

    Two runs beside it all along count 2.
    """
    beside = np.zeros((len(rows), num_services))
    place = np.full(len(runs.node), -1)
    place[rows] = np.arange(len(rows))
    ran = np.isfinite(runs.start_s) & np.isfinite(runs.finish_s)
    for node in np.unique(runs.node[rows]):
        held = np.zeros(0, np.int64)
        for row in np.flatnonzero((runs.node == node) & (ran | (place >= 0))).tolist():
            held = held[runs.finish_s[held] > runs.arrival_s[row]]
            if place[row] >= 0 and len(held):
                first_s, last_s = runs.start_s[row], runs.start_s[row] + runs.usual_s[row]
                common_s = np.minimum(runs.finish_s[held], last_s) - np.maximum(runs.start_s[held], first_s)
                share = np.maximum(common_s, 0.0) / runs.usual_s[row]
                beside[place[row]] = np.bincount(runs.service[held], share, num_services)
            if ran[row]:
                held = np.append(held, row)
    return beside


def _fit(beside: np.ndarray, usual_s: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """[services] pressures by ridge regression, judged by stretches of the log left out one after another."""
    one, whole = np.ones((len(beside), 1)), beside.sum(axis=1, keepdims=True)
    design = np.concatenate([one, np.log(usual_s)[:, None], whole, beside], axis=1)
    stretches = np.array_split(np.arange(len(residual)), NUM_BLOCKS)
    squares = np.stack([design[part].T @ design[part] for part in stretches])
    products = np.stack([design[part].T @ residual[part] for part in stretches])
    errors = np.empty((1 + len(RIDGES), NUM_BLOCKS))
    for index, part in enumerate(stretches):
        others = squares.sum(axis=0) - squares[index], products.sum(axis=0) - products[index]
        for row, ridge in enumerate((None, *RIDGES)):
            forecast = design[part] @ _solved(ridge, *others)
            errors[row, index] = np.mean((residual[part] - forecast) ** 2)
    gains = errors[0] - errors[1:]
    best = int(np.argmax(gains.sum(axis=1)))
    if gains[best].mean() <= BEYOND_CHANCE * gains[best].std(ddof=1) / np.sqrt(NUM_BLOCKS):
        return np.zeros(0)
    found = _solved(RIDGES[best], squares.sum(axis=0), products.sum(axis=0))
    return np.asarray(found[2] + found[3:])


def _solved(ridge: float | None, squares: np.ndarray, products: np.ndarray) -> np.ndarray:
    """[3 + services] the mean, the slope by the usual run, the pressure of all services and how much more each has.

    Without a ridge there is no pressure, with an infinite one all services press alike.
    """
    found = np.zeros(len(products))
    if ridge is None or np.isinf(ridge):
        few = 2 if ridge is None else 3
        found[:few] = np.linalg.lstsq(squares[:few, :few], products[:few], rcond=None)[0]
        return found
    penalty = np.diag(np.concatenate([np.zeros(3), np.full(len(products) - 3, ridge)]))
    return np.asarray(np.linalg.lstsq(squares + penalty, products, rcond=None)[0])
