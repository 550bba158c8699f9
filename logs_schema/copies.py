"""Requests that are cancelled as another of their agent completes: the slower of two copies, where they are hedged.

By chance a request ends within a second of another of its agent and service now and then. How often is counted at
instants beside its end, and taken off.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ALIKE = ("agent", "service", "site")
COLUMNS = (*ALIKE, "finish", "status")
CANCELLED = ("killed", "dropped", "failed")
TOGETHER_S = 0.5
"""Ends so far apart are of one instant, for clocks of seconds."""
BESIDE_S = (-37.0, -23.0, -11.0, 11.0, 23.0, 37.0)
"""From an end to the instants at which chance is counted."""


def beyond_chance(
    kind: np.ndarray, ended_s: np.ndarray, cancelled: np.ndarray, completed: np.ndarray
) -> np.ndarray:
    """[rows] whether a request was cancelled as another of its kind completed, less how often that is chance.

    Args:
        kind: [rows] int, whose requests may be copies of each other; -1 where that is not known.
        ended_s: [rows] NaN where unknown.
        cancelled, completed: [rows] bool.

    Returns:
        0 of requests that were not cancelled.
    """
    found = np.zeros(len(kind))
    known = (kind >= 0) & np.isfinite(ended_s)
    for rows, ends_s in _by_kind(kind, ended_s, known & cancelled, known & completed):
        asked_s = ended_s[rows]
        chance = [_near(ends_s, asked_s + beside_s) for beside_s in BESIDE_S]
        found[rows] = _near(ends_s, asked_s) - np.mean(chance, axis=0)
    return found


def _by_kind(
    kind: np.ndarray, ended_s: np.ndarray, cancelled: np.ndarray, completed: np.ndarray
) -> Iterable[tuple[np.ndarray, np.ndarray]]:
    """Of every kind the rows that were cancelled, and when others completed, ascending."""
    rows = np.flatnonzero(cancelled)
    rows = rows[np.argsort(kind[rows], kind="stable")]
    ends = np.flatnonzero(completed)
    ends = ends[np.lexsort((ended_s[ends], kind[ends]))]
    for one, first in zip(*np.unique(kind[rows], return_index=True), strict=True):
        last = np.searchsorted(kind[rows], one, side="right")
        of_kind = slice(*np.searchsorted(kind[ends], [one, one + 1]))
        yield rows[first:last], ended_s[ends[of_kind]]


def _near(ends_s: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """[rows] 1 where one of the ends is within `TOGETHER_S`, else 0."""
    after = np.searchsorted(ends_s, at_s - TOGETHER_S)
    return (np.searchsorted(ends_s, at_s + TOGETHER_S, side="right") > after).astype(float)


def cancelled_copies(rows: pa.Table) -> tuple[int, float]:
    """How many requests with `COLUMNS` were cancelled, and how many of these as a copy completed, beyond chance."""
    status = pc.cast(rows["status"], pa.string())
    cancelled = pc.is_in(status, value_set=pa.array(CANCELLED)).to_numpy(zero_copy_only=False)
    completed = pc.equal(status, "completed").to_numpy(zero_copy_only=False)
    kind = np.zeros(rows.num_rows, np.int64)
    for name in ALIKE:
        code = pc.dictionary_encode(pc.fill_null(pc.cast(rows[name], pa.string()), "").combine_chunks())
        codes = np.asarray(code.indices, np.int64)
        kind = np.unique(kind * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    kind = np.where(rows["agent"].is_valid().to_numpy(), kind, -1)
    finish_us = pc.cast(rows["finish"], pa.int64())
    ended_s = 1e-6 * pc.cast(finish_us, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    found = beyond_chance(kind, ended_s, cancelled, completed)
    return int(np.count_nonzero(cancelled)), float(found.sum())
