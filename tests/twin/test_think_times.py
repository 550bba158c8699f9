"""Agents that await their answers: read off a log, and in episodes of a twin against a plain loop."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.closed_logs import (
    NUM_STEPS,
    answering,
    first_legal_played,
    is_refused,
    log_of,
    logged,
    run_of,
)
from tests.twin.made import made_cluster, made_encoding
from twin.environment import environment
from twin.placement.awaited_arrivals import awaited_arrivals, in_logged_order, reordered
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.history import answered_environment
from twin.placement.responses import drawn_response
from twin.placement.think_times import awaits_answers, think_times_s
from twin.placement.types import COMPLETED, REJECTED
from twin.placement.windows import Windows, joined, pad_windows, select


@pytest.mark.parametrize("seed", range(5))
def test_agents_that_await_their_answers_are_found_and_no_others(seed):
    found = {}
    for kind in ("awaiting", "open", "timer"):
        log = log_of(np.random.default_rng(seed), kind)
        found[kind] = awaits_answers(*log, np.zeros(len(log[0]), int))
    assert found == {"awaiting": True, "open": False, "timer": False}
    arrival_s, finish_s, status, agent = log_of(np.random.default_rng(seed), "awaiting")
    stretch = np.zeros(len(agent), int)
    assert not awaits_answers(arrival_s, finish_s, status, np.full(len(agent), -1), stretch)
    assert not awaits_answers(arrival_s[:40], finish_s[:40], status[:40], agent[:40], stretch[:40])
    late_s = np.where(np.random.default_rng(seed).random(len(agent)) < 0.5, finish_s + 30.0, finish_s)
    assert not awaits_answers(arrival_s, late_s, status, agent, stretch), "ends as late as this tell nothing"


def test_think_times_are_from_an_end_to_the_next_request_of_the_agent():
    found = think_times_s(
        np.array([0.0, 1.0, 4.0, 5.0, 6.0, 9.0]),
        np.array([3.0, 2.0, 8.0, np.inf, np.inf, 9.0]),
        np.array([COMPLETED, COMPLETED, COMPLETED, REJECTED, COMPLETED, COMPLETED]),
        np.array([3, -1, 3, 3, 3, -1]),
    )
    np.testing.assert_array_equal(found, [1.0, np.inf, -3.0, 1.0, np.inf, np.inf])


def by_plain_loop(windows: Windows, column: int) -> list[tuple[float, int]]:
    """When the requests of a window come, and their numbers, event by event."""
    number = np.asarray(windows.request.deadline_s)[:, column]
    agent, arrival_s = windows.request.agent[:, column], windows.arrival_s[:, column].astype(float)
    length, think_s = int(windows.length[column]), windows.think_s[:, column]
    steps_of = {one: [step for step in range(length) if agent[step] == one] for one in set(agent[:length])}
    events, found = [(arrival_s[steps[0]], steps[0]) for steps in steps_of.values()], []
    heapq.heapify(events)
    while events and len(found) < length:
        now_s, step = heapq.heappop(events)
        found.append((now_s, int(number[step])))
        end_s = now_s if is_refused(number[step]) else now_s + run_of(number[step])
        if np.isfinite(think_s[step]):
            mine = steps_of[agent[step]]
            later = mine[(mine.index(step) + 1) % len(mine)]
            heapq.heappush(events, (max(now_s, end_s + think_s[step]), later))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_requests_come_as_in_a_plain_loop(seed):
    encoding, windows = logged(seed)
    system = answered_environment(windows, encoding, answering(), reacts=True)
    played = first_legal_played(system, NUM_STEPS + 3, 2)
    for column in range(2):
        active = np.asarray(played.active)[:, 0, column]
        assert active.sum() == windows.length[column]
        expected = by_plain_loop(windows, column)
        info = jax.tree.map(
            lambda leaf, column=column: np.asarray(leaf)[..., 0, column], played.decision_info
        )
        np.testing.assert_array_equal(info.deadline_s[active], [number for _, number in expected])
        np.testing.assert_allclose(info.arrival_s[active], [at_s for at_s, _ in expected], atol=1e-3)
    agent, active = (np.asarray(leaf)[:NUM_STEPS, 0] for leaf in (played.decision_info.agent, played.active))
    numbers = np.asarray(played.decision_info.deadline_s)[:NUM_STEPS, 0]
    order, has_come = (np.asarray(leaf) for leaf in in_logged_order(windows, agent, active))
    asked = np.asarray(reordered(numbers, order))
    np.testing.assert_array_equal(asked[has_come], windows.request.deadline_s[has_come])
    for column in range(2):
        came = set(numbers[active[:, column], column].tolist())
        logged_numbers = windows.request.deadline_s[:, column]
        np.testing.assert_array_equal(has_come[:, column], [number in came for number in logged_numbers])
    assert (order != np.arange(NUM_STEPS)[:, None]).any(), (
        "the episode is in the log's order: this tests nothing"
    )


@pytest.mark.slow
def test_in_place_all_come_as_logged():
    encoding, windows = logged(0)
    arrivals = awaited_arrivals(windows, in_place=jnp.bool_(True))
    response = drawn_response(encoding.cluster, encoding.problem.depth, arrivals, answering())
    system = environment(placement(encoding.cluster, encoding.problem), response)
    played = first_legal_played(system, NUM_STEPS, 2)
    np.testing.assert_allclose(played.decision_info.arrival_s[:, 0], windows.arrival_s)


@pytest.mark.slow
def test_ends_that_are_put_off_put_off_what_awaits_them():
    """Every placement makes all that runs end 5 s later."""
    encoding, windows = logged(1, 1)

    def moved_fates(state, _node, _slots, start_s, finish_s):
        runs = jnp.isfinite(finish_s) & (finish_s > state.clock_s[None, None])
        return start_s, jnp.where(runs, finish_s + 5.0, finish_s)

    answers = answering()._replace(moved_fates=moved_fates)
    system = answered_environment(windows, encoding, answers, reacts=True)
    played = first_legal_played(system, NUM_STEPS, 1)
    finish_s = np.asarray(played.outcome.finish_s)[:, 0, 0]
    info = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0, 0], played.decision_info)
    refused = is_refused(info.deadline_s)
    ended_s = np.where(refused, info.arrival_s, finish_s)
    place = {int(number): step for step, number in enumerate(windows.request.deadline_s[:, 0])}
    last_of, compared = {}, 0
    for step, agent in enumerate(info.agent):
        if agent in last_of and np.isfinite(ended_s[last_of[agent]]):
            before = last_of[agent]
            think_s = windows.think_s[place[int(info.deadline_s[before])], 0]
            if think_s >= 0.0:  # what overlaps may come before its end is put off once more
                assert info.arrival_s[step] == pytest.approx(ended_s[before] + think_s, abs=2e-3)
                compared += 1
        last_of[agent] = step
    assert compared > 20


def test_windows_keep_what_is_awaited_whatever_is_made_of_them():
    encoding, windows = logged(2, 4)
    assert np.isfinite(windows.think_s).any()
    np.testing.assert_array_equal(joined([windows, windows]).think_s, np.tile(windows.think_s, 2))
    np.testing.assert_array_equal(select(windows, np.arange(2)).think_s, windows.think_s[:, :2])
    padded = pad_windows(windows, NUM_STEPS + 8, 4)
    np.testing.assert_array_equal(padded.think_s[:NUM_STEPS], windows.think_s)
    assert Encoding.from_json(encoding.to_json()).cluster.awaits
    assert '"awaits"' not in made_encoding(made_cluster()).to_json()
