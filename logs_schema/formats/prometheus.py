"""Answers of Prometheus to range queries (JSON), one file a metric, with a mapping (TOML) beside them.

    curl "$PROMETHEUS/api/v1/query_range?query=...&start=...&end=...&step=30s" > cpu.json

Readings of the format:

* Every file is one answer with a matrix; its metric is the one whose `source` is the file's name without `.json` (or
  `.json.gz`).
  Files that the mapping does not name are not read. Prometheus gives 11,000 samples of a series at most, at 30 s less
  than four days: longer ranges are asked for in parts, `cpu-1.json`, `cpu-2024-03-01.json`, or folders of answers.
  Parts of a series are joined, and where their ranges meet a sample counts once.
* The label that the mapping names identifies the deployment; series of the gateway need none. Several series of one,
  such as of its pods, are one number where the mapping says how, `combine`; each counter of them becomes a rate first.
* What two servers of Prometheus tell of one thing, alike but for the label `prometheus_replica`, is refused where it
  would be added up.
* Response times of a histogram are asked for as quantiles, `histogram_quantile(0.95, sum by (le) (rate(...)))`: its
  buckets (label `le`) are refused.
* A sample stands for the interval that begins at its instant, taken to the grid of whole intervals after midnight;
  with `resample` several that lie in an interval are one.
  NaN is no number and leaves the field empty; infinities are rejected. `rate(...[30s])` is of the time before the
  instant: ask for it as `rate(...[30s] offset -30s)`, or load and response times stand beside the grants of the
  interval after theirs.
* A counter has to be that of one process, or be asked for as a rate: `sum by (deployment) (rate(...[1m]))`. The sum of
  counters falls when a pod goes; such samples are rejected where they can be told from a reset.
* Rows are made of samples of several files, so they stand for no line; only samples that are rejected count as lines.
"""

import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logs_schema.casting import EARLIEST_S, LATEST_S, float_of
from logs_schema.errors import FormatError, first
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.files import find_files, is_plain_text, opened
from logs_schema.formats.mapping import MappedMetric, MetricsMapping, chunks_of, mapping_of, without_gateway
from logs_schema.formats.metric_series import (
    FELL,
    NOT_A_NUMBER,
    NOT_FINITE,
    OFF_GRID,
    QUANTITY,
    MetricSeries,
    Samples,
    deployment_named,
    interval_of,
    refuse_uneven,
    shift_of,
)
from logs_schema.formats.reading import NOTHING_GIVEN, Item, Lines, ReadingOptions, Reject
from logs_schema.formats.resampling import resampled
from logs_schema.formats.server_copies import refuse_copies
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY

