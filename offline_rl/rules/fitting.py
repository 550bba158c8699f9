"""The few numbers of a rule, from the log's offers: how run times scatter, what transfers take, what a backlog means.

    crowding     slopes of ln(run / usual run) on ln(1 + running) and ln max(1, load) (`offers`), and their usual sum
    spread       standard deviation of what that leaves
    latency, per_mib  least squares of the delay on 1 and the input, of offers that start at once, by kind of offer
    wait_scale   mean delay over mean backlog, of offers to nodes short of cores
    behind_scale  the same of offers to nodes with free cores where others go first or no GPU is free

The slopes compare offers of one time: all is taken less its mean over `BLOCK` consecutive offers, or else long runs in
busy hours would be laid to the crowd. They count only where they are clear of chance, by `BEYOND_CHANCE` standard
errors over windows: where nodes serve one request after another there are none.

Few offers are weak evidence: the spread is drawn to `RUN_TIME_SPREAD`, and a kind of offer with fewer than `FEWEST`
borrows the line through all kinds; where there are too few of all, transfers take nothing, waits for cores are as the
backlog and others are none.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from offline_rl.rules.actor import RUN_TIME_SPREAD, rule_params
from offline_rl.rules.offers import read_offers
from twin.contracts import PyTree
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, request_features
from twin.placement.history import Offers as LabelledOffers
from twin.placement.service_times import OFFER_KINDS, blocks_of

FEWEST = 20
"""Offers that a line or a mean is drawn through, at least."""
BLOCK = 32
"""Consecutive offers of a window that are taken to be of one time."""
BEYOND_CHANCE = 4.0
_NO_CROWDING = (0.0, 0.0, 0.0)
_PRIOR = 20.0
"""The usual spread counts as so many runs."""


class RuleNumbers(NamedTuple):
    """What rules take from a log; durations in time units."""

    spread: float
    latency: tuple[float, ...]  # by `OFFER_KINDS`
    per_mib: tuple[float, ...]
    wait_scale: float
    behind_scale: float
    crowding: tuple[float, float, float]

    def params(self, rule: str, **numbers: float) -> PyTree:
        """The parameters of a rule, with further `numbers`."""
        names = ("spread", "latency", "per_mib", "wait_scale", "behind_scale", "crowding")
        learned = {name: getattr(self, name) for name in names}
        return rule_params(rule, **learned | numbers)


def fit_rules(labelled: LabelledOffers, encoding: Encoding) -> RuleNumbers:
    """The numbers of the log's offers (`twin.placement.history.labelled_offers`)."""
    unit_s, of_node = encoding.problem.time_unit_s, len(NODE_FEATURES)
    request = of_node + encoding.cluster.num_nodes
    inputs, seen = labelled.inputs, labelled.observed
    of_request = inputs[request : request + len(request_features(encoding.cluster))]
    offers = read_offers(jnp.asarray(inputs[:of_node, None]), jnp.asarray(of_request))
    leaves = (offers.run, offers.backlog, offers.behind, offers.input_mib)
    run, backlog, behind, mib = (np.asarray(leaf)[0] for leaf in leaves)
    kind = np.argmax(np.asarray(offers.kind)[:, 0], axis=0)

    ended = seen.finished & (seen.run_s > 0.0) & (run > 0.0) & ~seen.failed
    scatter, crowd = np.log(seen.run_s[ended] / unit_s / run[ended]), np.asarray(offers.crowd)[:, 0, ended]
    crowding = _crowding(scatter, crowd, labelled.window[ended])
    scatter = scatter - (np.array(crowding[:2]) @ crowd - crowding[2])
    spread = np.sqrt((np.sum(scatter**2) + _PRIOR * RUN_TIME_SPREAD**2) / (len(scatter) + _PRIOR))
    begun = seen.started
    delay = seen.wait_s / unit_s
    at_once = begun & (backlog <= 0.0) & (behind <= 0.0)
    # A node that sleeps, or has no place, has room later, and rules read that from the run
    if encoding.cluster.wakes is not None or encoding.cluster.concurrency:
        at_once &= inputs[-1] <= 0.0
    latency, per_mib = _transfers(kind[at_once], mib[at_once], delay[at_once])
    wait_scale = _scale(delay[begun], backlog[begun], 1.0)
    behind_scale = _scale(delay[begun], behind[begun], 0.0)
    return RuleNumbers(float(spread), latency, per_mib, wait_scale, behind_scale, crowding)


def _scale(delay: np.ndarray, work: np.ndarray, usual: float) -> float:
    """Mean delay over mean work, where there is work; `usual` of too few offers."""
    queued = work > 0.0
    return float(delay[queued].mean() / work[queued].mean()) if queued.sum() >= FEWEST else usual


def _crowding(scatter: np.ndarray, crowd: np.ndarray, window: np.ndarray) -> tuple[float, float, float]:
    """Slopes of `scatter` [rows] on `crowd` [2, rows] among offers of one time, and the mean of what they predict.

    No slope is negative; zeros where they predict nothing beyond chance.
    """
    from scipy.optimize import nnls  # imported here: few commands fit rules

    if len(scatter) < FEWEST:
        return _NO_CROWDING
    order = np.argsort(window, kind="stable")
    _, of_window = np.unique(window[order], return_inverse=True)
    block = blocks_of(window[order], BLOCK)
    x = np.stack([_less_means(row[order], block) for row in crowd], axis=1)
    y = _less_means(scatter[order], block)
    slopes, _ = nnls(x, y)
    predicted = x @ slopes
    whole = float(predicted @ predicted)
    summed = np.bincount(of_window, predicted * (y - predicted))
    is_clear = whole > 0.0 and len(summed) > 1 and whole > BEYOND_CHANCE * float(np.sqrt(summed @ summed))
    by_count, by_load = slopes.tolist()
    return (by_count, by_load, float((slopes @ crowd).mean())) if is_clear else _NO_CROWDING


def _less_means(values: np.ndarray, block: np.ndarray) -> np.ndarray:
    return np.asarray(values - (np.bincount(block, values) / np.bincount(block))[block])


def _transfers(
    kind: np.ndarray, mib: np.ndarray, delay: np.ndarray
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Latency and time per MiB of every kind of offer."""
    overall = _line(mib, delay)
    lines = [
        _line(mib[kind == one], delay[kind == one]) if np.sum(kind == one) >= FEWEST else overall
        for one in range(len(OFFER_KINDS))
    ]
    return tuple(line[0] for line in lines), tuple(line[1] for line in lines)


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Least squares of `y` on 1 and `x`, neither number negative; zeros of too few."""
    if len(x) < FEWEST:
        return 0.0, 0.0
    variance = float(np.var(x))
    slope = float(np.mean((x - x.mean()) * (y - y.mean()))) / variance if variance > 0.0 else 0.0
    level = float(y.mean() - slope * x.mean())
    if slope < 0.0:
        return float(y.mean()), 0.0
    if level < 0.0:
        return 0.0, float(np.mean(x * y) / np.mean(x * x))
    return level, slope
