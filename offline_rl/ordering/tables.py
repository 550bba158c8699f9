"""How large the tables are in which orders are trained and played inside programs: as large as the log needs.

What runs at once must find room: a full table would block the machine, and no week can begin in it. Who finds the
queue's table full waits outside and is counted, so that table has a largest size. A learned order packs jobs otherwise
than the log did, and generated months are busier than real ones: so both are sized by the greatest crowd that the log
and two simple rules bring about, with a quarter more, in powers of two.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from logs_schema.concurrency import most_at_once
from logs_schema.errors import ConfigError
from offline_rl.ordering.programs import OrderTrainingConfig
from twin.ordering.config import OrderingConfig
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, SAF
from twin.ordering.types import Jobs, Pool
from twin.ordering.windows import chosen

ROOM = 1.25
LARGEST_QUEUE, LARGEST_RUNNING = 1024, 4096
ADVICE = "learn indices alone, which need no tables (--index-only, or index_only = true in [order.training])"


class Occupancy(NamedTuple):
    """The most jobs that run, and that wait, at one instant."""

    running: int
    waiting: int


def occupancy_of(jobs: Jobs, start_s: np.ndarray) -> Occupancy:
    """The occupancy of a schedule.

    Args:
        jobs: the jobs.
        start_s: [jobs] when each started; NaN if never or unknown: those are left out.
    """
    known = np.isfinite(start_s)
    begin_s, end_s = start_s[known], start_s[known] + jobs.run_s[known]
    waits = begin_s > jobs.arrival_s[known]
    return Occupancy(
        int(most_at_once(begin_s, end_s)), int(most_at_once(jobs.arrival_s[known][waits], begin_s[waits]))
    )


def with_tables(config: OrderTrainingConfig, jobs: Jobs, pool: Pool) -> OrderTrainingConfig:
    """The configuration with tables of a size that fits a log, where it names none.

    Raises:
        ConfigError: more jobs run at once in the log than the table may hold.
    """
    part = chosen(jobs, np.flatnonzero(jobs.processors <= pool.processors))
    easy = Pool(pool.processors, easy=True)
    schedules = (part.logged_start_s, *(replay(part, easy, rule).start_s for rule in (FCFS, SAF)))
    logged, *played = (occupancy_of(part, start_s) for start_s in schedules)
    running = max(occupancy.running for occupancy in (logged, *played))
    needed, allowed = (
        (logged.running, config.running_size) if config.running_size else (running, LARGEST_RUNNING)
    )
    if needed > allowed:
        raise ConfigError(
            f"{needed:,} jobs run at once in the log"
            + ("" if needed == logged.running else ", packed as the simple rules do"),
            where="[order.training] running_size",
            allowed=f"at most {allowed:,}",
            advice=f"leave running_size out, and the log decides; or {ADVICE}"
            if config.running_size
            else ADVICE,
        )
    settings = OrderingConfig()
    waiting = max(occupancy.waiting for occupancy in (logged, *played))
    return replace(
        config,
        running_size=config.running_size or _size(running, settings.running_size, LARGEST_RUNNING),
        queue_size=config.queue_size
        or _size(waiting, max(settings.queue_size, config.num_judged), LARGEST_QUEUE),
    )


def widened(config: OrderTrainingConfig, jobs: Jobs, pool: Pool) -> OrderTrainingConfig:
    """A trained policy's configuration with tables that hold other weeks than those of its training too; a scorer does
    not know how long they are."""
    fitting = with_tables(replace(config, running_size=None, queue_size=None), jobs, pool)
    sizes = {
        name: max(getattr(config, name) or 0, getattr(fitting, name))
        for name in ("running_size", "queue_size")
    }
    return replace(config, **sizes)


def _size(occupancy: int, least: int, largest: int) -> int:
    return min(max(least, 1 << max(int(np.ceil(ROOM * occupancy)) - 1, 0).bit_length()), largest)
