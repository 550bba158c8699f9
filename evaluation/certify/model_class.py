"""Does the system under test know on what run times depend? Dependences that no table of means can mimic.

*Persistence*: if a node is slow for a while and the forecasts do not know, the runs that ended there lately tell how
the next one will miss its forecast. If it is the requests that are larger for a while, the runs that ended lately on
any node do. *Co-runners*: where requests share a node, those that come after a run began make
it longer. The window after its start in which they are counted is half of the forecast run time, and runs that ended
within it are left out; of what is left, under forecasts of the right class, nothing that comes in the window can tell.
"""

import numpy as np
from scipy.special import ndtri

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast, ranks
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.comparison.bootstrap import Statistic

SECTION = "what run times depend on"
MIN_ROWS = 200
LAST_RUNS = 5
"""Runs of a node that ended last."""
MOST_BESIDE = 10
"""Nodes with more requests in flight count as nodes with so many."""


def model_class_lines(told: Forecast, config: CertifyConfig) -> list[Line]:
    """A line a dependence; deciding."""
    score = _scores(ranks(told.run_s, told.draws_run_s, seed=config.seed), told.run_s)
    score = centred(score, told.node * (told.day.max() + 1) + told.day)
    late, arrivals = after_start(told)
    lines, limits = [], config.thresholds
    for name, limit, one, two in (
        ("persistence of run time residuals on a node", limits.persistence, score, lately(score, told)),
        (
            "persistence of run time residuals over all nodes",
            limits.persistence,
            score,
            lately(score, told._replace(node=np.zeros_like(told.node)), 2 * LAST_RUNS),
        ),
        ("run time residuals against requests that come during the run", limits.co_running, late, arrivals),
    ):
        known = np.isfinite(one) & np.isfinite(two)
        if known.sum() < MIN_ROWS or np.ptp(two[known]) == 0.0:
            lines.append(
                not_applicable(SECTION, name, f"{int(known.sum())} runs tell, fewer than {MIN_ROWS}")
            )
            continue
        lines.append(
            about_zero(SECTION, name, "correlation", correlation(one, two, told.unit, told.num_units),
                       told.num_units, limit, config.intervals(), one_sided=True,
                       deciding=True)
        )  # fmt: skip
    return lines


def lately(score: np.ndarray, told: Forecast, num_runs: int = LAST_RUNS) -> np.ndarray:
    """[rows] mean score of the node's last runs of that day that ended before a request arrived; NaN without any."""
    found = np.full(len(score), np.nan)
    for day in np.unique(told.day):
        for node in np.unique(told.node):
            here = np.flatnonzero((told.node == node) & (told.day == day))
            ended = here[np.isfinite(score[here])]
            ended = ended[np.argsort(told.finish_s[ended], kind="stable")]
            sums = np.concatenate([[0.0], np.cumsum(score[ended])])
            before = np.searchsorted(told.finish_s[ended], told.arrival_s[here], side="right")
            first = np.maximum(before - num_runs, 0)
            with np.errstate(invalid="ignore", divide="ignore"):
                found[here] = (sums[before] - sums[first]) / (before - first)
    return found


def after_start(told: Forecast) -> tuple[np.ndarray, np.ndarray]:
    """[rows] scores of runs given that they outlast half their forecast, and how many requests came to the node in that
    time; both less the mean of runs on the same node beside as many requests. NaN where nobody can say."""
    window_s = 0.5 * _median(told.draws_run_s)
    outlasts = told.run_s > window_s
    survivors = np.where(told.draws_run_s > window_s[:, None], told.draws_run_s, np.nan)
    run_s = np.where(outlasts, told.run_s, np.nan)
    score = _scores(ranks(run_s, survivors), run_s)
    came, beside = (np.full(len(score), np.nan) for _ in range(2))
    start_s = told.arrival_s + told.wait_s
    for node in np.unique(told.node):
        here = np.flatnonzero(told.node == node)
        taken = here[told.accepted[here]]
        arrivals = np.sort(told.arrival_s[taken])
        ends = np.sort(told.finish_s[taken][np.isfinite(told.finish_s[taken])])
        begun = np.searchsorted(arrivals, start_s[here], side="right")
        came[here] = np.searchsorted(arrivals, start_s[here] + window_s[here], side="right") - begun
        gone = np.searchsorted(ends, start_s[here], side="right")
        beside[here] = begun - gone
    known = np.isfinite(score) & np.isfinite(start_s)
    group = told.node * (MOST_BESIDE + 1) + np.clip(np.nan_to_num(beside), 0, MOST_BESIDE).astype(int)
    score, came = (centred(np.where(known, column, np.nan), group) for column in (score, came))
    return score, came


def centred(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[rows] values less the mean of their group; NaN rows do not count."""
    known = np.isfinite(values)
    place = np.unique(group, return_inverse=True)[1]
    size = int(place.max()) + 1
    total = np.bincount(place[known], values[known], minlength=size)
    count = np.bincount(place[known], minlength=size)
    return np.asarray(values - (total / np.maximum(count, 1))[place])


def correlation(one: np.ndarray, two: np.ndarray, unit: np.ndarray, num_units: int) -> Statistic:
    """Correlation of two columns of mean zero; rows where either is unknown do not count."""
    known = np.isfinite(one) & np.isfinite(two)
    sums = [
        np.bincount(unit[known], (first * second)[known], minlength=num_units)
        for first, second in ((one, two), (one, one), (two, two))
    ]

    def statistic(weights: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            both, first, second = (weights @ part for part in sums)
            return np.asarray(both / np.sqrt(first * second))

    return statistic


def _scores(rank: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Normal scores of ranks in (0, 1); NaN where `known` is."""
    return np.where(np.isfinite(known), ndtri(np.clip(rank, 1e-3, 1.0 - 1e-3)), np.nan)


def _median(draws: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nanmedian(draws, axis=1))
