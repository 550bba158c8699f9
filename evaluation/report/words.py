"""The verdict in plain words, and the limits that every reader of a comparison should know."""

from evaluation.bootstrap import Verdict
from evaluation.comparison import Comparison, Difference
from evaluation.formatting import number, shift_label, with_interval

TRAINED = "trained"


def summary(comparison: Comparison) -> list[str]:
    """One sentence for every trained policy (or, without one, every policy), reference and judge."""
    shown = [policy.name for policy in comparison.policies if policy.kind == TRAINED]
    shown = shown or [policy.name for policy in comparison.policies]
    main = [found for found in comparison.differences if found.metric == comparison.main_metric]
    sentences = []
    for judge in comparison.judges:
        for name in shown:
            for reference in dict.fromkeys(found.reference for found in main):
                wanted = (judge.name, name, reference)
                group = [found for found in main if (found.judge, found.policy, found.reference) == wanted]
                if group:
                    sentences.append(_sentence(judge.name, name, reference, group))
    if not sentences:
        sentences.append("No difference between policies could be measured; the tables below say why.")
    return sentences


def _sentence(judge: str, policy: str, reference: str, group: list[Difference]) -> str:
    parts = []
    for said, words in (
        (Verdict.BETTER, "does better"),
        (Verdict.WORSE, "does worse"),
        (Verdict.CANNOT_TELL, "cannot be told apart"),
    ):
        shifts = [shift_label(found.shift_days) for found in group if found.verdict is said]
        if shifts:
            parts.append(f"{words} after {_listed(shifts)}")
    outcome = "; ".join(parts) if parts else "has no better or worse"
    last = group[-1]
    gap = with_interval(last.estimate, signed=True)
    latest = f"{last.metric} {gap} after {shift_label(last.shift_days)}"
    return f"Judged by {judge}, {policy} against {reference}: {outcome} ({latest})."


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def not_applicable(comparison: Comparison) -> list[tuple[str, str]]:
    """Metrics without a value anywhere, with the reason."""
    reasons: dict[str, dict[str, None]] = {}
    valued = {cell.metric for cell in comparison.cells if cell.estimate.value is not None}
    for cell in comparison.cells:
        if cell.metric not in valued:
            reasons.setdefault(cell.metric, {})[cell.estimate.reason] = None
    return [(metric, "; ".join(said)) for metric, said in reasons.items()]


def standing_limits(comparison: Comparison) -> list[str]:
    """What holds for every comparison, with this one's figures."""
    percent, missed = 100 * comparison.level, 100 * (1.0 - comparison.level)
    limits = [
        f"Intervals aim at {percent:.0f} % coverage, drawn over {comparison.unit_kind}: they show what other "
        "days like these could have given, not what another cluster would. With few units they are "
        "somewhat too narrow.",
        "Nothing is adjusted for showing many comparisons at once: between policies that are equal, about "
        f"{missed:.0f} in 100 verdicts will still say better or worse.",
        "A number without an interval rests on too few units for one; differences of such numbers are never "
        "called better or worse. An interval of no width means that no draw of units changed "
        "the number, not that it is certain.",
    ]
    silent = [shift for shift in comparison.shifts if not shift.days]
    if silent:
        names = _listed([shift_label(shift.shift_days) for shift in silent])
        limits.append(f"Nothing is said about {names}: the log does not reach there.")
    agreements = [tally.agreement for tally in comparison.tallies if tally.agreement is not None]
    if agreements:
        limits.append(
            f"Between {number(min(agreements))} and {number(max(agreements))} of a policy's decisions are "
            "those of the log. What would have come of the others was never observed: the judge's model "
            "answers for them, not history. The lower the share, the less the log can say."
        )
    return [*limits, *(f"Judge {judge.name}: {judge.description}" for judge in comparison.judges)]
