"""A whole log under orders that learn on the way: every stretch is played under what was known when it began.

The log is played from an empty pool in stretches of `STRETCH_DAYS` days. At the beginning of each, an order is chosen
or learned from the jobs of this very replay: those that had arrived, and the run times of those that had ended. So the
waits of a learned order stand in one table with those of rules over the whole log. The first days, before there is
anything to learn from, are first come, first served, with EASY backfilling.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.ladder import choice_at
from evaluation.problems.ordering.order_candidates import USUAL, candidates, learned_index, play_of
from evaluation.problems.ordering.past_weeks import Play
from evaluation.problems.ordering.weeks import cut_week
from logs_schema.calendar import DAY_S
from twin.ordering.population import day_of
from twin.ordering.population_cutoff import known_by
from twin.ordering.types import Jobs, Pool

STRETCH_DAYS = 28
TRAIN_DAYS = 28
LEAST_DAYS = 21
"""Days of the log before anything is learned."""
SEED = 0

OrderAt = Callable[[Jobs, Pool, int], Play | None]
"""(jobs as they are known, processors, day since 1970) -> the order from that day on; None: first come."""


def online_starts(jobs: Jobs, pool: Pool, order_at: OrderAt) -> np.ndarray:
    """[jobs] the starts under an order that is made anew for every stretch; NaN where a job never starts."""
    first_come = candidates(pool)[0].play
    start_s = np.full(len(jobs.arrival_s), np.inf)
    first, last = (int(day) for day in day_of(jobs, jobs.arrival_s[[0, -1]]))
    firsts = [first, *range(first + LEAST_DAYS, last + 1, STRETCH_DAYS)]
    for day, after in zip(firsts, [*firsts[1:], None], strict=True):
        begin_s = day * DAY_S - jobs.origin_us / 1e6
        num_days = (last + 1 if after is None else after) - day
        week, _ = cut_week(jobs, pool, start_s, day, WeeksConfig(num_test_days=num_days, num_drain_days=0))
        if not len(week.jobs.arrival_s):
            continue
        play = None if day == first else order_at(_known(jobs, start_s, begin_s), pool, day)
        found_s = (play or first_come)(week) + begin_s
        final = np.ones(len(found_s), bool) if after is None else found_s < begin_s + num_days * DAY_S
        start_s[week.place[final]] = found_s[final]
    return np.where(np.isfinite(start_s), start_s, np.nan)


def _known(jobs: Jobs, start_s: np.ndarray, begin_s: float) -> Jobs:
    """What is known of the jobs at an instant of a replay, with its starts as the logged ones."""
    return known_by(jobs._replace(logged_start_s=np.minimum(start_s, begin_s)), begin_s)


def index_at(jobs: Jobs, pool: Pool, day: int, name: str = USUAL) -> Play | None:
    """An order by its name, the usual index by default, learned from the days before; None where too few jobs ended."""
    return play_of(name, partial(learned_index, jobs, pool, day, TRAIN_DAYS, SEED), pool)


def ladder_at(jobs: Jobs, pool: Pool, day: int) -> Play | None:
    """The order that the ladder chooses on a day; None where no week is known."""
    chosen = choice_at(jobs, pool, day, TRAIN_DAYS, WeeksConfig(), SEED)
    return None if chosen is None else index_at(jobs, pool, day, chosen.order)


ONLINE: dict[str, OrderAt] = {"index": index_at, "ladder": ladder_at}
"""Names of orders that learn on the way."""
