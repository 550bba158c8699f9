"""The population of a batch queue: what a generated week keeps of the training days, and what it may change."""

from dataclasses import replace

import numpy as np
import pytest

from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from tests.ordering.making import jobs_of
from twin.ordering.population import JobPopulationConfig, continued, fit_population, generate
from twin.ordering.population_check import check_population, stretch_figures
from twin.ordering.population_cutoff import known_by
from twin.ordering.types import OrderingError

EXACT = JobPopulationConfig(
    load_low=1.0, load_high=1.0, jitter_s=0.0, run_noise=0.0, resampled=0.0, continued=0.0
)
MONDAY = 4  # 1970-01-05


def working_month(*, num_days=28, first_day=MONDAY):
    """Two users: one submits 3 alike small jobs on working days, one a large job every Saturday."""
    rows, agents = [], []
    for day in range(num_days):
        begin_s = day * DAY_S
        if day % 7 < 5:
            rows += [(begin_s + 36_000 + 10 * k, 1 + day % 2, 600, 60 + k) for k in range(3)]
            agents += [0] * 3
        elif day % 7 == 5:
            rows += [(begin_s + 50_000, 64, 86_400, 40_000)]
            agents += [1]
    jobs = jobs_of(*rows, agent=agents)
    return jobs._replace(origin_us=round(first_day * DAY_S * 1e6), logged_start_s=jobs.arrival_s.copy())


