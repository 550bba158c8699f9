"""Test weeks: what a week begins with, what counts in it, and that a week replayed is the log replayed."""

from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.metrics import BOUNDED_SLOWDOWN, MEAN_WAIT, UTILISATION
from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.comparing import REPLAY, TWIN, _gaps, compare_orders
from evaluation.problems.ordering.generated import generated_weeks
from evaluation.problems.ordering.playing import decisions_of, played, rule_policies
from evaluation.problems.ordering.replaying import ReplayConfig, _from_first, _part
from evaluation.problems.ordering.weeks import RARE, RARE_DAYS, cut_week, log_days, plan_weeks
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from offline_rl.ordering.learning import logged_windows
from offline_rl.ordering.programs import OrderTrainingConfig
from tests.ordering.making import jobs_of
from twin.ordering.population import fit_population
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS
from twin.ordering.types import OrderingError, Pool
from twin.ordering.windows import chosen

POOL = Pool(16.0)
MONDAY = 4
SHORT = WeeksConfig(num_train_days=7, num_test_days=4, shifts="0d,1d,7d", num_anchors=2, num_drain_days=1)


def busy_log(*, num_days=28, seed=0):
    rng = np.random.default_rng(seed)
    num_jobs = 20 * num_days
    arrival_s = np.sort(rng.integers(0, num_days * 86_400, num_jobs)).astype(float)
    requested_s = rng.choice([600.0, 3600.0, 36_000.0], num_jobs, p=[0.5, 0.3, 0.2])
    run_s = np.maximum(1.0, np.rint(requested_s * rng.uniform(0.05, 1.0, num_jobs)))
    rows = np.stack([arrival_s, rng.integers(1, 13, num_jobs), requested_s, run_s], axis=1)
    jobs = jobs_of(*rows, agent=rng.integers(0, 6, num_jobs))._replace(origin_us=round(MONDAY * DAY_S * 1e6))
    return jobs._replace(logged_start_s=replay(jobs, POOL, FCFS).start_s)


@pytest.mark.parametrize("easy", [False, True])
def test_a_week_that_begins_as_the_replay_had_it_goes_on_as_the_replay_did(easy):
    jobs = busy_log()
    whole = replay(jobs, Pool(16.0, easy), FCFS).start_s
    week, num_put_back = cut_week(jobs, POOL, whole, MONDAY + 10, SHORT)
    policy = next(one for one in rule_policies(POOL) if one.name == ("fcfs+easy" if easy else "fcfs"))
    (start_s,) = policy.plays[0]([week])
    assert num_put_back == 0
    assert week.counted.sum() > 50
    assert np.sum(week.jobs.arrival_s < 0.0) + len(week.warm.end_s) > 0
    same = week.jobs.arrival_s < SHORT.num_test_days * DAY_S
    np.testing.assert_allclose(start_s[same] + 10 * DAY_S, whole[week.place][same])


def test_of_a_long_log_no_weeks_are_taken_for_stragglers():
    """A month and ten years of 20 jobs a day, then one job far behind: it is left out, and no newest days with it."""
    for num_days in (30, 3650):
        arrival_s = np.arange(0.0, num_days * DAY_S, DAY_S / 20)
        rows = np.stack([arrival_s, *np.ones((3, len(arrival_s)))], axis=1)
        late = [num_days * DAY_S + 400 * DAY_S, 1.0, 1.0, 1.0]
        begin, end = log_days(jobs_of(*rows, late))
        assert begin == 1 + int(RARE * num_days)
        assert num_days - RARE_DAYS <= end <= num_days


def test_jobs_beyond_the_pool_wait_where_a_log_ran_them():
    jobs = jobs_of(
        (0, 10, 90_000, 90_000), (5, 8, 90_000, 90_000), (90_000, 1, 60, 60), logged_start_s=[0, 5, 90_000]
    )
    week, num_put_back = cut_week(jobs, POOL, jobs.logged_start_s, 1, SHORT)
    assert num_put_back == 1
    assert week.warm.processors.tolist() == [10.0]
    assert week.jobs.processors.tolist() == [8.0, 1.0]
    assert week.counted.tolist() == [False, True]


def test_a_job_larger_than_the_pool_takes_no_place_from_those_that_a_log_ran_beside_it():
    jobs = jobs_of(
        (0, 64, 90_000, 90_000), (5, 8, 90_000, 90_000), (90_000, 1, 60, 60), logged_start_s=[0, 5, 90_000]
    )
    week, num_put_back = cut_week(jobs, POOL, jobs.logged_start_s, 1, SHORT)
    assert num_put_back == 0
    assert week.warm.processors.tolist() == [8.0]
    assert np.isnan(replay(week.jobs, POOL, FCFS, warm=week.warm).start_s).tolist() == [True, False]


