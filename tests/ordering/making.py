"""Jobs for the tests of the ordering problem."""

import numpy as np
from hypothesis import strategies as st

from twin.ordering.types import Jobs


def jobs_of(*rows, logged_start_s=None, agent=None):
    """Jobs from rows of (arrival, processors, requested, run), in order of arrival."""
    table = np.array(rows, float).reshape(-1, 4)
    num_jobs = len(table)
    start = np.full(num_jobs, np.nan) if logged_start_s is None else np.array(logged_start_s, float)
    agents = np.full(num_jobs, -1) if agent is None else np.array(agent)
    ids = np.array([str(job) for job in range(num_jobs)], object)
    return Jobs(ids, *table.T, start, agents)


CAPACITY = 6
SMALL = st.tuples(
    st.integers(0, 12), st.integers(1, CAPACITY), st.integers(1, 8), st.integers(1, 8), st.integers(0, 30)
)


@st.composite
def small_logs(draw, *, overruns=True):
    """Rows of a short, crowded log, full of ties, and logged starts."""
    drawn = sorted(draw(st.lists(SMALL, min_size=1, max_size=14)), key=lambda job: job[0])
    rows = [
        (arrival, width, asked, run if overruns else min(asked, run))
        for arrival, width, asked, run, _ in drawn
    ]
    return rows, [float(start) for *_, start in drawn]


def use_peak(jobs, start_s):
    """Largest number of processors in use at any instant."""
    started = ~np.isnan(start_s)
    width, begin, end = jobs.processors[started], start_s[started], (start_s + jobs.run_s)[started]
    return max((width[(begin <= instant) & (instant < end)].sum() for instant in begin), default=0)
