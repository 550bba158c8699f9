"""A pool under a scoring policy, written again as a plain event loop in Python and NumPy, sharing nothing with `twin`.

One stream, one decision at a time: events from a heap, visible jobs as NumPy vectors, the scorer as matrix products.
The yardstick of speed, and a second opinion on every feature. Whole processors and seconds.
"""

import heapq
import math
from collections import defaultdict

import numpy as np

HORIZONS = (0.5, 2.0, 8.0, 32.0)


class PolicyLoop:
    """A pool that starts empty.

    Args:
        columns: arrival, processors, requested time, run time, user of every job, in order of arrival.
        capacity: processors.
        easy: whether jobs are backfilled, in order of arrival.
        decide: (job features [F, n], pool features [R]) -> place among the n visible jobs.
        num_visible: most jobs that are seen.
        unit: of durations in features.
        week: seconds from Monday to second 0.
    """

    def __init__(self, columns, capacity, easy, decide, *, num_visible, queue_size, unit=600.0, week=0):
        self.arrival, self.width, self.asked, self.run, self.user = (np.asarray(column) for column in columns)
        self.capacity, self.easy, self.decide = capacity, easy, decide
        self.num_visible, self.queue_size, self.unit, self.week = num_visible, queue_size, unit, week
        self.lists = [column.tolist() for column in (self.width, self.asked, self.run, self.user)]
        self.free, self.queue, self.running, self.heap = capacity, [], {}, []
        self.start = [None] * len(self.arrival)
        self.num_begun, self.decided_at = 0, []
        self.finished, self.ratio, self.log_run, self.haste = (
            np.zeros(self.user.max() + 1) for _ in range(4)
        )
        self.has = {"waiting": defaultdict(int), "running": defaultdict(int)}

    def play(self):
        """Starts of all jobs."""
        arrivals, num_jobs, following = self.arrival.tolist(), len(self.arrival), 0
        while following < num_jobs or self.queue:
            now = arrivals[following] if following < num_jobs else math.inf
            now = min(now, self.heap[0][0]) if self.heap else now
            ending, quiet = [], False
            while self.heap and self.heap[0][0] == now:
                ending.append(heapq.heappop(self.heap)[2])
            expected = {job for job in ending if self.running[job] <= now}
            for job in ending:
                if job in expected:
                    self.end(job)
                    quiet = True
            while following < num_jobs and arrivals[following] == now:
                self.queue.append(following)
                self.has["waiting"][self.lists[3][following]] += 1
                following += 1
                self.look(now)
                quiet = False
            for job in ending:
                if job not in expected:
                    self.end(job)
                if quiet or job not in expected:
                    self.look(now)
                quiet = False
        return self.start

    def end(self, job):
        width, asked, run, user = (column[job] for column in self.lists)
        self.free += width
        del self.running[job]
        self.has["running"][user] -= 1
        self.finished[user] += 1
        weight = max(1 / self.finished[user], 0.5)
        self.ratio[user] += weight * (run / asked - self.ratio[user])
        self.log_run[user] += weight * (math.log1p(run / self.unit) - self.log_run[user])
        self.haste[user] += weight * (min(1, self.unit / (6 * run)) - self.haste[user])

    def begin(self, job, now):
        width, asked, run, user = (column[job] for column in self.lists)
        self.free -= width
        self.running[job] = now + asked
        heapq.heappush(self.heap, (now + run, self.num_begun, job))
        self.num_begun += 1
        self.start[job] = now
        self.has["waiting"][user] -= 1
        self.has["running"][user] += 1

    def look(self, now):
        width = self.lists[0]
        while self.queue and min(map(width.__getitem__, self.queue)) <= self.free:
            place = 0
            if len(self.queue) > 1:
                self.decided_at.append(now)
                place = self.decide(*self.observe(now))
            job = self.queue[place]
            if width[job] > self.free:
                if self.easy:
                    self.backfill(place, now)
                return
            del self.queue[place]
            self.begin(job, now)

    def reservation(self, needed, now):
        width, free = self.lists[0], self.free
        shadow = now if free >= needed else None
        for end, job in sorted((max(end, now), job) for job, end in self.running.items()):
            if shadow is not None and end > shadow:
                break
            free += width[job]
            if shadow is None and free >= needed:
                shadow = end
        return shadow, free - needed

    def backfill(self, head, now):
        width, asked = self.lists[:2]
        shadow, extra = self.reservation(width[self.queue[head]], now)
        left = []
        for place, job in enumerate(self.queue):
            late = now + asked[job] > shadow
            if place == head or width[job] > (min(self.free, extra) if late else self.free):
                left.append(job)
                continue
            extra -= width[job] if late else 0
            self.begin(job, now)
        self.queue = left

    def observe(self, now):
        """Job features [F, n] and pool features [R], as `twin.ordering.features` documents them."""
        unit, capacity = self.unit, self.capacity
        seen = np.array(self.queue[: self.num_visible])
        wait, asked, width, user = (
            now - self.arrival[seen],
            self.asked[seen],
            self.width[seen],
            self.user[seen],
        )
        running = list(self.running)
        held, ends = self.width[running], np.array([self.running[job] for job in running]) - now
        free_after = [self.free + held[ends <= round(horizon * unit)].sum() for horizon in HORIZONS]
        shadow, extra = self.reservation(width[0], now)
        known = self.finished[user] > 0
        ratio = np.where(known, self.ratio[user], 1.0)
        in_time = (now + asked <= shadow) | (width <= extra)
        in_time[0] = True
        mine = [np.array([self.has[kind][one] for one in user.tolist()]) for kind in ("waiting", "running")]
        job = np.stack(
            [
                np.log1p(wait / unit),
                np.log1p(asked / unit),
                np.log1p(asked / unit * ratio),
                self.log_run[user],
                self.haste[user],
                width / capacity,
                np.log1p(width) / np.log1p(capacity),
                np.log1p(width / capacity * asked / unit),
                slowdown(wait, asked),
                slowdown(wait, asked * ratio),
                width <= self.free,
                *(width <= free for free in free_after),
                (width <= self.free) & in_time,
                1 - 1 / (1 + self.finished[user]),
                ratio,
                *(np.log1p(count) / 4 for count in mine),
                np.arange(len(seen)) / self.num_visible,
                wait / 86_400,
            ]
        )
        queue = np.array(self.queue)
        day, week = (2 * np.pi * ((now + self.week) % span) / span for span in (86_400, 604_800))
        pool = np.array(
            [
                self.free / capacity,
                *(free / capacity for free in free_after),
                np.log1p(len(queue)) / 4,
                max(len(queue) - self.num_visible, 0) / self.queue_size,
                np.log1p(len(running)) / 4,
                np.log1p(np.dot(self.asked[queue], self.width[queue]) / unit / capacity),
                np.log1p(np.dot(np.maximum(ends, 0), held) / unit / capacity),
                np.log1p(wait[0] / unit),
                np.log1p((shadow - now) / unit),
                *(np.sin(day), np.cos(day), np.sin(week), np.cos(week)),
            ]
        )
        return job, pool


