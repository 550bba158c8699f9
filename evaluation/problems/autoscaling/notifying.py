"""The retraining notifier: whether the autoscaler in service has to be trained again.

The retraining notifier of paper DRPC (algorithm 4) holds the mean of the last rewards against a threshold, as soon as
enough are known. The rewards are those of the logged intervals, by the objective of the running bundle. The threshold
is given, or is what the training days earned at the same loads: a policy replaced whatever wrote that log because it
expected more, and should earn more than it. Then rewards have to lie below by more than two samples of one behaviour
differ (one-sided, 5 %, by blocks of consecutive intervals), and below those of the worst training day: bursts come on
some days and not on others. Section IV-B names two further reasons, which are measured as well: intervals with more
calls than training has seen, and another composition of the requests.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import stdtrit

from evaluation.problems.refresh_parts import Notice
from logs_schema import Archive
from logs_schema.errors import ConfigError, first
from offline_rl.autoscaling.export import config_of
from offline_rl.bundle import read_bundle
from offline_rl.recipes.scaling_task import ScalingTask
from offline_rl.rules.autoscaling.logged import logged_rewards
from offline_rl.runner.scaling import ScalingSetting, load_scaling
from twin.autoscaling.logged_intervals import logged_events
from twin.autoscaling.scaling_log import DAY_S, TABLE, ScalingLog, read_scaling_log
from twin.autoscaling.types import ScalingEvents
from twin.contracts import Array

ENOUGH = 20
"""Rewards that have to be known before their mean counts."""
NEAREST = 25
"""Intervals of the training days, nearest in load, that tell what was earned at a load."""
BLOCKS = 20
"""Blocks of consecutive intervals, whose means scatter about independently: an hour each, of a day."""
QUANTILE = float(stdtrit(BLOCKS - 1, 0.95))
"""95 % of Student's t, of one block less."""
UNSEEN_SHARE = 0.05
"""Share of intervals with more calls than on the training days, from which training is due."""
CHANGED = 1.25
"""Factor by which the calls that a user's request causes may change, either way."""


def notice_from(history: Path, bundle: Path, days: Sequence[dt.date], below: float | None) -> Notice:
    """The notice on the newest days of a history.

    Args:
        history: Archive with the training days of the running policy and the days after.
        bundle: The running policy.
        days: The newest days.
        below: Threshold of the mean reward; by the training days if None.

    Raises:
        ConfigError: No threshold is given, and the history lacks the training days.
        ProductError: The bundle is damaged.
        ArchiveError: The samples cannot be read.
    """
    archive, setting = Archive(history), load_scaling(bundle).setting
    newest = read_scaling_log(archive, days, whole=False)
    trained_on = {dt.date.fromisoformat(day) for day in read_bundle(bundle).extra.get("train_days") or ()}
    known = trained_on and trained_on <= set(archive.days(TABLE))
    if not known and below is None:
        raise ConfigError(
            "the history lacks the days that the running policy was trained on, so nothing says what it has to earn",
            where=str(bundle),
            allowed="a history with these days, or a threshold of the mean reward",
            advice="give the threshold (--reward-below)",
        )
    trained = read_scaling_log(archive, sorted(trained_on), whole=False) if known else None
    return retraining_notice(setting, trained, newest, below)


def retraining_notice(
    setting: ScalingSetting,
    trained: ScalingLog | None,
    newest: ScalingLog,
    below: float | None,
) -> Notice:
    """The notice on logs; arguments as for `notice_from`. Without `trained`, the composition is not looked at."""
    if newest.deployments != setting.names:
        return Notice(True, ("the application has other deployments than the running policy",))
    now = rewards_of(setting, newest)
    if len(now.reward) < ENOUGH:
        return Notice(False, (f"{len(now.reward)} rewards are known, and {ENOUGH} are asked for",))
    mean = float(np.mean(now.reward))
    earns = f"mean reward {mean:.3g} of {len(now.reward):,} intervals"
    if below is not None:
        against, is_below = f"below the threshold, {below:.3g}", mean < below
    else:
        assert trained is not None
        before = rewards_of(setting, trained)
        gap, usual = now.reward - earned_at(now, before), before.reward - earned_at(before, before)
        worst = min(np.mean(usual[before.day == day]) for day in np.unique(before.day))
        noise = np.hypot(error_of_mean(gap), error_of_mean(usual))
        against = f"surely below what the training days earned at these loads, {mean - np.mean(gap):.3g}"
        is_below = np.mean(gap) < min(-QUANTILE * noise, worst)
    causes = [f"{earns} is {against}"] if is_below else []
    causes += _unseen(setting, newest) + ([] if trained is None else _composition(trained, newest))
    return Notice(bool(causes), tuple(causes) or (f"{earns} is not {against}",))


