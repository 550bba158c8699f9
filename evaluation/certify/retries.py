"""Test of the workload: whether requests come again because others failed.

Clients that try again make more requests where more of them fail. A twin replays the requests of the log whatever a
policy does, so it undersells policies that fail less, and oversells those that fail more.

    share = mean of  failed * (asked again - expected),    of all requests

*Asked again* is 1 where the same agent asks for the same service within a while of the end; *expected* is how often
that happens after requests of the pair that completed, as often as after all others of that time.
"""

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.certify.resampled import mean_of
from twin.placement.types import COMPLETED, DROPPED, FAILED

SECTION = "what arrivals depend on"
NAME = "requests that repeat failed ones, beyond chance"
FEWEST = 50
"""Failed requests, and completed ones, of agents that are known."""
LEAST_S = 60.0
"""A repeated request comes within so long of the end, or the median response time where that is longer."""
BLOCK = 64
"""Consecutive requests that are taken to be of one time."""
PRIOR = 5.0
"""Requests' worth of what is usual that a pair's own, and a time's, is drawn to."""


def repeat_line(forecast: Forecast, config: CertifyConfig) -> Line:
    """The line; it is deciding."""
    known = forecast.known & (forecast.agent >= 0)
    failed = known & np.isin(forecast.status, (FAILED, DROPPED))
    completed = known & (forecast.status == COMPLETED) & np.isfinite(forecast.finish_s)
    fewest = min(int(failed.sum()), int(completed.sum()))
    if fewest < FEWEST:
        return not_applicable(
            SECTION, NAME,
            f"{int(failed.sum())} requests of known agents failed and {int(completed.sum())} completed, "
            f"fewer than {FEWEST}",
        )  # fmt: skip
    within_s = max(LEAST_S, float(np.median((forecast.finish_s - forecast.arrival_s)[completed])))
    pair, again = _asked_again(forecast, within_s)
    expected = _expected(pair, again, completed)
    measured = mean_of(np.where(failed, again - expected, 0.0), forecast.unit, forecast.num_units)
    return about_zero(
        SECTION, NAME, "share", measured, forecast.num_units, config.thresholds.repeats, config.intervals(),
        one_sided=True, deciding=True,
        reason=f"within {within_s:.3g} s {again[failed].mean():.0%} of {int(failed.sum())} failed requests came again, "
        f"{expected[failed].mean():.0%} expected",
    )  # fmt: skip


def _asked_again(forecast: Forecast, within_s: float) -> tuple[np.ndarray, np.ndarray]:
    """[rows] index of day, agent and service, and 1 where one more of them arrives within a while of the end."""
    labels = np.stack([forecast.day, forecast.agent, forecast.service])
    _, pair = np.unique(labels, axis=1, return_inverse=True)
    pair = pair.ravel()
    arrival_s = forecast.arrival_s - forecast.arrival_s.min()
    apart = 2.0 * (arrival_s.max() + within_s) + 1.0
    ended_s = forecast.finish_s - forecast.arrival_s.min()
    # Unknown: it came to nothing at once
    end_s = pair * apart + np.where(np.isfinite(ended_s), ended_s, arrival_s)
    sorted_s = np.append(np.sort(pair * apart + arrival_s), np.inf)
    next_s = sorted_s[np.searchsorted(sorted_s, end_s, side="right")]
    return pair, (next_s <= end_s + within_s).astype(float)


def _expected(pair: np.ndarray, again: np.ndarray, completed: np.ndarray) -> np.ndarray:
    """[rows] how often a request is followed by another of its pair, by those that completed, around then."""
    overall = float(again[completed].mean())
    total, count = (
        np.bincount(pair[completed], values, pair.max() + 1)
        for values in (again[completed], np.ones(completed.sum()))
    )
    usual = ((total + PRIOR * overall) / (count + PRIOR))[pair]
    block = np.arange(len(pair)) // BLOCK
    seen, due = (
        np.bincount(block[completed], values[completed], block.max() + 1) + PRIOR * overall
        for values in (again, usual)
    )
    return np.clip(usual * (seen / np.maximum(due, 1e-9))[block], 0.0, 1.0)
