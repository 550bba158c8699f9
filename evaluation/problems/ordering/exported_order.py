"""The order to export: the ladder's, unless the learned order is better in the replay of a comparison."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import shift_label
from evaluation.comparison.report.roles import TRAINED
from evaluation.problems.ordering.comparing import REPLAY
from evaluation.problems.ordering.fixed_orders import OWN_BACKFILL
from evaluation.problems.ordering.index_orders import index_exponents
from evaluation.problems.ordering.playing import BEST_RULE, EASY, LADDER

INDEX = "index"


class Winner(NamedTuple):
    """The order to export.

    Attributes:
        rule: name of a fixed order (`fixed_orders`); None where it is an index.
        words: description with the reason of the choice.
        fallback: name of its fallback rule.
        exponents: [5] of the ladder's index; None: the index's own.
    """

    rule: str | None
    words: str
    fallback: str | None = None
    exponents: np.ndarray | None = None


def winner_of(comparison: Comparison) -> Winner:
    """The choice of the last anchor's ladder, or the index where it is better.

    The index is better if the verdict against the ladder is better at one shift or more, and worse at none. Without a
    ladder it is the index, or the best of the rules that it is worse than.
    """
    ladder, rule = (comparison.archive.get(name) for name in (LADDER, BEST_RULE))
    if ladder is None or rule is None:
        return _against_rules(comparison)
    found = _verdicts(comparison, LADDER)
    better = [shift for shift, verdict in found.items() if verdict is DifferenceVerdict.BETTER]
    if better and DifferenceVerdict.WORSE not in found.values():
        shifts = ", ".join(map(shift_label, better))
        words = f"the index: in {REPLAY} better than the ladder after {shifts}, and worse at no shift"
        return Winner(None, words, rule)
    return winner_of_ladder(ladder, rule, f"in {REPLAY} {INDEX} is not surely better")


def with_exported_last(comparison: Comparison) -> Comparison:
    """The comparison with the order that is exported as the last of its trained policies: reports name it so."""
    winner = winner_of(comparison)
    name = INDEX if winner.rule is None and winner.exponents is None else LADDER
    policies = sorted(comparison.policies, key=lambda one: one.name == name and one.kind == TRAINED)
    return replace(comparison, policies=tuple(policies))


def winner_of_ladder(order: str, rule: str, why: str) -> Winner:
    """What a ladder chose, by its name, and why; its best rule is the fallback."""
    kind = "the rule" if order == rule else "not a rule but"
    exponents = index_exponents(order)
    words = f"{kind} {order}, which the ladder chose in past weeks: {why}"
    return Winner(order if exponents is None else None, words, rule, exponents)


def _against_rules(comparison: Comparison) -> Winner:
    """The index, or the best of the rules that it is worse than.

    The index is worse if the verdict is worse at one shift or more, and better at none; the best rule has the lowest
    mean over the shifts.
    """
    verdicts = {rule: _verdicts(comparison, f"{rule}{EASY}") for rule in OWN_BACKFILL}
    better = {
        rule: [shift for shift, verdict in found.items() if verdict is DifferenceVerdict.WORSE]
        for rule, found in verdicts.items()
        if DifferenceVerdict.WORSE in found.values() and DifferenceVerdict.BETTER not in found.values()
    }
    if not better:
        return Winner(
            None, f"the index: in {REPLAY} no rule with EASY does better at a shift, and worse at none"
        )
    best = min(better, key=lambda rule: _mean(comparison, f"{rule}{EASY}"))
    shifts = ", ".join(shift_label(shift) for shift in better[best])
    others = ", ".join(f"{rule}{EASY}" for rule in better if rule != best)
    words = f"the rule {best}{EASY}, not the index, which does worse in {REPLAY} after {shifts}"
    return Winner(f"{best}{EASY}", f"{words}; worse than {others} too" if others else words)


def _verdicts(comparison: Comparison, reference: str) -> dict[int, DifferenceVerdict]:
    """Verdicts of the index against a rule, by shift."""
    found = {
        shift.shift_days: comparison.difference(
            REPLAY, shift.shift_days, INDEX, reference, comparison.main_metric
        )
        for shift in comparison.shifts
    }
    return {shift: one.verdict for shift, one in found.items() if one is not None}


def _mean(comparison: Comparison, policy: str) -> float:
    cells = [
        comparison.cell(REPLAY, shift.shift_days, policy, comparison.main_metric)
        for shift in comparison.shifts
    ]
    values = [cell.value for cell in cells if cell is not None and cell.value is not None]
    return sum(values) / len(values) if values else float("inf")
