"""What access points and nodes report of their loads: one JSON object at a URL or in a file.

    {"time_s": 1700000000.0,
     "running": {"service": {"node": 1.5}},  "waiting": {"service": {"node": 0.0}},  "queued": {"service": {"site": 2}}}

`time_s` is seconds since 1970. Numbers are requests, means over the last frame; what is not named counts as 0 requests.
Where neither `running` nor `waiting` names a service on a node, though, no replica of it goes: a report that has lost a
service or a node is none of an idle one, so idle replicas are to be named with 0.
"""

import json
import math
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import ConfigError, SchedtwinError
from offline_rl.runner.orchestrator import OrchestratorFacts
from offline_rl.serving.direct_http import content_of, direct_opener

MAX_BYTES = 16 * 2**20
TIMEOUT_S = 5.0
_UNREADABLE = (
    OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip
"""What reading a report can end with, whatever stands in it."""


class LoadsError(SchedtwinError):
    """Loads that cannot be read, or are too old to decide by."""


@dataclass(frozen=True)
class Loads:
    """Loads in the order of a bundle's names; those of `FrameView`, and where the report names them."""

    running: np.ndarray  # [services, nodes]
    waiting: np.ndarray  # [services, nodes]
    queued: np.ndarray  # [services, access points]
    is_named: np.ndarray  # [services, nodes] in `running` or `waiting`


class PastLoads:
    """Loads by service of the last frames, this one the last; NaN where they were not read.

    Attributes:
        busy, requests: [frames, services], as in `FrameView`.
    """

    def __init__(self, facts: OrchestratorFacts) -> None:
        self.busy = np.full((facts.num_past_frames, len(facts.services)), np.nan, np.float32)
        self.requests = self.busy.copy()

    def begin(self) -> None:
        """A frame begins, of which nothing has been read."""
        for past in (self.busy, self.requests):
            past[:-1] = past[1:]
            past[-1] = np.nan

    def measured(self, loads: Loads) -> None:
        """What was read of this frame."""
        self.busy[-1] = loads.running.sum(axis=1)
        self.requests[-1] = self.busy[-1] + loads.waiting.sum(axis=1) + loads.queued.sum(axis=1)


def read_loads(source: str, facts: OrchestratorFacts, now_s: float) -> Loads:
    """Reads the latest report.

    Args:
        source: A path, or an address that begins with http.
        facts: Whose names count; what others are reported is left out.
        now_s: The clock.

    Raises:
        LoadsError: There is none, it is older than two frames, or a number cannot be.
    """
    try:
        content = json.loads(_content(source))
        if not isinstance(content, dict):
            raise ValueError("no JSON object")
        age_s = now_s - float(content["time_s"])
        running, waiting = content.get("running", {}), content.get("waiting", {})
        loads = Loads(
            _table(running, facts.services, facts.nodes),
            _table(waiting, facts.services, facts.nodes),
            _table(content.get("queued", {}), facts.services, facts.points),
            _names(running, facts) | _names(waiting, facts),
        )
    except _UNREADABLE as error:
        raise LoadsError(
            f"the loads cannot be read: {type(error).__name__}: {error}",
            where=source,
            allowed='{"time_s": ..., "running": {service: {node: n}}, "waiting": ..., "queued": {service: {site: n}}}',
            advice="nothing is changed until they can be read",
        ) from error
    if not -facts.frame_s <= age_s <= 2.0 * facts.frame_s:
        raise LoadsError(
            f"the loads are {age_s:.0f} s old",
            where=source,
            allowed=f"at most {2.0 * facts.frame_s:g} s",
            advice="nothing is changed until there are newer ones",
        )
    return loads


def refuse_source(source: str) -> None:
    """ConfigError where loads could never be read from there."""
    if not source.startswith(("http://", "https://")) and not Path(source).parent.is_dir():
        raise ConfigError(
            "there is no such folder", where=f"--loads {source}", allowed="a file, or an http address"
        )


def _content(source: str) -> bytes:
    if source.startswith(("http://", "https://")):
        with direct_opener().open(source, timeout=TIMEOUT_S) as answer:
            content = content_of(answer, MAX_BYTES + 1, TIMEOUT_S)
    else:
        with Path(source).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} bytes")
    return content


def _table(content: Any, rows: tuple[str, ...], columns: tuple[str, ...]) -> np.ndarray:
    table = np.zeros((len(rows), len(columns)), np.float32)
    for row, service in enumerate(rows):
        for column, place in enumerate(columns):
            value = float(content.get(service, {}).get(place, 0.0))
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{service} at {place}: {value}")
            table[row, column] = value
    return table


def _names(content: Any, facts: OrchestratorFacts) -> np.ndarray:
    """[services, nodes] whether a table names the place."""
    named = [[node in content.get(service, {}) for node in facts.nodes] for service in facts.services]
    return np.array(named, bool)
