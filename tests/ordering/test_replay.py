"""The replay against its definition written again, closed forms and hand-made schedules."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ordering.making import CAPACITY, jobs_of, small_logs, use_peak
from tests.reference.ordering_loop import by_definition, fcfs_easy
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, LOGGED_ORDER, RULES, SAF, SJF, Rule
from twin.ordering.types import OrderingError, Pool, WarmStart
from twin.ordering.windows import window


def written_again(rows, logged):
    """The published formulas in plain Python: name -> priority(job, now)."""

    def wait(job, now):
        return now - rows[job][0]

    def unicef(job, now):
        return -wait(job, now) / (max(math.log2(rows[job][1]), 1e-9) * rows[job][2])

    def f1(job, _now):
        arrival, width, asked, _ = rows[job]
        return math.log10(asked) * width + 870 * math.log10(max(arrival, 1))

    return {
        "fcfs": lambda job, now: rows[job][0],
        "sjf": lambda job, now: rows[job][2],
        "saf": lambda job, now: rows[job][1] * rows[job][2],
        "ljf": lambda job, now: -rows[job][1],
        "wfp3": lambda job, now: -((wait(job, now) / rows[job][2]) ** 3) * rows[job][1],
        "unicef": unicef,
        "f1": f1,
        "logged_order": lambda job, now: logged[job],
    }


@pytest.mark.parametrize("easy", [False, True])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@given(log=small_logs())
def test_replay_is_its_definition(rule, easy, log):
    rows, logged = log
    if rule.ages:  # powers of two: both ways of computing a score round alike, so that ties stay ties
        rows = [(arrival, 2 ** (width % 3), 2 ** (asked % 3), run) for arrival, width, asked, run in rows]
    jobs = jobs_of(*rows, logged_start_s=logged)
    found = replay(jobs, Pool(CAPACITY, easy), rule).start_s
    expected = by_definition(rows, CAPACITY, easy, written_again(rows, logged)[rule.name])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("easy", [False, True])
@given(log=small_logs(), patience=st.lists(st.integers(1, 9) | st.just(math.inf), min_size=14, max_size=14))
def test_replay_of_withdrawn_jobs_is_its_definition(easy, log, patience):
    rows, _ = log
    leaves = np.array([row[0] + wait for row, wait in zip(rows, patience, strict=False)], float)
    jobs = jobs_of(*rows)._replace(withdrawn_s=np.where(np.isinf(leaves), np.nan, leaves))
    for rule in (FCFS, SJF):
        found = replay(jobs, Pool(CAPACITY, easy), rule).start_s
        expected = by_definition(rows, CAPACITY, easy, written_again(rows, None)[rule.name], leaves.tolist())
        np.testing.assert_array_equal(found, expected)


def test_a_withdrawn_head_lets_the_others_pass():
    jobs = jobs_of((0, 4, 9, 9), (1, 6, 9, 9), (2, 2, 20, 20), (3, 9, 9, 9))
    withdrawn_s = np.array([np.nan, 5.0, np.nan, 4.0])  # the last one is larger than the pool
    found = replay(jobs._replace(withdrawn_s=withdrawn_s), Pool(CAPACITY, False), FCFS)
    np.testing.assert_array_equal(found.start_s, [0.0, np.nan, 5.0, np.nan])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@given(log=small_logs(), easy=st.booleans())
def test_capacity_is_never_exceeded_and_nobody_starts_early_or_never(rule, log, easy):
    rows, logged = log
    jobs = jobs_of(*rows, logged_start_s=logged)
    start_s = replay(jobs, Pool(CAPACITY, easy), rule).start_s
    assert (start_s >= jobs.arrival_s).all()
    assert use_peak(jobs, start_s) <= CAPACITY


@given(seed=st.integers(0, 10_000))
def test_where_no_two_things_happen_at_once_one_look_in_an_instant_is_the_same(seed):
    generator = np.random.default_rng(seed)
    run = generator.exponential(4.0, 30) + 0.1
    arrival = np.sort(generator.uniform(0.0, 40.0, 30))
    width = generator.integers(1, CAPACITY + 1, 30).astype(float)
    columns = (arrival, width, run * generator.uniform(1.0, 3.0, 30), run)
    found = replay(jobs_of(*zip(*columns, strict=True)), Pool(CAPACITY, True), FCFS).start_s
    np.testing.assert_array_equal(found, fcfs_easy(*(column.tolist() for column in columns), CAPACITY))


def test_one_processor_is_lindleys_recursion():
    generator = np.random.default_rng(1)
    arrival, run = np.cumsum(generator.exponential(3.0, 200)), generator.exponential(2.5, 200)
    jobs = jobs_of(*zip(arrival, np.ones(200), run, run, strict=True))
    wait = [0.0]
    for job in range(1, 200):
        wait.append(max(0.0, wait[-1] + run[job - 1] - (arrival[job] - arrival[job - 1])))
    for easy in (False, True):
        found = replay(jobs, Pool(1, easy), FCFS).start_s - arrival
        np.testing.assert_allclose(found, wait, atol=1e-9)


def test_shortest_first_is_the_best_order_of_one_processor():
    run = [5.0, 1.0, 4.0, 2.0, 3.0]
    jobs = jobs_of((0, 1, 9, 9), *((1, 1, one, one) for one in run))
    wait = (replay(jobs, Pool(1), SJF).start_s - jobs.arrival_s)[1:]
    best = min(sum(np.cumsum([0.0, *order[:-1]])) for order in itertools.permutations(run))
    assert wait.sum() - 8.0 * len(run) == best


EASY_LOG = (
    (0, 4, 10, 10),  # 0 leaves 2 of 6 free until 10
    (1, 6, 5, 5),  # 1 the head: reserved for 10, nothing extra
    (2, 2, 8, 8),  # 2 expected to end at 10: starts at 2
    (3, 2, 8, 8),  # 3 does not fit
)


@pytest.mark.parametrize(
    ("rows", "easy", "starts"),
    [
        (EASY_LOG, True, [0, 10, 2, 15]),
        (EASY_LOG, False, [0, 10, 15, 15]),
        ((*EASY_LOG[:2], (2, 2, 9, 1)), True, [0, 10, 15]),  # it asks too much, though it would end in time
        ((EASY_LOG[0], (1, 5, 5, 5), (2, 1, 99, 99), (3, 1, 99, 1)), True, [0, 10, 2, 15]),  # one is extra
        # the first job ends early and unexpectedly: the head starts at once
        (((0, 4, 10, 3), *EASY_LOG[1:]), True, [0, 10, 2, 15]),
        (((0, 4, 10, 3), (1, 6, 5, 5)), True, [0, 3]),
    ],
)
def test_easy_by_hand(rows, easy, starts):
    found = replay(jobs_of(*rows), Pool(6, easy), FCFS)
    np.testing.assert_array_equal(found.start_s, starts)


def test_an_outrun_request_keeps_its_processors_and_is_expected_to_end_any_moment():
    # At 5 job 0 has outrun its request of 2: the head is reserved for now, so nothing may be backfilled.
    jobs = jobs_of((0, 4, 2, 9), (4, 6, 5, 5), (5, 2, 1, 1))
    found = replay(jobs, Pool(6, True), FCFS)
    np.testing.assert_array_equal(found.start_s, [0, 9, 14])
    assert found.num_overrunning == 1


@pytest.mark.parametrize(
    ("asked", "starts"),
    [
        (5, [5, 6]),  # expected: the first arrival finds the machine free, before the shorter one has come
        (6, [6, 5]),  # unexpected: both have come when the machine becomes free
    ],
)
def test_an_arrival_sees_an_expected_end_of_its_instant_but_no_other(asked, starts):
    jobs = jobs_of((0, 6, asked, 5), (5, 6, 9, 1), (5, 6, 2, 1))
    assert replay(jobs, Pool(6), SJF).start_s[1:].tolist() == starts


def test_ends_of_one_instant_are_seen_one_by_one_unless_expected():
    # Two jobs end at 5. Seen one by one, the first end lets the narrow job in before the head can start.
    def starts(asked):
        rows = ((0, 3, asked, 5), (0, 3, asked, 5), (1, 6, 4, 4), (2, 3, 3, 3))
        return replay(jobs_of(*rows), Pool(6, True), FCFS).start_s[2:].tolist()

    assert starts(5) == [5, 9]  # both were expected to end: together they make room for the head
    assert starts(8) == [8, 5]  # the other one is still expected until 8: the narrow job slips in


def test_backfilling_in_another_order():
    # At 5 two processors become free until the head's turn at 10: room for just one of the last two.
    rows = ((0, 4, 10, 10), (0, 2, 5, 5), (1, 6, 5, 5), (2, 2, 5, 5), (2, 2, 3, 3))
    own = replay(jobs_of(*rows), Pool(6, True), FCFS).start_s
    shortest = replay(jobs_of(*rows), Pool(6, True), FCFS, backfill=SJF).start_s
    np.testing.assert_array_equal(own[2:], [10, 5, 15])
    np.testing.assert_array_equal(shortest[2:], [10, 15, 5])


def test_jobs_larger_than_the_pool_never_start_and_block_nobody():
    found = replay(jobs_of((0, 7, 1, 1), (0, 6, 1, 1)), Pool(6), FCFS)
    np.testing.assert_array_equal(found.start_s, [np.nan, 0])
    assert found.num_too_large == 1


def test_fractions_of_a_processor_add_up():
    # In floating point these four, given back in this order, leave .9999999999999999 of a processor.
    rows = [(0, width, 9, end) for width, end in ((0.1, 1), (0.2, 2), (0.3, 3), (0.4, 4))]
    found = replay(jobs_of(*rows, (1, 1, 1, 1), (1, 0.0001, 9, 9)), Pool(1, True), FCFS).start_s
    np.testing.assert_array_equal(found, [0, 0, 0, 0, 4, 5])


def test_logged_order_puts_jobs_without_a_start_last():
    rows = [(0, 1, 5, 5), *[(1, 1, 1, 1)] * 4]
    found = replay(jobs_of(*rows, logged_start_s=[0, np.nan, 9, 3, 5]), Pool(1), LOGGED_ORDER)
    np.testing.assert_array_equal(found.start_s, [0, 8, 7, 5, 6])


@pytest.mark.parametrize("rule", [FCFS, SAF], ids=lambda rule: rule.name)
@given(seed=st.integers(0, 1000), cut=st.floats(2.0, 30.0), easy=st.booleans())
def test_a_replay_cut_in_two_goes_on_as_before(rule: Rule, seed, cut, easy):
    generator = np.random.default_rng(seed)
    run = generator.exponential(4.0, 20) + 0.1
    arrival = np.sort(generator.uniform(0.0, 30.0, 20))
    width = generator.integers(1, CAPACITY + 1, 20)
    jobs = jobs_of(*zip(arrival, width, run * generator.uniform(1.0, 3.0, 20), run, strict=True))
    whole = replay(jobs, Pool(CAPACITY, easy), rule).start_s
    late, index, warm = window(jobs, whole, cut)
    if len(index):
        again = replay(late, Pool(CAPACITY, easy), rule, warm=warm).start_s
        np.testing.assert_array_equal(again, whole[index])
        assert (whole[np.setdiff1d(np.arange(20), index)] < cut).all()


def test_a_warm_queue_is_looked_at_as_a_whole():
    jobs = jobs_of((1, 6, 9, 9), (2, 6, 2, 2), (6, 1, 1, 1))
    busy = WarmStart(5.0, np.array([2.0]), np.array([7.0]), np.array([8.0]))
    idle = WarmStart(5.0, *[np.array([])] * 3)
    np.testing.assert_array_equal(replay(jobs, Pool(6), SJF, warm=idle).start_s, [8, 5, 7])
    np.testing.assert_array_equal(replay(jobs, Pool(6), FCFS, warm=busy).start_s, [7, 16, 18])
    np.testing.assert_array_equal(replay(jobs, Pool(6, True), FCFS, warm=busy).start_s, [7, 16, 6])


def test_a_window_holds_what_waits_and_what_comes_and_knows_what_runs():
    rows = ((0, 1, 9, 9), (1, 7, 2, 2), (1, 2, 5, 3), (2, 3, 4, 4), (5, 1, 1, 1), (9, 1, 1, 1))
    late, index, warm = window(jobs_of(*rows), np.array([0, np.nan, 1, 6, 5, 9.0]), 5.0, 9.0)
    assert index.tolist() == [3, 4]
    assert late.request_id.tolist() == ["3", "4"]
    assert (warm.begin_s, *map(list, warm[1:])) == (5.0, [1], [9], [9])


def test_errors_say_what_to_do():
    with pytest.raises(OrderingError, match="more than 0"):
        Pool(0)
    with pytest.raises(OrderingError, match="no job"):
        replay(jobs_of(), Pool(1), FCFS)
    full = WarmStart(0.0, np.array([4.0, 4.0]), np.array([5.0, 5.0]), np.array([5.0, 5.0]))
    with pytest.raises(OrderingError, match="8 processors are in use"):
        replay(jobs_of((0, 1, 1, 1)), Pool(6), FCFS, warm=full)
