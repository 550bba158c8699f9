"""One line of any system's log as a row of `requests`, by a mapping (`logs_schema.formats.request_mapping`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from logs_schema.casting import LIST_SEPARATOR
from logs_schema.columns import LABELS
from logs_schema.formats.fields import count, duration, number
from logs_schema.formats.instant_units import LOOKS_LIKE_EPOCH_S
from logs_schema.formats.json_paths import entries_at, found_at, text_of
from logs_schema.formats.reading import BadRow, Row
from logs_schema.formats.request_mapping import NODE_COLUMNS, WAIT, MappedColumn, RequestMapping
from logs_schema.formats.request_values import (
    AMOUNT_UNITS,
    BINARY_QUANTITY,
    CLOCK,
    EXEC_HOST,
    HOSTLIST,
    LIST,
    QUANTITIES,
    Instant,
    InstantReading,
    clock_s,
    exec_host,
    hostlist,
    quantity,
    written_list,
)
from logs_schema.tables import UNFINISHED

SITE = "cluster"
GIVEN_UP = ("killed", "dropped", "rejected")
NO_MATCH = "no_match"
"""Rule broken by a text that is no amount and does not match the mapping's pattern."""
_AFTER = {"decided": ("arrival",), "start": ("arrival",), "finish": ("start", "arrival")}
"""Instant -> those that it does not lie before, of which the first that is known counts."""
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def request_row(
    mapping: RequestMapping, fields: Mapping[str, Any], instants: InstantReading, name: str, pool: str | None
) -> Row:
    """One line as a row of `requests`, with the same columns for every line of a log.

    Args:
        mapping: Where the columns are.
        fields: The line by the log's columns.
        instants: How instants are written.
        name: Identity of the request where the mapping has none.
        pool: Node that whatever started ran on, None where the log names nodes.

    Where requests arrive long after 1970, an instant at its very beginning is the zero of a clock: nothing is known.

    Raises:
        BadRow: A field cannot be read.
    """
    row: dict[str, Any] = {"request_id": name, "arrival": None, "site": SITE, "status": "unknown"}
    row |= {column: _value(one, fields, mapping, instants) for column, one in mapping.columns.items()}
    row["status"] = row["status"] or "unknown"
    if row["status"] == "running":  # how long until now, or of a pod the end of one container
        row |= {name: None for name in ("finish", "run_s") if name in row}
    for later in ("arrival", "decided", "start", "finish"):
        if isinstance(row.get(later), Instant):
            known_s = (row[name] for name in _AFTER.get(later, ()) if row.get(name) is not None)
            row[later] = row[later].not_before(next(known_s, None))
            if row[later] == 0.0 and (row["arrival"] or 0.0) > LOOKS_LIKE_EPOCH_S:
                row[later] = None
    _derive(row, mapping)
    for column, per in [(key, value) for key, value in row.items() if isinstance(value, tuple)]:
        shares = row.get("cpu_cores" if per[1] == "c" else "num_nodes") if per[1] else 1.0
        row[column] = None if shares is None else per[0] * shares
    if pool is not None:
        row["ran_node"] = None if row.get("start") is None else pool
    return row


def _derive(row: dict[str, Any], mapping: RequestMapping) -> None:
    """Start, finish and arrival where the log, or a line of what has ended, has waits and run times in their place.

    A request of no run time that is not said to be completed never started: its finish is when it was given up; but
    where requests never wait, only one that is said to be given up. So it is of one that was killed as it started and
    ran on no node that is named, as old versions of Slurm write it.
    """
    wait_s = row.pop(WAIT, None)
    if WAIT in mapping.columns and "start" not in row and "arrival" in mapping.columns:
        arrival_s = row["arrival"]
        row["start"] = None if wait_s is None or arrival_s is None else arrival_s + wait_s
    began_s = row.get("start")
    if "start" not in row and "run_s" in row and "finish" in row:
        finish_s, run_s = row["finish"], row["run_s"]
        began_s = None if run_s is None or finish_s is None else finish_s - run_s
        ran = row["status"] == "completed" or (mapping.says_waits and row["status"] not in GIVEN_UP)
        row["start"] = began_s if run_s or ran else None
    if "arrival" not in mapping.columns:
        row["arrival"] = None if began_s is None or wait_s is None else began_s - wait_s
    start_s = row.get("start")
    if "run_s" in row:
        is_derived = "finish" not in row or (row["finish"] is None and row["status"] not in UNFINISHED)
        if is_derived and "start" in row:
            row["finish"] = None if start_s is None or row["run_s"] is None else start_s + row["run_s"]
        if start_s is not None and row.get("finish") is not None:
            row["run_s"] = None
    if (
        row["status"] == "killed"
        and not row.get("ran_node")
        and start_s is not None
        and start_s == row.get("finish")
    ):
        row["start"] = None


