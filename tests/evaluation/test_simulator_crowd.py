"""Agents who react: they judge, refuse, pause and leave as told, and arrivals follow those who are present."""

import datetime as dt
import heapq
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.arrivals import request_at
from evaluation.simulator.conditions import conditions, world_draw
from evaluation.simulator.crowd import fresh_agents, judge, react, willingness
from evaluation.simulator.laws import constant
from evaluation.simulator.log_tables import left_for_good, requests_table
from evaluation.simulator.logs import day_of
from evaluation.simulator.names import agent_name, own_names
from evaluation.simulator.options import Reactions
from evaluation.simulator.world import validate
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import interval, queue, simulated
from twin.placement.types import REJECTED

NUM_AGENTS = 40


def impatient(reactions, *, requests_per_day=800.0, num_agents=NUM_AGENTS, load=0.2):
    """A queue in which every request is late."""
    world = queue(1, load, constant(), requests_per_day=requests_per_day)
    hopeless = replace(world.services[0], deadline_s=1e-3)
    return validate(replace(world, services=(hopeless,), reactions=reactions, num_agents=num_agents))


def asked_by(day):
    return np.bincount(day.request.agent, minlength=NUM_AGENTS)


@pytest.mark.slow
def test_who_is_annoyed_for_sure_leaves_after_the_second_request_and_never_asks_again():
    """Nothing is judged before the second request; then impatience is 1, and so is the probability to leave."""
    rows = simulated(impatient(Reactions(memory=1.0, leaving=1.0)), "random", num_streams=4, chunk_steps=200)
    for column in range(4):
        day = day_of(rows, column)
        assert asked_by(day).max() == 2
        np.testing.assert_array_equal(
            np.sort(day.request.agent[day.left]), np.flatnonzero(asked_by(day) == 2)
        )
        assert day.left.sum() > 0.8 * NUM_AGENTS
        assert np.all(day.session == 0)


@pytest.mark.slow
def test_requests_of_an_agent_who_pauses_are_a_renewal_process():
    """One agent who pauses after every request but the first: gaps have mean `absence + 1 / rate`."""
    absence_s, requests_per_day = 300.0, 500.0
    world = impatient(
        Reactions(memory=1.0, pausing=1.0, absence_s=absence_s),
        requests_per_day=requests_per_day,
        num_agents=1,
        load=0.01,
    )
    rows = simulated(world, "random", num_streams=8, chunk_steps=200)
    gaps, sessions = [], []
    for column in range(8):
        day = day_of(rows, column)
        gaps.append(np.diff(day.arrival_s[1:]).mean())
        np.testing.assert_array_equal(day.session[1:], np.arange(len(day.session) - 1))
        sessions.append(len(day.session))
    mean_s, error_s = interval(np.array(gaps))
    expected_s = absence_s + 86_400.0 / requests_per_day
    assert abs(mean_s - expected_s) < 3.5 * error_s
    assert error_s < 0.05 * expected_s
    assert min(sessions) > 100


@pytest.mark.slow
def test_annoyed_agents_accept_as_often_as_told():
    """With every request late, impatience after k judged ones is `1 - (1 - memory)^k`; refused offers change
    nothing."""
    memory, refusing = 0.5, 0.6
    world = impatient(Reactions(memory=memory, refusing=refusing), requests_per_day=1_600.0)
    rows = simulated(world, "random", num_streams=6, chunk_steps=200)
    refused, expected, variance = 0.0, 0.0, 0.0
    for column in range(6):
        day = day_of(rows, column)
        for agent in range(NUM_AGENTS):
            statuses = day.fate.status[day.request.agent == agent]
            num_accepted = np.concatenate([[0], np.cumsum(statuses != REJECTED)])[:-1]
            chance = refusing * (1.0 - (1.0 - memory) ** num_accepted)
            refused += np.sum(statuses == REJECTED)
            expected += chance.sum()
            variance += np.sum(chance * (1.0 - chance))
    assert abs(refused - expected) < 4.0 * np.sqrt(variance)
    assert expected > 1_000


def test_annoyance_is_the_fading_share_of_late_requests():
    reactions = Reactions(memory=0.25, refusing=0.5)
    crowd = fresh_agents(3, ())
    agent, lateness = jnp.int32(1), []
    judged = jax.jit(lambda crowd, clock_s: judge(reactions, crowd, agent, clock_s))
    for due_s, end_s, clock_s in [
        (10.0, 8.0, 9.0),
        (20.0, 25.0, 26.0),
        (30.0, np.inf, 31.0),
        (40.0, np.inf, 35.0),
    ]:
        crowd = jax.tree.map(np.array, crowd)
        crowd.due_s[1], crowd.end_s[1] = due_s, end_s
        crowd = judged(crowd, np.float32(clock_s))
        lateness.append(float(crowd.impatience[1]))
    assert lateness == pytest.approx([0.0, 0.25, 0.4375, 0.4375])  # on time, late, overdue, not known yet
    assert np.isinf(crowd.due_s[0])
    assert float(crowd.due_s[1]) == 40.0
    assert float(willingness(reactions, crowd, agent)) == pytest.approx(1.0 - 0.5 * 0.4375)
    assert float(willingness(reactions, crowd, jnp.int32(0))) == 1.0


