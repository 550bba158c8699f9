"""What was known at the end of the training days: nothing that ended later may be learned from."""

import numpy as np

from twin.ordering.types import Jobs
from twin.ordering.windows import chosen

MIN_RUN_S = 1.0


def known_by(jobs: Jobs, cutoff_s: float) -> Jobs:
    """What was known of the jobs at an instant: those that had arrived, and of their outcomes what had come about.

    A job that had not ended is taken to run for the part of its request that its user's last job to end had used (all
    jobs' median where none had), but no less than it had run already. It is not left out: the jobs that outlast a
    cutoff are the long ones.

    Args:
        jobs: in order of arrival.
        cutoff_s: the instant, on the clock of the jobs.
    """
    before = chosen(jobs, np.flatnonzero(jobs.arrival_s < cutoff_s))
    start_s = np.where(np.isnan(before.logged_start_s), before.arrival_s, before.logged_start_s)
    end_s = start_s + before.run_s
    ended = end_s <= cutoff_s
    if ended.all():
        return before
    share = before.run_s / before.requested_s
    usual = float(np.median(share[ended])) if ended.any() else 1.0
    run_s = before.run_s.copy()
    for job in np.flatnonzero(~ended):
        own = np.flatnonzero(ended & (before.agent == before.agent[job]) & (before.agent >= 0))
        guess_s = before.requested_s[job] * (share[own[np.argmax(end_s[own])]] if len(own) else usual)
        run_s[job] = max(guess_s, cutoff_s - start_s[job], MIN_RUN_S)
    return before._replace(
        run_s=run_s, logged_start_s=np.where(start_s < cutoff_s, before.logged_start_s, np.nan)
    )
