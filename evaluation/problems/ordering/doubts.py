"""What makes figures of a queue doubtful, read off the archive of its log for `schedtwin check`."""

from collections.abc import Iterator, Sequence

from evaluation.problems.ordering.waits_with_room import waits_in_words
from logs_schema.archive import Archive
from logs_schema.errors import counted
from twin.ordering.jobs import read_jobs
from twin.ordering.pools import pools_of
from twin.ordering.types import NoJobsError, OrderingError

MOST_JOBS = 200_000
"""So many jobs of an archive are held in memory at once; of a larger one its last days are looked at."""
MOST_POOLS = 32
"""Nodes of more classes are no queues."""
AT_SITES = "edge"
"""Tier of nodes that stand where requests arrive: then sites choose among nodes, and there is no queue."""


def doubts_of_archive(archive: Archive) -> tuple[str, ...]:
    """Where jobs waited beside processors enough for them, a sentence for each pool of an archive of queues.

    Of an archive with more jobs than are held at once its last days are looked at, and the sentence says so. Empty
    where nothing is doubtful, or where the archive is none of queues: of other tables, with nodes at the sites of those
    who ask, or without the size of its pools.

    Raises:
        ArchiveError: A file of the archive is missing or damaged.
    """
    if not archive.num_rows("requests") or AT_SITES in archive.nodes()["tier"].to_pylist():
        return ()
    days = archive.days("requests")
    num_days = _num_last_days([archive.num_rows("requests", day) for day in days])
    if not num_days:
        return (
            "whether jobs waited beside free processors was not looked at: the last day alone has more than "
            f"{MOST_JOBS:,} of them",
        )
    part = archive.on_days(days[-num_days:])
    taken = "" if num_days == len(days) else f", its last {counted(num_days, 'day')} of {len(days):,}"
    return tuple(f"replayed as a queue{taken}: {words}" for words in _of_pools(part))


def _num_last_days(rows: Sequence[int]) -> int:
    """How many of the last days hold at most `MOST_JOBS` rows together; `rows` are those of each day."""
    num_days, num_jobs = 0, 0
    for num_rows in reversed(rows):
        num_jobs += num_rows
        if num_jobs > MOST_JOBS:
            break
        num_days += 1
    return num_days


def _of_pools(archive: Archive) -> Iterator[str]:
    """The sentences on all pools, with their names where there are several."""
    try:
        pools = pools_of(archive)
    except OrderingError:  # the size of the machine is not known
        return
    for pool in pools if len(pools) <= MOST_POOLS else []:
        try:
            jobs = read_jobs(archive, pool=pool.name)
        except NoJobsError:
            continue
        named = "" if pool.name is None else f"{pool.name}: "
        yield from (f"{named}{words}" for words in waits_in_words(archive, jobs, pool))
