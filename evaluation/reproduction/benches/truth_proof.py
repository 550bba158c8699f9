"""Separation of policies in a simulated world: the scores as a table, and checks of required differences.

Differences are paired: on one day all policies get the same requests, so effects common to all cancel.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from evaluation.comparison.bootstrap import Estimate, IntervalConfig, estimate, mean_over_units
from evaluation.comparison.formatting import shift_label, with_interval
from evaluation.reproduction.benches.reference_cache import Kept
from evaluation.reproduction.benches.truth_bench import (
    REFERENCE,
    STALE,
    STALE_REFERENCE,
    PolicyScore,
    TruthBenchConfig,
)
from evaluation.simulator.conditions import peak_load
from evaluation.simulator.parts import even_load
from evaluation.simulator.world import World

REFERENCE_ABSENT = (
    "the reference (with access to the hidden state, trained in the truth itself) was left out of this table"
)


@dataclass(frozen=True)
class Wanted:
    """A required difference: `better` exceeds `worse` by at least `margin` of on-time share, from day `since` on."""

    better: str
    worse: str
    margin: float
    since: int = 0


WANTED = (
    Wanted("least_loaded", "home", 0.05),
    Wanted("least_loaded", "cloud_only", 0.05),
    Wanted("least_expected_delay", "least_loaded", 0.02),
    Wanted("least_expected_delay", STALE, 0.03, since=30),
    Wanted(REFERENCE, "least_loaded", 0.04),
    Wanted(REFERENCE, "least_expected_delay", 0.0),
    Wanted(REFERENCE, STALE_REFERENCE, 0.03, since=30),
)
"""Required differences of a preset: simple rules are not enough, the mechanics or learning help, drift matters."""


@dataclass(frozen=True)
class Check:
    """The result of one required difference on one day; `met` by the value, `sure` by the whole interval."""

    better: str
    worse: str
    day: int
    margin: float
    difference: Estimate
    met: bool
    sure: bool


def checks(scores: Sequence[PolicyScore], wanted: Sequence[Wanted] = WANTED) -> list[Check]:
    """The results of the required differences, for every day on which both policies were scored."""
    by_case = {(score.policy, score.day): score for score in scores}
    found = []
    for one in wanted:
        for day in sorted({score.day for score in scores}):
            pair = by_case.get((one.better, day)), by_case.get((one.worse, day))
            if day >= one.since and pair[0] is not None and pair[1] is not None:
                gap = paired(pair[0], pair[1])
                met = gap.value is not None and gap.value >= one.margin
                sure = gap.low is not None and gap.low >= one.margin
                found.append(Check(one.better, one.worse, day, one.margin, gap, met, sure))
    return found


def paired(one: PolicyScore, other: PolicyScore) -> Estimate:
    """The difference of two policies on the same simulated days, with its interval."""
    units = (one.per_day - other.per_day).ravel()
    return estimate(mean_over_units(units), len(units), IntervalConfig())


def as_json(
    world: World, config: TruthBenchConfig, scores: Sequence[PolicyScore], references: Sequence[Kept] = ()
) -> dict[str, Any]:
    """Plain values: `rows` of policy, day, on_time, low, high; `checks`; what was simulated; the references used."""
    days = _days(scores)
    return {
        "preset": world.name,
        "even_load": {str(day): round(even_load(world, day), 4) for day in days},
        "least_load": {str(day): round(peak_load(world, day), 4) for day in days},
        "config": asdict(config),
        "metric": "share of requests accepted and finished within their deadline",
        "interval": "95 % over whole simulated days (seeds x days of each)",
        "rows": [
            {
                "policy": score.policy,
                "day": score.day,
                "on_time": score.on_time.value,
                "low": score.on_time.low,
                "high": score.on_time.high,
                "num_units": score.on_time.num_units,
            }
            for score in scores
        ],
        "checks": [asdict(check) for check in checks(scores)],
        "references": [_reference_row(one) for one in references],
        "notes": _notes(scores),
    }


def as_table(world: World, scores: Sequence[PolicyScore], references: Sequence[Kept] = ()) -> Group:
    """Policies by days, then the required differences, then the references used."""
    title = f"{world.name}: share of requests accepted and on time [95 % interval over simulated days]"
    table = Table(title=Text(title))
    table.add_column("policy")
    for day in _days(scores):
        table.add_column(Text(shift_label(day)), justify="right")
    by_case = {(score.policy, score.day): score for score in scores}
    for policy in dict.fromkeys(score.policy for score in scores):
        cells = [by_case.get((policy, day)) for day in _days(scores)]
        table.add_row(policy, *("" if cell is None else with_interval(cell.on_time) for cell in cells))
    lines = [
        f"{'met' if check.met else 'NOT MET'}: {check.better} - {check.worse} on day {check.day} is "
        f"{with_interval(check.difference, signed=True)}, at least {check.margin:g} required"
        for check in checks(scores)
    ]
    lines += [
        f"reference of day {one['day']}: {one['folder']}, {one['num_updates']} updates, "
        f"the last doubling gained {one['last_gain']:+.4f}, "
        + ("trained in unknown time" if one["train_s"] is None else f"trained in {one['train_s']:.0f} s")
        for one in map(_reference_row, references)
    ]
    return Group(table, *(Text(line) for line in (*lines, *_notes(scores))))


def _reference_row(kept: Kept) -> dict[str, Any]:
    return {
        "day": kept.reference.day,
        "num_updates": kept.num_updates,
        "last_gain": kept.last_gain,
        "folder": str(kept.folder),
        "trained_now": kept.trained_now,
        "train_s": kept.train_s,
    }


def _notes(scores: Sequence[PolicyScore]) -> list[str]:
    return [] if any(score.policy == REFERENCE for score in scores) else [REFERENCE_ABSENT]


def _days(scores: Sequence[PolicyScore]) -> list[int]:
    return sorted({score.day for score in scores})
