"""Which autoscaler is handed over: what was learned where it is surely better in the twin, else the calibrated rule.

The best of the learned ones is chosen on one half of the episodes and held against the rule on the other, so that no
choice judges itself. Everybody plays the same loads, and an episode has one member of the twin's ensemble throughout:
what members disagree about widens the interval.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from offline_rl.confidence import half_width

_LEVEL = 0.975


class ScalingChoice(NamedTuple):
    """What is handed over, and what the twin says of the best that was learned.

    Attributes:
        name: Of the autoscaler that is handed over.
        best: The best that was learned; empty where nothing was.
        gain: Its mean reward of an interval over the rule's [cores].
        low: Lower end of the 95 % interval of `gain` (Student, paired by episode); minus infinity of one episode.
    """

    name: str
    best: str = ""
    gain: float = 0.0
    low: float = 0.0


def choose_autoscaler(
    rewards: Mapping[str, np.ndarray], rule: str, learned: Collection[str]
) -> ScalingChoice:
    """Takes the best learned autoscaler where it is better than a rule with confidence, else the rule.

    Args:
        rewards: Name -> [episodes] mean reward of an interval; an even number, the same episodes for all.
        rule: The name of what is to be beaten.
        learned: Names of the others.
    """
    half = len(rewards[rule]) // 2
    if not learned:
        return ScalingChoice(rule)
    best = max(learned, key=lambda name: float(np.mean(rewards[name][:half])))
    gains = (rewards[best] - rewards[rule])[half:]
    gain = float(np.mean(gains))
    low = gain - half_width(gains, _LEVEL)
    return ScalingChoice(best if low > 0.0 else rule, best, gain, low)
