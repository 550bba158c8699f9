"""What a person has to know of an archive at once, at its import and in its report: likely mistakes, in sentences."""

from collections.abc import Iterable, Iterator, Sequence, Set
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.archive import Archive
from logs_schema.copies import COLUMNS as COPY_COLUMNS
from logs_schema.copies import cancelled_copies
from logs_schema.errors import first
from logs_schema.formats.describing import RELATIVE_CLOCK
from logs_schema.formats.instant_units import date_meant
from logs_schema.formats.pool_size import guesses
from logs_schema.formats.swf_survey import LOST_JOBS
from logs_schema.implied_times import with_implied_times
from logs_schema.memory_units import COLUMNS as MEMORY_COLUMNS
from logs_schema.memory_units import memory_notices
from logs_schema.overtaking import COLUMNS as ORDER_COLUMNS
from logs_schema.overtaking import overtaken
from logs_schema.redirections import COLUMNS, class_of_node, redirected
from logs_schema.tables import NODES, REQUESTS, TABLES

EARLIEST_YEAR, LATEST_YEAR = 1985, 2100
"""Of a log with dates: before and after, instants count from a hidden time zero, or are of another unit."""

TIMES = ("arrival", "start", "finish", "run_s", "status")
LEAST_OF_A_DAY = 0.1
"""A last day with a smaller share of the requests of the one before is not taken for the newest day."""
MOST_FOREIGN, MOST_REDIRECTED = 0.02, 0.02
"""Shares of the newest day's requests on nodes that the inventory lacks, and on others than they were offered to, above
which it is said at once."""
MOST_OVERTAKEN, ENOUGH_WAITS = 0.1, 50
"""The same share of requests that wait and are overtaken, where there are enough."""
MOST_COPIES = 0.5
"""The same share of requests that failed or were given up and of which a copy completed at that instant."""
MOST_OF_NO_LENGTH = 0.05
"""The same share of runs that take no time."""
CLOCKS_S = (3600, 60, 1)
"""Steps of clocks, the longest first."""
TICKS_OF_A_RUN, ENOUGH_RUNS = 20, 50
"""Median runs of fewer steps than this are named, where there are enough."""
FAR_OVER = 1.5
"""A guessed capacity so many times the median use, or the largest request, is named as too large perhaps."""


def notices_of(archive: Archive) -> list[str]:
    """What the format noticed when it read the log, and where the log has no dates."""
    numbers = list(_dates_as_numbers(archive))
    return [
        *archive.facts.get("notices", ()), *archive.facts.get(LOST_JOBS, ()),
        *(numbers or _without_dates(archive)), *_without_nodes(archive),
        *_without_cores(archive), *_without_demands(archive), *_guessed_sizes(archive), *_not_listed(archive),
        *_redirected(archive), *_overtaken(archive), *_copies(archive), *_without_a_node(archive),
        *_lost_without_a_node(archive), *_without_starts(archive), *_without_length(archive),
        *_of_a_coarse_clock(archive), *_sites_apart(archive), *_not_found(archive), *_not_utf8(archive),
        *_not_read(archive), *memory_notices(archive.nodes(), _newest(archive, MEMORY_COLUMNS)),
    ]  # fmt: skip


def _not_read(archive: Archive) -> Iterator[str]:
    if named := archive.facts.get("not_read"):
        yield (
            f"what lies beside the files of the log was not read: {named}; unpack it, or name it, if it is part of the "
            "log; for JSON lines and other columns see the format requests_csv"
        )


def _not_found(archive: Archive) -> Iterator[str]:
    if found := archive.facts.get("not_found"):
        yield (
            f"none of the log's first lines has anything at {first(found)}: are the mapping's paths right? Of a "
            "list the mapping reads every entry as a row (each), or one, or all (logs_schema/formats/json_paths.py)"
        )


def _not_utf8(archive: Archive) -> Iterator[str]:
    if found := archive.facts.get("not_utf8"):
        yield (
            f"bytes that are no UTF-8, in {first(found)}, were read as they are shown here, in names, too; convert the "
            "log first, for example with iconv -f latin1 -t utf-8"
        )


def _dates_as_numbers(archive: Archive) -> Iterator[str]:
    """That the first instant is a number such as 20240301, which was read as seconds."""
    facts = archive.facts
    if facts.get("notices") or facts.get("origin") or not facts.get("format"):
        return
    for spec in TABLES:
        days = archive.days(spec.name) if spec.name in archive.tables else []
        if spec.time is None or not days or EARLIEST_YEAR <= days[0].year <= LATEST_YEAR:
            continue
        batch = next(archive.scan(spec.name, days=days[:1], columns=[spec.time]))
        read = batch[spec.time][0].as_py()
        if date := date_meant(read.timestamp())[0]:
            yield (
                f"the first {spec.time} of {spec.name} is the number {read.timestamp():.0f}, read as seconds since "
                f"1970 ({read:%Y-%m-%d}); if the date {date} is meant, write it so"
            )