def test_a_month_of_one_habit_is_generated_as_it_was():
    month = working_month()
    population = fit_population(month, MONDAY, 28)
    week = generate(population, 0, MONDAY, 7, EXACT)
    assert week.agent.tolist().count(0) == 15
    assert set(week.processors[week.agent == 1]) <= {64.0}
    weekday = (week.arrival_s // DAY_S).astype(int) % 7
    assert np.all(weekday[week.agent == 0] < 5)
    assert np.all(weekday[week.agent == 1] >= 5)
    assert np.all(np.diff(week.arrival_s) >= 0.0)
    assert week.arrival_s[week.agent == 0][:3].tolist() == [36_000.0, 36_010.0, 36_020.0]


def test_jobs_stay_whole_and_follow_one_another_as_they_did():
    month = working_month()
    jobs = generate(fit_population(month, MONDAY, 28), 3, MONDAY, 28, EXACT)
    known = set(zip(month.processors, month.requested_s, month.run_s, strict=True))
    assert set(zip(jobs.processors, jobs.requested_s, jobs.run_s, strict=True)) <= known
    own = jobs.run_s[jobs.agent == 0].reshape(-1, 3)
    assert np.all(np.isin(np.diff(own, axis=1), [1.0, -2.0])), (
        "each visit is a cyclic run of the user's sequence"
    )


@pytest.mark.parametrize("load", [0.5, 1.0, 1.5, 2.0])
def test_the_load_factor_is_the_ratio_of_the_numbers_of_visits(load):
    population = fit_population(working_month(), MONDAY, 28)
    config = JobPopulationConfig(load, load, 0.0, 0.0, 0.0)
    counts = [np.sum(generate(population, seed, MONDAY, 28, config).agent == 0) for seed in range(40)]
    assert np.mean(counts) == pytest.approx(60 * load, rel=0.06)


def test_without_users_the_load_factor_keeps_hours_and_not_whole_days():
    """A job every ten minutes: at half the load each day keeps about half of its 24 hours, six jobs each."""
    rows = [(600.0 * number, 1, 600, 60) for number in range(14 * 144)]
    month = jobs_of(*rows, agent=np.full(len(rows), -1))._replace(origin_us=round(MONDAY * DAY_S * 1e6))
    population = fit_population(month, MONDAY, 14)
    jobs = generate(population, 0, MONDAY, 40, replace(EXACT, load_low=0.5, load_high=0.5))
    each = np.bincount((jobs.arrival_s // DAY_S).astype(int), minlength=40)
    assert np.all(each % 6 == 0)
    assert each.mean() == pytest.approx(72.0, rel=0.1)
    assert each.std() == pytest.approx(6.0 * np.sqrt(24 * 0.25), rel=0.35)


def test_generated_days_have_the_load_of_the_training_days_on_average():
    rng = np.random.default_rng(0)
    arrival_s = np.sort(rng.uniform(0, 28 * DAY_S, 600))
    rows = np.stack(
        [arrival_s, rng.integers(1, 9, 600), np.full(600, 9e3), rng.exponential(3e3, 600)], axis=1
    )
    month = jobs_of(*rows, agent=rng.integers(-1, 12, 600))._replace(origin_us=round(MONDAY * DAY_S * 1e6))
    population = fit_population(month, MONDAY, 28)
    real = stretch_figures(month, MONDAY, 28, 16.0)
    drawn = [
        stretch_figures(generate(population, seed, MONDAY, 28, EXACT), MONDAY, 28, 16.0) for seed in range(60)
    ]
    assert np.mean([one.load for one in drawn]) == pytest.approx(real.load, rel=0.03)
    assert np.mean([one.jobs_per_day for one in drawn]) == pytest.approx(real.jobs_per_day, rel=0.02)
    assert np.mean([one.dispersion for one in drawn]) == pytest.approx(1.0, abs=0.15)


def test_a_visit_that_goes_on_begins_where_the_last_one_stopped():
    month = working_month()
    whole = replace(EXACT, continued=1.0)
    jobs = generate(fit_population(month, MONDAY, 28), 3, MONDAY, 28, whole)
    own = jobs.run_s[jobs.agent == 0]
    assert np.all(np.diff(own) % 3 == 1), "60, 61, 62, 60, ... from anywhere on, without a break"


def test_generated_days_follow_what_happened_before_them():
    month = working_month()
    population = fit_population(month, MONDAY, 14)
    jobs = continued(month, population, 0, MONDAY + 14, 7, EXACT)
    num_before = int(np.sum(month.arrival_s < 14 * DAY_S))
    np.testing.assert_array_equal(jobs.run_s[:num_before], month.run_s[:num_before])
    assert np.all(np.diff(jobs.arrival_s) >= 0.0)
    after = jobs.arrival_s[num_before:]
    assert 14 * DAY_S <= after.min() <= after.max() < 21 * DAY_S


def test_what_ends_after_the_training_days_is_not_known():
    jobs = jobs_of(
        (0, 1, 100, 50),
        (10, 1, 100, 90),
        (20, 2, 1000, 700),
        (90, 1, 100, 100),
        (300, 1, 100, 5),
        agent=[0, 1, 0, 2, 0],
        logged_start_s=[0, 10, 60, 150, 300],
    )
    known = known_by(jobs, 120.0)
    assert known.run_s.tolist() == [50.0, 90.0, 500.0, 70.0], (
        "half of the request as before; the median share"
    )
    np.testing.assert_array_equal(known.logged_start_s, [0.0, 10.0, 60.0, np.nan])
    assert known_by(jobs, 1e4).run_s.tolist() == jobs.run_s.tolist()


def test_what_runs_on_is_guessed_by_its_users_last_job_to_end_and_has_run_so_long_already():
    jobs = jobs_of(
        (0, 1, 100, 80), (1, 1, 100, 20), (2, 1, 100, 40), (60, 1, 200, 900), (90, 1, 10, 900), (95, 1, 0.5, 9),
        agent=[0, 0, 0, 0, 0, 0],
        logged_start_s=[0, 1, 2, 60, 65, 95],
    )  # fmt: skip
    known = known_by(jobs, 100.0)  # the first job was the last to end, at 80 s: .8 of its request
    assert known.run_s.tolist() == [80.0, 20.0, 40.0, 160.0, 35.0, 5.0]
    assert known_by(jobs, 70.0).run_s.tolist() == [
        70.0,
        20.0,
        40.0,
        80.0,
    ]  # at 42 s: .4; the first has run 70 s
    assert known_by(jobs, 95.1).run_s[-1] == 1.0  # the least
    unknown = known_by(jobs._replace(agent=np.full(6, -1)), 100.0)  # unknown users are not one user
    assert unknown.run_s[3] == 80.0  # the median of .8, .2 and .4


def test_no_outcome_after_the_cutoff_changes_the_population():
    month = working_month()
    cutoff_s = 20 * DAY_S
    later = month.logged_start_s + month.run_s > cutoff_s
    changed = month._replace(run_s=np.where(later, 2e6, month.run_s))
    for one, other in zip(*(fit_population(jobs, MONDAY, 20) for jobs in (month, changed)), strict=True):
        np.testing.assert_array_equal(one, other)
    one, other = (
        continued(jobs, fit_population(jobs, MONDAY, 20), 0, MONDAY + 20, 3) for jobs in (month, changed)
    )
    np.testing.assert_array_equal(one.run_s, other.run_s)


def test_run_times_keep_to_requests_that_the_drawn_ones_kept_to():
    population = fit_population(working_month(), MONDAY, 28)
    jobs = generate(population, 1, MONDAY, 28, JobPopulationConfig(run_noise=2.0, resampled=0.5))
    assert np.all(jobs.run_s <= jobs.requested_s)
    assert np.all(jobs.run_s >= 1.0)


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others():
    population = fit_population(working_month(), MONDAY, 28)
    one, same, other = (generate(population, seed, MONDAY, 14) for seed in (7, 7, 8))
    for left, right in zip(one[:7], same[:7], strict=True):
        np.testing.assert_array_equal(left, right)
    assert len(one.run_s) != len(other.run_s) or not np.array_equal(one.run_s, other.run_s)


def test_the_check_names_what_the_training_days_did_not_foretell():
    month = working_month(num_days=56)
    population = fit_population(month, MONDAY, 28)
    honest = check_population(population, month, MONDAY + 28, 28, 64.0, num_generated=30)
    assert not {"jobs_per_day", "load", "run_p50_s", "used_share", "num_users"} & set(honest.outside())
    changed = month._replace(run_s=np.where(month.agent == 0, 600.0, month.run_s))
    assert {"run_p50_s", "used_share"} <= set(
        check_population(population, changed, MONDAY + 28, 28, 64.0, num_generated=30).outside()
    )
    nameless = month._replace(agent=np.full(len(month.agent), -1))  # so that `memory` is not defined
    population = fit_population(nameless, MONDAY, 28)
    assert (
        "memory" not in check_population(population, month, MONDAY + 28, 28, 64.0, num_generated=2).outside()
    )


def test_impossible_populations_are_refused():
    month = working_month()
    with pytest.raises(OrderingError, match="too few to generate weeks from"):
        fit_population(month, MONDAY, 2)
    with pytest.raises(OrderingError, match="too few to generate weeks from"):
        fit_population(month, MONDAY + 4000, 28)
    with pytest.raises(OrderingError, match="no job in 1 generated days"):
        generate(fit_population(month, MONDAY, 5), 0, MONDAY, 1, JobPopulationConfig(1e-9, 1e-9))
    with pytest.raises(ConfigError, match="load factors"):
        JobPopulationConfig(2.0, 1.0)
    with pytest.raises(ConfigError, match="resampled"):
        JobPopulationConfig(resampled=1.5)
