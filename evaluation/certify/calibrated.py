"""Is the twin's doubt honest, as lines: coverage and calibration of its predicted waits, run times and acceptance.

If the predicted distribution is right, the rank of what came true is uniform (probability integral transform); among
values that count as equal, as waits of zero do, it is drawn evenly.
"""

from collections.abc import Sequence

import numpy as np

from evaluation.bootstrap import Statistic
from evaluation.calibration import calibration_charts, offers_of, predicted_ranks
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_limit, not_applicable
from evaluation.certify.playing import OVERLAP, Day, joined
from evaluation.certify.resampled import mean_of
from evaluation.report import Chart
from twin.placement.history import Offers
from twin.placement.model import PlacementTwin
from twin.placement.windows import Windows, select

SECTION = "calibration of the answers"
MIN_ROWS = 100
LEVELS = np.linspace(0.05, 0.95, 19)
NOMINAL = 0.9
GROUPS = 10
BLOCKS_PER_WINDOW = 4


def calibration_lines(
    twin: PlacementTwin, held: Sequence[Day], config: CertifyConfig
) -> tuple[list[Line], tuple[Chart, ...]]:
    """Lines for waits, run times and acceptance, and the charts behind them.

    Each answer is predicted from the logged state of its moment: these lines do not see compounding errors.
    """
    windows = joined([_tiling(day.windows) for day in held])
    offers = offers_of(windows, twin.encoding)
    unit_s = twin.encoding.problem.time_unit_s
    wait, run, accept = predicted_ranks(twin.model, twin.config, unit_s, offers, seed=config.seed)
    seen, unit = offers.observed, _units(offers, windows)
    taken = np.asarray(seen.accepted & ~seen.dropped)
    lines = []
    for name, rank, known in (
        ("waits", wait, taken & np.asarray(seen.started)),
        ("run times", run, taken & np.asarray(seen.finished)),
    ):
        lines += _rank_lines(name, rank[known], unit[known], config)
    lines.append(_acceptance_line(accept, np.asarray(seen.accepted), unit, config))
    return lines, calibration_charts(twin.model, twin.config, twin.encoding, offers)


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
                      len(labels), limits.calibration, intervals),
        against_limit(SECTION, f"miss of the 90 % intervals of {name}", "share",
                      lambda weights: np.abs(inside(weights) - NOMINAL), len(labels), limits.coverage, intervals,
                      reason=f"they hold {float(np.mean(np.abs(rank - 0.5) <= NOMINAL / 2)):.1%}"),
    ]  # fmt: skip


def _acceptance_line(
    predicted: np.ndarray, accepted: np.ndarray, unit: np.ndarray, config: CertifyConfig
) -> Line:
    name = "calibration error of acceptance"
    if min(accepted.sum(), (~accepted).sum()) < MIN_ROWS // 2:
        return not_applicable(
            SECTION, name, f"{int((~accepted).sum())} of {len(accepted)} offers were refused"
        )
    labels, place = np.unique(unit, return_inverse=True)
    group = np.argsort(np.argsort(predicted, kind="stable"), kind="stable") * GROUPS // len(predicted)
    cell = place * GROUPS + group

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(cell, weights=values, minlength=len(labels) * GROUPS).reshape(-1, GROUPS)

    gap, count = summed(accepted - predicted), summed(np.ones(len(cell)))

    def statistic(weights: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(weights @ gap).sum(axis=1) / (weights @ count).sum(axis=1))

    return against_limit(
        SECTION, name, "share", statistic, len(labels), config.thresholds.calibration, config.intervals()
    )


def _tiling(windows: Windows) -> Windows:
    """Of one day's overlapping windows those that lie side by side."""
    return select(windows, np.arange(0, windows.num_windows, OVERLAP))


def _units(offers: Offers, windows: Windows) -> np.ndarray:
    """[rows] stretches of consecutive offers of a window, four to a window."""
    count = np.bincount(offers.window, minlength=windows.num_windows)
    order = np.argsort(offers.window, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray(offers.window * BLOCKS_PER_WINDOW + rank * BLOCKS_PER_WINDOW // count[offers.window])
