"""Between the best rule and the reference: what learning could gain at all, and the refusal of a ceiling that is none.

    failures avoided = 1 - failures of the policy / failures of the best rule        on the same simulated days
    share of the reference = (policy - best rule) / (reference - best rule)

The best rule of a day is the one that proved best in the truth of that very day: the hardest to beat, known afterwards.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evaluation.comparison.bootstrap import Estimate
from evaluation.reproduction.benches.reference import TOLERANCE
from evaluation.reproduction.benches.truth_bench import REFERENCE
from logs_schema.errors import SchedtwinError, first
from offline_rl.rules.in_twin import DESCRIPTIONS


class BeatenReferenceError(SchedtwinError):
    """A policy is better than the reference, so that shares of it have no meaning."""


def best_rule(means: Mapping[tuple[str, int], float], shift: int) -> str | None:
    """The rule with the highest on-time share at a shift; None where the table has none."""
    rules = [name for name in DESCRIPTIONS if (name, shift) in means]
    return max(rules, key=lambda name: means[name, shift], default=None)


def failures_avoided(mine: np.ndarray, rule: np.ndarray) -> np.ndarray:
    """The share of a rule's failures that a policy avoids; negative where it adds to them."""
    return 1.0 - (1.0 - mine) / np.maximum(1.0 - rule, 1e-9)


def share_of_reference(mine: np.ndarray, rule: np.ndarray, ceiling: np.ndarray) -> np.ndarray | None:
    """How much of what the reference gains over a rule a policy gains; None where that is nothing to speak of."""
    room = ceiling - rule
    if np.mean(room) < TOLERANCE:
        return None
    return np.where(room > 0.0, (mine - rule) / np.where(room > 0.0, room, 1.0), np.nan)


def beaten(gaps: Mapping[tuple[str, int], Estimate]) -> list[dict[str, Any]]:
    """The policies that beat the reference by more than `TOLERANCE` with confidence, one row each.

    Args:
        gaps: (policy, shift) -> its on-time share less the reference's, paired by simulated day.
    """
    return [
        {"policy": policy, "shift_days": shift, "gap": gap.value, "low": gap.low, "high": gap.high}
        for (policy, shift), gap in gaps.items()
        if policy != REFERENCE and gap.low is not None and gap.low > TOLERANCE
    ]


def refuse_beaten(found: Mapping[str, Any], where: str) -> None:
    """Makes sure that no policy of a table beats the reference.

    Args:
        found: The table, see `table2.table`.
        where: The file that it was written to.

    Raises:
        BeatenReferenceError: One does.
    """
    beating = [
        f"{one['policy']} after {one['shift_days']} days: {one['gap']:+.4f} [{one['low']:+.4f}, {one['high']:+.4f}]"
        for one in found["beaten"]
    ]
    if beating:
        raise BeatenReferenceError(
            "the reference is no ceiling: policies beat it",
            where=f"{where}: {first(beating)}",
            allowed=f"differences whose interval does not lie above {TOLERANCE:g} on-time share",
            advice="train the references for longer (--reference-updates), or leave them out (--no-reference)",
        )
