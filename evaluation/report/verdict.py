"""The verdict of a comparison in at most two sentences."""

from collections.abc import Mapping, Sequence

from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import FAR_MARK, shift_label, with_interval
from evaluation.report.roles import TRAINED, USER, strong_policies, strongest_rule
from evaluation.report.words import WORDS, listed


def verdict(comparison: Comparison) -> list[str]:
    """What came of it, in at most two sentences: how the policy that matters stands by the first judge to the others
    that stand out, and whether the other judges say so too."""
    names = [one.policy for one in strong_policies(comparison)]
    mine = _of_interest(comparison)
    held = [name for name in comparison.references() if name in names and name != mine]
    judges = [judge.name for judge in comparison.judges]
    said = {judge: _verdicts(comparison, judge, mine, held) for judge in judges} if mine else {}
    lead = next((judge for judge in judges if said.get(judge)), None)
    if mine is None or lead is None:
        return ["No difference between policies could be measured; the details say why."]
    guessed = any(comparison.is_far(lead, shift, one) for name, shift in said[lead] for one in (mine, name))
    by = lead + (FAR_MARK if guessed else "")
    first = f"Judged by {by}, {mine} {_standing(said[lead])}{_values(comparison, lead, mine)}."
    others = {judge: found for judge, found in said.items() if judge != lead and found}
    return [first, _agreement(said[lead], others)]


def _of_interest(comparison: Comparison) -> str | None:
    """What a verdict speaks of: what training hands over, else the user's own, else the last that stands out."""
    trained, users = (
        [policy.name for policy in comparison.policies if policy.kind == kind] for kind in (TRAINED, USER)
    )
    others = [one.policy for one in strong_policies(comparison) if one.policy != comparison.reference()]
    return next(iter([*trained[-1:], *users, *reversed(others)]), None)


def _verdicts(
    comparison: Comparison, judge: str, policy: str, against: Sequence[str]
) -> dict[tuple[str, int], DifferenceVerdict]:
    """(reference, shift) -> what the paired difference in the main metric lets one say."""
    found = {
        (reference, shift.shift_days): comparison.difference(
            judge, shift.shift_days, policy, reference, comparison.main_metric
        )
        for reference in against
        for shift in comparison.shifts
    }
    return {where: one.verdict for where, one in found.items() if one is not None and one.verdict in WORDS}


def _standing(said: Mapping[tuple[str, int], DifferenceVerdict]) -> str:
    """For example "does better than a and b at every shift; it cannot be told from c after 1 day"."""
    num_shifts = len({shift for _, shift in said})
    parts = []
    for one, words in WORDS.items():
        alike: dict[tuple[int, ...], list[str]] = {}
        for reference in dict.fromkeys(reference for reference, _ in said):
            shifts = tuple(shift for (name, shift), was in said.items() if (name, was) == (reference, one))
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
    names = [policy, *([rule] if rule not in (None, policy) else [])]
    for shift in reversed(comparison.shifts):
        where = [
            comparison.cell(judge, shift.shift_days, str(name), comparison.main_metric) for name in names
        ]
        if all(one is not None and one.value is not None for one in where):
            shown = [f"{name} {with_interval(one)}" for name, one in zip(names, where, strict=True) if one]
            return f" ({comparison.main_metric} after {shift_label(shift.shift_days)}: {listed(shown)})"
    return ""


def _agreement(
    said: Mapping[tuple[str, int], DifferenceVerdict],
    others: Mapping[str, Mapping[tuple[str, int], DifferenceVerdict]],
) -> str:
    """Whether the other judges say what the first one says, where both say something."""
    opposite = {
        DifferenceVerdict.BETTER: DifferenceVerdict.WORSE,
        DifferenceVerdict.WORSE: DifferenceVerdict.BETTER,
    }
    groups: dict[str, list[str]] = {}
    for judge, found in others.items():
        both = [where for where in said if where in found]
        against = dict.fromkeys(where[0] for where in both if opposite.get(said[where]) is found[where])
        num_alike = sum(said[where] is found[where] for where in both)
        if against:
            words = f"the contrary about {listed(list(against))} is said by"
        elif num_alike == len(both):
            words = "the same is said by"
        else:
            words = f"no more than {num_alike} of these {len(both)} verdicts are shared by"
        if both:
            groups.setdefault(words, []).append(judge)
    if not groups:
        return "No other judge says anything about that."
    sentence = "; ".join(f"{words} {listed(judges)}" for words, judges in groups.items())
    return f"{sentence[0].upper()}{sentence[1:]}."
