"""What a comparison of placements tells besides its table: how the ladder stands to the strongest rule, paired."""

from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import compare
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.report.render import _by_metric
from evaluation.comparison.report.verdict import verdict
from evaluation.comparison.report.words import summary
from evaluation.judges.descriptions import LADDER, POLICIES
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement import steps
from evaluation.problems.placement.case import Case
from evaluation.problems.placement.kit import compared
from logs_schema.hashing import json_hash
from logs_schema.progress import SilentProgress
from logs_schema.records import to_plain
from offline_rl.rules.in_twin import DESCRIPTIONS
from tests.evaluation.made import made_decisions

RULES = tuple(DESCRIPTIONS)
(LADDER_FACTS,) = (one for one in POLICIES if one.name == LADDER)


def made(late, num_units=14):
    """Policies that share a day's luck; `late` is the share of requests that end late under each."""
    unit = np.repeat(np.arange(num_units), 60)
    luck = np.random.default_rng(0).random(len(unit))
    runs = [
        Run(
            "replay",
            0,
            name,
            made_decisions(len(unit), unit=unit, wait_s=np.where(luck < share, 400.0, 10.0)),
        )
        for name, share in late.items()
    ]
    return compare(
        runs,
        archive={},
        train_days=[],
        unit_kind="days",
        policies=[PolicyFacts(name, "rule" if name in RULES else "trained", "") for name in late],
        judges=[JudgeFacts("replay", "")],
        shifts=[ShiftFacts(0, (), 0)],
        references=RULES,
        main_metric="on_time",
        config=IntervalConfig(num_replicates=300),
    )


def test_the_ladder_is_held_against_the_rule_that_did_best():
    (line,) = compared(made({RULES[0]: 0.2, RULES[1]: 0.1, LADDER: 0.05}))
    assert line.startswith(f"{LADDER} less {RULES[1]}, on_time, by replay after 0 days: +0.0")
    assert line.endswith(": better")
    (line,) = compared(made({RULES[0]: 0.05, LADDER: 0.1}))
    assert line.startswith(f"{LADDER} less {RULES[0]}")
    assert line.endswith(": worse")


def test_what_the_ladder_chose_itself_is_not_held_against_it():
    found = made({RULES[0]: 0.2, RULES[1]: 0.1, LADDER: 0.1})
    (line,) = compared(found)
    assert line == f"{LADDER}: no difference to {RULES[1]}, the strongest rule, in any measure"
    assert found.is_alike(RULES[1], LADDER)
    assert not found.is_alike(RULES[0], LADDER)
    told = [*summary(found), *verdict(found)]
    assert told[0] == f"{LADDER}: no difference to {RULES[1]} in any measure."
    assert not any(RULES[1] in sentence for sentence in told[1:])
    assert f"is better than {RULES[0]}" in told[1]
    shown = {(one.policy, one.reference) for metric in _by_metric(found) for one in metric["differences"]}
    assert (LADDER, RULES[1]) not in shown
    assert (LADDER, RULES[0]) in shown


def test_the_ladder_is_described_by_what_it_chose():
    schedulers = SimpleNamespace(ladder={RULES[0]: None}, chosen=(RULES[0], 0))
    for given, which in ((schedulers, f"; here {RULES[0]}"), (None, "")):
        (facts,) = (
            one for one in Case.described.fget(SimpleNamespace(schedulers=given)) if one.name == LADDER
        )
        assert facts.description == LADDER_FACTS.description + which


def test_without_a_ladder_or_a_rule_nothing_is_told():
    assert compared(made({RULES[0]: 0.2})) == []
    assert compared(made({LADDER: 0.2})) == []


def test_estimates_kept_of_a_killed_comparison_have_its_own_intervals(monkeypatch, tmp_path):
    kept = []

    def beside(_out, _kind, _made_from, settings, **_):
        kept.append(json_hash(to_plain(settings)))
        raise KeyboardInterrupt

    known = SimpleNamespace(content_hash="", encoding=SimpleNamespace(train_days=()))
    for name in ("Archive", "refuse_other_nodes", "refuse_other_twin", "plan_of", "read_manifest"):
        monkeypatch.setattr(steps, name, lambda *_: known)
    monkeypatch.setattr(steps, "PlacementTwin", SimpleNamespace(load=lambda _: known))
    monkeypatch.setattr(steps, "Unfinished", SimpleNamespace(beside=beside))
    for level in (0.95, 0.9, 0.95):
        config = RunConfig(intervals=IntervalConfig(level=level))
        with pytest.raises(KeyboardInterrupt):
            steps.build_comparison(*[tmp_path] * 3, None, config, SilentProgress(), title="")
    assert kept[0] == kept[2] != kept[1]
