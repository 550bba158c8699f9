"""Sentences of a report: the verdicts of every judge, and the limits of a comparison."""

from collections.abc import Sequence

from evaluation.comparison.bootstrap import WITHIN_DAY, DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import FAR, Difference, is_far
from evaluation.comparison.formatting import FAR_MARK, GUESS, number, shift_label, with_interval
from evaluation.comparison.report.roles import HISTORY, TRAINED

WORDS = {
    DifferenceVerdict.BETTER: "is better than",
    DifferenceVerdict.WORSE: "is worse than",
    DifferenceVerdict.CANNOT_TELL: "is not distinguishable from",
}


def summary(comparison: Comparison) -> list[str]:
    """Sentences for every judge and trained policy (or, where none was trained, every policy)."""
    shown = [policy.name for policy in comparison.policies if policy.kind == TRAINED]
    shown = shown or [policy.name for policy in comparison.policies]
    sentences = [
        f"{policy}: no difference to {listed(alike)} in any measure."
        for policy in shown
        if (alike := [name for name in comparison.references() if comparison.is_alike(policy, name)])
    ]
    for judge in comparison.judges:
        for policy in shown:
            sentences += _sentences(comparison, judge.name, policy)
    if any(FAR_MARK in sentence for sentence in sentences):
        sentences.append(f"{FAR_MARK} {GUESS}, of the policy or of its reference.")
    return sentences or [
        "No difference between policies could be measured; the tables below give the reasons."
    ]


def _sentences(comparison: Comparison, judge: str, policy: str) -> list[str]:
    """One sentence for each set of references with the same verdicts at every shift."""
    alike: dict[tuple[tuple[str, DifferenceVerdict], ...], list[Difference]] = {}
    others = [name for name in comparison.references() if not comparison.is_alike(policy, name)]
    main = comparison.main_metric
    for reference in others:
        found = [
            difference
            for shift in comparison.shifts
            if (difference := comparison.difference(judge, shift.shift_days, policy, reference, main))
        ]
        if any(difference.verdict in WORDS for difference in found):
            pattern = tuple((_marked(comparison, one), one.verdict) for one in found)
            alike.setdefault(pattern, []).append(found[-1])
    facts = next(item for item in comparison.metrics if item.name == main)
    metric = f"{facts.name}, where {facts.better} is better,"
    return [_sentence(judge, policy, metric, pattern, last) for pattern, last in alike.items()]


def _marked(comparison: Comparison, found: Difference) -> str:
    """The label of a difference's shift, with the mark where one of its two values is a guess."""
    guessed = any(
        comparison.is_far(found.judge, found.shift_days, one) for one in (found.policy, found.reference)
    )
    return shift_label(found.shift_days) + (FAR_MARK if guessed else "")


def _sentence(
    judge: str,
    policy: str,
    metric: str,
    pattern: tuple[tuple[str, DifferenceVerdict], ...],
    last: list[Difference],
) -> str:
    """`last` holds the difference to every reference after the longest shift."""
    names = listed([found.reference for found in last])
    parts: list[str] = []
    for kind, words in WORDS.items():
        shifts = [shift for shift, verdict in pattern if verdict is kind]
        if shifts:
            whom = names if not parts else ("them" if len(last) > 1 else "it")
            parts.append(f"{words} {whom} after {listed(shifts)}")
    gaps = [f"{with_interval(found.estimate, signed=True)} against {found.reference}" for found in last]
    figures = f"{metric} after {shift_label(last[0].shift_days)}: {listed(gaps)}"
    return f"Judged by {judge}, {policy} {'; it '.join(parts)} ({figures})."


def listed(items: Sequence[str]) -> str:
    """For example "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def far_policies(comparison: Comparison) -> dict[str, list[str]]:
    """Judge -> policies that left the support of its log at one shift or more; only judges with such policies."""
    found: dict[str, dict[str, None]] = {}
    for tally in comparison.tallies:
        if is_far(tally.out_of_support):
            found.setdefault(tally.judge, {})[tally.policy] = None
    return {judge: list(policies) for judge, policies in found.items()}


def not_applicable(comparison: Comparison) -> list[tuple[str, str]]:
    """Metrics without a value anywhere, with the reason."""
    reasons: dict[str, dict[str, None]] = {}
    valued = {cell.metric for cell in comparison.cells if cell.estimate.value is not None}
    for cell in comparison.cells:
        if cell.metric not in valued:
            reasons.setdefault(cell.metric, {})[cell.estimate.reason] = None
    return [(metric, "; ".join(each)) for metric, each in reasons.items()]


def _covered(unit_kind: str) -> str:
    """What intervals over such units cover, in words."""
    if WITHIN_DAY in unit_kind:
        return "those over parts of a day cover the variation within these days, not from day to day"
    if any(kind.startswith("days") for kind in unit_kind.split(" / ")):
        return "they cover the variation between days like these"
    return "they cover the variation between such units, not of a day that these share"


def standing_limits(comparison: Comparison) -> list[str]:
    """The limits that hold for every comparison, with this one's figures."""
    percent, missed = 100 * comparison.level, 100 * (1.0 - comparison.level)
    limits = [
        f"Intervals have a nominal coverage of {percent:.0f} %, drawn over {comparison.unit_kind}: "
        f"{_covered(comparison.unit_kind)}, not between clusters. With few units they are somewhat too narrow.",
        "Verdicts are not adjusted for multiple comparisons: between policies that are equal, about "
        f"{missed:.0f} in 100 verdicts are still better or worse.",
        "A number without an interval has too few units for one; differences of such numbers are never "
        "called better or worse. An interval of zero width means that no draw of units changed "
        "the number, not that it is certain.",
    ]
    guessed = far_policies(comparison)
    if guessed:
        concerned = "; ".join(f"{judge}: {listed(policies)}" for judge, policies in guessed.items())
        limits.append(
            f"{FAR_MARK} marks values outside the support of a judge's log. In a twin, more than {100 * FAR:.0f} % of "
            "the policy's decisions went to nodes with longer queues than 99 % of the logged offers to them found. In "
            f"replay, more than {100 * FAR:.0f} % of them are choices that the log of these days hardly ever took for "
            "the service or the queue, so that their outcomes are borrowed from other requests, or borrow the outcome "
            f"of one request with more than ten others, which no interval accounts for. {concerned}."
        )
    silent = [shift for shift in comparison.shifts if not shift.days]
    if silent:
        names = listed([shift_label(shift.shift_days) for shift in silent])
        limits.append(f"There are no values for {names}: the log does not reach there.")
    logged = {policy.name for policy in comparison.policies if policy.kind == HISTORY}
    others = [
        tally for tally in comparison.tallies if tally.policy not in logged
    ]  # the log agrees with itself
    agreements = [tally.agreement for tally in others if tally.agreement is not None]
    if agreements:
        limits.append(
            f"Between {number(min(agreements))} and {number(max(agreements))} of a policy's decisions are "
            "those of the log. The outcomes of the others are not in it and come from the judge's model. The "
            "lower the share, the less the values depend on the log."
        )
    return [*limits, *(f"Judge {judge.name}: {judge.description}" for judge in comparison.judges)]
