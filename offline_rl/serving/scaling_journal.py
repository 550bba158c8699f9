"""What an autoscaler has decided, and the metrics that it saw, as a log.

LOG/deployment_samples/*.csv    metrics, grants and what was changed; `schedtwin import native` reads the folder
LOG/decisions/*.jsonl           what the policy and the rules of the pod autoscaler would have done, and why; where
                                there was no decision, `error`
"""

import csv
import datetime as dt
import io
import json
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.formats.mapping import MetricsMapping
from logs_schema.tables import DEPLOYMENT_SAMPLES, GATEWAY
from offline_rl.runner.scaling import Granted, Reading, ScalingSetting

COLUMNS = (
    "time", "interval_s", "deployment", "cpu_cores", "memory_gib", "num_replicas", "ready_replicas", "cpu_cores_used",
    "memory_gib_used", "request_rate_per_s", "response_s", "response_p95_s", "num_failures", "action_cpu_cores",
    "action_memory_gib", "action_replicas",
)  # fmt: skip
WHOLE = {name for name in COLUMNS if str(DEPLOYMENT_SAMPLES.column(name).type) == "int32"}
DECISIONS, SAMPLES = "decisions", DEPLOYMENT_SAMPLES.name


@dataclass
class ScalingJournal:
    """The log of one autoscaler.

    Attributes:
        folder: Where.
        interval_s: Length of an interval.
        logged_until: Number of the last interval whose metrics are there; what another process has written before
            counts, so that a restart repeats none.
    """

    folder: Path
    interval_s: float
    logged_until: int = field(default=-1)

    def __post_init__(self) -> None:
        with suppress(OSError, ValueError, IndexError):
            newest = sorted((self.folder / SAMPLES).glob("*.csv"))[-1]
            with newest.open(newline="", encoding="utf-8") as file:
                last = [row[0] for row in csv.reader(file) if len(row) == len(COLUMNS)][-1]
            self.logged_until = round(dt.datetime.fromisoformat(last).timestamp() / self.interval_s)

    def decided(self, record: Mapping[str, Any]) -> None:
        """Appends a decision, or that there was none; OSError."""
        _append(self.folder / DECISIONS / f"{_day(record)}.jsonl", json.dumps(record) + "\n")

    def measured(self, record: Mapping[str, Any], place: int, rows: Sequence[Sequence[Any]]) -> None:
        """Appends the metrics of an interval on the day of a decision, where they are not there yet; OSError."""
        if place > self.logged_until:
            _append(self.folder / SAMPLES / f"{_day(record)}.csv", _csv(rows), head=_csv([COLUMNS]))
            self.logged_until = place


def sample_rows(
    setting: ScalingSetting,
    mapping: MetricsMapping,
    place: int,
    then: Granted,
    now: Reading,
    changes: Sequence[Collection[float]],
) -> list[list[Any]]:
    """The metrics of an interval as rows of `deployment_samples`, the gateway's last.

    Args:
        setting: Whose.
        mapping: Which metrics are measured.
        place: Number of the interval.
        then: What was granted at its end.
        now: Its metrics.
        changes: Of every deployment: cores, GiB and replicas that the decision added.
    """
    memory = _or_unknown(now.memory_gib_used, mapping.names("memory_gib_used"))
    failures = _or_unknown(now.num_failures, mapping.names("num_failures"))
    of_users = _or_unknown(now.gateway_failures, mapping.names("num_failures", of_gateway=True))
    begin = instant(place * setting.interval_s)
    rows: list[list[Any]] = []
    for index, name in enumerate(setting.names):
        values = (
            then.cpu_cores[index], then.memory_gib[index], then.replicas[index], now.ready[index],
            now.cpu_cores_used[index], memory[index], now.rate_per_s[index],
            now.response_s[index], math.nan, failures[index], *changes[index],
        )  # fmt: skip
        rows.append([begin, setting.interval_s, name, *map(_cell, COLUMNS[3:], values)])
    users = (math.nan,) * 6 + (
        float(now.gateway_rate_per_s),
        math.nan,
        float(now.gateway_quantile_s),
        float(of_users),
    )
    rows.append([begin, setting.interval_s, GATEWAY, *map(_cell, COLUMNS[3:13], users), "", "", ""])
    return rows


def instant(time_s: float) -> str:
    """An instant as the log has it."""
    return dt.datetime.fromtimestamp(time_s, dt.UTC).isoformat(timespec="seconds")


def _day(record: Mapping[str, Any]) -> str:
    return str(record["time"])[:10]


def _append(path: Path, text: str, head: str = "") -> None:
    """Appends all of a text, after the head of a file that is new, or nothing where the disk is full: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        content = memoryview((text if size else head + text).encode())
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:
            file.truncate(size)  # what comes next must not go on in half a line
            raise


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    with io.StringIO(newline="") as text:
        csv.writer(text).writerows(rows)
        return text.getvalue()


def _or_unknown(values: np.ndarray, is_measured: bool) -> np.ndarray:
    """Values, or NaN for all of them: what nothing measures counts as 0 in a decision, and is not in the log."""
    return values if is_measured else np.full_like(values, math.nan, dtype=float)


def _cell(name: str, value: float) -> str:
    if not math.isfinite(value):
        return ""
    return str(round(value)) if name in WHOLE else f"{value:.6g}"