def test_refused_offers_annoy_as_much_as_told():
    reactions = Reactions(memory=0.5, refusing=0.1, after_refusals=0.6)
    world = impatient(reactions)
    today, asked = conditions(world, 0), np.array([True, True, False])

    @jax.jit
    def reacted(key, accepted):
        crowd = fresh_agents(1, (3,))._replace(impatience=jnp.full((1, 3), 0.2))
        request = request_at(world, today, own_names(world), jnp.full((4, 3), 0.5), jnp.zeros(3), 0)
        request = request._replace(agent=jnp.zeros(3, jnp.int32))
        return react(key, reactions, crowd, request, jnp.zeros(3), accepted, asked)[0].impatience

    impatience = reacted(jax.random.key(0), np.array([True, False, False]))
    np.testing.assert_allclose(impatience, [[0.2, 0.2 + 0.5 * 0.6 * 0.8, 0.2]], rtol=1e-6)


@pytest.mark.slow
def test_others_come_in_the_place_of_those_who_leave_and_have_names_of_their_own():
    """One agent, all requests late, leaving after the second: pairs of requests, gaps of `newcomer_s` between pairs."""
    newcomer_s, rate = 500.0, 800.0 / 86_400.0
    reactions = Reactions(memory=1.0, leaving=1.0, newcomer_s=newcomer_s)
    world = impatient(reactions, num_agents=1, load=0.01)
    rows = simulated(world, "random", num_streams=4, chunk_steps=200)
    gaps, pauses = [], []
    for column in range(4):
        day = day_of(rows, column)
        np.testing.assert_array_equal(day.left, np.arange(len(day.left)) % 2 == 1)
        gaps.append(np.diff(day.arrival_s)[0::2].mean())
        pauses.append(np.diff(day.arrival_s)[1::2].mean())
        names = requests_table(world, day, dt.date(2024, 1, 1))["agent"].to_pylist()
        expected = [agent_name(0, row // 2) for row in range(len(names))]
        assert names == expected
        assert list(left_for_good(world, day)) == [len(names) // 2]
    assert np.mean(gaps) == pytest.approx(1.0 / rate, rel=0.25)
    mean_s, error_s = interval(np.array(pauses))
    assert abs(mean_s - newcomer_s - 1.0 / rate) < 4.0 * error_s < 0.35 * mean_s


@pytest.mark.parametrize(
    ("reactions", "named"),
    [
        (Reactions(refusing=0.5, newcomer_s=60.0), "no agent leaves"),
        (Reactions(leaving=0.5, newcomer_s=0.0), "newcomer_s"),
        (Reactions(after_refusals=0.5), "after_refusals"),
        (Reactions(after_refusals=0.5, one_at_a_time=True), "after_refusals"),
    ],
)
def test_reactions_that_contradict_each_other_are_refused_by_name(reactions, named):
    with pytest.raises(ConfigError, match=named):
        impatient(reactions)


def test_only_streams_with_a_request_react():
    reactions = Reactions(leaving=1.0)
    world = impatient(reactions)
    today, clock_s, asked = conditions(world, 0), np.float32([5.0, 6.0]), np.array([True, False])

    @jax.jit
    def reacted(key):
        crowd = fresh_agents(2, (2,))._replace(impatience=jnp.ones((2, 2)))
        request = request_at(world, today, own_names(world), jnp.full((4, 2), 0.5), clock_s, 0)
        request = request._replace(agent=jnp.array([0, 1], jnp.int32))
        return react(key, reactions, crowd, request, clock_s, asked, asked)

    crowd, leaves = reacted(jax.random.key(0))
    assert list(map(bool, leaves)) == [True, False]
    np.testing.assert_array_equal(crowd.back_s, [[np.inf, 0.0], [0.0, 0.0]])
    assert np.isfinite(crowd.due_s[0, 0])
    assert np.isinf(crowd.due_s[1, 1])


def counts_by_plain_loop(rates, run_s, until_s, random):
    """Requests of every agent in a closed system of one server: all think, queue, are served, and think again."""
    free_s, counts = 0.0, np.zeros(len(rates), int)
    coming = [(random.exponential(1.0 / rate), agent) for agent, rate in enumerate(rates)]
    heapq.heapify(coming)
    while coming[0][0] < until_s:
        now_s, agent = heapq.heappop(coming)
        counts[agent] += 1
        free_s = max(free_s, now_s) + run_s
        heapq.heappush(coming, (free_s + random.exponential(1.0 / rates[agent]), agent))
    return counts


@pytest.mark.slow
def test_agents_who_send_one_request_at_a_time_are_a_closed_system():
    """As many requests of every agent as in a plain loop of six agents and a server that is nearly always busy."""
    num_agents, per_day = 6, 1_000.0
    world = validate(
        replace(queue(1, 0.9, constant(), requests_per_day=per_day), num_agents=num_agents,
                reactions=Reactions(one_at_a_time=True))
    )  # fmt: skip
    rows = simulated(world, "random", num_streams=12, chunk_steps=200)
    found = []
    for column in range(12):
        day = day_of(rows, column)
        found.append(np.bincount(day.request.agent, minlength=num_agents))
        for agent in range(num_agents):
            mine = day.request.agent == agent
            assert np.all(day.arrival_s[mine][1:] >= day.fate.finish_s[mine][:-1])
    rates = world_draw(world).share * per_day / world.day_s
    random, run_s = np.random.default_rng(0), world.services[0].work_s
    expected = [counts_by_plain_loop(rates, run_s, world.day_s, random) for _ in range(200)]
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(np.abs(mean - np.mean(expected, axis=0)) < 3.5 * error)
    assert mean.sum() < 0.9 * per_day, "nobody waits for an answer: this tests nothing"
