"""Inputs of an ordering policy: waiting jobs, running jobs, and what users' finished jobs were like."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

from offline_rl.errors import PolicyInputError

FADING, BRIEF = 0.5, 6.0


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits: when it came, what it requests, and its user (None if unknown).

    `predicted_s` is its run time by `QueuePolicy.predicted_s` when it came; None: as predicted now. More than
    what the job requests is taken for that.
    """

    arrival_s: float
    processors: float
    requested_s: float
    user: str | None = None
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that runs: on how many processors, until when, and its user.

    The end is the latest by its request; where the bundle `reserves` by predictions, that of
    `QueuePolicy.expected_end_s`.
    """

    processors: float
    expected_end_s: float
    user: str | None = None


@dataclass(frozen=True, slots=True)
class UserPast:
    """What a user's finished jobs were like: fading means, and the run times of the last one and the one before.

    Attributes:
        num_finished: Number of these jobs.
        ratio: Mean of run / requested time.
        log_run: Mean of log(1 + run / time unit).
        haste: Mean of time unit / max(`BRIEF` * run, time unit): 1 of short jobs, near 0 of long ones.
        last_s, before_s: Run times of the last job and the one before; None without.
    """

    num_finished: int = 0
    ratio: float = 1.0
    log_run: float = 0.0
    haste: float = 0.0
    last_s: float | None = None
    before_s: float | None = None

    def ended(self, run_s: float, requested_s: float, time_unit_s: float) -> "UserPast":
        """The same after one more job has ended; `time_unit_s` stands in the contract's setting."""
        count = self.num_finished + 1
        weight = max(1.0 / count, FADING)
        old = (0.0, 0.0, 0.0) if count == 1 else (self.ratio, self.log_run, self.haste)
        units = run_s / time_unit_s
        new = (run_s / requested_s, log1p(units), 1.0 / max(BRIEF * units, 1.0))
        ratio, log_run, haste = (was + weight * (now - was) for was, now in zip(old, new, strict=True))
        return UserPast(count, ratio, log_run, haste, run_s, self.last_s)


def refuse_impossible(waiting: Sequence[WaitingJob], running: Sequence[RunningJob], clock_s: float) -> None:
    """Makes sure that a queue can be: positive, finite numbers, the oldest job first; PolicyInputError."""
    arrivals = [one.arrival_s for one in waiting]
    if not np.isfinite(clock_s) or not all(np.isfinite(arrivals)) or arrivals != sorted(arrivals):
        raise PolicyInputError("jobs must wait in order of arrival", allowed="finite instants, oldest first")
    if arrivals and arrivals[-1] > clock_s:
        raise PolicyInputError("a job waits that has not arrived", where=f"arrival_s {arrivals[-1]!r}")
    for one in waiting:
        told_s = one.requested_s if one.predicted_s is None else one.predicted_s
        if not (0.0 < one.processors < np.inf and 0.0 < one.requested_s < np.inf and 0.0 < told_s < np.inf):
            raise PolicyInputError(
                "a job cannot be like this", where=repr(one), allowed="positive, finite numbers"
            )
    for run in running:
        if not (0.0 < run.processors < np.inf and np.isfinite(run.expected_end_s)):
            raise PolicyInputError(
                "a job cannot run like this", where=repr(run), allowed="positive, finite numbers"
            )
