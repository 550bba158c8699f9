"""Metrics in CSV files, with a mapping (TOML) beside them: a line an interval, or an interval and deployment.

Readings of the format:

* The mapping names the column of the instant, the deployment (or the column that names it) and every metric's column.
* A field may hold numbers of several deployments at once, as a mapping `{name: number, ...}`: `spread` in the mapping.
* Empty fields are unknown. Rows are made of lines and may share them, so they stand for none: lines count as such.
"""

import ast
import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import FormatError, first
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.files import find_files, numbered_lines
from logs_schema.formats.mapping import MappedMetric, MetricsMapping
from logs_schema.formats.metric_series import (
    NOT_A_NUMBER,
    OFF_GRID,
    Samples,
    deployment_named,
    interval_of,
    shift_of,
)
from logs_schema.formats.prometheus import mapping_of
from logs_schema.formats.reading import NOTHING_GIVEN, Chunk, Item, Lines, ReadingOptions, Reject, tabulate
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY

NAME = "metrics_csv"
DESCRIPTION = "metrics of deployments in CSV files (plain or .gz), with a mapping (TOML)"
EXPECTED = "a header with the columns that the mapping (.toml) names"


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The CSV files."""
    return [path for path in find_files(paths, (".csv",)) if path.suffix != ".toml"]


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The mapping, which the archive depends on as well."""
    return [mapping_of(paths).path]


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads all lines, then files their rows."""
    mapping, parsed, lines = mapping_of(paths), [], []
    for path in data_files(paths):
        count = num_blank = num_rejected = 0
        header: list[str] = []
        for number, line in numbered_lines(path):
            count = number
            if not line.strip():
                num_blank += 1
                continue
            fields = next(csv.reader([line]))
            if not header:
                header = fields
                _refuse_missing(mapping, header, path)
                continue
            at = _instant(dict(zip(header, fields, strict=False)).get(mapping.time_column, ""))
            if at is None or len(fields) != len(header):
                num_rejected += 1
                yield Reject(DEPLOYMENT_SAMPLES.name, NOT_A_NUMBER, path.name, number, line)
                continue
            parsed.append((at, dict(zip(header, fields, strict=True)), path.name, number, line))
        lines.append((path.name, count, num_blank, num_rejected))
    instants = np.asarray([one[0] for one in parsed])
    interval_s = mapping.interval_s or interval_of(instants, str(mapping.path))
    shift_s = 0.0 if mapping.consecutive else shift_of(instants, interval_s)
    samples, num_off = Samples(interval_s, shift_s), dict.fromkeys((one[0] for one in lines), 0)
    begin_s = round(parsed[0][0] / interval_s) * interval_s if parsed else 0.0
    for row, (instant_s, fields_of, name, number, line) in enumerate(parsed):
        at = begin_s + row * interval_s if mapping.consecutive else instant_s
        if samples.off_grid(at):
            num_off[name] += 1
            yield Reject(DEPLOYMENT_SAMPLES.name, OFF_GRID, name, number, line)
            continue
        for mapped in mapping.metrics:
            _add(samples, mapping, mapped, at, fields_of)
    if rows := samples.as_rows():
        table = tabulate(DEPLOYMENT_SAMPLES, rows)
        yield Chunk(DEPLOYMENT_SAMPLES.name, table, mapping.path.name, 1, None, derived=True)
    for name, count, num_blank, num_rejected in lines:
        yield Lines(name, count, num_blank, count - num_blank - num_rejected - num_off[name])


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """That instants are dates."""
    return describe(NAME, clock=ABSOLUTE_CLOCK)


def _add(
    samples: Samples, mapping: MetricsMapping, mapped: MappedMetric, at: float, fields_of: dict[str, str]
) -> None:
    text = fields_of[mapped.source]
    if not text.strip():
        return
    if mapped.spread:
        for name, number in _spread(text, mapping, mapped).items():
            samples.add(mapped.metric, deployment_named(str(name), mapping.gateway), [at], [float(number)])
        return
    column = mapping.deployment_column
    name = GATEWAY if mapped.of_gateway else fields_of[column] if column else str(mapping.deployment)
    try:
        samples.add(
            mapped.metric,
            deployment_named(name, mapping.gateway),
            [at],
            [float(text) * _times(mapped, fields_of)],
        )
    except ValueError as error:
        raise FormatError(
            f"{mapped.source} holds {text!r}", where=str(mapping.path), allowed="numbers, or nothing",
        ) from error  # fmt: skip


def _times(mapped: MappedMetric, fields_of: dict[str, str]) -> float:
    return float(fields_of[mapped.times] or "nan") if mapped.times else 1.0


def _spread(text: str, mapping: MetricsMapping, mapped: MappedMetric) -> dict[str, float]:
    try:
        found = ast.literal_eval(text)
        return {str(name): float(number) for name, number in found.items()}
    except (ValueError, SyntaxError, AttributeError, TypeError) as error:
        raise FormatError(
            f"{mapped.source} holds {text[:60]!r}",
            where=str(mapping.path),
            allowed="{deployment: number, ...}",
        ) from error


def _refuse_missing(mapping: MetricsMapping, header: list[str], path: Path) -> None:
    needed = [mapping.time_column, *(one.source for one in mapping.metrics)]
    needed += [one.times for one in mapping.metrics if one.times]
    needed += [mapping.deployment_column] if mapping.deployment_column else []
    if missing := [name for name in needed if name not in header]:
        raise FormatError(
            f"the file has no column {first(missing)}", where=f"{path}, line 1", allowed=", ".join(header),
            advice=f"mend the mapping {mapping.path}",
        )  # fmt: skip
    counted = [one.source for one in mapping.metrics if one.metric.counter]
    if counted:
        raise FormatError(
            f"{first(counted)} is a counter, and lines of CSV are taken one by one", where=str(mapping.path),
            allowed="rates and gauges", advice="take differences first, or import answers of Prometheus",
        )  # fmt: skip
    named = mapping.deployment or mapping.deployment_column
    if not named and not all(one.of_gateway or one.spread for one in mapping.metrics):
        raise FormatError(
            "the mapping names no deployment",
            where=str(mapping.path),
            allowed="deployment or deployment_column",
        )


def _instant(text: str) -> float | None:
    """Seconds since 1970 of a number or an ISO 8601 instant; None for anything else."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant).timestamp()