NAME = "prometheus"
DESCRIPTION = (
    "answers to Prometheus range queries (JSON, plain or .gz), a file a metric, with a mapping (TOML)"
)
EXPECTED = '{"status": "success", "data": {"resultType": "matrix", "result": [...]}} and a mapping (.toml)'
OUT_OF_RANGE = "out_of_range:time"
MOST_OF_AN_EMPTY_ANSWER = 65_536
"""Bytes; an answer without series is some words, warnings included."""
PART = re.compile(r"[-.]\d[\dTZ:.+-]*$")
"""What follows the name of a metric in that of a part of its answer: a number, or an instant."""
WARNINGS = re.compile(r'"warnings"\s*:\s*\[')


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The answers that the mapping names; FormatError where there is none of a name."""
    return [path for parts in _answers(paths, mapping_of(paths)).values() for path in parts]


def _answers(paths: Sequence[Path], mapping: MetricsMapping) -> dict[str, list[Path]]:
    """Source -> its answers, several where a long range was asked for in parts."""
    files = [path for path in find_files(paths, (".json",)) if path.name.endswith((".json", ".json.gz"))]
    found: dict[str, list[Path]] = {one.source: [] for one in mapping.measured}
    for path in files:
        name = _stem(path) if _stem(path) in found else PART.sub("", _stem(path))
        if name in found:
            found[name].append(path)
    if missing := [name for name, parts in found.items() if not parts]:
        raise FormatError(
            f"the mapping names answers that are not here: {first(missing)}",
            where=str(mapping.path),
            allowed=", ".join(sorted({_stem(path) for path in files})) or "files ending in .json",
            advice="name the files, or leave their metrics out of the mapping",
        )
    return found


def _stem(path: Path) -> str:
    """The name of an answer without its ending."""
    return path.name.removesuffix(".gz").removesuffix(".json")


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The mapping, which the archive depends on as well."""
    return [mapping_of(paths).path]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether a file begins as an answer of Prometheus does."""
    head = "".join(lines)[:2000].replace(" ", "")
    return '"resultType":"matrix"' in head or head.startswith(('{"status":"success"', '{"status":"error"'))


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads all series, then files their rows."""
    mapping = mapping_of(paths)
    answers = _answers(paths, mapping)
    files = [path for parts in answers.values() for path in parts]
    matrices = {path: matrix_in(path) for path in files}
    if not any(matrices.values()):
        raise FormatError(
            "no answer holds a series",
            where=first(files),
            allowed="one series a deployment, or more",
            advice="ask Prometheus again: check the query, the labels and the range (start, end)",
        )
    clocks = [
        np.asarray([at_s for at_s, _ in map(_sample, one["values"]) if at_s is not None], float)
        for series in matrices.values()
        for one in series
    ]
    where = str(mapping.path)
    interval_s = mapping.interval_s or interval_of(clocks, where)
    refuse_uneven(
        interval_s, where, "query the range again with such a step, as {}s; interval_s is that step"
    )
    shift_s = 0.0 if mapping.resample else shift_of(np.concatenate([*clocks, []]), interval_s)
    samples = Samples(interval_s, shift_s)
    rejected = dict.fromkeys(files, 0)
    met: set[tuple[MappedMetric, str]] = set()
    for mapped in mapping.measured:
        joined = _joined(answers[mapped.source], matrices)
        refuse_copies(mapped.metric, [series.labels for series in joined])
        for series in joined:
            if mapped.only and mapping.labelled(series.labels) != mapped.only:
                continue
            numbers, rejects = _parsed(series, None if mapping.resample else samples)
            filed = _deployment(mapping, mapped, series)
            refuse_unfit(mapped.metric, series.labels, series.where)
            met.add((mapped, filed))
            grid_s, merged = numbers.times_s, numbers.values
            rows = np.arange(len(merged))
            if mapping.resample:
                grid_s, merged, rows = resampled(mapped.metric, filed, grid_s, merged, interval_s)
            lost = samples.add(mapped.metric, filed, grid_s, merged, json.dumps(series.labels))
            for rule, (path, number, pair) in (
                *rejects,
                *((FELL, numbers.taken[rows[place]]) for place in lost),
            ):
                rejected[path] += 1
                yield Reject(DEPLOYMENT_SAMPLES.name, rule, given.name_of(path), number, json.dumps(pair))
    yield from chunks_of(samples, mapping, met)
    for path, number in rejected.items():
        yield Lines(given.name_of(path), number, 0, 0)


class _Series(NamedTuple):
    """A series, of which several answers may hold a part."""

    labels: dict[str, Any]
    parts: list[tuple[Path, list[Any]]]

    @property
    def where(self) -> str:
        return f"{self.parts[0][0].name}: {self.labels}"


Sample = tuple[Path, int, Any]
"""Where a sample stands: file, its place in the series there, instant and number as they are written."""


class _Numbers(NamedTuple):
    times_s: np.ndarray
    values: np.ndarray
    taken: list[Sample]


def _joined(paths: Sequence[Path], matrices: Mapping[Path, list[dict[str, Any]]]) -> list[_Series]:
    """The series of the answers to one query, those of the same labels as one."""
    found: dict[str, _Series] = {}
    for path in paths:
        for one in matrices[path]:
            name = json.dumps(one["metric"], sort_keys=True)
            found.setdefault(name, _Series(one["metric"], [])).parts.append((path, one["values"]))
    return list(found.values())


def _parsed(series: _Series, grid: Samples | None) -> tuple[_Numbers, list[tuple[str, Sample]]]:
    """The numbers of a series, and what is rejected and by which rule; `grid` where instants have to stand on it.

    What stands in two parts alike, as where ranges meet, is taken once.
    """
    times_s, values = array("d"), array("d")
    taken: list[Sample] = []
    rejects: list[tuple[str, Sample]] = []
    seen: dict[float, float] = {}
    for path, pairs in series.parts:
        for number, pair in enumerate(pairs, 1):
            at_s, value = _sample(pair)
            if at_s is None or value is None:
                is_far = value is not None and _number(pair[0]) is not None
                rejects.append((OUT_OF_RANGE if is_far else NOT_A_NUMBER, (path, number, pair)))
            elif math.isinf(value):
                rejects.append((NOT_FINITE, (path, number, pair)))
            elif grid is not None and grid.off_grid(at_s):
                rejects.append((OFF_GRID, (path, number, pair)))
            elif at_s not in seen:
                times_s.append(at_s)
                values.append(value)
                taken.append((path, number, pair))
                if len(series.parts) > 1:
                    seen[at_s] = value
            elif value != seen[at_s] and not math.isnan(value + seen[at_s]):
                raise FormatError(
                    f"parts of one series disagree: {seen[at_s]:g} and {value:g}",
                    where=f"{path}, {series.labels}, sample {number}: {json.dumps(pair)}",
                    allowed="parts of one answer, which are alike where their ranges meet",
                    advice="leave out the file that is of another query or another system",
                )
    return _Numbers(np.asarray(times_s), np.asarray(values), taken), rejects


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """That instants are dates, which answers are empty, and of which Prometheus itself warns."""
    mapping = mapping_of(paths)
    files = data_files(paths)
    empty = [path.name for path in files if _is_empty(path)]
    warned = [(path.name, warnings) for path in files if (warnings := _warnings_in(path))]
    return describe(
        NAME,
        clock=ABSOLUTE_CLOCK,
        notices=[
            *(f"{name} holds no series, so its column stays empty: check the query" for name in empty),
            *(f"{name} may be part of an answer; Prometheus warned: {first(told)}" for name, told in warned),
            *without_gateway(mapping),
        ],
    )


