"""A mapping from a system's metrics to columns: a TOML file beside them.

    interval_s = 30                      # length of an interval, a part of a day; inferred from the instants if absent
    resample = false                     # several samples of a series in an interval are one: their mean, of counts
                                         # their sum, of counters the first; interval_s has to be named
    gateway = "front-end"                # deployment whose series are measured from end to end, if any
    deployment_label = "deployment"      # Prometheus: label that names the deployment, or several: the first there is
    deployment = "api"                   # CSV: the one deployment of the file, or...
    deployment_column = "service"        # ...the column that names it
    deployment_pattern = "(.+)-[0-9a-f]+-[0-9a-z]+"   # regular expression over such names: its group is the name
    series_column = "pod"                # CSV: the column that tells apart what is combined, if not the name above
    time_column = "timestamp"            # CSV: ISO 8601, or a number since 1970
    time_unit = "s"                      # CSV: of such numbers: s, ms, us or ns
    time_zone = "UTC"                    # CSV: of instants that name none, such as "Europe/Berlin"
    time_format = ""                     # CSV: for datetime.strptime; if empty, ISO 8601 or numbers
    separator = ","                      # CSV
    decimal = "."                        # CSV: sign before decimals: "," in much of Europe
    thousands = ""                       # CSV: sign between thousands: "." or "'" or " "; if empty, such are no numbers
    consecutive = false                  # CSV: instants follow each other at intervals, but for gaps, whatever they are

    [metrics.cpu_cores_used]             # a column of deployment_samples
    source = "cpu"                       # CSV: name of the column; Prometheus: file without .json
    file = ""                            # CSV: in files of such a name alone, "cpu*.csv"
    when = {metric = "cpu"}              # CSV: in lines alone that hold these texts in these columns
    unit = "millicores"                  # CSV: "quantity" where texts hold it: 300m, 1.5 GiB, 120 ms, 2 K req/s,
                                         # 45 % (of what scale says, else of one core or GiB)
    scale = 1.0
    counter = false                      # of one process; of a sum over pods, query the sum of their rates
    combine = ""                         # several series of one deployment, of its pods say: "sum", "mean", "max",
                                         # or "count": how many there are, such as replicas
    times = ""                           # CSV: another column that the numbers are multiplied by
    per = ""                             # CSV: another column that they are divided by: use in all over replicas
    of_gateway = false                   # whether it belongs to the gateway, whatever the labels
    only = ""                            # of the series or lines of this deployment alone
    spread = false                       # CSV: the field holds {deployment: number, ...}

    [metrics.num_replicas]               # what is not measured because it never changes
    constant = 1

Two metrics of one column (of deployments and of the gateway) are written `[metrics."response_s.gateway"]` and so on:
what follows the point only makes the names distinct.
"""

import fnmatch
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import tzinfo
from pathlib import Path
from typing import Any

from logs_schema.errors import FormatError, first
from logs_schema.formats.amount_marks import POINT, AmountMarks, marks_of
from logs_schema.formats.files import beside, read_toml
from logs_schema.formats.instant_forms import refuse_time_format, zone_of
from logs_schema.formats.instant_units import INSTANT_UNITS
from logs_schema.formats.metric_series import MetricSeries, Samples
from logs_schema.formats.reading import Chunk, tabulate
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY

SUFFIX = ".toml"
_TEXT, _TRUTH, _NUMBER = "text", "true or false", "a finite number"
_TEXTS, _BY_NAME = "a text, or a list of texts", "a table of texts"
_METRIC_TYPES = {
    "scale": _NUMBER,
    "constant": _NUMBER,
    "counter": _TRUTH,
    "of_gateway": _TRUTH,
    "spread": _TRUTH,
    "when": _BY_NAME,
}
_MAPPING_TYPES = {
    "interval_s": _NUMBER,
    "consecutive": _TRUTH,
    "resample": _TRUTH,
    "deployment_label": _TEXTS,
}
"""Keys whose values are not text."""


@dataclass(frozen=True)
class MappedMetric:
    """A metric and where its numbers are."""

    metric: MetricSeries
    source: str
    file: str = ""
    when: Mapping[str, str] = field(default_factory=dict, hash=False)
    times: str = ""
    per: str = ""
    of_gateway: bool = False
    only: str = ""
    spread: bool = False
    constant: float | None = None
    marks: AmountMarks = POINT

    def is_in(self, file: str) -> bool:
        """Whether the metric is in a file of this name."""
        return not self.file or fnmatch.fnmatch(file.removesuffix(".gz"), self.file.removesuffix(".gz"))


