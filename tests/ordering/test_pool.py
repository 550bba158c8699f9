"""The ordering problem inside programs against the replay in Python, job by job."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs_schema import Archive, import_log
from logs_schema.errors import ConfigError
from tests.ordering.making import CAPACITY, jobs_of, small_logs, use_peak
from tests.ordering.pooling import cut_whole, joined, kind_of, player
from twin.ordering.config import OrderingConfig
from twin.ordering.job_windows import cut_job_windows, fitting_tick_s, standing_order
from twin.ordering.jobs import read_jobs
from twin.ordering.problem import ordering
from twin.ordering.replay import replay
from twin.ordering.responses import starts_of
from twin.ordering.rules import FCFS, RULES
from twin.ordering.types import OrderingError, Pool
from twin.ordering.windows import window

SIZES = {"num_visible": 14, "queue_size": 14, "running_size": 8, "num_agents": 4}
SMALL = OrderingConfig(**SIZES)
NUM_LOGS = 24
PLAYERS = {easy: player(Pool(CAPACITY, easy), NUM_LOGS, **SIZES) for easy in (False, True)}


def played(logs, pool, rule):
    """Starts of every log's jobs, each as one stream."""
    windows = joined([cut_whole(jobs, pool, SMALL, rule=rule, num_jobs=14) for jobs in logs])
    state = PLAYERS[pool.easy](windows, kind_of(rule))
    assert np.all(state.done)
    assert not np.any(state.problem.num_late)
    assert not np.any(state.problem.num_blocked)
    found = np.asarray(starts_of(state, SMALL))
    return [found[: len(jobs.arrival_s), number] + jobs.arrival_s[0] for number, jobs in enumerate(logs)]


@pytest.mark.parametrize("easy", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@settings(max_examples=4)
@given(drawn=st.lists(small_logs(), min_size=NUM_LOGS, max_size=NUM_LOGS))
def test_starts_are_the_replays(rule, easy, drawn):
    logs, pool = [], Pool(CAPACITY, easy)
    for rows, logged in drawn:
        if rule.ages:  # powers of two: float32 and float64 scores round alike, so that ties stay ties
            rows = [(arrival, 2 ** (width % 3), 2 ** (asked % 3), run) for arrival, width, asked, run in rows]
        logs.append(jobs_of(*rows, logged_start_s=logged))
    for jobs, found in zip(logs, played(logs, pool, rule), strict=True):
        np.testing.assert_array_equal(found, replay(jobs, pool, rule).start_s)
        assert use_peak(jobs, found) <= CAPACITY


@settings(max_examples=4)
@given(drawn=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 25)), min_size=24, max_size=24))
def test_a_window_goes_on_as_the_replay_it_was_cut_from(drawn):
    pool, windows, expected = Pool(CAPACITY, True), [], []
    for seed, cut in drawn:
        generator = np.random.default_rng(seed)
        run, arrival = generator.integers(1, 9, 14), np.sort(generator.integers(0, 30, 14))
        width, asked = generator.integers(1, CAPACITY + 2, 14), run * generator.integers(1, 4, 14)
        jobs = jobs_of(*zip(arrival, width, asked, run, strict=True))
        whole = replay(jobs, pool, FCFS).start_s
        spans = np.array([[float(cut), arrival[-1] + 1.0]])
        if not np.any(whole >= cut):
            spans[0, 0] = 0.0
        _, index, _ = window(jobs, whole, *spans[0])
        order = standing_order(jobs, FCFS)
        cut_out, place = cut_job_windows(jobs, pool, SMALL, whole, spans, priority=order, num_jobs=14)
        assert [one for one in index if jobs.processors[one] <= CAPACITY] == place[place >= 0].tolist()
        windows.append(cut_out)
        expected.append(np.where(place[:, 0] >= 0, whole[place[:, 0]] - spans[0, 0], np.nan))
    state = PLAYERS[True](joined(windows), kind_of(FCFS))
    np.testing.assert_array_equal(np.asarray(starts_of(state, SMALL)).T, np.array(expected))


@pytest.mark.slow
def test_who_finds_no_place_waits_outside_and_is_counted():
    """First come, first served without backfilling needs one place only: the starts stay those of the replay."""
    rows = [(0, CAPACITY, 9, 9), *[(1, width % CAPACITY + 1, 3, 2) for width in range(13)]]
    jobs, pool = jobs_of(*rows), Pool(CAPACITY)
    tight = SIZES | {"queue_size": 2, "num_visible": 2}
    config = OrderingConfig(**tight)
    windows = cut_whole(jobs, pool, config, rule=FCFS, num_jobs=14)
    state = player(pool, 1, **tight)(windows, kind_of(FCFS))
    np.testing.assert_array_equal(starts_of(state, config)[:, 0], replay(jobs, pool, FCFS).start_s)
    assert int(state.problem.num_late[0]) == 11


