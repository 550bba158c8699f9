"""The verdict of a comparison in at most two sentences."""

from collections.abc import Mapping, Sequence

from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import FAR_MARK, as_sentence, shift_label, with_interval
from evaluation.comparison.report.roles import TRAINED, USER, strong_policies, strongest_rule
from evaluation.comparison.report.words import WORDS, listed

REPLAY, IN_MODEL = "replay", "training twin"
"""The judge that borrows outcomes, and the one that policies were trained with."""
MOST = 0.5
"""Share of borrowed outcomes from which on the verdict says it."""


def verdict(comparison: Comparison) -> list[str]:
    """The result in at most two sentences: a judge's comparison of the policy of interest with the other main policies,
    and the agreement of the other judges. It is the first whose values of these are no guesses, else the first; never
    the twin that the policies were trained in, where there is another."""
    names = [one.policy for one in strong_policies(comparison)]
    mine = _of_interest(comparison)
    references = [
        name
        for name in comparison.references()
        if name in names and mine not in (None, name) and not comparison.is_alike(mine, name)
    ]
    judges = [judge.name for judge in comparison.judges]
    verdicts = {judge: _verdicts(comparison, judge, mine, references) for judge in judges} if mine else {}
    measured = [judge for judge in judges if verdicts.get(judge)]
    if mine is None or not measured:
        return ["No difference between policies could be measured; the details give the reasons."]
    guessed = {
        judge: any(
            comparison.is_far(judge, shift, one) for name, shift in verdicts[judge] for one in (mine, name)
        )
        for judge in measured
    }
    lead = min(measured, key=lambda judge: (judge == IN_MODEL, guessed[judge]))
    by = lead + (FAR_MARK if guessed[lead] else "") + _borrowed(comparison, lead, mine)
    first = f"Judged by {by}, {mine} {_standing(verdicts[lead])}{_values(comparison, lead, mine)}."
    others = {judge: found for judge, found in verdicts.items() if judge != lead and found}
    return [first, _agreement(verdicts[lead], others)]


def _borrowed(comparison: Comparison, judge: str, policy: str) -> str:
    """What share of a policy's outcomes replay borrows from other requests, where it is most of them."""
    agreements = [
        one.agreement
        for one in comparison.tallies
        if (one.judge, one.policy) == (judge, policy) and one.agreement is not None
    ]
    borrowed = 1.0 - min(agreements, default=1.0)
    if judge != REPLAY or borrowed <= MOST:
        return ""
    return f", which borrows {100 * borrowed:.0f} % of its outcomes from other requests"


def _of_interest(comparison: Comparison) -> str | None:
    """The policy of the verdict: the one that training exports, else the user's own, else the last main policy."""
    trained, users = (
        [policy.name for policy in comparison.policies if policy.kind == kind] for kind in (TRAINED, USER)
    )
    others = [one.policy for one in strong_policies(comparison) if one.policy != comparison.reference()]
    return next(iter([*trained[-1:], *users, *reversed(others)]), None)


def _verdicts(
    comparison: Comparison, judge: str, policy: str, against: Sequence[str]
) -> dict[tuple[str, int], DifferenceVerdict]:
    """(reference, shift) -> verdict on the paired difference in the main metric."""
    found = {
        (reference, shift.shift_days): comparison.difference(
            judge, shift.shift_days, policy, reference, comparison.main_metric
        )
        for reference in against
        for shift in comparison.shifts
    }
    return {where: one.verdict for where, one in found.items() if one is not None and one.verdict in WORDS}


def _standing(verdicts: Mapping[tuple[str, int], DifferenceVerdict]) -> str:
    """For example "is better than a and b at every shift; it is not distinguishable from c after 1 day"."""
    num_shifts = len({shift for _, shift in verdicts})
    parts = []
    for one, words in WORDS.items():
        alike: dict[tuple[int, ...], list[str]] = {}
        for reference in dict.fromkeys(reference for reference, _ in verdicts):
            shifts = tuple(
                shift for (name, shift), found in verdicts.items() if (name, found) == (reference, one)
            )
            if shifts:
                alike.setdefault(shifts, []).append(reference)
        verb, preposition = words.rsplit(" ", 1)
        each = []
        for shifts, names in alike.items():
            labels = listed([shift_label(shift) for shift in shifts])
            when = "at every shift" if len(shifts) == num_shifts > 1 else f"after {labels}"
            each.append(f"{preposition} {listed(names)} {when}")
        if each:
            parts.append(f"{verb} {' and '.join(each)}")
    return "; it ".join(parts)


def _values(comparison: Comparison, judge: str, policy: str) -> str:
    """The values of the policy and of the strongest rule after the longest shift that has both, in brackets."""
    rule = strongest_rule(comparison)
    names = [policy, *([rule] if rule and rule != policy and not comparison.is_alike(policy, rule) else [])]
    for shift in reversed(comparison.shifts):
        where = [
            comparison.cell(judge, shift.shift_days, str(name), comparison.main_metric) for name in names
        ]
        if all(one is not None and one.value is not None for one in where):
            shown = [f"{name} {with_interval(one)}" for name, one in zip(names, where, strict=True) if one]
            return f" ({comparison.main_metric} after {shift_label(shift.shift_days)}: {listed(shown)})"
    return ""


def _agreement(
    verdicts: Mapping[tuple[str, int], DifferenceVerdict],
    others: Mapping[str, Mapping[tuple[str, int], DifferenceVerdict]],
) -> str:
    """Agreement of the other judges' verdicts with those of the first one, where both have verdicts."""
    opposite = {
        DifferenceVerdict.BETTER: DifferenceVerdict.WORSE,
        DifferenceVerdict.WORSE: DifferenceVerdict.BETTER,
    }
    reversed_by: dict[str, list[str]] = {}
    confirmed: dict[int, list[str]] = {}
    for judge, found in others.items():
        both = [where for where in verdicts if where in found]
        against = dict.fromkeys(where[0] for where in both if opposite.get(verdicts[where]) is found[where])
        if against:
            reversed_by.setdefault(listed(list(against)), []).append(judge)
        elif both:
            num_alike = sum(verdicts[where] is found[where] for where in both)
            confirmed.setdefault(len(both), []).append(f"{num_alike} by {judge}")
    parts = [f"the verdicts on {names} are reversed by {listed(by)}" for names, by in reversed_by.items()]
    parts += [f"confirmed of these {number} verdicts: {', '.join(by)}" for number, by in confirmed.items()]
    if not parts:
        return "No other judge has verdicts on these differences."
    return as_sentence("; ".join(parts))
