"""Jobs for the tests of the ordering problem."""

import numpy as np
from hypothesis import strategies as st

from twin.ordering.types import Jobs

QUICK = """
[order]
num_twin_weeks = 2

[order.weeks]
shifts = "0d,7d"

[order.intervals]
num_replicates = 200

[order.training]
seeds = [0]
"""
INDEX_ONLY = "index_only = true\n"
"""A configuration for commands on queues that is soon done, and its last lines."""


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


def alike_weeks(num_days=105, num_users=8, seed=0):
    """An SWF log in which every week is like every other: users with requests and habits of their own, on working days.

    It begins on Sunday 2001-09-09, on 16 processors.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for day in range(num_days):
        busy = 0.3 if (day + 6) % 7 >= 5 else 1.0
        for user in range(num_users):
            for _ in range(rng.poisson(3.0 * busy)):
                asked = (1 + user % 4) * 3600
                ran = asked if rng.uniform() < 0.2 else int(asked * rng.beta(1.0 + user, 6.0))
                second = day * 86_400 - 6400 + int(3600 * np.clip(rng.normal(13.0, 2.5), 3.0, 23.0))
                rows.append((second, 1 + (user * 3 + int(rng.integers(0, 2))) % 12, max(1, ran), asked, user))
    lines = ["; UnixStartTime: 1000000000", "; MaxProcs: 16"]
    for job, (second, width, ran, asked, user) in enumerate(sorted(rows)):
        lines.append(f"{job} {second} 60 {ran} {width} -1 -1 {width} {asked} -1 1 {user} 1 -1 1 -1 -1 -1")
    return "\n".join(lines) + "\n"
