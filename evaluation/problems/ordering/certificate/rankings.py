"""Rank correlation of rules in the twin with exact replay: every fixed rule, with EASY and without, in equal weeks."""

from collections.abc import Callable, Sequence

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_floor, against_limit, not_applicable
from evaluation.comparison.bootstrap import Statistic, ratio_over_units
from evaluation.comparison.report import Chart, Curve
from evaluation.problems.ordering.certificate.held_out import HeldOutWeeks
from evaluation.problems.ordering.certificate.replayed_weeks import ReplayedWeek

SECTION = "values of fixed rules"
LINES = ("rank correlation with replay", "error of log mean bounded slowdowns")
Values = Callable[[np.ndarray], np.ndarray]
"""weights [replicates, units] -> log mean bounded slowdown [replicates, rules]."""


def ranking_lines(
    real: Sequence[ReplayedWeek],
    copies: Sequence[Sequence[ReplayedWeek]],
    other: Sequence[ReplayedWeek],
    chosen: HeldOutWeeks,
    config: CertifyConfig,
) -> tuple[list[Line], tuple[Chart, ...]]:
    """Agreement of the rules' mean bounded slowdowns in generated weeks with those in held-out weeks.

    Args:
        real, other: Held-out weeks and other real ones.
        copies: Generated weeks, several for each held-out one.
        chosen: The units.
        config: Of the certificate.
    """
    if not config.rankings:
        return [not_applicable(SECTION, name, "switched off (rankings = false)") for name in LINES], ()
    names = tuple(real[0].starts)
    of_real, of_other = (_values(weeks, names, chosen.num_units) for weeks in (real, other))
    of_twin = _values([week for weeks in copies for week in weeks], names, chosen.num_units)
    intervals, limits, units = config.intervals(), config.thresholds, chosen.num_units
    lines = [
        against_limit(
            SECTION, LINES[0], "1", _spearman(of_twin, of_real), units,
            limits.order_rank_correlation, intervals, higher_is_better=True, floor=_spearman(of_other, of_real),
        ),
        against_floor(
            SECTION, LINES[1], "mean distance", _error(of_twin, of_real),
            _error(of_other, of_real), units, limits.order_value_error, intervals,
        ),
    ]  # fmt: skip
    once = np.ones((1, units))
    in_twin, true, floor = (values(once)[0] for values in (of_twin, of_real, of_other))
    order = np.argsort(true, kind="stable")
    worst = int(np.argmax(np.abs(in_twin - true)))
    along = tuple(map(float, true[order]))
    chart = Chart(
        "Log mean bounded slowdown of the rules",
        "in replay of the held-out weeks",
        "elsewhere",
        (
            Curve("twin", along, tuple(map(float, in_twin[order]))),
            Curve("other real weeks", along, tuple(map(float, floor[order]))),
        ),
        f"{len(names)} rules, best first: {', '.join(names[place] for place in order)}. The twin is furthest off for "
        f"{names[worst]}: {np.exp(in_twin[worst]):.3g} against {np.exp(true[worst]):.3g}.",
        True,
    )
    return lines, (chart,)


def _values(weeks: Sequence[ReplayedWeek], names: Sequence[str], num_units: int) -> Values:
    total, count = np.zeros((num_units, len(names))), np.zeros((num_units, len(names)))
    for replayed in weeks:
        for column, name in enumerate(names):
            slowdown = replayed.slowdowns(name)
            began = np.isfinite(slowdown)
            np.add.at(total[:, column], replayed.unit[began], slowdown[began])
            np.add.at(count[:, column], replayed.unit[began], 1.0)

    mean = ratio_over_units(total, count)

    def values(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log(mean(weights))

    return values


def _spearman(one: Values, two: Values) -> Statistic:
    """As `rank_correlation`, of all replicates at once."""
    from scipy.stats import rankdata

    def statistic(weights: np.ndarray) -> np.ndarray:
        ranks = [rankdata(values(weights), axis=1) for values in (one, two)]
        first, second = (rank - rank.mean(axis=1, keepdims=True) for rank in ranks)
        with np.errstate(invalid="ignore", divide="ignore"):
            product = (first * second).sum(axis=1)
            return np.asarray(product / np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1)))

    return statistic


def _error(one: Values, two: Values) -> Statistic:
    return lambda weights: np.asarray(np.abs(one(weights) - two(weights)).mean(axis=1))
