"""What the training days were like: ranges of features, and what an alarm expects; kept beside a policy.

A range is the middle of the logged values, widened: one strange request must not widen it for good, and a good policy
meets other loads than the logged one. A flag keeps the values it had.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from offline_rl.alarm import alarm_facts
from offline_rl.contract import AlarmFacts, alarm_of, read_json, refusing
from twin.arrays import load_structure, save_arrays
from twin.contracts import Trajectory
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, request_features
from twin.placement.history import choices_in_log
from twin.placement.windows import Windows

MIDDLE = (0.001, 0.999)
"""Quantiles of the logged values between which the middle lies."""
WIDENED = 0.5
"""By which share of its width the middle is widened at both ends."""
MAX_ROWS = 50_000
"""Decisions from which ranges are taken, spread over all."""
RANGES, ALARM = "ranges.npz", "alarm.json"


class TrainingDays(NamedTuple):
    """What a contract contains about the training days."""

    low: np.ndarray  # [features] as `flatten_features` has them
    high: np.ndarray
    alarm: AlarmFacts | None


def training_days(windows: Windows, encoding: Encoding, history: Trajectory | None = None) -> TrainingDays:
    """What the training days of an encoding were like, by windows of them that do not overlap; `history`: of these, as
    `choices_in_log` follows them."""
    history = choices_in_log(windows, encoding) if history is None else history
    low, high = feature_ranges(history, encoding)
    num_context = len(request_features(encoding.cluster))
    unlike = _unlike(history, windows, low[-num_context:], high[-num_context:])
    ratio, node = _runs(windows, encoding)
    return TrainingDays(low, high, alarm_facts(unlike, ratio, node, len(encoding.train_days)))


def save_training_days(days: TrainingDays, folder: Path) -> None:
    """Writes them into an existing folder."""
    save_arrays(folder / RANGES, {"low": days.low, "high": days.high})
    (folder / ALARM).write_text(json.dumps(None if days.alarm is None else asdict(days.alarm)))


def load_training_days(folder: Path) -> TrainingDays | None:
    """What `save_training_days` wrote; None in earlier policies, which have none; ProductError if damaged."""
    if not (folder / RANGES).exists():
        return None
    ranges, path = load_structure(folder / RANGES, {"low": 0, "high": 0}), folder / ALARM
    with refusing("what the alarm expects cannot be read", path):
        alarm = alarm_of(read_json(path)) if path.exists() else None
    return TrainingDays(ranges["low"], ranges["high"], alarm)


def feature_ranges(history: Trajectory, encoding: Encoding) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest usual value of every feature at the logged decisions, [features] each."""
    rows = observed_rows(history, MAX_ROWS)
    units = [one.unit for one in NODE_FEATURES for _ in encoding.cluster.node_names]
    is_flag = np.array([*units, *(one.unit for one in request_features(encoding.cluster))]) == "flag"
    return typical_ranges(rows, is_flag)


def observed_rows(history: Trajectory, most: int) -> np.ndarray:
    """[n <= most, features] as `flatten_features` of what was observed at decisions spread over all."""
    places = np.nonzero(np.asarray(history.active))  # steps, seats, streams
    chosen = np.linspace(0, len(places[0]) - 1, min(most, len(places[0]))).astype(int)
    here = tuple(place[chosen] for place in places)
    leaves = [
        np.moveaxis(np.asarray(leaf), (-2, -1), (1, 2))[here] for leaf in jax.tree.leaves(history.observation)
    ]
    return np.concatenate([leaf.reshape(len(chosen), -1) for leaf in leaves], axis=1, dtype=np.float32)


def typical_ranges(rows: np.ndarray, is_flag: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The middle of every column of [rows, features], widened, and never below 0 where no value is; flags as they are.

    Args:
        rows: At least one.
        is_flag: [features] bool.

    Returns:
        Low and high, [features] each.
    """
    least, most = rows.min(axis=0), rows.max(axis=0)
    first, last = np.quantile(rows, MIDDLE, axis=0)
    wider = WIDENED * (last - first)
    low, high = np.where(least >= 0.0, np.maximum(first - wider, 0.0), first - wider), last + wider
    return np.where(is_flag, least, low), np.where(is_flag, most, high)


def _unlike(history: Trajectory, windows: Windows, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """[decisions] bool, in order: a number of the request is out of its range, or a label is none of the vocabulary's.

    The log does not distinguish a missing label from one that is too rare; where it has labels both count.
    """
    seen = np.asarray(history.observation.request)[:, :, 0]  # [T, R, W]
    outside = np.any((seen < low[:, None]) | (seen > high[:, None]), axis=1)
    valid: np.ndarray = windows.valid()
    for kind in ("scenario", "service", "queue"):
        label = np.asarray(getattr(windows.request, kind))
        if label[valid].any():
            outside |= label == 0
    in_order = np.argsort(windows.origin_s, kind="stable")
    return outside.T[in_order][valid.T[in_order]]


def _runs(windows: Windows, encoding: Encoding) -> tuple[np.ndarray, np.ndarray]:
    """Of every run that ended, in the order of their ends: its time over what is usual there, and its node."""
    fate, request = windows.fate, windows.request
    start_s, finish_s = (np.asarray(one, float) for one in (fate.start_s, fate.finish_s))
    filed_s = request.expected_run_s if windows.filed_s is None else windows.filed_s
    expected_s, node = np.asarray(filed_s, float), np.asarray(windows.node)
    known = windows.valid() & (node >= 0) & np.isfinite(finish_s) & (finish_s > start_s) & (expected_s > 0.0)
    node, service = node[known], np.asarray(request.service)[known]
    run_s = finish_s[known] - start_s[known]
    ratio = run_s / (expected_s[known] * encoding.cluster.run_ratio[service, node])
    in_order = np.argsort((finish_s + windows.origin_s)[known], kind="stable")
    return ratio[in_order], node[in_order]
