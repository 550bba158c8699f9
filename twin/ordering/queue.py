"""The waiting queue in order of priority: kept sorted where scores stand still, sorted anew where they age."""

from bisect import insort

import numpy as np

from twin.ordering.rules.rule import Rule, Waiting
from twin.ordering.types import Jobs


def waiting_of(jobs: Jobs) -> Waiting:
    """What a rule may know of all the jobs; it cannot write to them."""
    columns = (jobs.arrival_s, jobs.processors, jobs.requested_s, jobs.logged_start_s)
    return Waiting(*(np.broadcast_to(column, column.shape) for column in columns))


class Priority:
    """A rule's order among given jobs.

    Args:
        rule: the rule.
        jobs: all jobs that may wait, in order of arrival.
    """

    def __init__(self, rule: Rule, jobs: Jobs) -> None:
        self.ages = rule.ages
        self._score = rule.score
        self._all = waiting_of(jobs)
        if not rule.ages:
            num_jobs = len(jobs.arrival_s)
            rank = np.empty(num_jobs, np.int64)
            rank[np.argsort(rule.score(self._all, 0.0), kind="stable")] = np.arange(num_jobs)
            self._rank: list[int] = rank.tolist()

    def add(self, waiting: list[int], job: int) -> None:
        """Puts a job where it belongs among the waiting ones; one that ages is placed by `sort`."""
        if self.ages:
            waiting.append(job)
        else:
            insort(waiting, job, key=self._rank.__getitem__)

    def sort(self, waiting: list[int], now_s: float) -> list[int]:
        """The waiting jobs, best first; ties in order of arrival."""
        if not self.ages:
            return sorted(waiting, key=self._rank.__getitem__)
        index = np.array(sorted(waiting))
        score = self._score(Waiting(*(values[index] for values in self._all)), now_s)
        sorted_jobs: list[int] = index[np.argsort(score, kind="stable")].tolist()
        return sorted_jobs