def _is_empty(path: Path) -> bool:
    """Whether an answer holds no series. Larger files, which do, are not read twice for it."""
    return path.stat().st_size <= MOST_OF_AN_EMPTY_ANSWER and not matrix_in(path)


def _warnings_in(path: Path) -> list[str]:
    """The warnings of an answer; they stand behind its series, so the end of a plain file is enough."""
    if is_plain_text(path):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_OF_AN_EMPTY_ANSWER))
            end = file.read().decode(errors="replace")
    else:
        with opened(path) as text:
            end = text.read()[-MOST_OF_AN_EMPTY_ANSWER:]
    if (key := WARNINGS.search(end)) is None:
        return []
    try:
        return [str(one) for one in json.JSONDecoder().raw_decode(end, key.end() - 1)[0]]
    except (ValueError, RecursionError):
        return []


def matrix_in(path: Path) -> list[dict[str, Any]]:
    """The series of an answer.

    Raises:
        FormatError: The file is no answer with a matrix.
    """
    try:
        with opened(path) as file:
            answer = json.load(file)
        if isinstance(answer, dict) and "error" in answer:
            raise FormatError(
                f"Prometheus answered with an error: {answer['error']}",
                where=str(path),
                allowed=EXPECTED,
                advice="mend the query and ask again; what is too much at once is asked for in parts, NAME-1.json",
            )
        data = answer["data"]
        series = data["result"]
        right = data["resultType"] == "matrix" and all(
            isinstance(one["metric"], dict) and all(len(pair) == 2 for pair in one["values"])
            for one in series
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError("this is no answer to a range query", where=str(path), allowed=EXPECTED) from error
    if not right:
        raise FormatError(
            "this is no answer to a range query",
            where=str(path),
            allowed=EXPECTED,
            advice="use /api/v1/query_range, not /api/v1/query",
        )
    return list(series)


def refuse_unfit(metric: MetricSeries, labels: Mapping[str, Any], where: str) -> None:
    """FormatError where counts of the buckets of a histogram are taken for response times, or numbers for texts."""
    if metric.unit == QUANTITY:
        raise FormatError(
            f"Prometheus answers in numbers, and {metric.column} is read as {QUANTITY}",
            where=metric.where,
            allowed="the unit of the numbers, such as bytes, s or cores",
            advice="mend the mapping",
        )
    if "le" in labels and metric.column.startswith("response_"):
        raise FormatError(
            f"buckets of a histogram are no {metric.column}",
            where=f"{where}: {first(labels.items())}",
            allowed="response times, in the unit of the mapping",
            advice="query histogram_quantile(0.95, sum by (le) (rate(..._bucket[1m]))), or of a mean "
            "rate(..._sum[1m]) / rate(..._count[1m])",
        )


def _sample(pair: Any) -> tuple[float | None, float | None]:
    """The instant and the value of a sample; NaN is a value, anything that is no number is None.

    Instants that no calendar holds are None, too.
    """
    at_s, value = map(_number, pair)
    return None if at_s is None or not EARLIEST_S <= at_s <= LATEST_S else at_s, value


def _number(text: Any) -> float | None:
    try:
        return float_of(text)
    except (TypeError, ValueError):
        return None


def _deployment(mapping: MetricsMapping, mapped: MappedMetric, series: _Series) -> str:
    if mapped.of_gateway:
        return GATEWAY
    name = mapping.labelled(series.labels)
    if name is None:
        raise FormatError(
            f"a series has no label {' or '.join(map(repr, mapping.labels))}",
            where=series.where,
            allowed="a series a deployment, labelled with its name",
            advice="name the label with deployment_label, or several where metrics differ in it (of names such as "
            "cart-5b67c48447-mv5hb deployment_pattern takes the deployment's), or set of_gateway = true",
        )
    return deployment_named(name, mapping.gateway)
