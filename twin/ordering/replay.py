"""Replay of jobs on a pool: exact, event by event, under a priority rule, with or without EASY backfilling.

**The queue.** It is looked at after every event: jobs start in order of priority while the best one fits. The
first that does not fit is the *head*; the machine is reserved for it. With `easy`, the jobs behind it are
then tried in order of priority (or of `backfill`): one starts now if its processors are free now and it
does not delay the head by anyone's request: either it is expected to end by the shadow time, or it fits into
the extra processors, which it then uses up (Lifka 1995, "The ANL/IBM SP scheduling system"; Mu'alem and
Feitelson 2001, "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM SP2
with backfilling").

**One instant** goes as follows. (1) Jobs that end as expected, having used up their request, give their
processors back, without a look at the queue. (2) Arrivals join the queue one by one, in the jobs' order. (3) All jobs
that end at this instant are gone through in the order in which they started; the others give their processors
back now. The queue is looked at after each event of (2) and (3). Looking only once in an instant is a
different rule: on a busy log it moves one wait in sixty, since half of what is about to become free admits
other jobs than all of it.

**Withdrawn jobs** leave the queue at their instant, after (1), and the queue is looked at once. One that has started by
then runs on until then, or to the end of its request.

**Run times** are the log's: a job that outruns its request is not killed. It keeps its processors until it
really ends and is expected to end at any moment.
"""

import heapq
from bisect import bisect_left

import numpy as np

from twin.ordering.machine import Machine
from twin.ordering.queue import Priority
from twin.ordering.rules.rule import Rule
from twin.ordering.types import Jobs, OrderingError, Pool, Replayed, WarmStart


def replay(
    jobs: Jobs, pool: Pool, rule: Rule, *, backfill: Rule | None = None, warm: WarmStart | None = None
) -> Replayed:
    """Replays jobs under a rule.

    Args:
        jobs: in order of arrival.
        pool: the processors, and whether to backfill.
        rule: the order of the queue.
        backfill: the order in which jobs behind the head are tried; the queue's own by default.
        warm: the state at the beginning: what runs; jobs that arrived before wait, and the queue is looked at
            once. By default the pool is empty and so is the queue.

    Returns:
        When each job started, and what was counted on the way.

    Raises:
        OrderingError: no jobs, or what runs at the beginning exceeds the pool.
    """
    if not len(jobs.arrival_s):
        raise OrderingError("there is no job to replay", advice="choose days that hold jobs with run times")
    return _Replay(jobs, pool, rule, backfill, warm).run()