class Rewards(NamedTuple):
    """Of the intervals where grants, metrics and load are known; [intervals]."""

    reward: np.ndarray  # of the application
    rate_per_s: np.ndarray  # requests of users
    day: np.ndarray  # number of the day in its log


def rewards_of(setting: ScalingSetting, log: ScalingLog) -> Rewards:
    """What the intervals of a log earned, by the objective of a bundle."""
    total = np.asarray(_reward_program(setting)(logged_events(log)))
    rates = log.gateway["request_rate_per_s"]
    known = np.isfinite(total) & np.isfinite(rates)
    return Rewards(total[known], rates[known], (log.time_s // DAY_S)[known])


def logged_reward(task: ScalingTask, log: ScalingLog) -> float | None:
    """Mean reward of a log's intervals, all deployments together; None where none is known."""
    total = np.asarray(logged_rewards(*task, logged_events(log)))
    return float(np.nanmean(total)) if np.isfinite(total).any() else None


@lru_cache(maxsize=8)
def _reward_program(setting: ScalingSetting) -> Callable[[ScalingEvents], Array]:
    """The objective of a bundle, compiled once for each number of intervals."""
    task = ScalingTask(*config_of(setting))
    return jax.jit(partial(logged_rewards, *task))


def earned_at(now: Rewards, before: Rewards) -> np.ndarray:
    """[intervals now] the mean reward before, of the `NEAREST` intervals about the place of each rate in their order.

    Raises:
        ConfigError: No interval before has a reward.
    """
    if not len(before.reward):
        raise ConfigError(
            "no interval of the training days has a reward",
            where=f"table {TABLE}",
            allowed="grants, rates and response times of every deployment and the gateway",
            advice="give the threshold (--reward-below)",
        )
    order = np.argsort(before.rate_per_s, kind="stable")
    width = min(NEAREST, len(order))
    summed = np.concatenate([[0.0], np.cumsum(before.reward[order], dtype=float)])
    place = np.searchsorted(before.rate_per_s[order], now.rate_per_s) - width // 2
    begin = np.clip(place, 0, len(order) - width)
    found: np.ndarray = (summed[begin + width] - summed[begin]) / width
    return found


def error_of_mean(values: np.ndarray) -> float:
    """Standard error of the mean of consecutive values, by the scatter of their blocks; infinite of too few values."""
    if len(values) < BLOCKS:
        return float("inf")
    blocks = np.array([block.mean() for block in np.array_split(values, BLOCKS)])
    return float(blocks.std(ddof=1) / np.sqrt(BLOCKS))


def _unseen(setting: ScalingSetting, newest: ScalingLog) -> list[str]:
    """A cause where calls were often more than training has seen."""
    with np.errstate(invalid="ignore"):
        beyond = newest.columns["request_rate_per_s"] > setting.limit("most_rate_per_s")
    share = float(np.mean(np.any(beyond, axis=1)))
    if share <= UNSEEN_SHARE:
        return []
    names = [setting.names[place] for place in np.flatnonzero(np.any(beyond, axis=0))]
    return [f"{share:.1%} of the intervals have more calls than the training days: {first(names)}"]


def _composition(trained: ScalingLog, newest: ScalingLog) -> list[str]:
    """A cause where requests of users cause other numbers of calls than on the training days."""
    before, now = calls_per_request(trained), calls_per_request(newest)
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = now / before
    changed = ~np.isnan(factor) & (np.maximum(factor, 1.0 / np.maximum(factor, 1e-9)) > CHANGED)
    if not changed.any():
        return []
    found = [f"{newest.deployments[place]} {factor[place]:.2g}" for place in np.flatnonzero(changed)]
    return [f"calls per request of a user, as a multiple of those of the training days: {first(found)}"]


def calls_per_request(log: ScalingLog) -> np.ndarray:
    """[deployments] calls per request of a user, over the intervals where both are known."""
    calls, requests = log.columns["request_rate_per_s"], log.gateway["request_rate_per_s"][:, None]
    known = np.isfinite(calls) & np.isfinite(requests)
    num_calls, num_requests = (np.where(known, rates, 0.0).sum(axis=0) for rates in (calls, requests))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = num_calls / num_requests
    return found
