"""The main policies of a comparison, shown in colour and named in sentences; all others are shown in grey."""

import math
from dataclasses import dataclass

from evaluation.comparison.comparison import Comparison

TRAINED, IMITATION, HISTORY, RULE, USER = "trained", "imitation", "history", "rule", "user"


@dataclass(frozen=True)
class Strong:
    """A main policy of a report.

    Attributes:
        policy: Name of the policy.
        style: Number of its colour and marker, the same for the same role in every report.
        role: Description of its role.
    """

    policy: str
    style: int
    role: str


def strong_policies(comparison: Comparison) -> list[Strong]:
    """At most seven policies: the one that training exports (the last trained policy), cloning, the logged behaviour,
    the best rule from the log (without one, the best baseline), the reference, and two of the user's own, or with fewer
    the first policy that was trained.

    Of several candidates for a role, the one that differences were taken to is chosen, else the best by the first
    judge.
    """
    trained, users = _of_kind(comparison, TRAINED), _of_kind(comparison, USER)
    roles = (
        ("exported by training", trained[-1:]),
        ("cloning", _chosen(comparison, _of_kind(comparison, IMITATION))),
        ("the logged behaviour", _chosen(comparison, _of_kind(comparison, HISTORY))),
        ("the strongest rule", [name for name in [strongest_rule(comparison)] if name is not None]),
        ("the reference", [name for name in [comparison.reference()] if name is not None]),
        ("your own", users[:1]),
        ("your own" if users[1:] else "trained", (users[1:] or trained)[:1]),
    )
    strong: dict[str, Strong] = {}
    for style, (role, names) in enumerate(roles):
        for name in names:
            strong.setdefault(name, Strong(name, style, role))
    return list(strong.values())


def strongest_rule(comparison: Comparison) -> str | None:
    """The best rule from the log by the first judge; where there is none, the best baseline."""
    rules = _of_kind(comparison, RULE) or _of_kind(comparison, "baseline")
    return min(rules, key=lambda name: _badness(comparison, name), default=None)


def lower_is_better(comparison: Comparison) -> bool:
    """Whether the main metric is better where it is lower."""
    return next(item.better for item in comparison.metrics if item.name == comparison.main_metric) == "lower"


def _of_kind(comparison: Comparison, kind: str) -> list[str]:
    return [policy.name for policy in comparison.policies if policy.kind == kind]


def _chosen(comparison: Comparison, names: list[str]) -> list[str]:
    """One of the names: a reference, else the best."""
    known = [name for name in comparison.references() if name in names]
    return known[:1] or sorted(names, key=lambda name: _badness(comparison, name))[:1]


def _badness(comparison: Comparison, policy: str) -> tuple[int, float]:
    """Number of shifts without a value by the first judge, then the mean over the others: lower is better."""
    found = [
        comparison.cell(comparison.judges[0].name, shift.shift_days, policy, comparison.main_metric)
        for shift in comparison.shifts
    ]
    values = [one.value for one in found if one is not None and one.value is not None]
    sign = 1.0 if lower_is_better(comparison) else -1.0
    return len(found) - len(values), sign * sum(values) / len(values) if values else math.inf
