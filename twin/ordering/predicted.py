"""Replay under predicted run times: exact, event by event, as `twin.ordering.replay` under requested ones.

A job's run time is predicted when it arrives: the mean of its user's last two finished jobs, at most what it requests;
the request itself where the user has not finished two. Predictions order the queue and the backfilling, and give when
running jobs end. A job that outruns its prediction is corrected: it is expected to run for a minute more, next time for
five, and so on (`CORRECTIONS_S`), never beyond its request. The queue is looked at then, as at any event.

    score = run_weight * ln(predicted run) + width_weight * ln(processors) - ageing * days waited      lowest first

With weights of zero that is first come, first served. Source: Tsafrir, Etsion and Feitelson 2007, "Backfilling using
system-generated predictions rather than user runtime estimates", TPDS (EASY++: first come, first served, backfilling
by shortest prediction).
"""

import heapq
from bisect import insort
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from twin.ordering.replay import _Replay
from twin.ordering.rules.fcfs import FCFS
from twin.ordering.types import Jobs, Pool, Replayed, WarmStart
from twin.ordering.windows import running_at

CORRECTIONS_S = tuple(minutes * 60.0 for minutes in (1, 5, 15, 30, 60, 120, 300, 600, 1_200, 3_000, 6_000))
"""What a prediction is raised by, the first time, the second time, and so on; the last from then on."""
LEAST_AGEING = 1e-6
"""Weight of the earlier arrival among equals, in units of the score a day."""


@dataclass(frozen=True)
class PredictedOrder:
    """One order of the weighted family.

    Attributes:
        run_weight, width_weight: of the logarithms of run time and processors.
        ageing: by how much the score falls in a day of waiting, >= 0.
        predicts: whether run times are predicted from users' own jobs; otherwise they are those that jobs request.
        reserves: whether predictions give when running jobs end as well; otherwise they only order jobs, and a blocked
            head is promised its processors by requests.
        short_first: whether jobs are backfilled by shortest run first; otherwise in the queue's own order.
    """

    run_weight: float = 0.0
    width_weight: float = 0.0
    ageing: float = 1.0
    predicts: bool = True
    reserves: bool = True
    short_first: bool = True


class LastRuns(NamedTuple):
    """What is known of users when a replay begins, and of what runs then.

    Attributes:
        last_s, before_s: [agents] run times of the last finished job and the one before; NaN where there is none.
        agent, run_s: [running] in the order of `WarmStart`.
    """

    last_s: np.ndarray
    before_s: np.ndarray
    agent: np.ndarray
    run_s: np.ndarray


def last_runs(jobs: Jobs, start_s: np.ndarray, begin_s: float) -> LastRuns:
    """What is known at an instant of a known schedule.

    Args:
        jobs: all jobs.
        start_s: [jobs] when each started; NaN if never.
        begin_s: the instant.
    """
    num_agents = max(int(jobs.agent.max(initial=-1)) + 1, 1)
    last_s, before_s = np.full(num_agents, np.nan), np.full(num_agents, np.nan)
    end_s = start_s + jobs.run_s
    ended = np.flatnonzero((end_s < begin_s) & (jobs.agent >= 0))
    for job in ended[np.argsort(end_s[ended], kind="stable")]:
        agent = jobs.agent[job]
        before_s[agent], last_s[agent] = last_s[agent], jobs.run_s[job]
    runs = running_at(jobs, start_s, begin_s)
    return LastRuns(last_s, before_s, jobs.agent[runs], jobs.run_s[runs])


def replay_predicted(
    jobs: Jobs,
    pool: Pool,
    order: PredictedOrder,
    *,
    past: LastRuns | None = None,
    warm: WarmStart | None = None,
) -> Replayed:
    """Replays jobs under predicted run times.

    Args:
        jobs: in order of arrival.
        pool: the processors, and whether to backfill.
        order: of the queue.
        past: what is known at the beginning; nothing by default.
        warm: the state at the beginning; what runs then is expected to end by its request until that has passed.

    Raises:
        OrderingError: what runs at the beginning exceeds the pool.
    """
    return _Predicting(jobs, pool, order, past, warm).run()


class _ByKey:
    """Keeps the queue sorted by keys that a job is given when it arrives; stands in for `queue.Priority`."""

    ages = False

    def __init__(self, key: list[tuple[float, int]]) -> None:
        self.key = key

    def add(self, waiting: list[int], job: int) -> None:
        """Puts a job where it belongs."""
        insort(waiting, job, key=self.key.__getitem__)

    def sort(self, waiting: list[int], _now_s: float) -> list[int]:
        """The waiting jobs, best first."""
        return sorted(waiting, key=self.key.__getitem__)


