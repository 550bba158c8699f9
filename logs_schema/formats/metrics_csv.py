"""Metrics in CSV files or JSON lines, with a mapping (TOML) beside them: a line an interval, or an interval and
deployment.

Readings of the format:

* The mapping names the column of the instant, the deployment (or the column that names it) and every metric's column.
* A field may hold numbers of several deployments at once, as a mapping `{name: number, ...}`: `spread` in the mapping.
* Of JSON lines a column is a path, `load.rate`; where it has a star, `services.*.p95_ms`, the star stands for the names
  of the deployments. So it does in names of columns of CSV: `* p95` reads a column a deployment, as Grafana exports
  series that are joined by time.
* Metrics may be in files of their own (`file`), or in lines of their own (`when`), where one column names what another
  one measures.
* Lines of several pods of one deployment are one number where the mapping says how, `combine`; so are several lines of
  one in an interval with `resample`.
* Empty fields and texts such as `None` and `N/A` are unknown. A line that holds no number where one is meant is
  rejected, and so is one that stands there twice, as where exports overlap; two different lines of one instant and
  deployment are an error of the mapping.
* Instants that name no zone are of the mapping's, by default UTC. Where clocks go back, one that seems to lie before
  the line before it of its series is of the second hour; so is one that does not lie after it, where instants fall.
* Rows are made of lines and may share them, so they stand for none: lines count as such.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.checks import DUPLICATE_KEY
from logs_schema.errors import FormatError, first
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.fields import csv_names
from logs_schema.formats.files import find_files, head
from logs_schema.formats.instant_units import likely_unit, unit_notice
from logs_schema.formats.json_documents import JSON_LINES
from logs_schema.formats.mapping import MappedMetric, MetricsMapping, chunks_of, mapping_of, without_gateway
from logs_schema.formats.metric_lines import (
    SEPARATOR_LINE,
    MetricLine,
    NoDeploymentError,
    NotANumberError,
    amount_of,
    at,
    fields_of,
    is_unknown,
    lines_of,
    names_of,
    number_of,
    time_in,
)
from logs_schema.formats.metric_series import (
    OFF_GRID,
    Samples,
    deployment_named,
    interval_of,
    placed,
    refuse_uneven,
    shift_of,
)
from logs_schema.formats.reading import NOTHING_GIVEN, Item, Lines, ReadingOptions, Reject
from logs_schema.formats.resampling import resampled
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY

NAME = "metrics_csv"
DESCRIPTION = "metrics of deployments in CSV files or JSON lines (plain or .gz), with a mapping (TOML)"
EXPECTED = "a header with the columns that the mapping (.toml) names, or JSON lines (.jsonl) with them"
NUM_LOOKED_AT, MOST_DRIFT = 2000, 0.05
"""Lines whose instants are held against the intervals they become, and the share of time that these may be off."""


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The CSV files and JSON lines that any of the mapping's metrics is in; FormatError where one is in none."""
    mapping = mapping_of(paths)
    files = [path for path in find_files(paths, (".csv", ".jsonl")) if path.suffix != ".toml"]
    if absent := [one.file for one in mapping.measured if not any(one.is_in(path.name) for path in files)]:
        raise FormatError(
            f"the mapping names files that are not here: {first(absent)}",
            where=str(mapping.path),
            allowed=first([path.name for path in files], num_shown=20) or EXPECTED,
            advice="name the files, or leave their metrics out of the mapping",
        )
    return [path for path in files if mapping.of_file(path.name)]


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The mapping, which the archive depends on as well."""
    return [mapping_of(paths).path]


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads the instants of all lines, then the lines once more for their rows."""
    mapping, files = mapping_of(paths), data_files(paths)
    _refuse_unfit(mapping)
    every = (item for path in files for item in lines_of(path, path.name, mapping, [0, 0, 0]))
    instants = np.fromiter((one.instant_s for one in every if isinstance(one, MetricLine)), float)
    interval_s = mapping.interval_s or (interval_of([instants], str(mapping.path)) if len(instants) else 1.0)
    if not (len(instants) and likely_unit(float(instants[0]), "s")):
        advice = "name interval_s in the mapping, such as {}; with consecutive = true instants may be others"
        refuse_uneven(interval_s, str(mapping.path), advice)
    on_grid = mapping.consecutive or mapping.resample
    samples = Samples(interval_s, 0.0 if on_grid else shift_of(instants, interval_s))
    places = _places(mapping, instants, interval_s) if mapping.consecutive else {}
    taken: set[int] = set()  # hashes: a month of lines is more than memory takes
    met: set[tuple[MappedMetric, str]] = set()
    gathered: dict[tuple[MappedMetric, str, str], tuple[array[float], array[float]]] = {}
    lines: list[Lines] = []
    for path in files:
        name, counts = given.name_of(path), [0, 0, 0]  # lines, blank, rejected
        metrics = mapping.of_file(path.name)
        for one in lines_of(path, name, mapping, counts):
            if isinstance(one, Reject):
                yield one
                continue
            at = places.get(one.instant_s, one.instant_s)
            is_off, mark = not mapping.resample and samples.off_grid(at), hash((metrics, at, one.line))
            numbers = OFF_GRID if is_off else _numbers_of(mapping, metrics, one)
            if isinstance(numbers, str) or mark in taken:
                rule = numbers if isinstance(numbers, str) else DUPLICATE_KEY
                counts[2] += 1
                yield Reject(DEPLOYMENT_SAMPLES.name, rule, name, one.number, one.line)
                continue
            taken.add(mark)
            for mapped, deployment, number, series in numbers:
                where = f"{name}, line {one.number}, {mapped.source}"
                met.add((mapped, deployment))
                if mapping.resample:
                    of_series = gathered.setdefault((mapped, deployment, series), (array("d"), array("d")))
                    for values, value in zip(of_series, (at, number), strict=True):
                        values.append(value)
                else:
                    samples.add_one(mapped.metric, deployment, at, number, where, series)
        lines.append(Lines(name, counts[0], counts[1], counts[0] - counts[1] - counts[2]))
    for (mapped, deployment, series), of_series in gathered.items():
        times_s, merged, _ = resampled(mapped.metric, deployment, *of_series, interval_s)
        samples.add(mapped.metric, deployment, times_s, merged, series)
    yield from chunks_of(samples, mapping, met)
    yield from lines


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """That instants are dates, and what is doubtful about them."""
    mapping = mapping_of(paths)
    notices = [
        notice
        for path in data_files(paths)[:1]
        if (notice := _unit_notice(path, mapping) or _drift_notice(path, mapping))
    ]
    absent = [name for path in data_files(paths)[:1] for name in _absent_paths(path, mapping)]
    found: dict[str, Any] = {"not_found": absent} if absent else {}
    return describe(NAME, clock=ABSOLUTE_CLOCK, notices=[*notices, *without_gateway(mapping)], **found)


