"""Replay under an order that remembers users: exact, event by event, as `twin.ordering.replay`.

A job's score may depend on what its user's finished jobs were like (`twin.ordering.users`), so it changes when one of
them ends, and grows evenly while the job waits. So the queue stays sorted: only the jobs of a user whose job has just
ended are placed anew.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from twin.ordering.config import OrderingConfig
from twin.ordering.replay import _Replay
from twin.ordering.rules.fcfs import FCFS
from twin.ordering.rules.rule import Rule
from twin.ordering.types import Jobs, Pool, Replayed, WarmStart
from twin.ordering.users import histories, remember
from twin.ordering.windows import running_at

Score = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(jobs [n], memories [4, n]) -> scores [n], highest first: count of the user's finished jobs, means of
run / requested, of log(1 + run / time unit) and of haste (`users.BRIEF`); all 0 without history."""


class Past(NamedTuple):
    """What is known of users when a replay begins.

    Attributes:
        memory: [4, agents] as in `Score`.
        agent, run_s, requested_s: [running] of what runs already, in the order of `WarmStart`.
    """

    memory: np.ndarray
    agent: np.ndarray
    run_s: np.ndarray
    requested_s: np.ndarray


def past_of(jobs: Jobs, start_s: np.ndarray, begin_s: float, time_unit_s: float) -> Past:
    """What is known of users at an instant of a known schedule.

    Args:
        jobs: all jobs.
        start_s: [jobs] when each started; NaN if never.
        begin_s: the instant; `windows.window` of the same names the same running jobs.
        time_unit_s: in which run times are remembered.
    """
    num_agents = max(int(jobs.agent.max()) + 1, 1)
    config = OrderingConfig(num_agents=num_agents, time_unit_s=time_unit_s)
    users = histories(jobs, config, start_s, np.array([begin_s]))
    kept = (users.num_finished, users.ratio, users.log_run, users.haste)
    memory = np.stack([leaf[:, 0] for leaf in kept]).astype(float)
    runs = running_at(jobs, start_s, begin_s)
    return Past(memory, jobs.agent[runs], jobs.run_s[runs], jobs.requested_s[runs])


def replay_with_user_history(
    jobs: Jobs,
    pool: Pool,
    score: Score,
    past: Past,
    *,
    time_unit_s: float,
    ageing_per_s: float = 0.0,
    backfill: Rule | None = None,
    warm: WarmStart | None = None,
) -> Replayed:
    """Replays jobs under a score that remembers users.

    Args:
        jobs: in order of arrival.
        pool: the processors, and whether to backfill.
        score: of a job that has not waited.
        past: what is known of users at the beginning, and of what runs then.
        time_unit_s: in which run times are remembered.
        ageing_per_s: by how much a score grows in a second of waiting.
        backfill: the order in which jobs behind the head are tried; the queue's own by default.
        warm: the state at the beginning.

    Raises:
        OrderingError: what runs at the beginning exceeds the pool.
    """
    return _Remembering(jobs, pool, score, past, time_unit_s, ageing_per_s, backfill, warm).run()


class _ByScore:
    """Keeps the queue sorted by score; stands in for `twin.ordering.queue.Priority`."""

    ages = False

    def __init__(self, replaying: "_Remembering") -> None:
        self.replaying = replaying
        self.key: dict[int, tuple[float, int]] = {}

    def add(self, waiting: list[int], job: int) -> None:
        """Puts a job where it belongs."""
        self.place(waiting, [job])

    def place(self, waiting: list[int], jobs: Sequence[int]) -> None:
        """Puts jobs of one user where they belong now."""
        for job in jobs:
            if job in self.key:
                del waiting[bisect_left(waiting, self.key[job], key=self.key.__getitem__)]
        for job, value in zip(jobs, self.replaying.scores(jobs), strict=True):
            self.key[job] = (-value, job)
            insort(waiting, job, key=self.key.__getitem__)

    def sort(self, waiting: list[int], _now_s: float) -> list[int]:
        """The waiting jobs, best first."""
        return sorted(waiting, key=self.key.__getitem__)


class _Remembering(_Replay):
    def __init__(
        self,
        jobs: Jobs,
        pool: Pool,
        score: Score,
        past: Past,
        time_unit_s: float,
        ageing_per_s: float,
        backfill: Rule | None,
        warm: WarmStart | None,
    ) -> None:
        super().__init__(jobs, pool, FCFS, backfill, warm)
        self.by_score = _ByScore(self)
        self.priority = self.by_score  # type: ignore[assignment]
        self.score, self.time_unit_s = score, time_unit_s
        self.memory = np.pad(past.memory, ((0, 0), (0, 1)))  # the last column: no user
        self.agent = np.concatenate([jobs.agent, past.agent]).tolist()
        self.ran = np.concatenate([jobs.run_s, past.run_s]).tolist()
        self.requested = np.concatenate([jobs.requested_s, past.requested_s]).tolist()
        self.aged = ageing_per_s * jobs.arrival_s

    def scores(self, jobs: Sequence[int]) -> list[float]:
        """Scores of jobs of one user, counted as if all had arrived at second 0."""
        index = np.array(jobs)
        memory = np.repeat(self.memory[:, self.agent[jobs[0]]][:, None], len(index), axis=1)
        values: list[float] = (self.score(index, memory) - self.aged[index]).tolist()
        return values

    def _release(self, job: int) -> None:
        super()._release(job)
        agent = self.agent[job]
        if agent < 0:
            return
        remember(self.memory[:, agent], self.ran[job], self.requested[job], self.time_unit_s)
        mine = [one for one in self.waiting if self.agent[one] == agent]
        if mine:
            self.by_score.place(self.waiting, mine)