def _without_nodes(archive: Archive) -> Iterator[str]:
    if archive.num_rows(REQUESTS.name) and not archive.num_rows(NODES.name) and archive.facts.get("format"):
        yield (
            "the archive lists no nodes, and nearly everything that is learned is about them: import the log together "
            "with its nodes (nodes.csv, or its inventory), or give the size of its pool (--capacity CORES), where the "
            "format takes one"
        )


def _without_cores(archive: Archive) -> Iterator[str]:
    cores = archive.nodes()["cpu_cores"].to_pylist() if archive.num_rows(NODES.name) else []
    if cores and not any(cores):
        yield (
            "no node has any cores (cpu_cores is 0), so twins take the most that requests had at once on each in the "
            "training days: a guess; give them in nodes.csv"
        )


def _not_listed(archive: Archive) -> Iterator[str]:
    """That many of the newest day's requests name nodes that the inventory lacks."""
    nodes = archive.nodes() if archive.num_rows(NODES.name) else None
    days = _days(archive)
    if nodes is None or not days:
        return
    known = pa.array({*nodes["node_id"].to_pylist(), *nodes["node_class"].to_pylist()}, pa.string())
    num_named, num_foreign, foreign = 0, 0, set[str]()
    for batch in _newest(archive, COLUMNS):
        named = pc.coalesce(*(pc.cast(batch[name], pa.string()) for name in COLUMNS))
        named = named.drop_null()
        others = named.filter(pc.invert(pc.is_in(named, value_set=known)))
        num_named, num_foreign = num_named + len(named), num_foreign + len(others)
        foreign.update(pc.unique(others).to_pylist())
    if num_foreign > MOST_FOREIGN * num_named:
        yield (
            f"{num_foreign / num_named:.0%} of the requests of {days[-1]} that name a node name one that is not in the "
            f"inventory ({first(sorted(foreign))}): nothing is learned from them; list all nodes in nodes.csv"
            + _spelt_otherwise(foreign, known.drop_null().to_pylist())
        )


def _spelt_otherwise(foreign: Set[str], known: Sequence[str]) -> str:
    """That names of a log are names of an inventory but for large letters, blanks or a domain; empty where none is."""
    by_name = {plain: name for name in known for plain in _plainly(name)}
    alike = [
        f"{name} as {by_name[plain]}"
        for name in sorted(foreign)
        if (plain := next((one for one in _plainly(name) if one in by_name), ""))
    ]
    return f", spelt as the log spells them: it may list {first(alike)}" if alike else ""


def _plainly(name: str) -> list[str]:
    """A node's name in small letters without blanks, and that without its domain, which no address has."""
    plain = "".join(name.casefold().split())
    host = plain.split(".")[0]
    return [plain] if host.isdigit() or not host else [plain, host]


def _without_demands(archive: Archive) -> Iterator[str]:
    """That many of the newest day's requests on nodes with cores do not say how many they take."""
    nodes = archive.nodes()["cpu_cores"].to_pylist() if archive.num_rows(NODES.name) else []
    num, num_unknown = _counted(
        (pc.or_(*(pc.is_valid(batch[name]) for name in COLUMNS)), pc.is_null(batch["cpu_cores"]))
        for batch in (_newest(archive, ("cpu_cores", *COLUMNS)) if any(nodes) else ())
    )
    if num_unknown > MOST_FOREIGN * num:
        yield (
            f"{num_unknown / num:.0%} of the requests of {_days(archive)[-1]} that name a node do not say "
            "how many cores they take (cpu_cores), and count as one core each; where they take more or less, give it, "
            "or give nodes as many cpu_cores as they serve requests at a time"
        )


def _days(archive: Archive) -> list[date]:
    """The days of requests, without a last one that has hardly begun (or is the tail of the day before)."""
    days = archive.days(REQUESTS.name)
    if len(days) < 2:
        return days
    before, last = (archive.num_rows_on(REQUESTS.name, [day]) for day in days[-2:])
    return days[:-1] if last < LEAST_OF_A_DAY * before else days