def _absent_paths(path: Path, mapping: MetricsMapping) -> list[str]:
    """Paths at which none of the first lines of JSON has anything: spelt wrongly, or of something rare."""
    parsed = [fields_of(line, (), mapping) for line in head(path)] if path.name.endswith(JSON_LINES) else []
    lines = [fields for fields in parsed if fields]
    sources = [one.source for one in mapping.of_file(path.name)] if lines else []
    return [
        name for name in sources if not any(at(line, name.split(".")) not in (None, {}) for line in lines)
    ]


def _places(mapping: MetricsMapping, instants: np.ndarray, interval_s: float) -> dict[float, float]:
    """Instant -> its place where intervals follow each other; lines of several deployments need not be at once."""
    return placed(instants, interval_s, 0.5 * interval_s if mapping.deployment_column else 0.0)


def _drift_notice(path: Path, mapping: MetricsMapping) -> str:
    """That the intervals of a file's first lines take far more or less time than they did, in words; else empty."""
    if not mapping.consecutive:
        return ""
    lines = islice(lines_of(path, path.name, mapping, [0, 0, 0]), NUM_LOOKED_AT)
    instants = np.unique([one.instant_s for one in lines if isinstance(one, MetricLine)])
    if len(instants) < 2:
        return ""
    interval_s = mapping.interval_s or interval_of([instants], str(mapping.path))
    places = _places(mapping, instants, interval_s)
    took_s, placed_s = instants[-1] - instants[0], places[instants[-1]] - places[instants[0]]
    if abs(placed_s - took_s) <= max(2.0 * interval_s, MOST_DRIFT * took_s):
        return ""
    return (
        f"{path.name}: the first {len(instants):,} lie {took_s / (len(instants) - 1):.3g} s apart on average, "
        f"and as intervals of {interval_s:g} s with gaps they take {placed_s / took_s:.0%} of that time: days and "
        "hours are not the log's, and some gaps are none; name the mean distance as interval_s in the mapping"
    )


