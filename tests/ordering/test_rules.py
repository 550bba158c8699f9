"""The published formulas at values worked out by hand."""

import numpy as np
import pytest

from tests.ordering.making import jobs_of
from twin.ordering import rules
from twin.ordering.queue import Priority
from twin.ordering.rules import F1, FCFS, LJF, LOGGED_ORDER, RULES, SAF, SJF, UNICEF, WFP3, Rule, Waiting

WAITING = Waiting(
    arrival_s=np.array([10.0, 100.0, 0.0]),
    processors=np.array([8.0, 1.0, 2.0]),
    requested_s=np.array([100.0, 10.0, 1000.0]),
    logged_start_s=np.array([7.0, np.nan, 3.0]),
)


@pytest.mark.parametrize(
    ("rule", "scores"),
    [
        (FCFS, [10, 100, 0]),
        (SJF, [100, 10, 1000]),
        (SAF, [800, 10, 2000]),
        (LJF, [-8, -1, -2]),
        (WFP3, [-8 * 1.0**3, -1 * 1.0**3, -2 * 0.11**3]),  # waits of 100, 10 and 110 s
        (UNICEF, [-100 / (3 * 100), -10 / (1e-9 * 10), -110 / (1 * 1000)]),
        (F1, [2 * 8 + 870 * 1, 1 * 1 + 870 * 2, 3 * 2 + 870 * 0]),
        (LOGGED_ORDER, [7, np.inf, 3]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_scores(rule, scores):
    np.testing.assert_allclose(rule.score(WAITING, 110.0), scores, rtol=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_only_rules_that_age_depend_on_the_clock(rule):
    same = np.array_equal(rule.score(WAITING, 110.0), rule.score(WAITING, 5e3))
    assert same == (not rule.ages)


def test_every_exported_rule_is_registered_under_its_own_name():
    exported = {
        name: value for name in rules.__all__ if isinstance(value := getattr(rules, name), rules.Rule)
    }
    assert {name: rule.name.upper() for name, rule in exported.items()} == {name: name for name in exported}
    assert sorted(RULES) == sorted(exported.values())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_equals_keep_the_order_of_arrival(rule):
    jobs = jobs_of(*[(0, 2, 3, 3)] * 5, logged_start_s=[4.0] * 5)
    priority, waiting = Priority(rule, jobs), []
    for job in range(5):
        priority.add(waiting, job)
    assert waiting == priority.sort([3, 1, 4, 0, 2], 7.0) == [0, 1, 2, 3, 4]


def test_a_rule_of_the_users_cannot_write_to_the_jobs_that_others_are_judged_on():
    jobs = jobs_of((0, 4, 7200, 3600), (1, 2, 3600, 60))

    def in_hours(waiting, _now_s):
        hours = waiting.requested_s
        hours /= 3600.0
        return hours

    with pytest.raises(ValueError, match="read-only"):
        Priority(Rule("mine", "shortest first", in_hours), jobs)
    np.testing.assert_array_equal(jobs.requested_s, [7200, 3600])
