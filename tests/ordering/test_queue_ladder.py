"""Orders under predicted run times, and the ladder that takes one only where past weeks say so."""

import gzip
from dataclasses import replace

import numpy as np
import pytest

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering import ladder
from evaluation.problems.ordering.fixed_orders import name_of
from evaluation.problems.ordering.lacking import lacking_in_words
from evaluation.problems.ordering.ladder import (
    OrderCandidate,
    OrderOutcome,
    candidates,
    choose,
    gain_of,
    past_weeks,
)
from evaluation.problems.ordering.weeks import cut_week, log_days
from twin.ordering.jobs import clairvoyant
from twin.ordering.population import DAY_S
from twin.ordering.predicted import PredictedOrder, last_runs, replay_predicted
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, SJF
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.types import Jobs, Pool

FIRST_COME = PredictedOrder(run_weight=0.0, width_weight=0.0)
FOUR = [(0, 1, 2000, 50, 7), (0, 1, 2000, 50, 7), (60, 3, 1000, 940, 1), (70, 4, 100, 100, 2)]


def jobs_of(*rows):
    """(arrival, processors, requested, run, user) a job."""
    arrival_s, processors, requested_s, run_s, agent = np.array(rows, float).T
    names = np.array([str(number) for number in range(len(rows))])
    return Jobs(
        names, arrival_s, processors, requested_s, run_s, np.full(len(rows), np.nan), agent.astype(int)
    )


def test_two_short_jobs_of_a_user_let_the_third_be_backfilled():
    """Job 3 blocks until 2 ends at 1,000 s; job 4 asks for 2,000 s, but its user's jobs ran for 50."""
    rows = [
        (0, 1, 2000, 50, 7),
        (0, 1, 2000, 50, 7),
        (60, 3, 1000, 940, 1),
        (70, 4, 100, 100, 2),
        (80, 1, 2000, 50, 7),
    ]
    pool = Pool(4.0, easy=True)
    believed = replay_predicted(jobs_of(*rows), pool, replace(FIRST_COME, predicts=False)).start_s
    predicted = replay_predicted(jobs_of(*rows), pool, FIRST_COME).start_s
    assert believed.tolist() == [0, 0, 60, 1000, 1100]
    assert predicted.tolist() == [0, 0, 60, 1000, 80]


def test_who_outruns_a_prediction_is_corrected_and_delays_the_head_no_more_than_that():
    """As above, but job 4 runs for 960 s: predicted to end at 130 s it is corrected, and really ends at 1,040."""
    rows = [
        (0, 1, 2000, 50, 7),
        (0, 1, 2000, 50, 7),
        (60, 3, 1000, 940, 1),
        (70, 4, 100, 100, 2),
        (80, 1, 2000, 960, 7),
    ]
    found = replay_predicted(jobs_of(*rows), Pool(4.0, easy=True), FIRST_COME)
    assert found.start_s.tolist() == [0, 0, 60, 1040, 80]
    safe = replay_predicted(jobs_of(*rows), Pool(4.0, easy=True), replace(FIRST_COME, reserves=False))
    assert safe.start_s.tolist() == [0, 0, 60, 1000, 1100]  # ordered by predictions, backfilled by requests


def test_what_is_known_of_users_is_their_last_two_ends_before_the_instant():
    jobs = jobs_of((0, 1, 9, 5, 0), (1, 1, 9, 3, 0), (2, 1, 9, 8, 0), (3, 1, 9, 4, 1))
    known = last_runs(jobs, jobs.arrival_s, 7.5)  # ends at 5, 4, 10 and 7
    assert (known.last_s.tolist(), known.before_s[0]) == ([5.0, 4.0], 3.0)
    assert np.isnan(known.before_s[1])
    assert (known.agent.tolist(), known.run_s.tolist()) == ([0], [8.0])


def simulated_slowdown(kth, path):
    """Mean bounded slowdown of an independent simulator's waits."""
    with gzip.open(path, "rt") as file:
        waits = {row[0]: float(row[2]) for row in map(str.split, file) if row[0] != ";"}
    return bounded_slowdown(np.array([waits[name] for name in kth.request_id]), kth.run_s).mean()


