"""The ordering problem written again, twice, sharing nothing with `twin.ordering`.

`by_definition` starts a job from behind the head only if the head's earliest expected start, computed on the
whole profile of expected releases, does not move: the definition of EASY, slow and without shadow times.
`fcfs_easy` is the shortest quick loop there is, for one rule: the yardstick of speed.
"""

import heapq
from collections.abc import Callable, Sequence

Job = tuple[float, float, float, float]
"""Arrival, processors, requested time, run time."""


def by_definition(
    jobs: Sequence[Job],
    capacity: float,
    easy: bool,
    priority: Callable[[int, float], float],
    withdrawn: Sequence[float] | None = None,
) -> list[float]:
    """Start of every job; `priority(job, now)`, lowest first, ties by index; `withdrawn` instants, inf for never."""
    leaves = [float("inf")] * len(jobs) if withdrawn is None else withdrawn
    start: dict[int, float] = {}
    order: list[int] = []  # in which they started
    gone: set[int] = set()
    queue: list[int] = []
    future = sorted(
        (job for job in range(len(jobs)) if jobs[job][1] <= capacity), key=lambda job: jobs[job][0]
    )

    def free():
        return capacity - sum(jobs[job][1] for job in order if job not in gone)

    def head_start(head, now):
        """Earliest instant from which on enough processors are expected to be free."""
        ends = [(max(now, start[job] + jobs[job][2]), jobs[job][1]) for job in order if job not in gone]
        for instant in sorted({now, *(end for end, _ in ends)}):
            if capacity - sum(width for end, width in ends if end > instant) >= jobs[head][1]:
                return instant
        raise AssertionError("a waiting job fits on an empty machine")

    def begin(job, now):
        queue.remove(job)
        start[job] = now
        order.append(job)

    def look(now):
        while queue:
            best = min(queue, key=lambda job: (priority(job, now), job))
            if jobs[best][1] > free():
                break
            begin(best, now)
        if not (easy and queue):
            return
        head, *behind = sorted(queue, key=lambda job: (priority(job, now), job))
        for job in behind:
            if jobs[job][1] <= free():
                before = head_start(head, now)
                begin(job, now)
                if head_start(head, now) > before:
                    order.remove(job)
                    del start[job]
                    queue.append(job)

    def end(job):
        return min(start[job] + jobs[job][3], leaves[job])

    while future or len(gone) < len(order):
        ends = [end(job) for job in order if job not in gone]
        now = min([*ends, *(jobs[job][0] for job in future[:1]), *(leaves[job] for job in queue)])
        ending = [job for job in order if job not in gone and end(job) == now]
        gone.update(job for job in ending if start[job] + jobs[job][2] <= now)
        leaving = [job for job in queue if leaves[job] == now]
        for job in leaving:
            queue.remove(job)
        if leaving:
            look(now)
        while future and jobs[future[0]][0] == now:
            queue.append(future.pop(0))
            look(now)
        for job in ending:
            gone.add(job)
            look(now)
    return [start.get(job, float("nan")) for job in range(len(jobs))]


def fcfs_easy(arrival, processors, requested, run, capacity):
    """Starts under first come, first served with EASY, looking once after each instant (lists of numbers)."""
    num_jobs, next_job, free = len(arrival), 0, capacity
    start, ends, running, queue = [None] * num_jobs, [], {}, []
    while next_job < num_jobs or ends:
        now = arrival[next_job] if next_job < num_jobs else ends[0][0]
        now = min(now, ends[0][0]) if ends else now
        while ends and ends[0][0] == now:
            job = heapq.heappop(ends)[1]
            free += processors[job]
            del running[job]
        while next_job < num_jobs and arrival[next_job] == now:
            queue.append(next_job)
            next_job += 1
        starting = []
        while queue and processors[queue[0]] <= free:
            starting.append(queue.pop(0))
            free -= processors[starting[-1]]
            running[starting[-1]] = now + requested[starting[-1]]
        if free and len(queue) > 1:
            reach, shadow, need = free, None, processors[queue[0]]
            for end, job in sorted((end, job) for job, end in running.items()):
                if shadow is not None and end > shadow:
                    break
                reach += processors[job]
                if shadow is None and reach >= need:
                    shadow = end
            extra = reach - need
            for job in queue[1:]:
                late = now + requested[job] > shadow
                if processors[job] <= (min(free, extra) if late else free):
                    extra -= processors[job] if late else 0
                    free -= processors[job]
                    starting.append(job)
                    running[job] = now + requested[job]
            queue = [job for job in queue if job not in running]
        for job in starting:
            start[job] = now
            heapq.heappush(ends, (now + run[job], job))
    return start
