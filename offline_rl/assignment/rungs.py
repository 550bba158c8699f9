"""The ladder of schedulers of many requests at once: insertion and local search, and networks that must beat them.

All answer the same rounds, each in the same time, one after the other on every round. Which network goes on is settled
on one half of the rounds; whether it beats the rung below on the other.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offline_rl.assignment.assigner import Assigner
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.local_search import LocalSearchConfig, improve
from offline_rl.confidence import half_width
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs, row_of

INSERTION, SEARCHED, NETWORK = "insertion", "insertion_local_search", "network"


@dataclass(frozen=True)
class AssignerRung:
    """How a scheduler did on the held-out rounds.

    Attributes:
        makespan_s: Mean time until the last answer.
        over_search: Its mean over that of insertion and local search, round by round (geometric).
        high: The upper confidence bound of that; None where it is not compared with it.
        worst: The largest of these ratios.
        num_rounds: That the bound stands on.
    """

    makespan_s: float
    over_search: float
    high: float | None
    worst: float
    num_rounds: int

    @property
    def is_better(self) -> bool:
        """Whether it beats insertion and local search with confidence."""
        return self.high is not None and self.high < 1.0


def climb(
    assigners: Mapping[str, Assigner], rounds: Costs, search_s: float, level: float
) -> tuple[str, dict[str, AssignerRung]]:
    """Compares networks with insertion and local search, and says which scheduler is handed over.

    Args:
        assigners: Name -> trained scheduler.
        rounds: Held-out rounds; leaves [rounds, ...], 4 or more.
        search_s: Time of every answer.
        level: Confidence with which a network must be better.

    Returns:
        The chosen name, and name -> its rung.
    """
    num_rounds = len(rounds.source)
    found = _makespans(assigners, rounds, search_s)
    names = list(assigners)
    choosing = np.arange(num_rounds) % 2 == 0 if len(names) > 1 else np.zeros(num_rounds, bool)
    rungs = {name: _rung(found[name], found[SEARCHED], ~choosing, level, name in assigners) for name in found}
    if not names:
        return SEARCHED, rungs
    ratio = {name: np.log(found[name] / found[SEARCHED]) for name in names}
    best = min(names, key=lambda name: float(np.sum(ratio[name][choosing])))
    return (best if rungs[best].is_better else SEARCHED), rungs


def _makespans(assigners: Mapping[str, Assigner], rounds: Costs, search_s: float) -> dict[str, np.ndarray]:
    """Name -> [rounds]."""
    search = LocalSearchConfig(time_s=search_s, restarts=True)
    found: dict[str, list[float]] = {name: [] for name in (INSERTION, SEARCHED, *assigners)}
    for row in range(len(rounds.source)):
        costs = row_of(rounds, row)
        begun_s = time.monotonic()
        inserted = insertion(costs)
        left_s = max(0.0, search_s - (time.monotonic() - begun_s))
        left = LocalSearchConfig(time_s=left_s, restarts=True)
        edges = {INSERTION: inserted, SEARCHED: improve(costs, inserted, left, np.random.default_rng(0))}
        edges |= {name: one.assign(costs, search) for name, one in assigners.items()}
        for name, edge in edges.items():
            found[name].append(float(makespan_s(costs, edge)))
    return {name: np.array(one) for name, one in found.items()}


def _rung(
    found_s: np.ndarray, searched_s: np.ndarray, tested: np.ndarray, level: float, is_compared: bool
) -> AssignerRung:
    ratio = np.log(found_s / searched_s)
    mean, high = float(np.mean(ratio[tested])), None
    if is_compared:
        high = math.exp(mean + half_width(ratio[tested], level))
    return AssignerRung(
        float(found_s.mean()), math.exp(mean), high, math.exp(float(ratio.max())), int(tested.sum())
    )


def in_words(chosen: str, rungs: Mapping[str, Mapping[str, float | None]], level: float) -> Sequence[str]:
    """The ladder for a person, best first."""
    lines = []
    for name, one in sorted(rungs.items(), key=lambda pair: pair[1]["over_search"] or 0.0):
        high = one["high"]
        bound = "" if high is None else f", at most {high:.4f} with {level:.0%} confidence"
        lines.append(f"{name}: makespan {one['over_search']:.4f} of that of {SEARCHED} in equal time{bound}")
    return [*lines, f"handed over: {chosen}"]
