"""A mapping from a system's metrics to columns: a TOML file beside them.

    interval_s = 30                      # length of an interval; inferred from the instants if absent
    gateway = "front-end"                # deployment whose series are measured from end to end, if any
    deployment_label = "deployment"      # Prometheus: label that names the deployment
    deployment = "api"                   # CSV: the one deployment of the file, or...
    deployment_column = "service"        # ...the column that names it
    time_column = "timestamp"            # CSV: ISO 8601, or seconds since 1970
    consecutive = false                  # CSV: lines follow each other at intervals, whatever their instants

    [metrics.cpu_cores_used]             # a column of deployment_samples
    source = "cpu"                       # CSV: name of the column; Prometheus: file without .json
    unit = "millicores"
    scale = 1.0
    counter = false
    times = ""                           # CSV: another column that the numbers are multiplied by
    of_gateway = false                   # whether it belongs to the gateway, whatever the labels
    spread = false                       # CSV: the field holds {deployment: number, ...}

Two metrics of one column (of deployments and of the gateway) are written `[metrics."response_s.gateway"]` and so on:
what follows the point only makes the names distinct.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from logs_schema.errors import FormatError
from logs_schema.formats.metric_series import MetricSeries

SUFFIX = ".toml"


@dataclass(frozen=True)
class MappedMetric:
    """A metric and where its numbers are."""

    metric: MetricSeries
    source: str
    times: str = ""
    of_gateway: bool = False
    spread: bool = False


@dataclass(frozen=True)
class MetricsMapping:
    """The content of a mapping file."""

    path: Path
    metrics: tuple[MappedMetric, ...]
    interval_s: float | None = None
    gateway: str | None = None
    deployment_label: str = "deployment"
    deployment: str | None = None
    deployment_column: str | None = None
    time_column: str = "time"
    consecutive: bool = False


def read_mapping(path: Path) -> MetricsMapping:
    """Reads a mapping.

    Raises:
        FormatError: The file is no TOML, has an unknown key, or maps nothing.
    """
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"the mapping cannot be read ({error})", where=str(path)) from error
    tables = settings.pop("metrics", {})
    known = {one.name for one in fields(MetricsMapping)} - {"path", "metrics"}
    _refuse_unknown(path, settings, known)
    if not isinstance(tables, dict) or not tables:
        raise FormatError(
            "the mapping maps nothing", where=str(path), allowed="a table [metrics.COLUMN] for every metric"
        )
    metrics = tuple(_metric(path, name, table) for name, table in tables.items())
    interval_s = settings.get("interval_s")
    if interval_s is not None and not (isinstance(interval_s, int | float) and interval_s > 0):
        raise FormatError(f"interval_s is {interval_s!r}", where=str(path), allowed="a number above 0")
    return MetricsMapping(path, metrics, **settings)


def _metric(path: Path, name: str, table: Any) -> MappedMetric:
    where = f"{path}, [metrics.{name}]"
    if not isinstance(table, dict):
        raise FormatError(
            "a metric is no table", where=where, allowed="[metrics.COLUMN] with source, unit, ..."
        )
    own = {"source", "times", "of_gateway", "spread"}
    _refuse_unknown(path, table, own | {"unit", "scale", "counter"})
    settings = {key: value for key, value in table.items() if key not in own}
    metric = MetricSeries(name.split(".")[0], where=where, **settings)
    mine = {key: value for key, value in table.items() if key in own and key != "source"}
    return MappedMetric(metric, str(table.get("source", name)), **mine)


def _refuse_unknown(path: Path, table: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(table) - known):
        raise FormatError(
            f"the mapping has unknown keys: {', '.join(unknown)}", where=str(path),
            allowed=", ".join(sorted(known)), advice="see the example in logs_schema/formats/mapping.py",
        )  # fmt: skip
