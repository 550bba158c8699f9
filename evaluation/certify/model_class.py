"""Tests of the model class of run times: dependences that a table of means cannot represent.

*Persistence*: if a node is slow for a while and the forecasts do not model it, residuals of the last runs on the node
predict the residual of the next one. If requests are larger for a while, residuals of the last runs on any node do.
*Co-runners*: where requests share a node, those that arrive after a run began lengthen it. They are counted in a window
after its start of half the forecast run time, less as many as usually come to the node in that time, and runs that
ended within it are left out; for the others, under forecasts of the right class, what is left is uncorrelated with the
residual.
*Cold starts*: where a service that did not run on a node lately takes longer there, residuals rise with the time since
its last run. No table of means has that: a policy that gathers a service on few nodes is worth more than in the twin.
*Other nodes*: where nodes share power, a link or a storage, residuals rise with the load of other nodes, those of waits
with what waits there (`elsewhere`).
"""

import numpy as np
from scipy.special import ndtri

from evaluation.certify.config import CertifyConfig
from evaluation.certify.elsewhere import by_load_elsewhere
from evaluation.certify.forecasting import Forecast, ranks
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.comparison.bootstrap import Statistic
from twin.placement.service_times import rows_by_group

SECTION = "what run times depend on"
MIN_ROWS = 200
LAST_RUNS = 5
"""Runs of a node that ended last."""
MOST_BESIDE = 10
"""Nodes with more requests in flight count as nodes with so many."""


def model_class_lines(forecast: Forecast, config: CertifyConfig) -> list[Line]:
    """One line for each dependence; all are deciding."""
    score = _scores(ranks(forecast.run_s, forecast.draws_run_s, seed=config.seed), forecast.run_s)
    score = centred(score, forecast.node * (forecast.day.max() + 1) + forecast.day)
    late, arrivals = after_start(forecast)
    on_node = lately(score, forecast)
    on_all = lately(score, forecast._replace(node=np.zeros_like(forecast.node)), 2 * LAST_RUNS)
    lines, limits = [], config.thresholds
    for name, limit, one, two in (
        ("persistence of run time residuals on a node", limits.persistence, score, on_node),
        ("persistence of run time residuals over all nodes", limits.persistence, score, on_all),
        ("run time residuals against requests that come during the run", limits.co_running, late, arrivals),
        (
            "run time residuals against the time since the service last ran on the node",
            limits.cold_start,
            *since_last(score, forecast),
        ),
        (
            "run time residuals against what other nodes have to do",
            limits.elsewhere,
            *by_load_elsewhere(score, forecast, np.stack([on_node, on_all])),
        ),
        (
            "wait residuals against what waits on other nodes",
            limits.elsewhere,
            *_waits_elsewhere(forecast, config),
        ),
    ):
        known = np.isfinite(one) & np.isfinite(two)
        if known.sum() < MIN_ROWS or np.ptp(two[known]) == 0.0:
            lines.append(
                not_applicable(SECTION, name, f"{int(known.sum())} runs are usable, fewer than {MIN_ROWS}")
            )
            continue
        lines.append(
            about_zero(SECTION, name, "correlation", correlation(one, two, forecast.unit, forecast.num_units),
                       forecast.num_units, limit, config.intervals(), one_sided=True,
                       deciding=True)
        )  # fmt: skip
    return lines


def _waits_elsewhere(forecast: Forecast, config: CertifyConfig) -> tuple[np.ndarray, np.ndarray]:
    """[rows] scores of waits, and what they are by what waits on other nodes; NaN where unknown."""
    score = _scores(ranks(forecast.wait_s, forecast.draws_wait_s, seed=config.seed), forecast.wait_s)
    score = centred(score, forecast.node * (forecast.day.max() + 1) + forecast.day)
    return by_load_elsewhere(score, forecast, np.zeros((0, len(score))), waiting=True)


