"""Compounding of errors in waits: distance of the twin's states from the log's after a number of simulated decisions.

Decisions, acceptances and run times are the log's, waits are the twin's: the system that wrote the log would repeat it.

The features of every node: requests running and waiting, waiting share, backlog, recent wait. At each horizon the
states of all windows, in the twin and in the log, are two samples; their earth mover's distance over the feature's
deviation is averaged over features and nodes. The same distance between the windows of two real days is the floor.
"""

from collections.abc import Sequence

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_floor, not_applicable
from evaluation.certify.logged_days import HORIZONS, HeldOutDay
from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.report import Chart, Curve

SECTION = "error against the rollout horizon"
MIN_WINDOWS = 6
MAX_COLUMNS = 60


def horizon_lines(
    held: Sequence[HeldOutDay],
    simulated: Sequence[np.ndarray],
    partners: Sequence[HeldOutDay],
    config: CertifyConfig,
) -> tuple[list[Line], tuple[Chart, ...]]:
    """One line for every horizon that enough windows reach, and the growth as a chart.

    Args:
        held: The held-out days.
        simulated: The twin's states of them, from `Simulation.states_with_logged_luck`.
        partners: Another real day for each.
        config: Of the certificate.
    """
    lines, reached, measured, floors = [], [], [], []
    for index, horizon in enumerate(HORIZONS):
        name = f"state distance after {horizon} decision{'s' if horizon > 1 else ''}"
        real, twin, other = _columns(held, simulated, partners, index, horizon)
        num_windows = real.shape[1]
        if num_windows < MIN_WINDOWS:
            reason = f"{num_windows} windows of these days reach it, fewer than {MIN_WINDOWS}"
            lines.append(not_applicable(SECTION, name, reason))
            continue
        spread = real.std(axis=1)
        busy = np.argsort(-spread, kind="stable")[: int(np.sum(spread > 1e-6))][:MAX_COLUMNS]
        if not len(busy):
            lines.append(not_applicable(SECTION, name, "no request is running or waiting at that time"))
            continue
        distance, floor = (mean_earth_mover(real[busy], part[busy], spread[busy]) for part in (twin, other))
        lines.append(
            against_floor(SECTION, name, "deviations", distance, floor, num_windows, config.thresholds.horizon,
                          config.intervals())
        )  # fmt: skip
        once = np.ones((1, num_windows))
        reached.append(float(horizon))
        measured.append(float(distance(once)[0]))
        floors.append(float(floor(once)[0]))
    return lines, _chart(reached, measured, floors)


def mean_earth_mover(one: np.ndarray, two: np.ndarray, spread: np.ndarray) -> Statistic:
    """Mean over columns of the earth mover's distance over `spread`; unit `i` holds column `i` of both.

    Args:
        one, two: [columns, units].
        spread: [columns], above 0.
    """
    num_units = one.shape[1]
    unit = np.tile(np.arange(num_units), 2)
    sign = np.repeat([1.0, -1.0], num_units)
    pooled = np.concatenate([one, two], axis=1)
    order = np.argsort(pooled, axis=1, kind="stable")

    def statistic(weights: np.ndarray) -> np.ndarray:
        share = weights / weights.sum(axis=1, keepdims=True)
        total = np.zeros(len(weights))
        for column, by in enumerate(order):
            apart = np.abs(np.cumsum(share[:, unit[by]] * sign[by], axis=1)[:, :-1])
            total += apart @ np.diff(pooled[column, by]) / spread[column]
        return total / len(order)

    return statistic


def growth_exponent(horizons: Sequence[float], distances: Sequence[float]) -> float:
    """Exponent `a` of the fit `distance = c * horizon ** a`; NaN for fewer than three points."""
    good = [(x, y) for x, y in zip(horizons, distances, strict=True) if y > 0]
    if len(good) < 3:
        return float("nan")
    logs = np.log(np.array(good))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def _columns(
    held: Sequence[HeldOutDay],
    simulated: Sequence[np.ndarray],
    partners: Sequence[HeldOutDay],
    index: int,
    horizon: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[features x nodes, windows] of log, twin and partner, for the windows that reach the horizon in both days."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for day, twin, partner in zip(held, simulated, partners, strict=True):
        here, there = (np.flatnonzero(one.windows.length > horizon) for one in (day, partner))
        count = min(len(here), len(there))
        here, there = here[:count], there[:count]
        states = (day.states, here), (twin, here), (partner.states, there)
        one, two, three = (
            state[index].reshape(-1, state.shape[-1])[:, chosen].astype(float) for state, chosen in states
        )
        parts.append((one, two, three))
    real, twin_states, other = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    return real, twin_states, other


def _chart(horizons: list[float], measured: list[float], floors: list[float]) -> tuple[Chart, ...]:
    if not horizons:
        return ()
    grown = [growth_exponent(horizons, values) for values in (measured, floors)]
    note = "With the logged decisions, acceptances and run times. Distance grows with horizon ** a"
    note += (
        f": a = {grown[0]:.2f} for the twin, {grown[1]:.2f} for the floor." if np.isfinite(grown[0]) else "."
    )
    return (
        Chart(
            "State distance against the rollout horizon",
            "decisions simulated by the twin",
            "mean Wasserstein distance (deviations)",
            (
                Curve("twin", tuple(horizons), tuple(measured)),
                Curve("another real day", tuple(horizons), tuple(floors)),
            ),
            note,
            logarithmic=True,
        ),
    )
