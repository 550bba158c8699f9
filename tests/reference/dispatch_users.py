"""A closed system in the plain event loop of `dispatch_loop`: a scheduler decides how much is asked."""

import math

import numpy as np

from tests.reference.dispatch_loop import DAY_S, NUM_SERVICES, Dispatcher, Job, Loop, Run, World, play


def play_days(
    world: World, day: int, num_days: int, dispatcher: Dispatcher, seeds: tuple[int, int]
) -> tuple[list[Job], list[Run]]:
    """The requests of some days and what became of them; `seeds` of the requests and of all else.

    In a closed system a scheduler decides how many there are.
    """
    if not world.kind.users:
        jobs = world.jobs(day, num_days, seeds[0])
        return jobs, play(world, jobs, dispatcher, seeds[1])
    loop = ClosedLoop(world, dispatcher, seeds[1])
    loop.play_users(day, num_days, seeds[0])
    return loop.jobs, loop.runs


class ClosedLoop(Loop):
    """Users who think, ask, and think again; each draws from a stream of its own."""

    def play_users(self, day: int, num_days: int, seed: int) -> None:
        """Plays some days until all that was asked has ended."""
        begin_s, self._until_s = day * DAY_S, (day + num_days) * DAY_S
        self._of_user = [np.random.default_rng((seed, user)) for user in range(self.world.kind.users)]
        for user in range(self.world.kind.users):
            self._think(begin_s, user)
        self.go_on(begin_s, self._until_s)

    def _think(self, time_s: float, user: int) -> None:
        random, world = self._of_user[user], self.world
        busy = 1.0 + 0.3 * math.sin(2.0 * math.pi * time_s / DAY_S)
        arrival_s = time_s + random.exponential(world.think_s[user]) / busy
        service = int(random.choice(NUM_SERVICES, p=world.share_of_user[user]))
        luck = math.exp(random.normal(-0.045, 0.3))
        if arrival_s < self._until_s:
            job = Job(arrival_s, service, None, luck, float(world.deadline_s[service]), user=user)
            self.at(arrival_s, self._ask, job)

    def _ask(self, time_s: float, job: Job) -> None:
        self.jobs.append(job)
        self.arrive(time_s, len(self.jobs) - 1)

    def has_ended(self, time_s: float, number: int) -> None:
        super().has_ended(time_s, number)
        user = self.jobs[number].user
        assert user is not None
        self._think(time_s, user)
