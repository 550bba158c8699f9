"""Held-out days as logged, in windows that a system under test can simulate.

Days are cut into windows that overlap by three quarters, each beginning with the logged state. Only the last quarter of
a window counts (of a day's first window all of it), so that outcomes are compared after the system has simulated for a
while; every request counts once. On days of very many requests the windows lie further apart, and requests between them
are left out.
"""

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Stage, unseen
from twin.contracts import Array
from twin.imitation.fidelity import STATES
from twin.placement.encoding import Encoding
from twin.placement.history import followed_parts
from twin.placement.log_windows import MAX_REQUESTS, encode_days, looked_at
from twin.placement.types import COMPLETED, FAILED, REJECTED, STATUS_NAMES
from twin.placement.windows import Windows, joined

HORIZONS = (1, 5, 20, 50, 100, 400)
OVERLAP = 4
MAX_WINDOWS = 32
"""Windows of a day, at most about."""


class DayOutcomes(NamedTuple):
    """Outcomes of the counted requests, [rows]."""

    node: np.ndarray  # the decisions
    wait_s: np.ndarray  # NaN where it did not start, or the start is unknown
    run_s: np.ndarray
    response_s: np.ndarray
    answer: np.ndarray  # labels
    started: np.ndarray  # bool: began to run, as far as known
    known: np.ndarray  # bool: the outcome is final


class HeldOutDay(NamedTuple):
    """One real day: its windows, the requests that count, and their logged outcomes."""

    day: dt.date
    windows: Windows
    counted: np.ndarray  # [T, W] bool
    logged: DayOutcomes
    states: np.ndarray  # [horizons, state features, nodes, windows] of the log


def days_windows(
    archive: Archive, encoding: Encoding, days: Sequence[dt.date], *, num_steps: int
) -> list[Windows]:
    """The overlapping windows of every day.

    Raises:
        ConfigError: A day has no request with a known decision.
    """
    found = []
    for day in days:
        total = archive.num_rows("requests", day)
        apart = -(-total // MAX_WINDOWS)
        stride, most, each = max(1, num_steps // OVERLAP, apart), MAX_REQUESTS, None
        if total > looked_at(encoding):  # stretches of one window each
            most, each = MAX_WINDOWS * num_steps, num_steps
        try:
            found.append(
                encode_days(
                    archive, encoding, [day], num_steps=num_steps, stride=stride, most=most, each=each
                )
            )
        except ConfigError as error:
            raise ConfigError(
                f"{day}: {error.what}", where=error.where, allowed=error.allowed, advice=error.advice
            ) from error
    return found


def counted_once(windows: Windows) -> np.ndarray:
    """[T, W] bool: the requests of one day's overlapping windows that count, each in one window."""
    fresh = windows.num_steps - max(1, windows.num_steps // OVERLAP)
    late = np.arange(windows.num_steps)[:, None] >= fresh
    return windows.valid() & (late | (np.arange(windows.num_windows) == 0)[None])


def real_days(
    archive: Archive, encoding: Encoding, days: Sequence[dt.date], *, num_steps: int, stage: Stage = unseen
) -> dict[dt.date, HeldOutDay]:
    """Logged windows and outcomes of every day; `stage` is told how many windows are followed."""
    chosen = sorted(set(days))
    parts = days_windows(archive, encoding, chosen, num_steps=num_steps)
    illegal, states = _followed(joined(parts), encoding, stage)
    found, begin = {}, 0
    for day, part in zip(chosen, parts, strict=True):
        here = slice(begin, begin + part.num_windows)
        begin += part.num_windows
        counted = counted_once(part) & ~illegal[: part.num_steps, here] & (part.node >= 0)
        logged = outcomes_from(
            part,
            counted,
            part.node,
            part.fate.start_s,
            part.fate.finish_s,
            part.fate.status,
            np.isfinite(part.fate.finish_s) | (part.fate.status == REJECTED),
        )
        found[day] = HeldOutDay(day, part, counted, logged, states[..., here])
    return found


def _followed(windows: Windows, encoding: Encoding, stage: Stage) -> tuple[np.ndarray, np.ndarray]:
    """Illegal decisions [T, W] of the log and its states at the horizons."""
    illegal, states = [], []
    for _, followed in followed_parts(windows, encoding, stage):
        illegal.append(followed.history.illegal[:, 0])
        states.append(at_horizons(followed.history.global_observation.node[:, STATES]))
    return np.concatenate(illegal, axis=-1), np.concatenate(states, axis=-1)


def at_horizons(states: Array) -> Array:
    """States [T + 1, features, nodes, W] at the horizons, as far as the windows reach."""
    return states[np.minimum(HORIZONS, states.shape[0] - 1)]


def outcomes_from(
    windows: Windows,
    counted: np.ndarray,
    node: np.ndarray,
    start_s: np.ndarray,
    finish_s: np.ndarray,
    status: np.ndarray,
    settled: np.ndarray,
) -> DayOutcomes:
    """The counted rows, in the order of their arrival, of outcomes [T, W] on the windows' clocks."""
    order = np.argsort(windows.row[counted], kind="stable")
    chosen, arrival, start, finish, code, known = (
        np.asarray(leaf)[counted][order]
        for leaf in (node, windows.arrival_s, start_s, finish_s, status, settled)
    )
    ran = known & np.isin(code, (COMPLETED, FAILED))
    begun = ran & np.isfinite(start)
    with np.errstate(invalid="ignore"):
        wait_s = np.where(begun, np.maximum(start - arrival, 0.0), np.nan)
        run_s = np.where(begun, np.maximum(finish - start, 0.0), np.nan)
        response_s = np.where(ran, np.maximum(finish - arrival, 0.0), np.nan)
    answer = np.array([STATUS_NAMES.get(int(one), "unknown") for one in code], dtype="U9")
    return DayOutcomes(chosen, wait_s, run_s, response_s, answer, ran, known)


def rows_of(windows: Windows, counted: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """A leaf [T, W] of the counted requests, in the order of their arrival."""
    return np.asarray(leaf)[counted][np.argsort(windows.row[counted], kind="stable")]


def request_column(day: HeldOutDay, simulated: DayOutcomes, name: str) -> np.ndarray:
    """[rows of `simulated`] a field of the requests, once for every replication of the day."""
    column = rows_of(day.windows, day.counted, getattr(day.windows.request, name))
    return np.tile(column, len(simulated.known) // max(len(column), 1))


def known_in_log(day: HeldOutDay, simulated: DayOutcomes) -> np.ndarray:
    """[rows of `simulated`] bool: the logged outcome of the request is known."""
    return np.tile(day.logged.known, len(simulated.known) // max(len(day.logged.known), 1))