class _Predicting(_Replay):
    """`machine.requested_s` holds predictions; the requested times are kept beside it."""

    def __init__(
        self, jobs: Jobs, pool: Pool, order: PredictedOrder, past: LastRuns | None, warm: WarmStart | None
    ) -> None:
        super().__init__(jobs, pool, FCFS, None, warm)
        num_agents = max(int(jobs.agent.max(initial=-1)) + 1, 1)
        nothing = np.full(num_agents, np.nan)
        past = past or LastRuns(nothing, nothing, np.zeros(0, int), np.zeros(0))
        self.order, self.asked_s = order, jobs.requested_s.tolist()
        self.last_s, self.before_s = past.last_s.tolist(), past.before_s.tolist()
        self.agent = np.concatenate([jobs.agent, past.agent]).tolist()
        self.ran_s = np.concatenate([jobs.run_s, past.run_s]).tolist()
        self.width = np.log(jobs.processors).tolist()
        self.arrival_s = jobs.arrival_s.tolist()
        unset = [(0.0, job) for job in range(len(self.asked_s))]
        self.queue_key, self.backfill_key = unset, list(unset)
        self.priority = _Arriving(self)  # type: ignore[assignment]
        self.backfill_priority = _ByKey(self.backfill_key) if order.short_first else None  # type: ignore[assignment]
        self.expiring: list[tuple[float, int]] = []
        self.num_corrected: dict[int, int] = {}

    def predict(self, job: int) -> None:
        """Predicts the run time of a job that arrives, and gives it its places in the queue."""
        agent, predicted_s = self.agent[job], self.asked_s[job]
        if self.order.predicts and agent >= 0 and not np.isnan(self.before_s[agent]):
            predicted_s = min(predicted_s, max((self.last_s[agent] + self.before_s[agent]) // 2.0, 1.0))
        if self.order.reserves:
            self.machine.requested_s[job] = predicted_s
        log_run, aged = np.log(predicted_s), self.arrival_s[job] / DAY_S
        score = self.order.run_weight * log_run + self.order.width_weight * self.width[job]
        self.queue_key[job] = (score + max(self.order.ageing, LEAST_AGEING) * aged, job)
        self.backfill_key[job] = (log_run, job)

    def own_event_s(self) -> float:
        """When the next prediction runs out."""
        while self.expiring and self.machine.expected_end_s.get(self.expiring[0][1]) != self.expiring[0][0]:
            heapq.heappop(self.expiring)  # it has ended, or was corrected
        return self.expiring[0][0] if self.expiring else np.inf

    def own_event(self, now_s: float) -> bool:
        """Corrects what has outrun its prediction; whether there was anything."""
        corrected = False
        while self.own_event_s() <= now_s:
            job = heapq.heappop(self.expiring)[1]
            if now_s >= self._end_s(job):
                continue  # it ends now
            count = self.num_corrected.get(job, 0)
            self.num_corrected[job] = count + 1
            more_s = CORRECTIONS_S[min(count, len(CORRECTIONS_S) - 1)]
            limit_s = self.start_s[job] + self.asked_s[job]
            self.machine.expect(job, min(now_s + more_s, max(limit_s, now_s)))
            self._watch(job, now_s)
            corrected = True
        return corrected

    def _end_s(self, job: int) -> float:
        return float(self.start_s[job] + self.run_s[job])

    def _watch(self, job: int, now_s: float) -> None:
        """Minds when the prediction of a running job runs out, where its request leaves it more time."""
        expected_s = self.machine.expected_end_s[job]
        if now_s < expected_s < self.start_s[job] + self.asked_s[job]:
            heapq.heappush(self.expiring, (expected_s, job))

    def _start(self, job: int, now_s: float) -> None:
        super()._start(job, now_s)
        self._watch(job, now_s)

    def _release(self, job: int) -> None:
        super()._release(job)
        agent = self.agent[job]
        if agent >= 0:
            self.before_s[agent], self.last_s[agent] = self.last_s[agent], self.ran_s[job]


class _Arriving(_ByKey):
    """A queue whose jobs are predicted when they are added."""

    def __init__(self, replaying: _Predicting) -> None:
        super().__init__(replaying.queue_key)
        self.replaying = replaying

    def add(self, waiting: list[int], job: int) -> None:
        self.replaying.predict(job)
        super().add(waiting, job)