class _Replay:
    """The state of one replay; `ends` is a heap of (end, order of start, job)."""

    def __init__(
        self, jobs: Jobs, pool: Pool, rule: Rule, backfill: Rule | None, warm: WarmStart | None
    ) -> None:
        self.jobs, self.pool = jobs, pool
        self.machine = Machine(jobs, pool, warm)
        self.priority = Priority(rule, jobs)
        self.backfill_priority = None if backfill is None else Priority(backfill, jobs)
        self.run_s: list[float] = jobs.run_s.tolist()
        self.start_s = [np.nan] * len(self.run_s)
        self.waiting: list[int] = []
        self.ends: list[tuple[float, int, int]] = []
        self.num_started = self.num_backfilled = 0
        self.begin_s = -np.inf if warm is None else warm.begin_s
        self.withdrawn_s = self._withdrawals()
        self.leaving = [(instant_s, job) for job, instant_s in self.withdrawn_s.items()]
        heapq.heapify(self.leaving)
        for offset, end_s in enumerate([] if warm is None else warm.end_s.tolist()):
            heapq.heappush(self.ends, (end_s, self.num_started, len(self.run_s) + offset))
            self.num_started += 1

    def run(self) -> Replayed:
        """Goes through all instants at which something happens."""
        arrivals = self._arrivals()
        next_arrival = bisect_left(arrivals, (self.begin_s, -1))
        for _, job in arrivals[:next_arrival]:
            self.priority.add(self.waiting, job)
        self._look(self.begin_s)
        while next_arrival < len(arrivals) or self.ends:
            now_s = self.own_event_s()
            now_s = min(now_s, arrivals[next_arrival][0] if next_arrival < len(arrivals) else np.inf)
            now_s = min(now_s, self.ends[0][0]) if self.ends else now_s
            now_s = min(now_s, self.leaving[0][0]) if self.leaving else now_s
            arriving = []
            while next_arrival < len(arrivals) and arrivals[next_arrival][0] == now_s:
                arriving.append(arrivals[next_arrival][1])
                next_arrival += 1
            self._instant(now_s, arriving)
        return self._replayed()

    def own_event_s(self) -> float:
        """When the next event comes that only some replays know."""
        return np.inf

    def own_event(self, now_s: float) -> bool:
        """What only some replays know happens; whether it changed anything."""
        return False

    def _withdrawals(self) -> dict[int, float]:
        """Job -> when its user takes it back, of those that wait at the beginning or come later."""
        given = self.jobs.withdrawn_s
        if given is None:
            return {}
        width, size = self.machine.processors, self.machine.size
        return {
            int(job): float(given[job]) for job in np.flatnonzero(given > self.begin_s) if width[job] <= size
        }

    def _arrivals(self) -> list[tuple[float, int]]:
        width, size = self.machine.processors, self.machine.size
        return [
            (arrival_s, job)
            for job, arrival_s in enumerate(self.jobs.arrival_s.tolist())
            if width[job] <= size
        ]

    def _instant(self, now_s: float, arriving: list[int]) -> None:
        ends, machine = self.ends, self.machine
        ending, changed = [], False
        while ends and ends[0][0] == now_s:
            job = heapq.heappop(ends)[2]
            as_expected = machine.expected_end_s[job] <= now_s
            if as_expected:
                self._release(job)
                changed = True
            ending.append((job, as_expected))
        changed |= self.own_event(now_s)
        if self._withdraw(now_s):
            self._look(now_s)
            changed = False
        for job in arriving:
            self.priority.add(self.waiting, job)
            self._look(now_s)
            changed = False
        for job, as_expected in ending:
            if not as_expected:
                self._release(job)
            if changed or not as_expected:  # else nothing has happened since the last look
                self._look(now_s)
                changed = False
        if changed:
            self._look(now_s)

    def _withdraw(self, now_s: float) -> bool:
        """Takes out of the queue what is withdrawn now; whether there was anything."""
        waiting = len(self.waiting)
        while self.leaving and self.leaving[0][0] <= now_s:
            job = heapq.heappop(self.leaving)[1]
            if np.isnan(self.start_s[job]):
                self.waiting.remove(job)
        return len(self.waiting) < waiting

    def _release(self, job: int) -> None:
        self.machine.release(job)

    def _look(self, now_s: float) -> None:
        """Starts what may start now."""
        waiting, machine = self.waiting, self.machine
        if not waiting or not machine.free:
            return
        if self.priority.ages and len(waiting) > 1:
            if min(map(machine.processors.__getitem__, waiting)) > machine.free:
                return
            waiting = self.waiting = self.priority.sort(waiting, now_s)
        num_starting = 0
        for job in waiting:
            if machine.processors[job] > machine.free:
                break
            self._start(job, now_s)
            num_starting += 1
        del waiting[:num_starting]
        if self.pool.easy and machine.free and len(waiting) > 1:
            self._backfill(now_s)

    def _backfill(self, now_s: float) -> None:
        waiting, machine = self.waiting, self.machine
        shadow_s, extra = machine.reservation(machine.processors[waiting[0]], now_s)
        behind = waiting[1:]
        if self.backfill_priority is not None:
            behind = self.backfill_priority.sort(behind, now_s)
        processors, requested_s = machine.processors, machine.requested_s
        chosen = set()
        free = machine.free
        for job in behind:
            needed = processors[job]
            if needed > free:
                continue
            if now_s + requested_s[job] > shadow_s:
                if needed > extra:
                    continue
                extra -= needed
            chosen.add(job)
            self._start(job, now_s)
            free = machine.free
            if not free:
                break
        if chosen:
            self.num_backfilled += len(chosen)
            self.waiting = [job for job in waiting if job not in chosen]

    def _start(self, job: int, now_s: float) -> None:
        self.machine.start(job, now_s)
        self.start_s[job] = now_s
        end_s = min(now_s + self.run_s[job], self.withdrawn_s.get(job, np.inf))
        heapq.heappush(self.ends, (end_s, self.num_started, job))
        self.num_started += 1

    def _replayed(self) -> Replayed:
        start_s = np.array(self.start_s)
        overran = ~np.isnan(start_s) & (self.jobs.run_s > self.jobs.requested_s)
        num_too_large = sum(width > self.machine.size for width in self.machine.processors)
        return Replayed(start_s, self.num_backfilled, num_too_large, int(overran.sum()))
