"""Answers of Prometheus to range queries (JSON), one file a metric, with a mapping (TOML) beside them.

    curl "$PROMETHEUS/api/v1/query_range?query=...&start=...&end=...&step=30s" > cpu.json

Readings of the format:

* Every file is one answer with a matrix; its metric is the one whose `source` is the file's name without `.json`.
  Files that the mapping does not name are not read.
* The label that the mapping names identifies the deployment; series of the gateway need none. Several series of one,
  such as of its pods, are one number where the mapping says how, `combine`; each counter of them becomes a rate first.
* Response times of a histogram are asked for as quantiles, `histogram_quantile(0.95, sum by (le) (rate(...)))`: its
  buckets (label `le`) are refused.
* A sample stands for the interval that begins at its instant, taken to the grid of whole intervals after midnight;
  with `resample` several that lie in an interval are one.
  NaN is no number and leaves the field empty. `rate(...[30s])` is of the time before the instant: ask for it as
  `rate(...[30s] offset -30s)`, or load and response times stand beside the grants of the interval after theirs.
* A counter has to be that of one process, or be asked for as a rate: `sum by (deployment) (rate(...[1m]))`. The sum of
  counters falls when a pod goes; such samples are rejected where they can be told from a reset.
* Rows are made of samples of several files, so they stand for no line; only samples that are rejected count as lines.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.casting import EARLIEST_S, LATEST_S, float_of
from logs_schema.errors import FormatError, first
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.files import find_files
from logs_schema.formats.mapping import MappedMetric, MetricsMapping, chunks_of, mapping_of, without_gateway
from logs_schema.formats.metric_series import (
    FELL,
    NOT_A_NUMBER,
    OFF_GRID,
    MetricSeries,
    Samples,
    deployment_named,
    interval_of,
    refuse_uneven,
    shift_of,
)
from logs_schema.formats.reading import NOTHING_GIVEN, Item, Lines, ReadingOptions, Reject
from logs_schema.formats.resampling import resampled
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY

NAME = "prometheus"
DESCRIPTION = "answers to Prometheus range queries (JSON), a file a metric, with a mapping (TOML)"
EXPECTED = '{"status": "success", "data": {"resultType": "matrix", "result": [...]}} and a mapping (.toml)'
MOST_OF_AN_EMPTY_ANSWER = 65_536
"""Bytes; an answer without series is some words, warnings included."""
WARNINGS = re.compile(r'"warnings"\s*:\s*\[')


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The answers that the mapping names; FormatError where one is not here, or there are two of its name."""
    mapping = mapping_of(paths)
    files = [path for path in find_files(paths, (".json",)) if path.suffix == ".json"]
    answers = {path.stem: path for path in files}
    named = [one.source for one in mapping.measured]
    if twice := [path for path in files if path.stem in named and answers[path.stem] != path]:
        raise FormatError(
            f"there are several answers of the name {twice[0].name}", where=f"{twice[0]}, {answers[twice[0].stem]}",
            allowed="one file a metric", advice="join their series in one file, or import their folders one by one",
        )  # fmt: skip
    if missing := [name for name in named if name not in answers]:
        raise FormatError(
            f"the mapping names answers that are not here: {first(missing)}", where=str(mapping.path),
            allowed=", ".join(sorted(answers)) or "files ending in .json",
            advice="name the files, or leave their metrics out of the mapping",
        )  # fmt: skip
    return [answers[name] for name in dict.fromkeys(named)]


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The mapping, which the archive depends on as well."""
    return [mapping_of(paths).path]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether a file begins as an answer of Prometheus does."""
    head = "".join(lines)[:2000].replace(" ", "")
    return '"resultType":"matrix"' in head or head.startswith('{"status":"success"')


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads all series, then files their rows."""
    mapping = mapping_of(paths)
    files = {path.name.removesuffix(".json"): path for path in data_files(paths)}
    matrices = {name: matrix_in(path) for name, path in files.items()}
    if not any(matrices.values()):
        raise FormatError(
            "no answer holds a series", where=first(files.values()), allowed="one series a deployment, or more",
            advice="ask Prometheus again: check the query, the labels and the range (start, end)",
        )  # fmt: skip
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
    num_rejected = dict.fromkeys(files, 0)
    met: set[tuple[MappedMetric, str]] = set()
    for mapped in mapping.measured:
        source = files[mapped.source].name
        for series in matrices[mapped.source]:
            if mapped.only and _name(mapping, series) != mapped.only:
                continue
            times_s: list[float] = []
            numbers: list[float] = []
            taken: list[int] = []
            for number, pair in enumerate(series["values"], 1):
                at_s, value = _sample(pair)
                is_off = not mapping.resample and at_s is not None and samples.off_grid(at_s)
                if at_s is None or value is None or is_off:
                    rule = NOT_A_NUMBER if at_s is None or value is None else OFF_GRID
                    num_rejected[mapped.source] += 1
                    yield Reject(DEPLOYMENT_SAMPLES.name, rule, source, number, json.dumps(pair))
                    continue
                times_s.append(at_s)
                numbers.append(value)
                taken.append(number)
            filed = _deployment(mapping, mapped, series, source)
            refuse_buckets(mapped.metric, series["metric"], source)
            met.add((mapped, filed))
            grid_s, merged = np.asarray(times_s, float), np.asarray(numbers, float)
            if mapping.resample:
                grid_s, merged, rows = resampled(mapped.metric, filed, times_s, numbers, interval_s)
                taken = [taken[row] for row in rows.tolist()]
            for place in samples.add(mapped.metric, filed, grid_s, merged, json.dumps(series["metric"])):
                num_rejected[mapped.source] += 1
                raw = json.dumps(series["values"][taken[place] - 1])
                yield Reject(DEPLOYMENT_SAMPLES.name, FELL, source, taken[place], raw)
    yield from chunks_of(samples, mapping, met)
    for name, path in files.items():
        yield Lines(path.name, num_rejected[name], 0, 0)


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
    """The warnings of an answer; they stand behind its series, so the end of the file is enough."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_OF_AN_EMPTY_ANSWER))
        end = file.read().decode(errors="replace")
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
        answer = json.loads(path.read_text(encoding="utf-8-sig"))
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
            "this is no answer to a range query", where=str(path), allowed=EXPECTED,
            advice="use /api/v1/query_range, not /api/v1/query",
        )  # fmt: skip
    return list(series)


