"""Users who wait for their results."""

import jax
import numpy as np
import pytest

from tests.ordering.making import jobs_of
from tests.ordering.pooling import KEY, cut_whole, joined
from twin.environment import environment
from twin.ordering.config import OrderingConfig
from twin.ordering.job_windows import cut_job_windows
from twin.ordering.orders import by_requested
from twin.ordering.play import by_order, play
from twin.ordering.problem import ordering
from twin.ordering.reacting import Thinking, cut_thinking, reacting_jobs, sessions
from twin.ordering.replay import replay
from twin.ordering.responses import queue_response
from twin.ordering.rules import SJF
from twin.ordering.types import Pool

NUM_JOBS, NUM_STREAMS = 30, 8
POOL = Pool(8, easy=True)
CONFIG = OrderingConfig(num_visible=30, queue_size=30, running_size=8, num_agents=4, backfill=by_requested)


def random_case(seed):
    """A crowded log in which half of the jobs wait for an earlier one."""
    generator = np.random.default_rng(seed)
    run = generator.integers(1, 20, NUM_JOBS)
    arrival = np.sort(generator.integers(0, 60, NUM_JOBS))
    rows = np.stack(
        [arrival, generator.integers(1, 9, NUM_JOBS), run * generator.integers(1, 3, NUM_JOBS), run]
    )
    after = np.array([generator.integers(-job - 1, job) if job else -1 for job in range(NUM_JOBS)])
    after = np.maximum(after, -1).astype(np.int32)
    return jobs_of(*rows.T), after, generator.integers(1, 9, NUM_JOBS).astype(np.int32)


@pytest.mark.slow
def test_a_schedule_under_reacting_arrivals_is_the_replay_of_the_arrivals_it_caused():
    cases = [random_case(seed) for seed in range(NUM_STREAMS)]
    windows = joined([cut_whole(jobs, POOL, CONFIG) for jobs, _, _ in cases])
    thinking = Thinking(*(np.stack([case[part] for case in cases], axis=1) for part in (1, 2)))
    system = environment(
        ordering(POOL, CONFIG), queue_response(POOL, CONFIG, reacting_jobs(windows, thinking))
    )
    state = jax.jit(lambda: play(KEY, system, by_order(system, by_requested), (NUM_STREAMS,)))()
    assert np.all(state.done)
    start = np.asarray(state.response.start)
    moved = 0
    for stream, (jobs, after, think) in enumerate(cases):
        first = windows.requests.arrival[:, stream]
        end = start[:, stream] + windows.run[:, stream]
        arrival = np.where(after >= 0, end[after] + think, first)
        moved += np.sum(arrival != first)
        order = np.argsort(arrival, kind="stable")
        caused = jobs._replace(
            **{
                name: getattr(jobs, name)[order]
                for name in ("request_id", "processors", "requested_s", "run_s", "logged_start_s", "agent")
            },
            arrival_s=arrival[order].astype(float),
        )
        np.testing.assert_array_equal(replay(caused, POOL, SJF).start_s, start[order, stream])
    assert moved > 50


def test_sessions_by_hand():
    rows = [(0, 1, 9, 5), (1, 1, 9, 2), (6, 1, 9, 5), (30, 1, 9, 1), (2000, 1, 9, 1), (40, 1, 9, 1)]
    rows[4], rows[5] = rows[5], rows[4]  # in order of arrival
    jobs = jobs_of(*rows, logged_start_s=[0, 1, 8, 30, 40, 2000], agent=[0, 0, 0, 1, 0, 0])
    after, think_s = sessions(jobs)
    # Jobs 0 and 1 end at 5 and 3, job 2 at 13, job 4 at 41; the last comes too late to be of a session.
    assert after.tolist() == [-1, -1, 0, -1, 2, -1]
    assert think_s.tolist() == [0, 0, 1, 0, 27, 0]
    never = np.full(6, np.nan)
    windows, place = cut_job_windows(jobs, POOL, CONFIG, never, np.array([[0.0, 100.0], [10.0, 100.0]]))
    thinking = cut_thinking(place, windows, (after, think_s), CONFIG)
    assert place.T.tolist() == [[0, 1, 2, 3, 4], [3, 4, -1, -1, -1]]
    assert thinking.after.T.tolist() == [[-1, -1, 0, -1, 2], [-1] * 5]
    assert thinking.think.T.tolist() == [[1, 1, 1, 1, 27], [1] * 5]