def slowdown(wait, run):
    """Log of the bounded slowdown, 10 s."""
    return np.log(np.maximum((wait + run) / np.maximum(run, 10.0), 1.0))


class NumpyScorer:
    """The scores of `offline_rl.scorer.ChoiceScorer` without identity, from its parameters."""

    def __init__(self, parameters):
        content = parameters["params"]
        self.layers = {
            name: (np.ascontiguousarray(np.asarray(dense["kernel"]).T), np.asarray(dense["bias"]))
            for name, dense in content.items()
        }
        self.depth = sum(name.startswith("layer_") for name in content)

    def dense(self, name, inputs):
        kernel, bias = self.layers[name]
        return kernel @ inputs + (bias[:, None] if inputs.ndim == 2 else bias)

    def __call__(self, job, pool):
        """[n] scores of job features [F, n] under pool features [R]."""
        job, pool = job.astype(np.float32), pool.astype(np.float32)
        hidden = np.maximum(self.dense("choice", job) + self.dense("context", pool)[:, None], 0.0)
        for index in range(self.depth):
            mixed = self.dense(f"layer_{index}", hidden)
            if f"pool_{index}" in self.layers:
                mixed += self.dense(f"pool_{index}", hidden.mean(axis=1))[:, None]
            hidden = np.maximum(mixed, 0.0)
        return self.dense("score", hidden)[0]
