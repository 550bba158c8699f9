"""Which order is handed over after a comparison: the ladder's, unless replay finds what was learned better."""

from typing import NamedTuple

from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import shift_label
from evaluation.problems.ordering.comparing import REPLAY
from evaluation.problems.ordering.fixed_orders import OWN_BACKFILL
from evaluation.problems.ordering.playing import BEST_RULE, EASY, LADDER

INDEX = "index"


class Winner(NamedTuple):
    """What is handed over.

    Attributes:
        rule: name of a fixed order (`fixed_orders`); None where it is the index.
        words: what it is, and why.
        fallback: name of the rule that stands in for it.
    """

    rule: str | None
    words: str
    fallback: str | None = None


def winner_of(comparison: Comparison) -> Winner:
    """What the ladder of the last anchor chose, or the index where it is better.

    Better is what the paired interval to the ladder says at one shift at least, where no other shift says worse.
    Without a ladder it is the index, or the best of the rules that it is worse than.
    """
    ladder, rule = (comparison.archive.get(name) for name in (LADDER, BEST_RULE))
    if ladder is None:
        return _against_rules(comparison)
    found = _verdicts(comparison, LADDER)
    better = [shift for shift, said in found.items() if said is DifferenceVerdict.BETTER]
    if better and DifferenceVerdict.WORSE not in found.values():
        shifts = ", ".join(map(shift_label, better))
        words = f"the index: in {REPLAY} better than the ladder after {shifts}, and worse at no shift"
        return Winner(None, words, rule)
    kind = "the rule" if ladder == rule else "not a rule but"
    words = (
        f"{kind} {ladder}, which the ladder chose in past weeks: in {REPLAY} the index is not surely better"
    )
    return Winner(ladder, words, rule)


def _against_rules(comparison: Comparison) -> Winner:
    """The index, or the best of the rules that it is worse than.

    Worse is what the paired interval says at one shift at least, where no other shift says better; the best has the
    lowest mean over the shifts.
    """
    told = {rule: _verdicts(comparison, f"{rule}{EASY}") for rule in OWN_BACKFILL}
    better = {
        rule: [shift for shift, said in found.items() if said is DifferenceVerdict.WORSE]
        for rule, found in told.items()
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
    """How the index stands to a rule at every shift that says so."""
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
