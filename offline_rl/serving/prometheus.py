"""Readings of an application from monitoring: range queries to Prometheus over HTTP, interval by interval.

The mapping is that of `schedtwin import prometheus` (`logs_schema.formats.mapping`); its `source` is the query. A
sample stands for the interval that begins at its instant. Units are named there, never guessed. Instants that no
calendar holds, and what is no finite number of at least 0, are left out.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request

import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.casting import EARLIEST_S, LATEST_S, float_of
from logs_schema.errors import ConfigError, FormatError, SchedtwinError
from logs_schema.formats.mapping import MappedMetric, MetricsMapping
from logs_schema.formats.metric_series import Samples
from logs_schema.formats.prometheus import refuse_unfit
from logs_schema.tables import GATEWAY
from offline_rl.runner.scaling import POD_RULE, Granted, Reading
from offline_rl.serving.direct_http import content_of, direct_opener
from offline_rl.serving.kube_api import AGAIN

MAX_BYTES = 64 * 1024**2
LEAST_SKEW_S = 5.0
"""Clocks that stand less far apart are taken for one."""
MOST_OF_AN_ERROR = 65_536
"""Bytes of an error's body that are read."""
NEEDED = ("cpu_cores_used", "request_rate_per_s", "response_s")
"""Columns of every deployment without which nothing is decided; the pod autoscaler's rule needs the first alone."""
GATEWAY_NEEDED = ("request_rate_per_s", "response_p95_s")
OF_GRANTS = ("cpu_cores", "num_replicas")
"""Columns that tell what is granted, where no cluster does."""


class MetricsError(SchedtwinError):
    """Monitoring has not answered, or with something else than series."""


@dataclass(frozen=True)
class Prometheus:
    """Its address and its queries.

    Attributes:
        url: Base URL.
        mapping: Column -> query, unit and label.
        token_file: File with the bearer token for Prometheus.
        timeout_s: For one query.
        warnings: What Prometheus warned of in the latest samples: they may be a part of all.
        refused: Deployment or gateway -> why a metric of it counts as unknown in the latest samples.
        is_over: Whether no more queries are to be asked.
    """

    url: str
    mapping: MetricsMapping
    token_file: Path | None = None
    timeout_s: float = 5.0
    warnings: list[str] = field(default_factory=list, compare=False)
    refused: dict[str, str] = field(default_factory=dict, compare=False)
    is_over: Callable[[], bool] = field(default=lambda: False, compare=False)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(
                f"{self.url!r} is no address of Prometheus",
                where="--prometheus",
                allowed="http://... or https://...",
            )

    def samples(self, begin_s: float, end_s: float, interval_s: float) -> Samples:
        """All mapped series from `begin_s` to `end_s`, on the grid of intervals; MetricsError.

        Where several series give one metric of a deployment and nothing says how they are combined, that metric is
        unknown (`refused`), and the others are read.
        """
        found = Samples(interval_s)
        self.warnings.clear()
        self.refused.clear()
        doubled: list[tuple[MappedMetric, str]] = []
        for mapped in self.mapping.measured:
            if self.is_over():
                raise MetricsError(
                    "stopped before all metrics were read, so nothing was decided", where=self.url
                )
            span = {"start": begin_s, "end": end_s, "step": interval_s}
            for series in self._matrix(mapped.source, span):
                if mapped.only and self.mapping.labelled(series["metric"]) != mapped.only:
                    continue
                name = self._deployment(mapped, series)
                refuse_unfit(mapped.metric, series["metric"], f"{self.url}: {mapped.source}")
                values = self._values(mapped, series)
                known = [
                    (at, value)
                    for at, value in values
                    if 0.0 <= value < math.inf and EARLIEST_S <= at <= LATEST_S and not found.off_grid(at)
                ]
                labels = json.dumps(series["metric"])
                try:
                    found.add(
                        mapped.metric, name, [at for at, _ in known], [value for _, value in known], labels
                    )
                except FormatError as error:
                    self.refused[name] = error.brief
                    doubled.append((mapped, name))
        for mapped, name in doubled:
            found.forget(mapped.metric, name)
        for mapped in self.mapping.constants:
            found.fill(mapped.metric, mapped.of_gateway, mapped.constant or 0.0)
        return found

    def _values(self, mapped: MappedMetric, series: Mapping[str, Any]) -> list[tuple[float, float]]:
        try:
            return [(_number(at), _number(text)) for at, text in series["values"]]
        except (ValueError, TypeError) as error:
            raise MetricsError(
                f"a series holds something else than instants and numbers ({error})",
                where=f"{self.url}: {mapped.source}",
                allowed='[[1700000000, "0.5"], ...]',
            ) from error

    def _matrix(self, query: str, span: Mapping[str, float]) -> list[dict[str, Any]]:
        url = f"{self.url.rstrip('/')}/api/v1/query_range?{urlencode({'query': query, **span})}"
        headers = {}
        try:
            if self.token_file is not None:  # read anew: tokens are renewed
                headers["Authorization"] = f"Bearer {self.token_file.read_text().strip()}"
            with direct_opener().open(Request(url, headers=headers), timeout=self.timeout_s) as answer:
                date = answer.headers.get("Date", "")
                found = json.loads(content_of(answer, MAX_BYTES, self.timeout_s))
            if "error" in found:
                raise ValueError(found["error"])
            data = found["data"]
            if data["resultType"] != "matrix" or not all(
                isinstance(one["values"], list) and isinstance(one["metric"], dict) for one in data["result"]
            ):
                raise TypeError(f"a {data['resultType']}")
        except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError) as error:
            raise MetricsError(
                f"Prometheus does not answer with series ({_told(error)})",
                where=f"{self.url}: {query}",
                allowed="a matrix, from /api/v1/query_range",
                advice=_advice(error),
            ) from error
        self._refuse_skew(date, span["step"])
        told = found.get("warnings")
        self.warnings.extend(map(str, told if isinstance(told, list) else []))
        return list(data["result"])

    def _refuse_skew(self, date: str, most_s: float) -> None:
        """MetricsError where an answer's date lies more than `most_s` from this machine's clock: old metrics would be
        taken for those of now."""
        with suppress(ValueError, TypeError):  # of no date nothing is known
            ahead_s = parsedate_to_datetime(date).timestamp() - time.time()
            if abs(ahead_s) > max(most_s, LEAST_SKEW_S):
                raise MetricsError(
                    f"the clock of Prometheus is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this "
                    "machine's",
                    where=self.url,
                    allowed=f"clocks less than {max(most_s, LEAST_SKEW_S):g} s apart",
                    advice="set the clocks (NTP); until then grants stay as they are",
                )

    def _deployment(self, mapped: MappedMetric, series: Mapping[str, Any]) -> str:
        name = self.mapping.labelled(series["metric"])
        if mapped.of_gateway or (name is not None and name == self.mapping.gateway):
            return GATEWAY
        if name is None:
            raise MetricsError(
                f"a series has no label {' or '.join(map(repr, self.mapping.labels))}",
                where=f"{self.url}: {mapped.source}",
                allowed="a series a deployment, labelled with its name",
                advice="name the label, or set of_gateway",
            )
        return name


