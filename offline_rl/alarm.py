"""What an alarm expects of days like the training days, from the training days: see `offline_rl.runner.watch`.

Weights are log likelihood ratios of what was seen, by its frequency in training: of a request unlike the others, and of
run times in classes of equal frequency, each against the same distribution shifted by a factor of 2. Were observations
independent, a sum would exceed a limit h once in e^h of them or less. They are not (a busy hour, an agent, a class of
machines), so the limit begins where the training days themselves came to, and the margin makes it one day in a hundred.
"""

import math
from collections.abc import Sequence

import numpy as np

from offline_rl.contract import AlarmFacts
from offline_rl.runner.watch import largest

FACTOR = 2.0
"""How much longer or shorter runs are that the alarm is made to find."""
NUM_CLASSES, MIN_RUNS = 20, 200
"""Classes of run times, and the least number of runs to know their frequencies from."""
DAYS_TO_AN_ALARM = 100
"""On days like the training days."""
RISE, LEAST_RISE = 5.0, 0.05
"""Requests unlike training's are frequent where their share is so many times that of training, and so much higher."""
_LEAST_LIMIT = math.log(10_000)


def alarm_facts(unlike: np.ndarray, ratio: np.ndarray, node: np.ndarray, num_days: int) -> AlarmFacts | None:
    """The expectations of an alarm.

    Args:
        unlike: [decisions] bool, in order: the request was unlike those of training.
        ratio: [runs] in the order of their ends: run time over what is the mean run time of its service on its node.
        node: [runs] where it ran.
        num_days: Training days.

    Returns:
        The facts, None without decisions; without limits for runs where too few of them are known.
    """
    if not len(unlike):
        return None
    share = (float(np.sum(unlike)) + 1.0) / (len(unlike) + 2.0)
    risen = max(min(RISE * share, 0.5), min(share + LEAST_RISE, 0.95))
    weights = math.log((1.0 - risen) / (1.0 - share)), math.log(risen / share)
    unlike_limit = _limit([[weights[int(one)] for one in unlike]], num_days)
    logs = np.log(ratio)
    edges = np.unique(np.quantile(logs, np.arange(1, NUM_CLASSES) / NUM_CLASSES)) if len(logs) else logs
    if len(logs) < MIN_RUNS or len(edges) < 2:
        return AlarmFacts(share, weights, unlike_limit)
    slower, faster = (_weights(logs, edges, shift) for shift in (math.log(FACTOR), -math.log(FACTOR)))
    place = np.searchsorted(edges, logs)
    sums = [each[place[node == one]].tolist() for one in np.unique(node) for each in (slower, faster)]
    return AlarmFacts(
        share,
        weights,
        unlike_limit,
        tuple(edges.tolist()),
        tuple(slower.tolist()),
        tuple(faster.tolist()),
        _limit(sums, num_days),
    )


def _limit(sums: Sequence[Sequence[float]], num_days: int) -> float:
    """The largest value of all sums on the training days, and what makes it one day in `DAYS_TO_AN_ALARM`."""
    rarer = math.log(max(DAYS_TO_AN_ALARM / num_days, 1.0))
    return max(max(map(largest, sums)) + 1.0 + rarer, _LEAST_LIMIT)


def _weights(logs: np.ndarray, edges: np.ndarray, shift: float) -> np.ndarray:
    """[classes] log likelihood ratio of every class of run times under a shift of their logarithm."""
    usual, shifted = (
        (np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1) + 1.0)
        / (len(values) + len(edges) + 1.0)
        for values in (logs, logs + shift)
    )
    return np.asarray(np.log(shifted / usual))