@dataclass(frozen=True)
class MetricsMapping:
    """The content of a mapping file."""

    path: Path
    metrics: tuple[MappedMetric, ...]
    interval_s: float | None = None
    gateway: str | None = None
    deployment_label: str | Sequence[str] = "deployment"
    deployment: str | None = None
    deployment_column: str | None = None
    deployment_pattern: str | None = None
    series_column: str | None = None
    time_column: str = "time"
    time_unit: str = "s"
    time_zone: str = "UTC"
    time_format: str = ""
    separator: str = ","
    decimal: str = "."
    thousands: str = ""
    consecutive: bool = False
    resample: bool = False

    @property
    def measured(self) -> tuple[MappedMetric, ...]:
        """The metrics that have a source."""
        return tuple(one for one in self.metrics if one.constant is None)

    def of_file(self, name: str) -> tuple[MappedMetric, ...]:
        """The metrics that have a source in a file of this name."""
        return tuple(one for one in self.measured if one.is_in(name))

    def names(self, column: str, *, of_gateway: bool = False) -> bool:
        """Whether a column of deployments, or of the gateway, has a metric."""
        return any(
            one.metric.column == column
            and (one.of_gateway == of_gateway or (of_gateway and self.gateway is not None))
            for one in self.metrics
        )

    @property
    def zone(self) -> tzinfo:
        """Time zone of instants that name none."""
        return zone_of(self.path, self.time_zone)

    @property
    def constants(self) -> tuple[MappedMetric, ...]:
        """The metrics that are given in the mapping itself."""
        return tuple(one for one in self.metrics if one.constant is not None)

    def deployment_of(self, name: str) -> str:
        """The deployment that a label or field names."""
        found = re.fullmatch(self.deployment_pattern, name) if self.deployment_pattern else None
        return found.group(1) if found else name

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of which the first that a series has names its deployment."""
        named = self.deployment_label
        return (named,) if isinstance(named, str) else tuple(named)

    def labelled(self, labels: Mapping[str, Any]) -> str | None:
        """The deployment of a series by its labels; None where it has none that names one."""
        name = next((labels[label] for label in self.labels if label in labels), None)
        return None if name is None else self.deployment_of(str(name))


def read_mapping(path: Path) -> MetricsMapping:
    """Reads a mapping.

    Raises:
        FormatError: The file is no TOML, has an unknown key, or maps nothing.
    """
    settings = read_toml(path)
    tables = settings.pop("metrics", {})
    known = {one.name for one in fields(MetricsMapping)} - {"path", "metrics"}
    _refuse_unknown(path, settings, known)
    if not isinstance(tables, dict) or not tables:
        raise FormatError(
            "the mapping maps nothing", where=str(path), allowed="a table [metrics.COLUMN] for every metric"
        )
    for key, value in settings.items():
        _refuse_type(str(path), key, value, _MAPPING_TYPES)
    marks = marks_of(path, settings)
    metrics = tuple(_metric(path, name, table, marks) for name, table in tables.items())
    interval_s = settings.get("interval_s")
    if interval_s is not None and not interval_s > 0:
        raise FormatError(f"interval_s is {interval_s!r}", where=str(path), allowed="a number above 0")
    if settings.get("resample") and (interval_s is None or settings.get("consecutive")):
        raise FormatError(
            "resample needs the length of an interval, and instants as they are",
            where=str(path),
            allowed="interval_s = 60, say, and no consecutive = true",
            advice="mend the mapping",
        )
    unit = settings.get("time_unit", "s")
    if unit not in INSTANT_UNITS:
        raise FormatError(
            f"time_unit is {unit!r}",
            where=str(path),
            allowed=", ".join(INSTANT_UNITS),
            advice="mend the mapping",
        )
    _refuse_pattern(path, settings.get("deployment_pattern"))
    zone_of(path, settings.get("time_zone", "UTC"))
    refuse_time_format(path, settings.get("time_format", ""))
    if len(settings.get("separator", ",")) != 1:
        raise FormatError("the separator is not one character", where=str(path), allowed='such as "," or ";"')
    return MetricsMapping(path, metrics, **settings)


def mapping_file(paths: Sequence[Path], data: str, advice: str) -> Path:
    """The one mapping among the files, beside the `data`; FormatError with `advice` where there is none, or several."""
    mappings = beside(paths, SUFFIX)
    if len(mappings) != 1:
        raise FormatError(
            "there is no mapping" if not mappings else f"there are {len(mappings)} mappings",
            where=first(mappings or paths),
            allowed=f"one file ending in {SUFFIX} beside the {data}",
            advice=advice,
        )
    return mappings[0]


def mapping_of(paths: Sequence[Path]) -> MetricsMapping:
    """The one mapping among the files of metrics; FormatError where there is none, or several."""
    return read_mapping(mapping_file(paths, "metrics", "see logs_schema/formats/mapping.py for its keys"))


def chunks_of(
    samples: Samples, mapping: MetricsMapping, met: Collection[tuple[MappedMetric, str]]
) -> Iterator[Chunk]:
    """All rows of a log whose numbers have been added to `samples`, with the mapping's constants; `met` and errors as
    of `refuse_absent`."""
    refuse_absent(mapping, met)
    for mapped in mapping.constants:
        samples.fill(mapped.metric, mapped.of_gateway, mapped.constant or 0.0)
    for rows in samples.as_rows():
        table = tabulate(DEPLOYMENT_SAMPLES, rows)
        yield Chunk(DEPLOYMENT_SAMPLES.name, table, mapping.path.name, 1, None, derived=True)


def refuse_absent(mapping: MetricsMapping, met: Collection[tuple[MappedMetric, str]]) -> None:
    """FormatError where the log has numbers, and none of the gateway, or of a metric's own deployment or lines.

    Args:
        mapping: What was meant.
        met: Each metric with the names under which its numbers are filed.
    """
    named = sorted({name for _, name in met if name != GATEWAY})
    if not met:
        return
    if mapping.gateway is not None and not any(
        name == GATEWAY and not mapped.of_gateway for mapped, name in met
    ):
        raise FormatError(
            f"the log has no deployment {mapping.gateway!r}, which the mapping names as its gateway",
            where=f"{mapping.path}, gateway",
            allowed=first(named, num_shown=20),
            advice="mend the name, or leave gateway out where metrics have of_gateway = true",
        )
    with_numbers = {mapped for mapped, _ in met}
    for one in mapping.measured:
        if one.when and one not in with_numbers:
            held = first([f"{name} = {text!r}" for name, text in one.when.items()])
            raise FormatError(
                f"{one.source} has no number in lines with {held}",
                where=f"{one.metric.where}, when",
                allowed="texts that the columns hold",
                advice="mend them, or leave the metric out",
            )
        if one.only and one not in with_numbers:
            raise FormatError(
                f"{one.source} has no number of the deployment {one.only!r}",
                where=f"{one.metric.where}, only",
                allowed=first(named, num_shown=20),
                advice="mend the name, or leave the metric out",
            )


def without_gateway(mapping: MetricsMapping) -> list[str]:
    """That no numbers of the gateway can come by this mapping, in words; nothing where they can."""
    if mapping.gateway is not None or any(one.of_gateway for one in mapping.metrics):
        return []
    return [
        f"{mapping.path.name} names no gateway, so nothing says what users asked for and how soon they were answered; "
        'name the deployment that they call: gateway = "front-end", or a metric with of_gateway = true'
    ]


def _metric(path: Path, name: str, table: Any, marks: AmountMarks) -> MappedMetric:
    where = f"{path}, [metrics.{name}]"
    if not isinstance(table, dict):
        raise FormatError(
            "a metric is no table", where=where, allowed="[metrics.COLUMN] with source, unit, ..."
        )
    own = {"source", "file", "when", "times", "per", "of_gateway", "only", "spread", "constant"}
    _refuse_unknown(path, table, own | {"unit", "scale", "counter", "combine"})
    for key, value in table.items():
        _refuse_type(where, key, value, _METRIC_TYPES)
    settings = {key: value for key, value in table.items() if key not in own}
    metric = MetricSeries(name.split(".")[0], where=where, **settings)
    mine = {key: value for key, value in table.items() if key in own and key != "source"}
    if "constant" in table and "source" in table:
        raise FormatError(
            "a constant is no number, or stands beside a source", where=where, allowed="a number, or a source"
        )
    return MappedMetric(metric, table.get("source", name), **mine, marks=marks)


def _refuse_type(where: str, key: str, value: Any, types: Mapping[str, str]) -> None:
    """FormatError where a key's value is not what `types` says of it."""
    kind = types.get(key, _TEXT)
    is_truth, is_list = isinstance(value, bool), isinstance(value, list)
    parts = [*value.values()] if isinstance(value, dict) else value if is_list else [value]
    are_texts = all(isinstance(part, str) for part in parts)
    fits = {
        _TEXT: isinstance(value, str),
        _TEXTS: bool(parts) and are_texts and not isinstance(value, dict),
        _BY_NAME: are_texts and isinstance(value, dict),
        _TRUTH: is_truth,
        _NUMBER: isinstance(value, int | float) and not is_truth and math.isfinite(value),
    }
    if not fits[kind]:
        raise FormatError(f"{key} is {value!r}", where=where, allowed=kind, advice="mend the mapping")


def _refuse_pattern(path: Path, pattern: Any) -> None:
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except (re.error, TypeError) as error:
        raise FormatError(f"deployment_pattern cannot be read ({error})", where=str(path)) from error
    if groups != 1:
        raise FormatError(
            f"deployment_pattern has {groups} groups",
            where=str(path),
            allowed="one, around the deployment's name",
        )


def _refuse_unknown(path: Path, table: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(table) - known):
        raise FormatError(
            f"the mapping has unknown keys: {', '.join(unknown)}",
            where=str(path),
            allowed=", ".join(sorted(known)),
            advice="see the example in logs_schema/formats/mapping.py",
        )
