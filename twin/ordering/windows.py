"""Windows of jobs: the jobs that arrive in a span of time, and the state of the pool when it begins."""

import numpy as np

from twin.ordering.types import Jobs, WarmStart


def window(
    jobs: Jobs, start_s: np.ndarray, begin_s: float, end_s: float = np.inf
) -> tuple[Jobs, np.ndarray, WarmStart]:
    """The jobs of a span of time, with what runs and waits at its beginning under a known schedule.

    Args:
        jobs: all jobs.
        start_s: [jobs] the schedule: a replay's, or the log's; NaN for jobs that never start: they are left out once
            the span begins, but for those that wait until they are withdrawn.
        begin_s: beginning of the span.
        end_s: its end; jobs that arrive then or later do not belong.

    Returns:
        The jobs that wait at the beginning and those that arrive in the span; their indices among all jobs;
        and the warm start with what runs.
    """
    before = jobs.arrival_s < begin_s
    gone = before & np.isnan(start_s)
    if jobs.withdrawn_s is not None:
        gone &= ~(jobs.withdrawn_s > begin_s)
    still_to_start = ~(start_s < begin_s) & ~gone
    index = np.flatnonzero(still_to_start & (jobs.arrival_s < end_s))
    runs = running_at(jobs, start_s, begin_s)
    warm = WarmStart(
        begin_s,
        jobs.processors[runs],
        start_s[runs] + jobs.run_s[runs],
        start_s[runs] + jobs.requested_s[runs],
    )
    return chosen(jobs, index), index, warm


def running_at(jobs: Jobs, start_s: np.ndarray, at_s: float) -> np.ndarray:
    """The indices of the jobs that run at an instant under a known schedule, in the order of their starts."""
    runs = np.flatnonzero((start_s < at_s) & (start_s + jobs.run_s >= at_s))
    return runs[np.argsort(start_s[runs], kind="stable")]


def chosen(jobs: Jobs, index: np.ndarray) -> Jobs:
    """Some of the jobs: `index` [chosen], ascending."""
    per_job = {
        name: values[index] for name, values in jobs._asdict().items() if isinstance(values, np.ndarray)
    }
    return jobs._replace(**per_job)