def _unit_notice(path: Path, mapping: MetricsMapping) -> str:
    """That the first instant is a number of another unit, in words; empty where it is not."""
    lines = [line for line in head(path) if line.strip() and not SEPARATOR_LINE.fullmatch(line)]
    is_json = path.name.endswith(JSON_LINES)
    header = [] if is_json or not lines else csv_names(lines[0], mapping.separator)
    for line in [] if mapping.time_format else lines if is_json else lines[1:]:
        text = time_in(fields_of(line, header, mapping) or {}, mapping, is_json=is_json)
        if text:
            return unit_notice(text, mapping.time_unit, f"{path.name}, {mapping.time_column}", "time_unit")
    return ""


def _numbers_of(
    mapping: MetricsMapping, metrics: Sequence[MappedMetric], one: MetricLine
) -> list[tuple[MappedMetric, str, float, str]] | str:
    """What one line says: metrics, deployments, numbers, series; or the rule that it breaks."""
    try:
        return [said for mapped in metrics for said in _said(mapping, mapped, one)]
    except NotANumberError as broken:
        return broken.rule


def _said(
    mapping: MetricsMapping, mapped: MappedMetric, one: MetricLine
) -> Iterator[tuple[MappedMetric, str, float, str]]:
    """What one line says of one metric."""
    found = one.found(mapped.source)
    if is_unknown(found) or any(str(one.found(column)) != text for column, text in mapped.when.items()):
        return
    if mapped.spread or "*" in mapped.source:
        of_names = _spread(found, mapping, mapped, one)
    else:
        name = one.found(mapping.deployment_column) if mapping.deployment_column else mapping.deployment
        if mapping.deployment_column and is_unknown(name):
            raise NoDeploymentError
        of_names = {str(name): found}
    for field, value in of_names.items():
        name = mapping.deployment_of(str(field))
        if mapped.only and name != mapped.only:
            continue
        number = amount_of(mapped, value) * _beside(mapped, mapped.times, field, one)
        divisor = _beside(mapped, mapped.per, field, one)
        filed = GATEWAY if mapped.of_gateway else deployment_named(name, mapping.gateway)
        series = str(one.found(mapping.series_column) if mapping.series_column else field)
        yield mapped, filed, number / divisor if divisor else math.nan, series


def _beside(mapped: MappedMetric, source: str, field: str, one: MetricLine) -> float:
    """The number of another column that belongs to a field; 1 where no column is named."""
    if not source:
        return 1.0
    found = one.found(source)
    if isinstance(found, str) and found.lstrip().startswith("{"):
        found = names_of(found)
    return number_of(found.get(field) if isinstance(found, dict) else found, mapped.marks)


def _spread(found: Any, mapping: MetricsMapping, mapped: MappedMetric, one: MetricLine) -> dict[str, Any]:
    try:
        return dict((names_of(found) if isinstance(found, str) else found).items())
    except (AttributeError, TypeError, NotANumberError) as error:
        raise FormatError(
            f"{mapped.source} holds {str(found)[:60]!r}",
            where=f"{one.name}, line {one.number} (mapping {mapping.path})",
            allowed="{deployment: number, ...}",
        ) from error


def _refuse_unfit(mapping: MetricsMapping) -> None:
    """FormatError for a mapping that cannot be of lines."""
    counted = [one.source for one in mapping.measured if one.metric.counter]
    if counted:
        raise FormatError(
            f"{first(counted)} is a counter, and lines of CSV are taken one by one",
            where=str(mapping.path),
            allowed="rates and gauges",
            advice="take differences first, or import answers of Prometheus",
        )
    named = mapping.deployment or mapping.deployment_column
    if not named and not all(one.of_gateway or one.spread or "*" in one.source for one in mapping.measured):
        raise FormatError(
            "the mapping names no deployment",
            where=str(mapping.path),
            allowed="deployment or deployment_column",
        )
