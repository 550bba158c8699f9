"""Means of a table over seeds: Student's intervals, and differences taken within each seed."""

from typing import Any

import pytest

from evaluation.commands.cli import main
from evaluation.reproduction.repeats import over_repeats, repeated
from evaluation.reproduction.showing_table2 import as_table

STUDENT_2 = 4.302653  # 97.5 % point with two degrees of freedom


def table_of(seed: int, level: float, ladder: float, rules: tuple[float, float]) -> dict[str, Any]:
    """A table of one shift, of a seed at whose level every policy is."""
    best = ("rule_a", "rule_b")[rules[1] > rules[0]]
    values = {"rule_a": rules[0], "rule_b": rules[1], "ladder": ladder}
    rows = [
        {
            "policy": name,
            "shift_days": 7,
            "on_time": level + value,
            "on_time_low": 0.0,
            "on_time_high": 1.0,
            "best_rule": best,
            "promised": level + value + 0.1,
            "overflow": 0.0,
            "num_seeds": 1,
        }
        for name, value in values.items()
    ]
    return {
        "config": {"seed": seed, "max_requests": None}, "rows": rows, "chosen": "residual", "references": [],
        "certificate": "fail",
        "differences": [
            {"policy": "ladder", "reference": "rule_a", "shift_days": 7, "on_time": ladder - rules[0]}
        ],
        "in_model_on_time": level, "optimism_gap": 0.1, "preset": "made", "behaviour": "mix",
        "interval": "over replications", "beaten": [], "paper_offload_over_random": {},
    }  # fmt: skip


TABLES = [
    table_of(4, level=0.1, ladder=0.30, rules=(0.25, 0.20)),
    table_of(5, level=0.3, ladder=0.32, rules=(0.20, 0.24)),
    table_of(6, level=0.5, ladder=0.34, rules=(0.24, 0.10)),
]


def test_differences_are_taken_within_a_seed_and_shown_with_students_interval():
    found = over_repeats(TABLES)
    to_best, to_a = found["differences"]
    assert (to_best["reference"], to_a["reference"]) == ("best_rule", "rule_a")
    assert to_best["each"] == pytest.approx([0.05, 0.08, 0.10])  # the best rule of seed 5 is the other one
    assert to_best["on_time"] == pytest.approx(0.23 / 3)
    half = STUDENT_2 * 0.0251661 / 3**0.5
    assert to_best["on_time_high"] - to_best["on_time"] == pytest.approx(half, rel=1e-4)
    assert to_best["verdict"] == "better"
    assert to_a["each"] == pytest.approx([0.05, 0.12, 0.10])
    ladder = next(row for row in found["rows"] if row["policy"] == "ladder")
    assert ladder["on_time"] == pytest.approx(0.62)
    assert ladder["promised"] == pytest.approx(0.72)
    assert ladder["low"] < 0.2  # levels of systems differ, and differences within them do not
    assert ladder["num_seeds"] == 3
    assert [(one["seed"], one["certificate"]) for one in found["seeds"]] == [
        (4, "fail"),
        (5, "fail"),
        (6, "fail"),
    ]
    assert [one["best_rules"] for one in found["seeds"]] == [
        {"7": "rule_a"},
        {"7": "rule_b"},
        {"7": "rule_a"},
    ]
    assert as_table(found)


def test_differences_of_seeds_are_of_the_same_pair_whatever_their_order():
    more = {"policy": "ladder", "reference": "rule_b", "shift_days": 7, "on_time": 9.0}
    tables = [TABLES[0], TABLES[1] | {"differences": [more, *TABLES[1]["differences"]]}]
    for one in (tables, tables[::-1]):
        _, to_a = over_repeats(one)["differences"]
        assert to_a["reference"] == "rule_a"
        assert sorted(to_a["each"]) == pytest.approx([0.05, 0.12])


def test_one_seed_is_its_own_table_and_what_a_seed_lacks_is_left_out():
    assert repeated([4], lambda _seed: TABLES[0]) == TABLES[0]
    fewer = TABLES[1] | {"rows": TABLES[1]["rows"][1:]}
    found = repeated([4, 5], {4: TABLES[0], 5: fewer}.__getitem__)
    assert {row["policy"] for row in found["rows"]} == {"rule_b", "ladder"}


def test_no_repeats_are_refused(capsys):
    assert main(["reproduce", "table2", "--repeats", "0"]) == 2
    assert "1 and more" in capsys.readouterr().err
