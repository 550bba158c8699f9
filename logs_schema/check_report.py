"""The quality report of an archive, as data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from logs_schema.capabilities import Capability
from logs_schema.log_days import SHIFTS_DAYS, LogDays

OF_NO_REQUEST = ("other_row", "partial_execution")
"""Rules of lines that are left out on purpose: by a mapping's [only], or parts of a job that has a line of its own."""


@dataclass(frozen=True)
class TableCounts:
    """Rows of a table, of its quarantine by rule, and those that gave way to others of their key by rule."""

    rows: int
    rules: Mapping[str, int]
    superseded: Mapping[str, int] = field(default_factory=dict)

    @property
    def quarantined(self) -> int:
        """Rows in quarantine."""
        return sum(self.rules.values())

    @property
    def broken(self) -> int:
        """Rows in quarantine without those that are left out on purpose."""
        return sum(number for rule, number in self.rules.items() if rule.split(":")[0] not in OF_NO_REQUEST)

    @property
    def left_out(self) -> float:
        """Share of the rows of the log that were left out on purpose."""
        return (self.quarantined - self.broken) / max(self.rows + self.quarantined, 1)


@dataclass(frozen=True)
class PlaceUse:
    """A place whose requests together need more than it has: its peak, its capacity."""

    place: str
    peak: float
    capacity: float


@dataclass(frozen=True)
class CapacityLine:
    """Whether concurrent requests stay within capacities, for one resource.

    Attributes:
        resource: Column of the resource.
        kind: What a place is: `node` or a whole `site`.
        num_places: Places checked: those that ran a request and whose capacity is known.
        over: Places whose peak is above their capacity, worst first.
        largest_share: Largest peak divided by its capacity; 0 if nothing was checked.
        num_guessed: Places checked whose capacity is a guess from their very use, which cannot exceed it.
    """

    resource: str
    kind: str
    num_places: int
    over: tuple[PlaceUse, ...]
    largest_share: float
    num_guessed: int = 0


@dataclass(frozen=True)
class Timing:
    """How requests lie in time.

    Attributes:
        num_late: Requests whose outcome lies after the last arrival: censored if training stops there.
        num_unfinished: Requests without a known finish.
        num_out_of_order: Requests that stood in the file after a later arrival; None if not counted.
        num_overruns: Requests that ran longer than requested.
        num_with_request: Requests of which both run time and requested run time are known.
        largest_overrun: Largest run time divided by the time requested; 0 if nothing is known.
    """

    num_late: int
    num_unfinished: int
    num_out_of_order: int | None
    num_overruns: int
    num_with_request: int
    largest_overrun: float


@dataclass(frozen=True)
class CheckReport:
    """The quality report of an archive.

    Attributes:
        archive: Where it is.
        content_hash: What exactly was checked.
        facts: Facts that the importer recorded about the log.
        tables: Rows and quarantine per table.
        days: Days with rows, missing and thin days.
        timing: Late, unfinished, unordered and overrunning requests.
        capacities: One line per resource whose capacity is known.
        unknown_nodes: Nodes that requests ran on and that are not in the inventory.
        capabilities: The capability matrix.
        warnings: Limits on what figures of this archive mean; the rows are kept.
        problems: Why the archive is not usable; empty if it is.
        doubts: What makes figures of a queue doubtful: upper floors say so (`schedtwin check`), a sentence each.
    """

    archive: str
    content_hash: str
    facts: Mapping[str, Any]
    tables: Mapping[str, TableCounts]
    days: LogDays
    timing: Timing
    capacities: tuple[CapacityLine, ...]
    unknown_nodes: tuple[str, ...]
    capabilities: tuple[Capability, ...]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]
    doubts: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether a twin can be fitted to the archive."""
        return not self.problems

    @property
    def num_duplicates(self) -> int:
        """Rows in quarantine because their key occurred before."""
        return sum(table.rules.get("duplicate_key", 0) for table in self.tables.values())

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        tables = {
            name: {"rows": table.rows, "quarantined": table.quarantined, "rules": dict(table.rules)}
            | {"superseded": dict(table.superseded)}
            for name, table in self.tables.items()
        }
        return {
            "archive": self.archive,
            "content_hash": self.content_hash,
            "usable": self.usable,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "doubts": list(self.doubts),
            "facts": dict(self.facts),
            "tables": tables,
            "duplicates": self.num_duplicates,
            "days": _days_json(self.days),
            "timing": asdict(self.timing),
            "capacities": [asdict(line) for line in self.capacities],
            "unknown_nodes": list(self.unknown_nodes),
            "capabilities": {line.name: asdict(line) for line in self.capabilities},
        }


def in_digits(value: float) -> str:
    """Cores, GiB or GPUs in five digits, and all digits before the point."""
    return f"{value:,.0f}" if value >= 1e5 else f"{value:,.5g}"


def _days_json(days: LogDays) -> dict[str, Any]:
    rows = {day.isoformat(): num_rows for day, num_rows in days.rows.items()}
    return {
        "first": min(rows, default=None),
        "last": max(rows, default=None),
        "num_days": len(rows),
        "num_missing": len(days.missing),
        "missing": [day.isoformat() for day in days.missing[:1000]],
        "thin": [day.isoformat() for day in days.thin],
        "dense": None if days.dense is None else [day.isoformat() for day in days.dense],
        "num_dense_days": days.num_dense_days,
        "training_days_by_shift": {name: days.training_days(shift) for name, shift in SHIFTS_DAYS.items()},
        "rows": rows,
    }