def test_on_kth_requests_give_easy_and_true_runs_the_simulator_s_clairvoyant_backfilling(kth):
    pool = Pool(100.0, easy=True)
    believed = replay_predicted(kth, pool, PredictedOrder(predicts=False, short_first=False)).start_s
    np.testing.assert_array_equal(believed, replay(kth, pool, FCFS).start_s)
    knowing = clairvoyant(kth)
    found = replay_predicted(knowing, pool, PredictedOrder(predicts=False)).start_s
    np.testing.assert_array_equal(found, replay(knowing, pool, FCFS, backfill=SJF).start_s)


def test_on_kth_users_last_runs_gain_what_an_independent_simulator_says(kth, shared_data):
    """Its corrections differ in detail; the gain over EASY is the same within a third of it."""
    own = replay_predicted(kth, Pool(100.0, easy=True), PredictedOrder()).start_s
    slowdown = bounded_slowdown(own - kth.arrival_s, kth.run_s).mean()
    folder = shared_data / "kth-sp2-resimulated"
    easy, theirs = (
        simulated_slowdown(kth, folder / f"{name}.swf.gz")
        for name in ("easy", "easy-sjbf-user-average-predictor")
    )
    assert easy == pytest.approx(92.6, abs=0.1)
    assert easy - slowdown > 2 / 3 * (easy - theirs) > 15


