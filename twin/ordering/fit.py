"""Fits the twin of a queue on some days of a log."""

from logs_schema.layout import number_of
from logs_schema.logged_days import LoggedDays
from twin.ordering.jobs import read_jobs
from twin.ordering.persistence import QueueTwin, fit_queue
from twin.ordering.pools import pool_of


def fit_queue_days(
    days: LoggedDays, *, seed: int = 0, pool: str | None = None, processors: float | None = None
) -> QueueTwin:
    """Learns the workload of a queue, from the first to the last of some days.

    Args:
        days: To learn from; what happened after the last of them is not looked at.
        seed: Not used: nothing is drawn.
        pool: Class of nodes whose queue it is, where the archive has several.
        processors: Of the pool; those of the archive's nodes if None.

    Raises:
        ConfigError: No such pool, or several of which none is named.
        OrderingError: Fewer than three days, no usable job, or the size of the pool is unknown.
    """
    queue = pool_of(days.archive, processors, name=pool)
    jobs = read_jobs(days.archive, pool=queue.name)
    first, last = number_of(days.days[0]), number_of(days.days[-1])
    return fit_queue(jobs, queue, first, last + 1 - first)