def needed_of(form: str) -> tuple[str, ...]:
    """Columns of a deployment without which a policy of this form decides nothing, the use of processors first."""
    return NEEDED[:1] if form == POD_RULE else NEEDED


def refuse_unmapped(mapping: MetricsMapping, form: str, *, of_grants: bool = False) -> None:
    """ConfigError where the mapping lacks a column that decisions of a bundle of this form need.

    Args:
        mapping: It.
        form: Of the bundle.
        of_grants: Whether metrics have to tell what is granted.
    """
    needed = (*needed_of(form), *(OF_GRANTS if of_grants else ()))
    of_users = () if form == POD_RULE else GATEWAY_NEEDED
    lacking = [name for name in needed if not mapping.names(name)]
    lacking += [f"{name} of the gateway" for name in of_users if not mapping.names(name, of_gateway=True)]
    if lacking:
        raise ConfigError(
            f"the mapping does not name {', '.join(lacking)}",
            where=str(mapping.path),
            allowed=f"{', '.join(needed)} of deployments"
            + "".join(f"; {name} of the gateway" for name in of_users),
            advice="add [metrics.COLUMN] with its query as source"
            + (", or give --kube, which tells what is granted" if set(lacking) & set(OF_GRANTS) else ""),
        )


def reading_of(samples: Samples, place: int, names: tuple[str, ...], replicas: np.ndarray) -> Reading:
    """The metrics of the interval that begins at `place` times its length; NaN where what is needed is unknown.

    Memory in use is needed where any of the samples tell it; else nothing measures it, and it counts as 0 as in a log
    that lacks it.
    """
    rows = [samples.row(place, name) for name in names]
    users = samples.row(place, GATEWAY)
    nan = math.nan

    def column(name: str, otherwise: float) -> np.ndarray:
        return np.array([row.get(name, otherwise) for row in rows])

    measures_memory = "memory_gib_used" in samples.columns
    ready = column("ready_replicas", nan)
    return Reading(
        column("request_rate_per_s", nan),
        column("cpu_cores_used", nan),
        column("memory_gib_used", nan if measures_memory else 0.0),
        np.where(np.isfinite(ready), ready, replicas),
        column("response_s", nan),
        column("num_failures", 0.0),
        np.asarray(users.get("request_rate_per_s", nan)),
        np.asarray(users.get("response_p95_s", nan)),
        np.asarray(users.get("num_failures", 0.0)),
        np.asarray(((place + 1) * samples.interval_s) % DAY_S),
    )


def granted_by(samples: Samples, place: int, names: tuple[str, ...]) -> Granted:
    """What is granted by the metrics; NaN where they do not have it."""
    rows = [samples.row(place, name) for name in names]
    columns = ("cpu_cores", "memory_gib", "num_replicas")
    return Granted(*(np.array([row.get(name, math.nan) for row in rows]) for name in columns))


def _number(text: Any) -> float:
    try:
        return float_of(text)
    except (TypeError, ValueError):
        return math.nan


def _told(error: Exception) -> str:
    """An error in words: what Prometheus itself says is wrong, where the body of an HTTP error has it."""
    if isinstance(error, HTTPError):
        with error, suppress(OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
            return f"{error}: {json.loads(error.read(MOST_OF_AN_ERROR))['error']}"
    return str(error)


def _advice(error: Exception) -> str:
    """What can be done about an error."""
    if isinstance(error, HTTPError) and error.code in (401, 403):
        return "name the file with its bearer token, --prometheus-token-file, or mend the rights"
    if isinstance(error, HTTPError) and error.code in (400, 422):
        return "try the query in Prometheus, and mend the mapping"
    if isinstance(error, OSError) and not isinstance(error, HTTPError):
        return f"look whether it is there and at work; {AGAIN}"
    return f"look whether --prometheus is its address, and what it logs; {AGAIN}"
