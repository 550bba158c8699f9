"""What a comparison of placements tells besides its table: how the ladder stands to the strongest rule, paired."""

import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import compare
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, Run, ShiftFacts
from evaluation.judges.descriptions import LADDER
from evaluation.problems.placement.kit import compared
from offline_rl.rules.in_twin import DESCRIPTIONS
from tests.evaluation.made import made_decisions

RULES = tuple(DESCRIPTIONS)


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
        archive={}, train_days=[], unit_kind="days",
        policies=[PolicyFacts(name, "rule" if name in RULES else "trained", "") for name in late],
        judges=[JudgeFacts("replay", "")], shifts=[ShiftFacts(0, (), 0)], references=RULES,
        main_metric="on_time", config=IntervalConfig(num_replicates=300),
    )  # fmt: skip


def test_the_ladder_is_held_against_the_rule_that_did_best():
    (line,) = compared(made({RULES[0]: 0.2, RULES[1]: 0.1, LADDER: 0.05}))
    assert line.startswith(f"{LADDER} less {RULES[1]}, on_time, by replay after 0 days: +0.0")
    assert line.endswith(": better")
    (line,) = compared(made({RULES[0]: 0.05, LADDER: 0.1}))
    assert line.startswith(f"{LADDER} less {RULES[0]}")
    assert line.endswith(": worse")


def test_without_a_ladder_or_a_rule_nothing_is_told():
    assert compared(made({RULES[0]: 0.2})) == []
    assert compared(made({LADDER: 0.2})) == []
