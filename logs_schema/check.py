"""The quality report of an archive: what is in it, what is odd about it, and what it can support.

One pass over `requests`, a batch at a time, in order of arrival. Oddities are warnings and the rows are kept:
real logs overrun their requests and their capacities. Only an archive that nothing can be learned from is not
usable: one without rows, or with more than a fifth of its rows in quarantine, without those left out on purpose
(steps of jobs, by a mapping's [only]).
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import capabilities, overlap, peak_use
from logs_schema.archive import Archive
from logs_schema.broken_rules import first_broken
from logs_schema.capabilities import Capability, Coverage, capability_matrix
from logs_schema.check_report import CapacityLine, CheckReport, PlaceUse, TableCounts, Timing, in_digits
from logs_schema.check_text import render
from logs_schema.deployment_checks import Above, deployment_warnings
from logs_schema.errors import counted, first
from logs_schema.formats.pool_size import guesses
from logs_schema.log_days import LogDays, days_astray, log_days
from logs_schema.memory_units import HUGE_GIB
from logs_schema.notices import notices_of
from logs_schema.overlap import Overlap
from logs_schema.peak_use import OF_SITE, RESOURCES, PeakUse
from logs_schema.stores import shown

__all__ = ["CheckReport", "capabilities_of", "check_archive", "render"]

LARGEST_QUARANTINED_SHARE = 0.2
TOLERANCE = 1e-6
"""Relative excess over a requested run time that is rounding and not a finding."""
SHARES_TOLERANCE = 0.01
"""The same over a capacity: sevenths of a GPU may be logged as 0.143."""

FAR_LONGER, FAR_SHORTER = 200, 20
"""Most deadlines in milliseconds are over so many times what passed; most in minutes or hours under that part of it."""

OF_CAPABILITIES = tuple(dict.fromkeys((*capabilities.COLUMNS, *overlap.COLUMNS)))
COLUMNS = tuple(dict.fromkeys((*OF_CAPABILITIES, *peak_use.COLUMNS, "requested_run_s", "deadline_s")))


def check_archive(path: Path | str) -> CheckReport:
    """Reads an archive once and reports on its quality.

    Raises:
        ArchiveError: There is no archive at `path`, or a file of it is missing or damaged.
    """
    archive = Archive(path)
    tables = {
        name: TableCounts(archive.num_rows(name), archive.quarantined(name), archive.superseded(name))
        for name in archive.tables
    }
    days = _days_of(archive)
    coverage, clock, tried, named = Coverage(), _Clock(), Overlap(), _Named()
    nodes = archive.nodes()
    use = PeakUse(offered=frozenset(nodes["node_id"].to_pylist()))
    memory, deadlines = Above("memory_gib", HUGE_GIB), _Deadlines()
    for batch in archive.scan("requests", columns=COLUMNS):
        coverage.add(batch)
        use.add(batch)
        clock.add(batch)
        tried.add(batch)
        named.add(batch)
        memory.add(batch)
        deadlines.add(batch)
    guessed = guesses(archive.facts)
    capacities = tuple(_capacity_lines(use.finish(), nodes, set(guessed)))
    unknown_nodes = _unknown_nodes(use, nodes)
    timing = clock.timing(archive.facts.get("num_out_of_order"))
    return CheckReport(
        archive=shown(path),
        content_hash=archive.content_hash,
        facts=archive.facts,
        tables=tables,
        days=days,
        timing=timing,
        capacities=capacities,
        unknown_nodes=unknown_nodes,
        capabilities=_capabilities(archive, nodes, coverage, tried, days),
        warnings=(
            *notices_of(archive),
            *_row_warnings(tables, days, timing),
            *first_broken(archive, {name: table.rules for name, table in tables.items()}),
            *_node_warnings(capacities, unknown_nodes),
            *named.warnings(nodes),
            *deployment_warnings(archive),
            *_memory_warnings(memory),
            *deadlines.warnings(),
        ),
        problems=tuple(_problems(tables)),
    )


def capabilities_of(archive: Archive) -> tuple[Capability, ...]:
    """The capabilities of `check_archive` alone, without following what nodes hold at once."""
    coverage, tried = Coverage(), Overlap()
    for batch in archive.scan("requests", columns=OF_CAPABILITIES):
        coverage.add(batch)
        tried.add(batch)
    return _capabilities(archive, archive.nodes(), coverage, tried, _days_of(archive))


def _days_of(archive: Archive) -> LogDays:
    return log_days({day: archive.num_rows("requests", day) for day in archive.days("requests")})


def _capabilities(
    archive: Archive, nodes: pa.Table, coverage: Coverage, tried: Overlap, days: LogDays
) -> tuple[Capability, ...]:
    rows = {name: archive.num_rows(name) for name in capabilities.SAMPLE_TABLES if name in archive.tables}
    return capability_matrix(coverage, nodes, days, rows, archive.facts, tried.finish(nodes))


@dataclass
class _Clock:
    """Counts late, unfinished and overrunning requests batch by batch."""

    num_unfinished: int = 0
    num_overruns: int = 0
    num_with_request: int = 0
    largest_overrun: float = 0.0
    num_late: int = 0
    _finishes_us: np.ndarray | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        arrival, start, finish = (batch[name].cast(pa.int64()) for name in ("arrival", "start", "finish"))
        run_us = pc.cast(pc.subtract(finish, start), pa.float64(), safe=False)
        run_s = pc.coalesce(pc.divide(run_us, 1e6), batch["run_s"])
        has_request = pc.greater(batch["requested_run_s"], 0)
        share = pc.divide(run_s, batch["requested_run_s"]).filter(has_request).drop_null()
        self.num_with_request += len(share)
        self.num_overruns += pc.sum(pc.greater(share, 1 + TOLERANCE)).as_py() or 0
        self.largest_overrun = max(self.largest_overrun, pc.max(share).as_py() or 0.0)
        self.num_unfinished += finish.null_count
        self._count_late(np.asarray(finish.drop_null()), np.asarray(arrival))

    def _count_late(self, finishes_us: np.ndarray, arrivals_us: np.ndarray) -> None:
        """Keeps only finishes after the last arrival so far: a later batch may arrive after them."""
        before = np.zeros(0, np.int64) if self._finishes_us is None else self._finishes_us
        last_us = arrivals_us.max(initial=np.iinfo(np.int64).min)
        kept = np.concatenate([before, finishes_us])
        self._finishes_us = kept[kept > last_us]
        self.num_late = len(self._finishes_us)

    def timing(self, num_out_of_order: int | None) -> Timing:
        return Timing(
            num_late=self.num_late,
            num_unfinished=self.num_unfinished,
            num_out_of_order=num_out_of_order,
            num_overruns=self.num_overruns,
            num_with_request=self.num_with_request,
            largest_overrun=self.largest_overrun,
        )


@dataclass
class _Named:
    """The nodes that requests were offered to, and those allowed, batch by batch."""

    offered: set[str] = field(default_factory=set)
    allowed: set[str] = field(default_factory=set)

    def add(self, batch: pa.RecordBatch) -> None:
        self.offered.update(pc.unique(batch["offered_node"].drop_null()).to_pylist())
        self.allowed.update(pc.unique(pc.list_flatten(batch["candidates"])).to_pylist())

    def warnings(self, nodes: pa.Table) -> Iterator[str]:
        """Names that an inventory knows neither as nodes nor as classes; nothing where there is no inventory."""
        known = {*nodes["node_id"].to_pylist(), *nodes["node_class"].to_pylist()}
        if nodes.num_rows and (foreign := sorted(self.offered - known)):
            yield f"requests were offered to nodes that are not in the inventory: {first(foreign)}"
        if nodes.num_rows and (foreign := sorted(self.allowed - known)):
            yield (
                f"candidates are no nodes (or classes of nodes) of the inventory: {first(foreign)}; a request without "
                "any that is counts as allowed everywhere"
            )


@dataclass
class _Deadlines:
    """Counts deadlines that are out of all proportion to responses, batch by batch."""

    num_known: int = 0
    num_long: int = 0
    num_short: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        response_us = pc.subtract(*(batch[name].cast(pa.int64()) for name in ("finish", "arrival")))
        times = pc.divide(
            pc.multiply(batch["deadline_s"], 1e6), pc.cast(response_us, pa.float64(), safe=False)
        )
        times = times.filter(pc.greater(response_us, 0)).drop_null()
        self.num_known += len(times)
        self.num_long += pc.sum(pc.greater(times, FAR_LONGER)).as_py() or 0
        self.num_short += pc.sum(pc.less(times, 1 / FAR_SHORTER)).as_py() or 0

    def warnings(self) -> Iterator[str]:
        """That most are so: rather another unit."""
        for count, where in (
            (self.num_long, f"over {FAR_LONGER} times"),
            (self.num_short, f"under 1/{FAR_SHORTER} of"),
        ):
            if 2 * count > self.num_known:
                yield (
                    f"deadline_s is {where} what passed from arrival to finish, of {count:,} of {self.num_known:,} "
                    "requests: is it in seconds?"
                )


def _capacity_lines(use: PeakUse, nodes: pa.Table, guessed: Set[str]) -> Iterator[CapacityLine]:
    """Peaks against capacities: node by node, or by site where some requests' nodes are unknown.

    Args:
        use: The peaks.
        nodes: The inventory.
        guessed: Nodes whose capacity is a guess from their use.
    """
    by_site = use.num_without_node > 0
    named = nodes["site" if by_site else "node_id"].to_pylist()
    ids = nodes["node_id"].to_pylist()
    unsure = {
        f"site {name}" if by_site else name for node, name in zip(ids, named, strict=True) if node in guessed
    }
    for index, resource in enumerate(RESOURCES):
        capacity: dict[str, float] = {}
        for name, amount in zip(named, nodes[resource].to_pylist(), strict=True):
            place = f"{OF_SITE}{name}" if by_site else name
            capacity[place] = capacity.get(place, 0.0) + (np.nan if amount is None else amount)
        checked = [
            PlaceUse(
                place.replace(OF_SITE, "site "), float(use.peak[use.places[place], index]), capacity[place]
            )
            for place in capacity
            if place in use.places and not np.isnan(capacity[place])
        ]
        if not checked or all(place.peak == 0 for place in checked):
            continue
        over = [place for place in checked if place.peak > place.capacity * (1 + SHARES_TOLERANCE)]
        over.sort(key=lambda place: place.capacity / place.peak)
        shares = [place.peak / place.capacity for place in checked if place.capacity > 0]
        kind = "site" if by_site else "node"
        num_guessed = sum(place.place in unsure for place in checked)
        yield CapacityLine(resource, kind, len(checked), tuple(over), max(shares, default=0.0), num_guessed)


def _unknown_nodes(use: PeakUse, nodes: pa.Table) -> tuple[str, ...]:
    known = set(nodes["node_id"].to_pylist())
    return tuple(
        sorted(place for place in use.places if place not in known and not place.startswith(OF_SITE))
    )


def _row_warnings(tables: dict[str, TableCounts], days: LogDays, timing: Timing) -> Iterator[str]:
    for name, table in tables.items():
        if table.quarantined:
            rules = ", ".join(f"{rule} ({count:,})" for rule, count in sorted(table.rules.items()))
            yield f"{name}: {counted(table.quarantined, 'row')} in quarantine: {rules}"
    if astray := days_astray(days.rows):
        yield (
            f"{sum(days.rows[day] for day in astray):,} requests on {first(astray, num_shown=3)}, over a year from all "
            "others: misread dates? they are neither trained nor judged on"
        )
    if days.missing:
        yield f"no requests on {first(days.missing, num_shown=3)} between the first and the last day"
    if days.thin:
        yield f"thin days with under a tenth of the median day's rows: {first(days.thin, num_shown=3)}"
    if timing.num_overruns:
        yield (
            f"{timing.num_overruns:,} of {timing.num_with_request:,} requests ran longer than requested, "
            f"at most {max(timing.largest_overrun, 1.01):.3g} times as long"
        )


def _node_warnings(capacities: tuple[CapacityLine, ...], unknown_nodes: tuple[str, ...]) -> Iterator[str]:
    for line in capacities:
        if line.over:
            worst = line.over[0]
            yield (
                f"{line.resource}: requests exceed the capacity of {len(line.over)} of "
                f"{counted(line.num_places, line.kind)}; "
                f"worst {worst.place} with {in_digits(worst.peak)} of {in_digits(worst.capacity)}; where the size is "
                "wrong give it at the import (nodes.csv, or --capacity), and look at units"
            )
    if unknown_nodes:
        yield f"requests ran on nodes that are not in the inventory: {first(unknown_nodes)}"


def _memory_warnings(seen: Above) -> Iterator[str]:
    """Requests for so much memory that it is rather in bytes or KiB."""
    if seen.num_above:
        yield (
            f"memory_gib is above {HUGE_GIB:,} GiB in {seen.num_above:,} of {seen.num_known:,} requests, at most "
            f"{seen.largest:,.4g}: is it in GiB?"
        )


def _problems(tables: dict[str, TableCounts]) -> Iterator[str]:
    if not any(tables[name].rows for name in ("requests", "deployment_samples") if name in tables):
        yield "there are no requests (and no deployment_samples): nothing can be learned"
    for name, table in tables.items():
        num_seen = table.rows + table.broken
        if num_seen and table.broken > LARGEST_QUARANTINED_SHARE * num_seen:
            yield (
                f"{name}: {100 * table.broken / num_seen:.0f} % of the rows are in quarantine "
                f"(allowed: {100 * LARGEST_QUARANTINED_SHARE:.0f} %); look at their rules and mend the log"
            )