def seen(slowdown, wait_s=None, users=1):
    slowdown = np.asarray(slowdown, float)
    wait = slowdown if wait_s is None else np.asarray(wait_s, float)
    jobs = np.arange(len(slowdown))
    return OrderOutcome(slowdown, wait, jobs // 10, jobs % users, np.zeros(len(jobs), int))


HELD = np.full(80, 10.0) * np.random.default_rng(0).lognormal(0.0, 0.3, 80)


@pytest.fixture
def chosen_among(monkeypatch):
    """The ladder's choice among named outcomes of the past weeks; `rule...` are rules."""

    def among(**outcomes):
        monkeypatch.setattr(ladder, "seen_in", lambda _weeks, play, _paces: play)
        tried = [OrderCandidate(name, "", found, name.startswith("rule")) for name, found in outcomes.items()]
        return choose([None], tried)

    return among


def test_an_order_is_taken_where_every_half_week_says_so_and_not_where_one_does(chosen_among):
    better, lucky = HELD * 0.8, HELD.copy()
    lucky[:10] *= 0.02  # as much better in the mean, by one half week
    assert chosen_among(rule=seen(HELD), rule_worse=seen(HELD * 2), better=seen(better)).order == "better"
    found = chosen_among(rule=seen(HELD), lucky=seen(lucky))
    assert (found.order, found.rule) == ("rule", "rule")
    assert "perhaps -" in found.words


def test_longer_waits_at_the_end_and_unfairness_forbid_an_order(chosen_among):
    late = HELD.copy()
    late[::20] *= 2.0
    slower = chosen_among(rule=seen(HELD, HELD), better=seen(HELD * 0.5, late))
    assert slower.order == "rule"
    assert "longest waits" in slower.words
    uneven = np.where(np.arange(80) % 8 == 0, HELD, 0.05 * HELD)
    unfair = chosen_among(rule=seen(HELD, users=8), uneven=seen(uneven, HELD, users=8))
    assert unfair.order == "rule"
    assert "users less evenly" in unfair.words


def test_the_usual_order_stands_in_the_rule_s_place_where_past_weeks_say_nothing_against_it(chosen_among):
    usual, idle = name_of(ladder.USUAL), np.ones(80)
    for mine, order in ((0.999 * HELD, usual), (HELD, usual), (1.2 * HELD, "rule")):
        assert chosen_among(**{"rule": both(idle, HELD), usual: both(idle, mine)}).order == order
    late = HELD.copy()
    late[::20] *= 2.0  # less slowdown, and the longest waits longer
    slower = seen(0.5 * HELD, late)
    assert chosen_among(**{"rule": seen(HELD), usual: slower}).order == "rule"
    surely = chosen_among(**{"rule": seen(HELD), usual: seen(0.9 * HELD), "member": seen(0.5 * HELD)})
    assert (surely.rule, surely.order) == ("rule", "member")
    rule_again = chosen_among(
        **{"rule": seen(HELD), usual: seen(0.99 * HELD), "rule_other": seen(1.5 * HELD)}
    )
    assert rule_again.order == usual


def both(idle, busy):
    """Outcomes of the weeks as they were, and of the same played faster."""
    parts = zip(seen(idle), seen(busy)._replace(pace=np.ones(len(busy), int)), strict=True)
    return OrderOutcome(*(np.concatenate(leaves) for leaves in parts))


def test_weeks_in_which_nobody_waits_are_decided_by_the_same_weeks_played_faster(chosen_among):
    idle = np.ones(80)
    found = chosen_among(
        rule=both(idle, HELD), rule_other=both(idle, 0.5 * HELD), member=both(idle, 0.9 * HELD)
    )
    assert (found.rule, found.order) == ("rule", "rule_other")
    worse = chosen_among(rule=both(HELD, HELD), member=both(1.05 * HELD, 0.3 * HELD))
    assert worse.order == "rule"  # what is worse in the weeks as they were is not made up for


def test_a_hastened_week_has_the_same_jobs_in_less_time(queue_made):
    from logs_schema import Archive
    from twin.ordering.jobs import read_jobs

    jobs = read_jobs(Archive(queue_made[0] / "archive"))
    pool = Pool(float(jobs.processors.max()), easy=True)
    (week,) = past_weeks(jobs, pool, log_days(jobs)[0] + 14, 7, WeeksConfig())
    fast = ladder.hastened(week, 0.5)
    later = week.jobs.arrival_s > 0.0
    np.testing.assert_allclose(fast.jobs.arrival_s[later], 0.5 * week.jobs.arrival_s[later])
    np.testing.assert_array_equal(fast.jobs.arrival_s[~later], week.jobs.arrival_s[~later])
    play = candidates(pool)[0].play
    slow, busy = (ladder.seen_in([week], play, (pace,)).slowdown.mean() for pace in (1.0, 0.25))
    assert busy >= slow


def test_what_a_log_leaves_out_is_said_and_jobs_larger_than_the_pool_count_nowhere():
    rows = [(day * DAY_S, 2 + 6 * (day % 2), 100, 50, 1) for day in range(9)]
    jobs = jobs_of(*rows)
    assert lacking_in_words(jobs, Pool(8.0)) == []
    (large,) = lacking_in_words(jobs, Pool(4.0))
    assert "4 of 9 jobs request more" in large
    week, _ = cut_week(jobs, Pool(4.0), np.full(9, np.nan), 0, WeeksConfig(num_drain_days=0))
    assert week.counted.sum() == 4
    bare = jobs._replace(agent=np.full(9, -1), counts=(("no_request", 9),))
    request, user = lacking_in_words(bare, Pool(8.0))
    assert "sjf is fcfs" in request
    assert "name the users" in user


def test_without_requests_and_users_every_rule_and_member_still_orders():
    jobs = jobs_of(*((60.0 * job, 1 + job % 3, 1000, 50 + 20 * job, 1) for job in range(12)))
    bare, pool = jobs._replace(agent=np.full(12, -1)), Pool(4.0, easy=True)
    for order in (ladder.USUAL, FIRST_COME):
        believed = replay_predicted(bare, pool, replace(order, predicts=False)).start_s
        np.testing.assert_array_equal(replay_predicted(bare, pool, order).start_s, believed)
    np.testing.assert_array_equal(replay(bare, pool, SJF).start_s, replay(bare, pool, FCFS).start_s)


def test_two_half_weeks_are_too_few_to_leave_the_rule():
    assert gain_of(seen(HELD[:20] * 0.5), seen(HELD[:20]), 4)[1] == -np.inf


def test_past_weeks_hold_nothing_of_what_came_later(queue_made):
    from logs_schema import Archive
    from twin.ordering.jobs import read_jobs

    jobs = read_jobs(Archive(queue_made[0] / "archive"))
    pool, anchor = Pool(float(jobs.processors.max()), easy=True), log_days(jobs)[0] + 35
    weeks = past_weeks(jobs, pool, anchor, 28, WeeksConfig())
    begin_s = anchor * DAY_S - jobs.origin_us / 1e6
    later = jobs._replace(run_s=np.where(jobs.arrival_s >= begin_s, 7.0 * jobs.run_s, jobs.run_s))
    assert len(weeks) == 4
    for one, other in zip(weeks, past_weeks(later, pool, anchor, 28, WeeksConfig()), strict=True):
        np.testing.assert_array_equal(one.jobs.run_s, other.jobs.run_s)
        assert one.jobs.arrival_s.max() < 7 * DAY_S + 3 * DAY_S
        assert one.first_day + 7 <= anchor
    assert len({candidate.name for candidate in candidates(pool)}) == len(candidates(pool))