def lately(score: np.ndarray, forecast: Forecast, num_runs: int = LAST_RUNS) -> np.ndarray:
    """[rows] mean score of the node's last runs of that day that ended before a request arrived; NaN without any."""
    group = forecast.node * (forecast.day.max() + 1) + forecast.day
    return of_last(score, forecast.finish_s, forecast.arrival_s, group, num_runs)


def of_last(
    value: np.ndarray, known_s: np.ndarray, asked_s: np.ndarray, group: np.ndarray, num: int
) -> np.ndarray:
    """[rows] mean of the last `num` values of the row's group that were known before it asked; NaN without any."""
    found = np.full(len(value), np.nan)
    for here in rows_by_group(group):
        known = here[np.isfinite(value[here])]
        known = known[np.argsort(known_s[known], kind="stable")]
        sums = np.concatenate([[0.0], np.cumsum(value[known])])
        before = np.searchsorted(known_s[known], asked_s[here])
        first = np.maximum(before - num, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            found[here] = (sums[before] - sums[first]) / (before - first)
    return found


def since_last(score: np.ndarray, forecast: Forecast) -> tuple[np.ndarray, np.ndarray]:
    """[rows] scores, and logarithms of the time since a run of the service last ended on the node that day; both less
    the mean of the service's runs on the node. NaN without a run that day."""
    idle = np.full(len(score), np.nan)
    start_s, finish_s = forecast.start_s, forecast.finish_s
    pair = forecast.node * (forecast.service.max() + 1) + forecast.service
    group = pair * (forecast.day.max() + 1) + forecast.day
    for one in np.unique(group):
        here = np.flatnonzero((group == one) & np.isfinite(start_s))
        ends = np.sort(finish_s[here][np.isfinite(finish_s[here])])
        before = np.searchsorted(ends, start_s[here], side="right")
        seen = before > 0
        idle[here[seen]] = np.log1p(start_s[here[seen]] - ends[before[seen] - 1])
    known = np.isfinite(score) & np.isfinite(idle)
    one, two = (centred(np.where(known, column, np.nan), pair) for column in (score, idle))
    return one, two


def after_start(forecast: Forecast) -> tuple[np.ndarray, np.ndarray]:
    """[rows] scores of runs given that they outlast half their forecast, and the number of requests that arrived at the
    node in that time, over what is usual; both less the mean of runs on the same node with as many requests in flight.
    NaN where unknown.
    """
    window_s = 0.5 * _median(forecast.draws_run_s)
    outlasts = forecast.run_s > window_s
    survivors = np.where(forecast.draws_run_s > window_s[:, None], forecast.draws_run_s, np.nan)
    run_s = np.where(outlasts, forecast.run_s, np.nan)
    score = _scores(ranks(run_s, survivors), run_s)
    came, beside = (np.full(len(score), np.nan) for _ in range(2))
    start_s = forecast.start_s
    # Where requests are left out soon after, it is not known how many came
    known = np.isfinite(score) & (start_s + window_s <= forecast.seen_until_s)
    for node in np.unique(forecast.node):
        here = np.flatnonzero(forecast.node == node)
        taken = here[forecast.accepted[here]]
        arrivals = np.sort(forecast.arrival_s[taken])
        ends = np.sort(forecast.finish_s[taken][np.isfinite(forecast.finish_s[taken])])
        begun = np.searchsorted(arrivals, start_s[here], side="right")
        came[here] = np.searchsorted(arrivals, start_s[here] + window_s[here], side="right") - begun
        counted = here[known[here]]
        usual = came[counted].sum() / max(window_s[counted].sum(), 1e-9)
        came[here] -= usual * window_s[here]
        gone = np.searchsorted(ends, start_s[here], side="right")
        beside[here] = begun - gone
    group = forecast.node * (MOST_BESIDE + 1) + np.clip(np.nan_to_num(beside), 0, MOST_BESIDE).astype(int)
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
    """[rows] of the known draws [rows, draws]; NaN of a row without any."""
    known = np.isfinite(draws).any(axis=1)
    found = np.full(len(draws), np.nan)
    found[known] = np.nanmedian(draws[known], axis=1)
    return found
