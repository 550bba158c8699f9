"""The held-out days of a certificate, and the real day that each of them is compared with for the noise floor."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from evaluation.certify.config import CertifyConfig
from evaluation.comparison.shifts import TestDays, refuse_overlap
from evaluation.comparison.training_days import days_of
from logs_schema import Archive
from logs_schema.calendar import DAY, DAY_S
from logs_schema.errors import ConfigError, first
from twin.placement.columns import decided_node
from twin.placement.encoding import Encoding, day_start_s

MAX_DAYS = 28
_INSTANTS = ("arrival", "start", "finish")
_VOCABULARIES = {"service": "services", "scenario": "scenarios", "queue": "queues", "site": "sites"}
DECIDED = "decided node"
_TREATED = {DECIDED: "left out", "site": "taken as the first site"}


@dataclass(frozen=True)
class HeldOutDays:
    """Held-out days and their partners.

    Attributes:
        days: Held-out days, ascending.
        partners: For each of them another real day, not held out, of the same kind (weekday or weekend) if possible.
        notes: What could not be satisfied.
    """

    days: tuple[dt.date, ...]
    partners: tuple[dt.date, ...]
    notes: tuple[str, ...]


def end_of_log_s(archive: Archive) -> float:
    """The instant from which the log knows nothing: midnight after its last day, or where it was cut off before.

    It was cut off where requests of the last day began and never ended: at the latest instant that it tells of.
    Outcomes later than that are missing in the log, and count as unknown in what is compared with it.
    """
    last = days_of(archive, "requests")[-1]
    midnight_s = day_start_s(last) + DAY_S
    batches = archive.scan("requests", days=[last], columns=["start", "finish"])
    if not any(
        pc.any(pc.and_(pc.is_valid(one["start"]), pc.is_null(one["finish"]))).as_py() for one in batches
    ):
        return midnight_s
    groups = archive.row_groups("requests")
    instants = [group.latest[name] for group in groups for name in _INSTANTS if name in group.latest]
    return min(midnight_s, max((instant.timestamp() for instant in instants), default=midnight_s))


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
    archive: Archive, train_days: Sequence[dt.date], named: Sequence[dt.date] | None, config: CertifyConfig
) -> HeldOutDays:
    """Held-out days with partners for the noise floor.

    Args:
        archive: Archive of the log.
        train_days: Days the twin was fitted on.
        named: The held-out days; the first days with requests after training if None.
        config: Number of days where none are named.

    Raises:
        ConfigError: There are no such days, the log holds no requests on them, or they are not after training.
    """
    present, known = archive.days("requests"), days_of(archive, "requests")
    last = max(train_days)
    if named is None:
        days = _first_days(archive, [day for day in known if day > last], config)
        if not days:
            raise ConfigError(
                "the log holds no day after training",
                where=f"training ends on {last}, the log on {known[-1] if known else 'no day'}",
                advice="import later days"
                + (
                    ", or fit the twin on fewer (--config, [days] last_day)"
                    if len(set(train_days)) > 1
                    else ""
                ),
            )
    else:
        refuse_overlap(train_days, [TestDays(0, tuple(named), None)])
        days = [day for day in named if day in set(present)]
        if missing := [day for day in named if day not in set(present)]:
            raise ConfigError(
                "the log holds no requests on requested days",
                where=first(missing),
                allowed=f"days between {last + DAY} and {present[-1] if present else last}",
            )
    partners, notes = _partners(days, [day for day in known if day not in set(days)], train_days)
    return HeldOutDays(tuple(days), partners, notes)


def _first_days(archive: Archive, days: Sequence[dt.date], config: CertifyConfig) -> list[dt.date]:
    """The first `max_days` days, and more as long as they hold too few requests."""
    chosen: list[dt.date] = []
    num_rows = 0
    for day in days[:MAX_DAYS]:
        if len(chosen) >= config.max_days and num_rows >= config.enough_rows:
            break
        chosen.append(day)
        num_rows += archive.num_rows("requests", day)
    return chosen


def _partners(
    days: Sequence[dt.date], others: Sequence[dt.date], train_days: Sequence[dt.date]
) -> tuple[tuple[dt.date, ...], tuple[str, ...]]:
    """For every held-out day the nearest other real day of its kind, each used once as long as there are enough.

    Held-out days are no partners: both sides of the noise floor would hold the same requests.
    """
    partners: list[dt.date] = []
    notes = []
    for day in days:
        free = [one for one in others if one not in partners]
        alike = [one for one in free if _weekend(one) == _weekend(day)]
        choices = alike or free or list(others)
        if not alike:
            kind = "weekend day" if _weekend(day) else "weekday"
            notes.append(f"no further {kind} beside the held-out ones")
        distance = {one: (abs((one - day).days), one in train_days) for one in choices}
        partners.append(min(distance, key=lambda one: distance[one]))
    if notes:
        notes.append("so the noise floor compares days of different kinds, or uses a day twice")
    return tuple(partners), tuple(dict.fromkeys(notes))


def _weekend(day: dt.date) -> bool:
    return day.weekday() >= 5


def unseen_labels(archive: Archive, encoding: Encoding, days: Sequence[dt.date]) -> tuple[str, ...]:
    """Notes on labels of these days that are not in the training data (or too rare to be kept)."""
    nodes = sorted({*encoding.node_of_name, *encoding.cluster.node_names})
    known = {name: getattr(encoding.cluster, of) for name, of in _VOCABULARIES.items()} | {DECIDED: nodes}
    known_labels = {name: pa.array(labels, pa.string()) for name, labels in known.items()}
    strange: dict[str, Counter[str]] = {name: Counter() for name in known}
    for batch in archive.scan("requests", days=days, columns=[*_VOCABULARIES, "offered_node", "ran_node"]):
        rows = pa.Table.from_batches([batch])
        columns = {name: rows[name] for name in _VOCABULARIES} | {DECIDED: decided_node(rows)}
        for name, column in columns.items():
            labels = pc.drop_null(pc.cast(column, pa.string()))
            unseen = labels.filter(pc.invert(pc.is_in(labels, value_set=known_labels[name])))
            strange[name].update(unseen.to_pylist())
    total = archive.num_rows_on("requests", days)
    return tuple(
        f"{name}: {counts.total():,} of {total:,} requests have a label that the twin does not know, not seen "
        "on the training days or too rare there, "
        f"{_TREATED.get(name, 'taken as unknown')} ({first(sorted(counts))})"
        for name, counts in strange.items()
        if counts
    )
