"""Metrics of a replay: waits, slowdown, utilisation and fairness between users, as plain numbers."""

from typing import NamedTuple

import numpy as np

from evaluation.comparison.metrics.fairness import jain_index
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.types import Jobs, Pool

LOGGED_GAP = (
    "the log's own waits hold what this idealised machine leaves out: compare policies with each other, "
    "never with the log"
)


class Summary(NamedTuple):
    """Figures of one replay, over the jobs that started and were not withdrawn; NaN where there are none.

    Attributes:
        mean_wait_s: mean of start - arrival.
        p99_wait_s: wait that 99 % of the jobs do not exceed.
        mean_bounded_slowdown: mean of max(1, (wait + run) / max(run, 10 s)).
        utilisation: processor seconds used, over those there were from the first arrival to the last end.
        jain_fairness: Jain's index of the users' mean bounded slowdowns, in (0, 1]; users that hide left out.
    """

    mean_wait_s: float
    p99_wait_s: float
    mean_bounded_slowdown: float
    utilisation: float
    jain_fairness: float


def summarise(jobs: Jobs, start_s: np.ndarray, pool: Pool) -> Summary:
    """Figures of a schedule.

    Args:
        jobs: the jobs.
        start_s: [jobs] when each started; NaN if never.
        pool: the processors.
    """
    started = np.flatnonzero(~np.isnan(start_s) & stays(jobs))
    if not len(started):
        return Summary(*[float("nan")] * 5)
    wait_s = start_s[started] - jobs.arrival_s[started]
    run_s = jobs.run_s[started]
    slowdown = bounded_slowdown(wait_s, run_s)
    span_s = np.max(start_s[started] + run_s) - jobs.arrival_s[started[0]]
    used = float(np.sum(jobs.processors[started] * run_s))
    return Summary(
        float(np.mean(wait_s)),
        float(np.quantile(wait_s, 0.99)),
        float(np.mean(slowdown)),
        used / float(pool.processors * span_s),
        _fairness(slowdown, jobs.agent[started]),
    )


def stays(jobs: Jobs) -> np.ndarray:
    """[jobs] bool: the job is not withdrawn, so its run time is known."""
    if jobs.withdrawn_s is None:
        return np.ones(len(jobs.arrival_s), bool)
    return np.isnan(jobs.withdrawn_s)


def logged_mean_wait_s(jobs: Jobs) -> float:
    """Mean logged wait, of the jobs with a logged start; NaN without any."""
    wait_s = jobs.logged_start_s - jobs.arrival_s
    known = ~np.isnan(wait_s)
    return float(np.mean(wait_s[known])) if known.any() else float("nan")


def _fairness(slowdown: np.ndarray, agent: np.ndarray) -> float:
    known = agent >= 0
    if not known.any():
        return float("nan")
    _, code = np.unique(agent[known], return_inverse=True)
    mean = np.bincount(code, slowdown[known]) / np.bincount(code)
    return float(jain_index(mean, np.ones(len(mean), bool)))