def _newest(archive: Archive, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The requests of the newest day."""
    days = _days(archive)
    return archive.scan(REQUESTS.name, days=days[-1:], columns=columns) if days else iter(())


def _newest_runs(archive: Archive) -> Iterator[pa.Table]:
    """The same with `TIMES`, those that follow from the others too."""
    return (with_implied_times(pa.Table.from_batches([part])) for part in _newest(archive, TIMES))


def _counted(parts: Iterable[tuple[pa.Array, pa.Array]]) -> tuple[int, int]:
    """How many rows are of the first mask of their part, and how many of these of the second as well."""
    num, num_both = 0, 0
    for one, other in parts:
        num += pc.sum(one).as_py() or 0
        num_both += pc.sum(pc.and_(one, other)).as_py() or 0
    return num, num_both


def _redirected(archive: Archive) -> Iterator[str]:
    """That many of the newest day's requests ran elsewhere than they were offered to."""
    days = _days(archive)
    class_of = class_of_node(archive)
    found = (redirected(batch, class_of) for batch in _newest(archive, COLUMNS))
    num_known, num_elsewhere = _counted((pc.is_valid(elsewhere), elsewhere) for elsewhere in found)
    if num_elsewhere > MOST_REDIRECTED * num_known:
        yield (
            f"{num_elsewhere / num_known:.0%} of the requests of {days[-1]} ran on another node (ran_node) than they "
            "were offered to (offered_node); twins have requests run where they are offered to, and take these runs "
            "for that node's: where the node that they ran on is the decision, import the log without offered_node"
        )


def _overtaken(archive: Archive) -> Iterator[str]:
    """That many of the newest day's requests that waited began after later ones that are alike on their node."""
    num_waited, num_overtaken = overtaken(_newest(archive, ORDER_COLUMNS))
    if num_waited >= ENOUGH_WAITS and num_overtaken > MOST_OVERTAKEN * num_waited:
        yield (
            f"{num_overtaken / num_waited:.0%} of the requests of {_days(archive)[-1]} that waited began "
            "after later ones of the same queue, service and size on their node, as where nodes serve by priority or "
            "by fair shares of users: twins know an order of queues (give what goes first as queue), and nodes that "
            "start the shortest, the most urgent or the latest first, and have waits too short where others go before"
        )


def _copies(archive: Archive) -> Iterator[str]:
    """That many of the newest day's requests were cancelled as a copy of them completed."""
    batches = list(_newest(archive, COPY_COLUMNS))
    num, num_copies = cancelled_copies(pa.Table.from_batches(batches)) if batches else (0, 0.0)
    if num >= ENOUGH_WAITS and num_copies > MOST_COPIES * num:
        yield (
            f"{num_copies / num:.0%} of the {num:,} requests of {_days(archive)[-1]} that failed or were "
            "given up ended as another of the same agent and service completed, as where a request is sent twice and "
            "the slower copy cancelled: twins take copies for requests of their own, which come and are lost whatever "
            "a policy does; where copies are few, import each request once, as the copy that answered"
        )


def _names_no_node(batch: pa.RecordBatch) -> pa.Array:
    return pc.and_(*(pc.is_null(batch[name]) for name in COLUMNS))


def _without_a_node(archive: Archive) -> Iterator[str]:
    """That many of the newest day's requests began on a node that the log does not name, though it names others."""
    days = _days(archive)
    num_begun, num_nowhere = _counted(
        (pc.is_valid(batch["start"]), _names_no_node(batch))
        for batch in _newest(archive, ("start", *COLUMNS))
    )
    if MOST_FOREIGN * num_begun < num_nowhere < num_begun:
        yield (
            f"{num_nowhere / num_begun:.0%} of the requests of {days[-1]} that began name no node (offered_node, "
            "ran_node): what they held is not seen, and nodes look emptier than they were"
        )


def _lost_without_a_node(archive: Archive) -> Iterator[str]:
    """That many of the newest day's requests were rejected or dropped on no node."""
    lost = pa.array(["rejected", "dropped"])
    num, num_lost = _counted(
        (
            pc.is_valid(batch["request_id"]),
            pc.and_(pc.is_in(pc.cast(batch["status"], pa.string()), value_set=lost), _names_no_node(batch)),
        )
        for batch in _newest(archive, ("request_id", "status", *COLUMNS))
    )
    if num_lost > MOST_FOREIGN * num:
        yield (
            f"{num_lost / num:.0%} of the requests of {_days(archive)[-1]} were rejected or dropped and "
            "name no node (offered_node): twins leave them out, as if nobody had asked, so what they want of nodes is "
            "less than it was, and no policy is credited with serving them"
        )


def _without_starts(archive: Archive) -> Iterator[str]:
    """That most requests of the newest day that ended ran for an unknown time, since the log has no start of them."""
    days = _days(archive)
    ran = pa.array(["completed", "failed"])
    num_ended, num_unknown = _counted(
        (
            pc.and_(
                pc.is_valid(runs["finish"]), pc.is_in(pc.cast(runs["status"], pa.string()), value_set=ran)
            ),
            pc.is_null(runs["start"]),
        )
        for runs in _newest_runs(archive)
    )
    if 2 * num_unknown > num_ended:
        yield (
            f"{num_unknown / num_ended:.0%} of the requests of {days[-1]} that ended have no start: neither how long "
            "they waited nor how long they ran is known, and twins learn neither; give start, or run_s beside finish; "
            "where requests never wait, start is their arrival"
        )


def _without_length(archive: Archive) -> Iterator[str]:
    """That many runs of the newest day ended as they began."""
    days = _days(archive)
    ends_as_begun = (pc.equal(runs["start"], runs["finish"]) for runs in _newest_runs(archive))
    num_runs, num_zero = _counted((pc.is_valid(at_once), at_once) for at_once in ends_as_begun)
    if num_zero > MOST_OF_NO_LENGTH * num_runs:
        yield (
            f"{num_zero / num_runs:.0%} of the runs of {days[-1]} end as they start: twins draw run times above zero, "
            "and do not repeat these; what never ran has no start, and where the clock is too coarse (whole seconds), "
            "finer instants, or run_s, tell more"
        )


def _of_a_coarse_clock(archive: Archive) -> Iterator[str]:
    """That the newest day's runs are not much longer than what its clock tells apart."""
    days, run_us = _days(archive), [np.zeros(0, np.int64)]
    coarse = list(CLOCKS_S)
    for batch in _newest(archive, ("start", "finish")):
        both = pa.Table.from_batches([batch]).drop_null()
        start_us, finish_us = (both[name].cast(pa.int64()).to_numpy() for name in ("start", "finish"))
        coarse = [one for one in coarse if not (start_us % (one * 1_000_000)).any()]
        coarse = [one for one in coarse if not (finish_us % (one * 1_000_000)).any()]
        run_us.append(finish_us - start_us)
    run_s = np.concatenate(run_us) / 1e6
    usual_s = np.median(run_s) if len(run_s) >= ENOUGH_RUNS else np.inf
    if coarse and usual_s < TICKS_OF_A_RUN * coarse[0]:
        yield (
            f"the clock of {days[-1]} counts in steps of {coarse[0]:,} s, and half of its runs take {usual_s:,.4g} s "
            "or less: waits and run times are off by up to a step, and what twins find in them (cold starts, say) may "
            "be the rounding; finer instants tell more"
        )


def _sites_apart(archive: Archive) -> Iterator[str]:
    """That every request arrived where no node is; reads no further than to the first that did not."""
    sites = set(archive.nodes()["site"].to_pylist()) if archive.num_rows(NODES.name) else set()
    arrived: set[str] = set()
    for batch in archive.scan(REQUESTS.name, columns=["site"]) if sites else ():
        arrived.update(pc.unique(batch["site"]).to_pylist())
        if arrived & sites:
            return
    if arrived:
        yield (
            f"no node is of a site where requests arrive ({first(sorted(arrived))}); the inventory's sites are "
            f"{first(sorted(sites))}: give both one name where they are one place"
        )


def _guessed_sizes(archive: Archive) -> Iterator[str]:
    """Which pools' sizes are the most that was in use at once, and what that rests on."""
    for node, guess in guesses(archive.facts).items():
        cores, median, largest = (guess[name] for name in ("cores", "median_use", "largest_request"))
        beyond = [
            f"{cores / base:,.3g} times {name} ({base:,.10g})"
            for name, base in (("the median use", median), ("the largest request", largest))
            if base > 0
        ]
        far = (median > 0 and cores > FAR_OVER * median) or (largest > 0 and cores > FAR_OVER * largest)
        yield (
            f"the capacity of {node} is a guess: {cores:,.10g} cores, the largest use at once, "
            f"{' and '.join(beyond)}; "
            + ("it may well be too large (requests may overlap that never ran together): " if far else "")
            + "whether use exceeds capacity is unknown; give the capacity with schedtwin import --capacity"
        )


def _without_dates(archive: Archive) -> Iterator[str]:
    days = sorted(day for spec in TABLES if spec.name in archive.tables for day in archive.days(spec.name))
    facts = archive.facts
    is_relative = facts.get("clock") == RELATIVE_CLOCK
    has_dates = bool(days) and days[0].year >= EARLIEST_YEAR and not is_relative
    if not days or has_dates or facts.get("origin") or facts.get("notices") or not facts.get("format"):
        return
    span = f"{days[0]} to {days[-1]}" if len(days) > 1 else str(days[0])
    if is_relative or facts["format"] == "native":
        yield (
            f"the log does not say on which date its clock begins, so its days are counted from 1970-01-01 ({span}): "
            "import it with --origin DATE, the date of its time zero (in a job's configuration: origin under [log]), "
            "or take days and weekdays for unknown"
        )
    else:
        yield f"the log's days are of {span}: are its instants seconds since 1970?"
