"""What the ordering problem is made of: jobs, the pool they share, and what a replay of them gives.

Times are seconds after the first arrival (`Jobs.origin_us`), so that a float holds them to the microsecond.
Jobs are in order of arrival; those of one instant in order of their ids, shorter ids first, so that numbers
count as numbers. This order breaks every tie.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logs_schema.errors import SchedtwinError


class OrderingError(SchedtwinError):
    """Jobs and pool do not go together, or there is nothing to replay."""


class NoJobsError(OrderingError):
    """There is nothing to replay."""


class Jobs(NamedTuple):
    """Jobs in order of arrival.

    Attributes:
        request_id: [jobs] text.
        arrival_s: [jobs] not decreasing.
        processors: [jobs] > 0.
        requested_s: [jobs] > 0, the run time requested: all that is known to a scheduler before the end.
        run_s: [jobs] > 0, the true run time.
        logged_start_s: [jobs] the logged start; NaN if unknown.
        agent: [jobs] int, the submitting agent; -1 if unknown.
        origin_us: microseconds since 1970 (UTC) at second 0.
        counts: rule -> number of jobs it left out or changed; see `twin.ordering.jobs`.
        withdrawn_s: [jobs] when its user takes the job back, NaN for those not taken back; None where none is.
    """

    request_id: np.ndarray
    arrival_s: np.ndarray
    processors: np.ndarray
    requested_s: np.ndarray
    run_s: np.ndarray
    logged_start_s: np.ndarray
    agent: np.ndarray
    origin_us: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    withdrawn_s: np.ndarray | None = None


class WarmStart(NamedTuple):
    """The state in which a replay begins: what runs already; jobs that arrived before wait already.

    Attributes:
        begin_s: when the replay begins, before anything of that instant happens.
        processors: [running] > 0, in the order in which they started.
        end_s: [running] when each will really end, not before the beginning.
        expected_end_s: [running] when its request runs out.
    """

    begin_s: float
    processors: np.ndarray
    end_s: np.ndarray
    expected_end_s: np.ndarray


@dataclass(frozen=True)
class Pool:
    """A pool of interchangeable processors.

    Attributes:
        processors: how many there are.
        easy: whether jobs behind a blocked head may start if they do not delay it (EASY backfilling).
        name: which of an archive's pools it is (see `twin.ordering.pools`); None where the archive is one pool.
    """

    processors: float
    easy: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.processors < np.inf:
            raise OrderingError(
                f"a pool of {self.processors:g} processors runs nothing",
                where="processors" if self.name is None else f"processors of the pool {self.name}",
                allowed="more than 0",
                advice="give the number of processors of the machine",
            )

    @property
    def described(self) -> dict[str, str]:
        """For what is written down of a pool: its name, where it has one."""
        return {} if self.name is None else {"pool": self.name}


class Replayed(NamedTuple):
    """What a replay gives.

    Attributes:
        start_s: [jobs] when each job started; NaN for a job larger than the pool, which never does.
        num_backfilled: jobs that started from behind a blocked head; None where that is unknown.
        num_too_large: jobs larger than the pool.
        num_overrunning: jobs that started and ran beyond their request.
    """

    start_s: np.ndarray
    num_backfilled: int | None
    num_too_large: int
    num_overrunning: int
