"""Which autoscaler is handed over: what was learned where it is surely better in the twin, else the calibrated rule.

The best of the learned ones is chosen on one half of the episodes and held against the rule on the other, so that no
choice judges itself. All play the same loads, and an episode has one member of the twin's ensemble throughout.
The rule stays where a twin cannot be believed so far: where it failed its certificate, where one member alone puts the
gain below zero, and where the gain is perhaps no more than what the twin's value of the logged grants is off by.
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
        least: The gain according to the member that puts it lowest.
        why: Why the rule stays where `low` is above zero; empty elsewhere.
    """

    name: str
    best: str = ""
    gain: float = 0.0
    low: float = 0.0
    least: float = 0.0
    why: str = ""


def choose_autoscaler(
    rewards: Mapping[str, np.ndarray],
    rule: str,
    learned: Collection[str],
    *,
    num_members: int = 1,
    off_by: float = 0.0,
    is_trusted: bool = True,
) -> ScalingChoice:
    """Takes the best learned autoscaler where it is better than a rule with confidence, else the rule.

    Args:
        rewards: Name -> [episodes] mean reward of an interval; an even number, the same episodes for all.
        rule: The name of what is to be beaten.
        learned: Names of the others.
        num_members: Members of the ensemble, which take turns at the episodes.
        off_by: What the twin's value of the logged grants differs from the log's by [cores].
        is_trusted: False of a twin that failed its certificate.
    """
    half = len(rewards[rule]) // 2
    if not learned:
        return ScalingChoice(rule)
    best = max(learned, key=lambda name: float(np.mean(rewards[name][:half])))
    gains = (rewards[best] - rewards[rule])[half:]
    gain = float(np.mean(gains))
    low = gain - half_width(gains, _LEVEL)
    member = np.arange(half, 2 * half) % num_members
    least = min(float(np.mean(gains[member == one])) for one in np.unique(member))
    if low <= 0.0:
        return ScalingChoice(rule, best, gain, low, least)
    if not is_trusted:
        why = "the twin failed its certificate"
    elif least <= 0.0:
        why = f"one member of the twin puts the gain at {least:.2f}"
    elif low <= off_by:
        why = f"the twin's value of the logged grants is off by {off_by:.2f}"
    else:
        return ScalingChoice(best, best, gain, low, least)
    return ScalingChoice(rule, best, gain, low, least, why)
