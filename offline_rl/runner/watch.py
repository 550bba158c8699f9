"""An alarm with memory: are the requests, and the run times on every node, still those of the training days?

Single decisions are weak evidence: a feature leaves its range now and then on any day. Sums over decisions do. For
every hypothesis one sum adds up how much likelier each observation is under it than on days of training, never below 0
(CUSUM; E. S. Page, Continuous inspection schemes, 1954):

    unlike   requests unlike those of training (a number out of its range, a label never seen) have become frequent
    slower   runs on a node take twice as long as they did there in training; one sum a node
    faster   half as long; likewise

None of these depends on what the policy decides, so another policy than the logged one raises no alarm. The limits are
what the training days themselves reached, and a margin (`offline_rl.alarm`). What the ledger learns is compared with
training: a node that has become slow raises the alarm although the policy has adapted to it.
"""

import math
from collections.abc import Iterable

import numpy as np

from offline_rl.contract import AlarmFacts

UNLIKE, SLOWER, FASTER = "unlike", "slower", "faster"
KINDS = (UNLIKE, SLOWER, FASTER)
_SENTENCES = {
    UNLIKE: "more requests than on days of training are unlike those of training",
    SLOWER: "runs on {node} take much longer than in training",
    FASTER: "runs on {node} take much shorter than in training",
}
MOST = 2.0
"""Where a sum stops, in limits: so an alarm ends some time after its cause has ended."""


class Watch:
    """The sums of a policy in service. Belongs to one thread.

    Args:
        facts: What to expect, by the contract; None: nothing is known, and no alarm is ever raised.
    """

    def __init__(self, facts: AlarmFacts | None) -> None:
        self._facts = facts
        self._unlike = 0.0
        self._runs: dict[str, list[float]] = {}
        self._edges = np.array([] if facts is None else facts.run_edges)
        self._raised: set[tuple[str, str]] = set()

    def decided(self, unlike: bool) -> None:
        """A decision was about a request, which was or was not unlike those of training."""
        if self._facts is not None:
            limit = self._facts.unlike_limit
            self._unlike = _added(self._unlike, self._facts.unlike_weights[bool(unlike)], limit)
            self._note(UNLIKE, "", self._unlike >= limit)

    def ran(self, node: str, ratio: float) -> None:
        """A run ended on a node; `ratio`: its time over what was usual of its service there in training."""
        facts = self._facts
        if facts is None or facts.run_limit is None or not 0.0 < ratio < math.inf:
            return
        place = int(np.searchsorted(self._edges, math.log(ratio)))
        sums = self._runs.setdefault(node, [0.0, 0.0])
        for index, weights in enumerate((facts.slower_weights, facts.faster_weights)):
            sums[index] = _added(sums[index], weights[place], facts.run_limit)
            self._note((SLOWER, FASTER)[index], node, sums[index] >= facts.run_limit)

    def levels(self) -> dict[str, float]:
        """Kind -> its largest sum over its limit; 1 and more is an alarm."""
        if self._facts is None:
            return dict.fromkeys(KINDS, 0.0)
        runs, limit = list(self._runs.values()) or [[0.0, 0.0]], self._facts.run_limit or math.inf
        return {
            UNLIKE: self._unlike / self._facts.unlike_limit,
            SLOWER: max(sums[0] for sums in runs) / limit,
            FASTER: max(sums[1] for sums in runs) / limit,
        }

    def alarms(self) -> tuple[str, ...]:
        """What is no longer as in training, one sentence each; empty while all is."""
        return tuple(_SENTENCES[kind].format(node=node) for kind, node in sorted(self._raised))

    def _note(self, kind: str, node: str, is_raised: bool) -> None:
        (self._raised.add if is_raised else self._raised.discard)((kind, node))


def largest(weights: Iterable[float]) -> float:
    """The largest value that a sum of these weights, never below 0, comes to."""
    most = total = 0.0
    for weight in weights:
        total = max(total + weight, 0.0)
        most = max(most, total)
    return most


def _added(total: float, weight: float, limit: float) -> float:
    return min(max(total + weight, 0.0), MOST * limit)