@pytest.mark.slow
def test_a_full_table_of_what_runs_blocks_the_machine_and_is_counted():
    jobs, pool = jobs_of(*[(0, 1, 5, 5)] * 4), Pool(CAPACITY)
    narrow = SIZES | {"running_size": 2}
    config = OrderingConfig(**narrow)
    state = player(pool, 1, **narrow)(cut_whole(jobs, pool, config, rule=FCFS, num_jobs=14), kind_of(FCFS))
    np.testing.assert_array_equal(starts_of(state, config)[:4, 0], [0, 0, 5, 5])
    assert int(state.problem.num_blocked[0]) > 0


def test_errors_say_what_to_do():
    jobs, pool = jobs_of((0, 4, 9, 9), (0, 4, 9, 9), (6, 1, 1, 1)), Pool(6)
    with pytest.raises(OrderingError, match="2 jobs run on 8 processors when a window begins"):
        cut_job_windows(jobs, pool, SMALL, np.array([0.0, 0.0, 9.0]), np.array([[5.0, 9.0]]))
    with pytest.raises(OrderingError, match="no job waits or arrives"):
        cut_job_windows(jobs, pool, SMALL, np.array([0.0, 9.0, 18.0]), np.array([[19.0, 30.0]]))
    with pytest.raises(OrderingError, match="no window"):
        cut_job_windows(jobs, pool, SMALL, np.zeros(3), np.zeros((0, 2)))
    late = jobs._replace(arrival_s=np.array([0.0, 0.0, 3e9]))
    with pytest.raises(OrderingError, match="3,000,000,000 s from the beginning"):
        cut_job_windows(late, pool, SMALL, np.full(3, np.nan), np.array([[0.0, np.inf]]))
    with pytest.raises(ConfigError, match="do not go together"):
        OrderingConfig(num_visible=8, queue_size=4)
    with pytest.raises(ConfigError, match="unknown cost"):
        OrderingConfig(cost="none")
    with pytest.raises(ConfigError, match="not positive"):
        OrderingConfig(tick_s=0.0)
    with pytest.raises(ConfigError, match="too many"):
        ordering(Pool(2e9))


WEEK_S = 604_800.0


def test_the_tick_that_fits_a_log():
    whole = jobs_of((0, 1, 7, 3), (5, 1, 9, 2))
    assert fitting_tick_s(whole) == 1.0
    assert fitting_tick_s(whole._replace(run_s=np.array([3.0, 2.25]))) == 0.01
    assert fitting_tick_s(whole._replace(arrival_s=np.array([0.0, 1 / 3]))) == 0.001


def check_weeks(jobs, pool, rules, begins_s, width_s, tick_s=1.0):
    """Windows of a real log, warm from a replay, under each rule."""
    sizes = {"num_visible": 512, "queue_size": 512, "running_size": 100, "tick_s": tick_s}
    config = OrderingConfig(**sizes)
    schedule = replay(jobs, Pool(pool.processors, True), FCFS).start_s
    spans = np.stack([begins_s, begins_s + width_s], axis=1)
    run = player(pool, len(spans), **sizes)
    for rule in rules:
        order = None if rule.ages else standing_order(jobs, rule)
        windows, place = cut_job_windows(jobs, pool, config, schedule, spans, priority=order)
        state = run(windows, kind_of(rule))
        assert np.all(state.done)
        assert not np.any(state.problem.num_late)
        found = np.asarray(state.response.start) * tick_s
        for number, span in enumerate(spans):
            chosen, index, warm = window(jobs, schedule, *span)
            expected = replay(chosen, pool, rule, warm=warm).start_s - span[0]
            np.testing.assert_array_equal(place[: len(index), number], index)
            np.testing.assert_allclose(found[: len(index), number], expected, 0.0, 1e-6, err_msg=rule.name)


@pytest.mark.slow  # the quick one: `test_starts_are_the_replays`, made queues
def test_days_of_a_real_log_are_replayed_to_the_second(kth):
    check_weeks(kth, Pool(100, True), RULES, WEEK_S * np.array([4.0, 12.0, 29.0]), 86_400.0)


@pytest.mark.slow
@pytest.mark.parametrize(("easy", "width_s"), [(False, 4 * 86_400.0), (True, WEEK_S)])
def test_weeks_of_a_real_log_are_replayed_to_the_second(kth, easy, width_s):
    """Without backfilling the queue outgrows the tables within a week, so those windows are shorter."""
    check_weeks(kth, Pool(100, easy), RULES, WEEK_S * (4.0 + 2.5 * np.arange(16)), width_s)


@pytest.mark.slow
def test_weeks_of_a_log_of_hundredths_are_replayed_to_the_hundredth(shared_data, tmp_path):
    import_log("lumos", [shared_data / "alcf-theta-2023"], tmp_path / "archive")
    jobs = read_jobs(Archive(tmp_path / "archive"))
    tick_s = fitting_tick_s(jobs)
    assert tick_s == 0.01
    begins_s = jobs.arrival_s[-1] - WEEK_S * (1.0 + 1.5 * np.arange(8))
    check_weeks(jobs, Pool(64 * 4392, True), RULES, begins_s, WEEK_S, tick_s)
