"""The days that a certificate looks at, and which real day each of them is held against."""

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from evaluation.shifts import TestDays, refuse_overlap
from logs_schema import Archive
from logs_schema.errors import ConfigError, first
from twin.placement.encoding import Encoding

DAY = dt.timedelta(days=1)
_VOCABULARIES = {"service": "services", "scenario": "scenarios", "queue": "queues", "site": "sites"}
_TREATED = {"offered_node": "left out", "site": "taken as the first site"}


@dataclass(frozen=True)
class HeldOut:
    """Held-out days and their partners.

    Attributes:
        days: Held-out days, ascending.
        partners: For each of them another real day, of the same kind (weekday or weekend) where there is one.
        notes: What had to be done without.
    """

    days: tuple[dt.date, ...]
    partners: tuple[dt.date, ...]
    notes: tuple[str, ...]


def parse_days(text: str) -> tuple[dt.date, ...]:
    """The days of a list such as "2024-01-05,2024-01-08..2024-01-10", ascending and distinct.

    Raises:
        ConfigError: An entry is neither a day nor a range of days.
    """
    days: set[dt.date] = set()
    for entry in (part.strip() for part in text.split(",")):
        match = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?", entry)
        try:
            begin = dt.date.fromisoformat(match[1]) if match else None
            end = dt.date.fromisoformat(match[2]) if match and match[2] else begin
        except ValueError:
            begin = end = None
        if begin is None or end is None or end < begin:
            raise ConfigError(
                "not a list of days",
                where=repr(entry),
                allowed="for example 2024-01-05,2024-01-08..2024-01-10",
            )
        days |= {begin + DAY * offset for offset in range((end - begin).days + 1)}
    return tuple(sorted(days))


def hold_out(
    archive: Archive, train_days: Sequence[dt.date], asked: Sequence[dt.date] | None, *, max_days: int
) -> HeldOut:
    """Held-out days with partners for the noise floor.

    Args:
        archive: Of the log.
        train_days: Days the twin was fitted on.
        asked: The days to look at; the first `max_days` days with requests after training if None.
        max_days: See `asked`.

    Raises:
        ConfigError: There are no such days, the log holds no requests on them, or they are not after training.
    """
    present = archive.days("requests")
    last = max(train_days)
    if asked is None:
        days = [day for day in present if day > last][:max_days]
        if not days:
            raise ConfigError(
                "the log holds no day after training",
                where=f"training ends on {last}, the log on {present[-1] if present else 'no day'}",
                advice="fit the twin on fewer days (--config, [days] last_day)",
            )
    else:
        refuse_overlap(train_days, [TestDays(0, tuple(asked), None)])
        days = [day for day in asked if day in set(present)]
        if missing := [day for day in asked if day not in set(present)]:
            raise ConfigError(
                "the log holds no requests on days asked for",
                where=first(missing),
                allowed=f"days between {last + DAY} and {present[-1] if present else last}",
            )
    partners, notes = zip(*(_partner(day, days, train_days) for day in days), strict=True)
    return HeldOut(tuple(days), partners, tuple(dict.fromkeys(note for note in notes if note)))


def _partner(day: dt.date, days: Sequence[dt.date], train_days: Sequence[dt.date]) -> tuple[dt.date, str]:
    """Another real day: of the same kind if possible, held out if possible, the next one in turn."""

    def next_of(choices: Iterable[dt.date]) -> dt.date | None:
        others = sorted(set(choices) - {day})
        return next((one for one in others if one > day), others[0] if others else None)

    alike = next_of(one for one in days if _weekend(one) == _weekend(day))
    if alike is not None:
        return alike, ""
    trained = [one for one in train_days if _weekend(one) == _weekend(day)]
    if trained:
        return max(trained), (
            f"{day} is the only held-out day of its kind: the noise floor takes {max(trained)}, a training day"
        )
    other = next_of(days) or max(train_days)
    return (
        other,
        f"the log has no second {'weekend day' if _weekend(day) else 'weekday'}: {day} is held against {other}",
    )


def _weekend(day: dt.date) -> bool:
    return day.weekday() >= 5


def unseen_labels(archive: Archive, encoding: Encoding, days: Sequence[dt.date]) -> tuple[str, ...]:
    """Notes on labels of these days that training never saw (or too rarely to keep)."""
    columns = [*_VOCABULARIES, "offered_node"]
    rows = archive.read("requests", days=list(days), columns=columns)
    notes = []
    for name in columns:
        known = (
            sorted({*encoding.node_of_name, *encoding.cluster.node_names})
            if name == "offered_node"
            else getattr(encoding.cluster, _VOCABULARIES[name])
        )
        column = pc.cast(rows[name], pa.string())
        strange = pc.and_(
            pc.is_valid(column), pc.invert(pc.is_in(column, value_set=pa.array(known, pa.string())))
        )
        count = pc.sum(strange).as_py() or 0
        if count:
            labels = sorted(set(column.filter(strange).to_pylist()))
            notes.append(
                f"{name}: {count:,} of {len(rows):,} requests carry a label that training does not know, "
                f"{_TREATED.get(name, 'taken as unknown')} ({first(labels)})"
            )
    return tuple(notes)