def test_training_days_shorter_than_a_span_are_one_window():
    jobs = jobs_of((0, 1, 60, 60), (3_600, 2, 60, 50), logged_start_s=[0, 3_600])
    today = int(jobs.origin_us / 1e6 // DAY_S)
    config = OrderTrainingConfig(span_days=2.0)
    assert logged_windows(jobs, POOL, today + 1, 1, config).length.tolist() == [2]
    with pytest.raises(OrderingError, match="no window"):  # nobody came before this log
        logged_windows(jobs, POOL, today, 1, config)


def test_decisions_are_the_week_in_columns():
    jobs = jobs_of((86_400, 4, 100, 50), (86_500, 16, 100, 100), (86_400 * 5.5, 1, 10, 10), agent=[0, 1, -1])
    week, _ = cut_week(jobs, POOL, np.full(3, np.nan), 1, WeeksConfig(num_train_days=1))
    decisions = decisions_of(week, np.array([0.0, 150.0, 4.5 * DAY_S]), POOL)
    assert decisions.unit.tolist() == [0, 0, 1]
    assert MEAN_WAIT.compute(decisions) == pytest.approx(50.0 / 3)
    assert BOUNDED_SLOWDOWN.compute(decisions) == pytest.approx((1.0 + 1.5 + 1.0) / 3)
    assert UTILISATION.compute(decisions) == pytest.approx((4 * 50 + 1600 + 10) / (16 * 7 * DAY_S))
    assert (decisions.day - decisions.day[0]).tolist() == [0, 0, 4]
    other, _ = cut_week(jobs, POOL, np.full(3, np.nan), 4, WeeksConfig(num_train_days=1))
    found = decisions_of(other, np.array([2 * DAY_S]), POOL)
    assert found.unit.tolist() == [1]  # the same day, of another anchor
    own = other._replace(calendar=3)
    assert decisions_of(own, np.array([2 * DAY_S]), POOL).unit[0] not in (0, 1)


def test_anchors_leave_room_before_and_after():
    jobs = busy_log()
    plan = plan_weeks(jobs, POOL, SHORT)
    assert len(plan.weeks) == len(plan.anchors) * 3
    for week in plan.weeks:
        anchor = plan.anchors[week.anchor]
        assert week.first_day == anchor + week.shift_days
        assert anchor >= MONDAY + 7
        assert week.first_day + week.num_days <= MONDAY + 28
        arrival_s = week.jobs.arrival_s[week.counted]
        assert 0.0 <= arrival_s.min() <= arrival_s.max() < week.num_days * DAY_S
    with pytest.raises(ConfigError, match="too few for one anchor"):
        plan_weeks(jobs, POOL, WeeksConfig())
    with pytest.raises(ConfigError, match="no warm start"):
        WeeksConfig(warm="tepid")


def test_weeks_in_which_the_machine_was_off_are_left_out_by_name():
    jobs = busy_log()
    day = jobs.arrival_s / DAY_S
    jobs = chosen(jobs, np.flatnonzero((day < 12) | (day > 21)))
    plan = plan_weeks(jobs, POOL, SHORT, [MONDAY + 8])
    assert [week.shift_days for week in plan.weeks] == [0, 1]
    assert plan.idle == ("anchor 0, shift 7d (from 1970-01-20 on)",)
    assert _gaps(plan, []) == [f"left out, as no job waits or arrives: {plan.idle[0]}"]
    with pytest.raises(ConfigError, match="no job arrives on the days to judge on"):
        plan_weeks(jobs, POOL, replace(SHORT, shifts="7d"), [MONDAY + 8])


def test_rules_are_compared_in_replay_and_twin_on_the_same_units():
    jobs = busy_log()
    plan = plan_weeks(jobs, POOL, SHORT)
    populations = [fit_population(jobs, anchor - 7, 7) for anchor in plan.anchors]
    weeks = generated_weeks(jobs, populations, plan.anchors, POOL, range(2), SHORT)
    policies = rule_policies(POOL)
    comparison = compare_orders(
        plan,
        weeks,
        policies,
        POOL,
        SHORT,
        SilentProgress(),
        facts={},
        intervals=IntervalConfig(num_replicates=200, min_units=2),
    )
    assert {judge.name for judge in comparison.judges} == {REPLAY, TWIN}
    shift = [week for week in plan.weeks if week.shift_days == 7]
    sjf = next(policy for policy in policies if policy.name == "sjf+easy")
    expected = BOUNDED_SLOWDOWN.compute(played(sjf, shift, POOL)[0])
    assert comparison.cell(REPLAY, 7, "sjf+easy", "bounded_slowdown").value == pytest.approx(expected)
    gap = comparison.difference(REPLAY, 7, "sjf+easy", "fcfs+easy", "bounded_slowdown")
    fcfs = comparison.cell(REPLAY, 7, "fcfs+easy", "bounded_slowdown").value
    assert gap.estimate.value == pytest.approx(expected - fcfs)
    assert comparison.cell(TWIN, 0, "logged_order", "bounded_slowdown") is None
    assert [one.num_policies for one in comparison.trust] == [14, 14, 14]
    assert all(0.5 < one.rank_correlation <= 1.0 for one in comparison.trust)
    assert sum("the log's mean wait" in note for note in comparison.notes) == 3


def test_days_of_an_archive_are_replayed_from_what_ran_and_waited():
    jobs = busy_log()
    begin = date(1970, 1, 5 + 10)
    part, warm = _part(jobs, POOL, (begin, begin + timedelta(days=3)), "easy")
    whole = replay(jobs, Pool(16.0, easy=True), FCFS).start_s
    done = _from_first(part, Pool(16.0, easy=True), FCFS, None, warm)
    place = {name: row for row, name in enumerate(jobs.request_id)}
    expected = [whole[place[name]] - 10 * DAY_S for name in part.request_id]
    new = part.arrival_s >= 0.0
    assert new.sum() == np.sum((jobs.arrival_s >= 10 * DAY_S) & (jobs.arrival_s < 14 * DAY_S))
    np.testing.assert_allclose(done.start_s[new], np.array(expected)[new])
    with pytest.raises(OrderingError, match="no job arrives or waits"):
        _part(jobs, POOL, (date(2001, 1, 1), date(2001, 1, 2)), "empty")
    with pytest.raises(ConfigError, match="before the first"):
        ReplayConfig(days=(begin, begin - timedelta(days=1)))
