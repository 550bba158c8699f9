"""What fails on later days, held against the days of training."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.certify.lines import NONE, Line, Verdict, not_applicable
from evaluation.certify.since_training import (
    CHANGED,
    OPEN,
    WRONG_FORM,
    held_against_training,
    last_rows,
    since_training,
)
from evaluation.comparison.bootstrap import Estimate


def line(name: str, verdict: Verdict, value: float = 0.2, reason: str = "") -> Line:
    judged = Estimate(value, value, value, 4)
    return Line("runs", name, "1", judged, NONE, judged, 0.1, False, "0.1", verdict, reason)


def test_nothing_is_forecast_where_no_line_fails():
    lines = [line("one", Verdict.PASS), line("two", Verdict.CANNOT_TELL)]
    assert held_against_training(lines, lambda: pytest.fail("forecast")) == (lines, {})
    assert since_training(lines, {}) == ""


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ((Verdict.PASS, Verdict.PASS), CHANGED),
        ((Verdict.PASS, Verdict.FAIL), WRONG_FORM),
        ((Verdict.PASS, Verdict.CANNOT_TELL), OPEN),
    ],
)
def test_what_failed_on_the_training_days_too_is_no_change_since(then, words):
    lines = [
        line("one", Verdict.FAIL),
        line("two", Verdict.FAIL, reason="3 s logged"),
        line("good", Verdict.PASS),
    ]
    before = [line("one", then[0], 0.01), line("two", then[1], 0.05), line("good", Verdict.FAIL)]
    found, verdicts = held_against_training(lines, lambda: before)
    assert since_training(found, verdicts) == words
    assert [one.verdict for one in found] == [one.verdict for one in lines]
    assert found[0].reason == "on training days 0.0100: pass"
    assert found[1].reason == f"3 s logged; on training days 0.0500: {then[1].value}"
    assert found[2] == lines[2]


def test_only_lines_that_fail_among_all_of_a_certificate_say_what_follows():
    lines = [line("one", Verdict.FAIL), line("two", Verdict.FAIL)]
    before = [line("one", Verdict.PASS), line("two", Verdict.FAIL)]
    found, verdicts = held_against_training(lines, lambda: before)
    by_chance = replace(found[1], verdict=Verdict.CANNOT_TELL)
    assert since_training([found[0], by_chance], verdicts) == CHANGED
    assert since_training([replace(found[0], verdict=Verdict.CANNOT_TELL), by_chance], verdicts) == ""


def test_a_line_that_training_days_are_too_few_for_stays_as_it_is():
    lines = [line("one", Verdict.FAIL)]
    found, verdicts = held_against_training(lines, lambda: [not_applicable("runs", "one", "too few")])
    assert found == lines
    assert since_training(found, verdicts) == OPEN


def test_the_last_windows_come_day_by_day_and_hold_as_many_requests():
    day = np.repeat([0, 1, 2], 4)
    windows = SimpleNamespace(
        length=np.full(12, 10, np.int32), origin_s=day * 86_400.0 + 60.0, num_windows=12
    )
    chosen = last_rows(windows, 60)
    assert [rows.tolist() for rows in chosen] == [[6, 7], [8, 9, 10, 11]]
    assert [rows.tolist() for rows in last_rows(windows, 3)] == [[11]]
