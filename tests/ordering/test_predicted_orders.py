"""Orders under predicted run times, against hand-worked schedules and an independent simulator."""

import gzip
from dataclasses import replace

import numpy as np
import pytest

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.fixed_orders import published_policies
from evaluation.problems.ordering.order_candidates import candidates
from evaluation.problems.ordering.playing import EASY_PREDICTED
from evaluation.problems.ordering.weeks import cut_week
from tests.ordering.predicted_jobs import FIRST_COME, jobs_of
from twin.ordering.jobs import clairvoyant
from twin.ordering.predicted import PredictedOrder, last_runs, replay_predicted
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, SJF
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.types import Pool

FOUR = [(0, 1, 2000, 50, 7), (0, 1, 2000, 50, 7), (60, 3, 1000, 940, 1), (70, 4, 100, 100, 2)]


def test_two_short_jobs_of_a_user_let_the_third_be_backfilled():
    """Job 3 blocks until 2 ends at 1,000 s; job 4 asks for 2,000 s, but its user's jobs ran for 50."""
    rows = [*FOUR, (80, 1, 2000, 50, 7)]
    pool = Pool(4.0, easy=True)
    believed = replay_predicted(jobs_of(*rows), pool, replace(FIRST_COME, predicts=False)).start_s
    predicted = replay_predicted(jobs_of(*rows), pool, FIRST_COME).start_s
    assert believed.tolist() == [0, 0, 60, 1000, 1100]
    assert predicted.tolist() == [0, 0, 60, 1000, 80]


def test_who_outruns_a_prediction_is_corrected_and_delays_the_head_no_more_than_that():
    """As above, but job 4 runs for 960 s: predicted to end at 130 s it is corrected, and really ends at 1,040."""
    rows = [*FOUR, (80, 1, 2000, 960, 7)]
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


@pytest.mark.slow
def test_on_kth_requests_give_easy_and_true_runs_the_simulator_s_clairvoyant_backfilling(kth):
    pool = Pool(100.0, easy=True)
    believed = replay_predicted(kth, pool, PredictedOrder(predicts=False, short_first=False)).start_s
    np.testing.assert_array_equal(believed, replay(kth, pool, FCFS).start_s)
    knowing = clairvoyant(kth)
    found = replay_predicted(knowing, pool, PredictedOrder(predicts=False)).start_s
    np.testing.assert_array_equal(found, replay(knowing, pool, FCFS, backfill=SJF).start_s)


@pytest.mark.slow
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


def test_easy_plus_plus_is_a_rule_of_every_table_and_of_the_ladder():
    """First come, first served under predictions, whatever the weight of an earlier arrival."""
    rows = jobs_of(*((40.0 * job, 1 + job % 3, 2000, 50 + 90 * (job % 7), job % 2) for job in range(60)))
    pool, config = Pool(4.0, easy=True), WeeksConfig(num_drain_days=0)
    week, _ = cut_week(rows, pool, np.full(60, np.nan), 0, config)
    (rule,) = (one for one in candidates(pool) if one.name == EASY_PREDICTED)
    assert rule.is_rule
    (listed,) = (one for one in published_policies(pool) if one.name == EASY_PREDICTED)
    starts = replay_predicted(rows, pool, PredictedOrder(0.0, 0.0, 0.06)).start_s
    for found in (rule.play(week), listed.plays[0]([week])[0]):
        np.testing.assert_array_equal(found, starts)
    assert np.any(starts != replay(rows, pool, FCFS).start_s)
