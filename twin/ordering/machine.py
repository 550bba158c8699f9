"""The processors of a pool: which job runs until when, and when a blocked job will fit.

Nothing here depends on priorities. A job's expected end is its start plus its request; a job that has outrun its
request is expected to end at any moment, that is, now.

Processors are counted in whole thousandths, so that sums of fractions are exact and a pool that is empty again
is seen to be empty; what requests less than one thousandth gets one.
"""

from bisect import bisect_left, insort

import numpy as np

from twin.ordering.types import Jobs, OrderingError, Pool, WarmStart

PARTS = 1000
"""Parts into which a processor is divided."""


class Machine:
    """A pool and what runs on it.

    Args:
        jobs: the jobs that may start, by index.
        pool: the processors.
        warm: what runs at the beginning; its entries get the indices after the last job's.

    Raises:
        OrderingError: what runs at the beginning needs more processors than there are.
    """

    def __init__(self, jobs: Jobs, pool: Pool, warm: WarmStart | None = None) -> None:
        self.processors = _in_parts(jobs.processors)
        self.requested_s: list[float] = jobs.requested_s.tolist()
        self.size = self.free = round(pool.processors * PARTS)
        self.expected_end_s: dict[int, float] = {}
        self._by_expected_end: list[tuple[float, int]] = []
        if warm is not None:
            self._begin_with(warm, pool)

    def _begin_with(self, warm: WarmStart, pool: Pool) -> None:
        first = len(self.processors)
        self.processors += _in_parts(warm.processors)
        self.free -= sum(self.processors[first:])
        if self.free < 0.0:
            raise OrderingError(
                f"{warm.processors.sum():g} processors are in use at the beginning",
                where=f"{len(warm.processors)} running jobs",
                allowed=f"the pool's {pool.processors:g}",
                advice="begin at an instant at which the log keeps to the pool's size",
            )
        for offset, expected_end_s in enumerate(warm.expected_end_s.tolist()):
            self.expected_end_s[first + offset] = expected_end_s
            insort(self._by_expected_end, (expected_end_s, first + offset))

    def start(self, job: int, now_s: float) -> None:
        """Takes a job's processors, which must be free."""
        self.free -= self.processors[job]
        expected_end_s = now_s + self.requested_s[job]
        self.expected_end_s[job] = expected_end_s
        insort(self._by_expected_end, (expected_end_s, job))

    def expect(self, job: int, expected_end_s: float) -> None:
        """Changes when a running job is expected to end."""
        del self._by_expected_end[bisect_left(self._by_expected_end, (self.expected_end_s[job], job))]
        self.expected_end_s[job] = expected_end_s
        insort(self._by_expected_end, (expected_end_s, job))

    def release(self, job: int) -> None:
        """Gives a running job's processors back."""
        entry = (self.expected_end_s.pop(job), job)
        del self._by_expected_end[bisect_left(self._by_expected_end, entry)]
        self.free += self.processors[job]

    def reservation(self, processors: int, now_s: float) -> tuple[float, int]:
        """When a job that does not fit now is expected to fit, and what will be left beside it then.

        Args:
            processors: what the job needs, in parts: more than is free, not more than the pool has.
            now_s: the present.

        Returns:
            The shadow time: the first expected end by which enough processors will be free; and the extra
            parts: how many more than needed will be free then, all jobs that are expected to end at that
            very instant counted.
        """
        free, shadow_s = self.free, None
        for expected_end_s, job in self._by_expected_end:
            end_s = max(expected_end_s, now_s)
            if shadow_s is not None and end_s > shadow_s:
                break
            free += self.processors[job]
            if shadow_s is None and free >= processors:
                shadow_s = end_s
        if shadow_s is None:
            raise RuntimeError("a job larger than the pool is waiting")
        return shadow_s, free - processors


def _in_parts(processors: np.ndarray) -> list[int]:
    parts: list[int] = np.maximum(np.rint(processors * PARTS), 1).astype(np.int64).tolist()
    return parts
