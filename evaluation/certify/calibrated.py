"""Lines on the twin's uncertainty: coverage and calibration of its predicted waits, run times and acceptance.

If the predicted distribution is right, the rank of the observed value is uniform (probability integral transform);
among equal values, such as waits of zero, the rank is drawn uniformly. Intervals may cover more than they say, as those
of run times do that are known in advance; the limit on the calibration error bounds how much more.
"""

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast, ranks
from evaluation.certify.lines import Line, about_zero, against_limit, not_applicable
from evaluation.certify.resampled import mean_of
from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.report import Chart, Curve

SECTION = "calibration of the answers"
MIN_ROWS = 100
LEVELS = np.linspace(0.05, 0.95, 19)
NOMINAL = 0.9
GROUPS = 10
GRID = np.linspace(0.0, 1.0, 41)


def calibration_lines(forecast: Forecast, config: CertifyConfig) -> tuple[list[Line], tuple[Chart, ...]]:
    """Lines for waits, run times and acceptance; the calibration errors decide.

    Each outcome is predicted from the logged state at its time: these lines do not include compounding errors. Waits
    count as equal within two per cent of the time that a request takes in all: a twin knows the way to a free node to
    a fraction of itself, and nobody feels whether three milliseconds, or ten seconds before a run of a minute, have
    become some per cent more.
    """
    lines, curves = [], []
    for name, value, draws, rest_s in (
        ("waits", forecast.wait_s, forecast.draws_wait_s, usual_run_s(forecast)),
        ("run times", forecast.run_s, forecast.draws_run_s, None),
    ):
        known = np.isfinite(value)
        beside_s = None if rest_s is None else rest_s[known]
        rank = ranks(value[known], draws[known], beside_s=beside_s, seed=config.seed)
        lines += _rank_lines(name, rank, forecast.unit[known], config)
        if len(rank) >= MIN_ROWS:
            shares = tuple(float(np.mean(rank <= level)) for level in GRID)
            curves.append(Curve(name, tuple(map(float, GRID)), shares))
    lines.append(_acceptance_line(forecast, config))
    note = "On the diagonal the forecasts are calibrated; below it, true values are longer than predicted."
    labels = ("predicted share of values below", "observed share of values below")
    chart = Chart("Calibration of waits and run times", *labels, tuple(curves), note, True)
    return lines, (chart,) if curves else ()


def usual_run_s(forecast: Forecast) -> np.ndarray:
    """[rows] median of the run times drawn; 0 where none is known."""
    found = np.zeros(len(forecast.run_s))
    known = np.isfinite(forecast.draws_run_s).any(axis=1)
    found[known] = np.nanmedian(forecast.draws_run_s[known], axis=1)
    return found


def calibration_error(rank: np.ndarray, unit: np.ndarray, num_units: int) -> Statistic:
    """Mean distance of the share of ranks below a level from that level, over 19 levels."""
    below = np.stack([np.bincount(unit[rank <= level], minlength=num_units) for level in LEVELS], axis=1)
    count = np.bincount(unit, minlength=num_units)

    def statistic(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (weights @ below) / (weights @ count)[:, None]
        return np.asarray(np.abs(share - LEVELS).mean(axis=1))

    return statistic


def _rank_lines(name: str, rank: np.ndarray, unit: np.ndarray, config: CertifyConfig) -> list[Line]:
    if len(rank) < MIN_ROWS:
        reason = f"{len(rank)} {name} are known, fewer than {MIN_ROWS}"
        return [not_applicable(SECTION, f"calibration error of {name}", reason)]
    labels, place = np.unique(unit, return_inverse=True)
    inside = mean_of((np.abs(rank - 0.5) <= NOMINAL / 2).astype(float), place, len(labels))
    intervals, limits = config.intervals(), config.thresholds
    return [
        against_limit(SECTION, f"calibration error of {name}", "share", calibration_error(rank, place, len(labels)),
                      len(labels), limits.calibration, intervals, deciding=True),
        about_zero(SECTION, f"90 % less what the 90 % intervals of {name} cover", "share",
                   lambda weights: NOMINAL - inside(weights), len(labels), limits.coverage, intervals,
                   one_sided=True, reason=f"they cover {float(np.mean(np.abs(rank - 0.5) <= NOMINAL / 2)):.1%}"),
    ]  # fmt: skip


def _acceptance_line(forecast: Forecast, config: CertifyConfig) -> Line:
    """Calibration of acceptance over groups of offers. One half of the draws forms the groups, the other half is the
    prediction, so that noise of the draws does not affect both."""
    name, accepted, unit = "calibration error of acceptance", forecast.accepted, forecast.unit
    if min(accepted.sum(), (~accepted).sum()) < MIN_ROWS // 2:
        return not_applicable(
            SECTION, name, f"{int((~accepted).sum())} of {len(accepted)} offers were refused"
        )
    labels, place = np.unique(unit, return_inverse=True)
    by, predicted = (forecast.draws_accepted[:, half::2].mean(axis=1) for half in (0, 1))
    group = np.argsort(np.argsort(by, kind="stable"), kind="stable") * GROUPS // len(by)
    cell = place * GROUPS + group

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, weights=values, minlength=len(labels) * GROUPS).reshape(-1, GROUPS)

    gap, count = summed(accepted - predicted), summed(np.ones(len(cell)))

    def statistic(weights: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(weights @ gap).sum(axis=1) / (weights @ count).sum(axis=1))

    return against_limit(
        SECTION,
        name,
        "share",
        statistic,
        len(labels),
        config.thresholds.calibration,
        config.intervals(),
        deciding=True,
    )