def _value(
    one: MappedColumn, fields: Mapping[str, Any], mapping: RequestMapping, instants: InstantReading
) -> Any:
    """What a line says of a column; a pair of amount and what it is for, where it is for every core or node."""
    if one.constant is not None:
        return _meaning(one, str(one.constant), instants)
    if one.combine:
        return _times(one, _counted(one, fields, mapping), fields, mapping)
    found = [found_at(fields, source) for source in one.sources]
    if isinstance(found[0], list):
        # Nodes are all taken, amounts added up; the latest end counts, else the first text.
        parts = [text_of(part) for part in found[0] if not mapping.is_nothing(text_of(part))]
        if one.column in NODE_COLUMNS:
            return _nodes(one, [meant for part in parts if (meant := meant_by(one, part))])
        values = [value for part in parts if (value := _written(one, part, instants)) is not None]
        if values and all(isinstance(value, int | float) for value in values):
            return sum(values)
        # For every core or node
        if values and all(type(value) is tuple and value[1] == values[0][1] for value in values):
            return sum(amount for amount, _ in values), values[0][1]
        if values and one.column == "finish":
            return max(values)
        return values[0] if values else None
    texts = [text_of(part) for part in found]
    if any(mapping.is_nothing(text) for text in texts):
        return _meaning(one, one.other or "", instants)
    return _times(one, _written(one, "/".join(texts), instants), fields, mapping)


def _counted(one: MappedColumn, fields: Mapping[str, Any], mapping: RequestMapping) -> Any:
    """How many entries there are that say something, None for none."""
    found = entries_at(fields, one.sources[0])
    number = sum(isinstance(part, dict) or not mapping.is_nothing(text_of(part)) for part in found)
    if not number:
        return None
    return count(number * one.scale, one.column) if one.is_count else number * one.scale


def _times(one: MappedColumn, value: Any, fields: Mapping[str, Any], mapping: RequestMapping) -> Any:
    """An amount times the number in another column, where the mapping names one; None where that says nothing."""
    if not one.times or value is None:
        return value
    text = text_of(found_at(fields, one.times))
    if mapping.is_nothing(text):
        return None
    if (plain := one.marks.plain(text)) is None:
        raise BadRow(f"not_a_number:{one.column}")
    factor = number(plain, one.column)
    if isinstance(value, tuple):
        return value[0] * factor, value[1]
    return count(value * factor, one.column) if one.is_count else value * factor


def meant_by(one: MappedColumn, text: str) -> str:
    """What a text stands for: by the pattern, then by the values; empty for nothing."""
    match = one.matcher.fullmatch(text) if one.pattern else None
    text = (match.group(1) or "") if match else text
    if one.values is None:
        return text if match or one.other is None else one.other
    for part in (text, *text.split()[:1], text.removesuffix(".0")):
        if part in one.values:
            return one.values[part]
    return text if one.other is None else one.other


def _written(one: MappedColumn, text: str, instants: InstantReading) -> Any:
    """The value of a column that `text` writes."""
    try:
        meant = meant_by(one, text)
        if one.is_amount and one.unit != CLOCK and meant not in one.meanings:
            if (plain := one.marks.plain(meant)) is None:
                raise BadRow(f"not_a_number:{one.column}")
            meant = plain
        return _meaning(one, meant, instants)
    except BadRow as broken:
        if one.is_amount and one.pattern and not one.matcher.fullmatch(text):
            raise BadRow(f"{NO_MATCH}:{one.column}") from broken
        raise


def _meaning(one: MappedColumn, meant: str, instants: InstantReading) -> Any:
    """The value of a column that a text writes once pattern and values have said what it stands for."""
    if not meant:
        return None
    if one.is_instant:
        return instants.read(meant, one.column, one.unit or "s", one.scale)
    if one.column in NODE_COLUMNS:
        return _nodes(one, [meant])
    if one.is_amount:
        return _amount(one, meant)
    if pa.types.is_boolean(one.type):
        if meant.casefold() not in _TRUTHS:
            raise BadRow(f"not_a_boolean:{one.column}")
        return _TRUTHS[meant.casefold()]
    return meant


def _nodes(one: MappedColumn, texts: Sequence[str]) -> Any:
    is_list = one.type == LABELS
    names: list[str] = []
    for text in texts:
        if one.unit == HOSTLIST:
            names += hostlist(text, one.column)
        elif one.unit == EXEC_HOST:
            names += exec_host(text, one.column)
        elif one.unit == LIST:
            names += written_list(text, one.column)
        else:
            names += [name.strip() for name in text.split(LIST_SEPARATOR)] if is_list else [text]
    if not is_list:
        return names[0] if names else None
    return None if not names or (one.column == "ran_nodes" and len(names) == 1) else names


def _amount(one: MappedColumn, text: str) -> Any:
    """A duration, an amount or a count; a pair where it is for every core or node."""
    if one.unit in QUANTITIES:
        value, per = quantity(text, one.column, one.column_unit, is_binary=one.unit == BINARY_QUANTITY)
        if one.column_unit == "s":
            return duration(value * one.scale, one.column)
        return (value * one.scale, per) if per else value * one.scale
    if one.unit == CLOCK:
        value = clock_s(text, one.column)
    else:
        factor = AMOUNT_UNITS[one.column_unit][one.unit] if one.unit else 1.0
        value = number(text, one.column)
        value = value * factor if factor >= 1.0 else value / (1.0 / factor)  # 18708 millicores are 18.708
    value *= one.scale
    if one.is_count:
        return count(value, one.column)
    return duration(value, one.column) if one.column_unit == "s" else value
