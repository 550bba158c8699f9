"""Generated arrivals under the placement problem: the workload, when, and that a full twin rolls out."""

import datetime as dt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_rows
from tests.twin.population.toys import agents
from twin.contracts import Array
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encode import cut_windows
from twin.placement.responses import Answers, drawn_response
from twin.placement.types import COMPLETED, Fate, PlacementState
from twin.population import AgentTable, bootstrap, fit_population
from twin.population.agents import ACTIVITY
from twin.population.arrival_times import DAY_S, ArrivalModel, fit_arrivals
from twin.population.arrivals import NUM_PARTS, RequestPool, generated_arrivals, request_pool
from twin.rollout import rollout

CLUSTER = made_cluster()
ENCODING = made_encoding(CLUSTER)
MONDAY = 19_723
STREAMS = (6,)


def population() -> AgentTable:
    """Agents of the cluster: service-1 asks three times as often as service-2."""
    table = agents(600)
    known = np.where(table.categorical["service"] == "a", "service-1", "service-2")
    labels = {"service": known, "site": np.where(table.categorical["site"] == "x", "site-0", "site-1")}
    activity = np.where(known == "service-1", 30.0, 10.0)
    return AgentTable(table.conditions, labels, {**table.continuous, ACTIVITY: activity})


@pytest.fixture(scope="module")
def pool() -> RequestPool:
    model = fit_population(jax.random.key(0), bootstrap(), population())
    return request_pool(jax.random.key(1), model, ENCODING, num_rows=64)


@pytest.fixture(scope="module")
def times() -> ArrivalModel:
    random = np.random.default_rng(0)
    arrival_s = np.sort(random.uniform(0.0, 7 * DAY_S, 7 * 20_000)) + MONDAY * DAY_S
    return fit_arrivals(arrival_s, range(MONDAY, MONDAY + 7))


def prompt_answers() -> Answers:
    """Everything is accepted and runs two seconds."""

    def answer(
        _key: Array, memory: Array, state: PlacementState, node: Array, _note: None
    ) -> tuple[Array, Fate]:
        start_s = jnp.broadcast_to(state.clock_s[None], node.shape)
        return memory, Fate(state.active, start_s, start_s + 2.0, jnp.full(node.shape, COMPLETED, jnp.int32))

    return Answers(lambda _key, streams: jnp.zeros(streams), answer)


def test_the_pool_follows_the_requests_and_not_the_agents(pool: RequestPool) -> None:
    table = population()
    asks = table.continuous[ACTIVITY]
    of_one = table.categorical["service"] == "service-1"
    expected = np.sum(asks[of_one]) / np.sum(asks)
    found = np.mean(pool.request.service == CLUSTER.services.index("service-1"))
    assert abs(found - expected) < 0.06 < abs(np.mean(of_one) - expected)
    assert pool.request.demand.shape == (3, NUM_PARTS * 64)
    assert set(np.unique(pool.request.site)) == {0, 1}
    assert np.all(pool.request.agent >= 0)
    part = np.floor(pool.request.day_fraction * NUM_PARTS).astype(int)
    assert np.array_equal(part, np.repeat(np.arange(NUM_PARTS), 64))


@pytest.mark.slow
def test_a_full_twin_rolls_out(pool: RequestPool, times: ArrivalModel) -> None:
    arrivals = generated_arrivals(times, pool, offset_s=9 * 3600.0, length_s=120.0)
    twin = environment(
        placement(CLUSTER, ENCODING.problem),
        drawn_response(CLUSTER, ENCODING.problem.depth, arrivals, prompt_answers()),
    )

    def anywhere(key: Array, _observation: object, legal: Array) -> Array:
        return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf), axis=0).astype(jnp.int32)

    run = jax.jit(lambda key: rollout(key, twin, anywhere, 64, STREAMS))
    played = run(jax.random.key(0))
    active = np.asarray(played.active)
    assert np.all(np.asarray(played.done)[-1])
    assert np.all(np.isfinite(np.asarray(played.reward)))
    assert not np.any(np.asarray(played.illegal) & active)
    arrival_s = np.where(active[:, 0], np.asarray(played.decision_info.arrival_s)[:, 0], -1.0)
    assert np.all(arrival_s < 120.0)
    assert abs(active.sum() / STREAMS[0] / (120.0 * 20_000 / DAY_S) - 1.0) < 0.35
    assert len(np.unique(active.sum(axis=(0, 1)))) > 1
    again = run(jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, played, again)


def test_an_episode_may_branch_off_from_a_logged_state(pool: RequestPool, times: ArrivalModel) -> None:
    rows = made_rows(np.random.default_rng(1), CLUSTER, 200)
    windows = cut_windows(rows, np.ones(200, bool), ENCODING, num_steps=20)
    arrivals = generated_arrivals(times, pool, begins=windows)
    streams = (windows.num_windows,)
    private, first = jax.jit(lambda key: arrivals.init(key, streams))(jax.random.key(0))
    assert np.array_equal(first.clock_s, windows.arrival_s[0])
    assert np.array_equal(first.request.service[0], windows.request.service[0])
    assert np.array_equal(first.request.demand[:, 0], windows.request.demand[:, 0])
    assert np.array_equal(first.carried.node, windows.carried.node)
    weekday = (dt.datetime.fromtimestamp(float(windows.origin_s[0]), dt.UTC)).weekday()
    assert int(private.offset_s[0] // DAY_S) == weekday


def test_times_of_day_go_on_with_the_clock(pool: RequestPool, times: ArrivalModel) -> None:
    arrivals = generated_arrivals(times, pool, offset_s=DAY_S - 2.0)
    _, first = jax.jit(lambda key: arrivals.init(key, (500,)))(jax.random.key(3))
    week_s = (DAY_S - 2.0 + np.asarray(first.clock_s)) % (7 * DAY_S)
    assert np.allclose(first.request.week_fraction[0], week_s / (7 * DAY_S), atol=1e-6)
    assert np.any(week_s < DAY_S)
    assert np.any(week_s > DAY_S)
    late = week_s >= DAY_S
    part = np.asarray(first.request.agent)[0] // 64
    assert np.all(part[late] == 0)
    assert np.all(part[~late] == NUM_PARTS - 1)