def refuse_buckets(metric: MetricSeries, labels: Mapping[str, Any], where: str) -> None:
    """FormatError where counts of the buckets of a histogram are taken for response times."""
    if "le" in labels and metric.column.startswith("response_"):
        raise FormatError(
            f"buckets of a histogram are no {metric.column}", where=f"{where}: {first(labels.items())}",
            allowed="response times, in the unit of the mapping",
            advice="query histogram_quantile(0.95, sum by (le) (rate(..._bucket[1m]))), or of a mean "
            "rate(..._sum[1m]) / rate(..._count[1m])",
        )  # fmt: skip


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


def _deployment(mapping: MetricsMapping, mapped: MappedMetric, series: dict[str, Any], source: str) -> str:
    if mapped.of_gateway:
        return GATEWAY
    name = _name(mapping, series)
    if name is None:
        raise FormatError(
            f"a series has no label {mapping.deployment_label!r}", where=f"{source}: {series['metric']}",
            allowed="a series a deployment, labelled with its name",
            advice="name the label with deployment_label (of names such as cart-5b67c48447-mv5hb deployment_pattern "
            "takes the deployment's), or set of_gateway = true",
        )  # fmt: skip
    return deployment_named(name, mapping.gateway)


def _name(mapping: MetricsMapping, series: dict[str, Any]) -> str | None:
    """The deployment of a series; None where it has no such label."""
    name = series["metric"].get(mapping.deployment_label)
    return None if name is None else mapping.deployment_of(str(name))
