"""How ill agents were served: along a log, in a twin's account, and whether a log shows that answers depend on it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_requests, made_rows
from twin.arrays import save_arrays
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.discontent import (
    FADING,
    ILL_BEFORE,
    after_answers,
    discontent_along,
    discontent_of,
    fit_reaction,
    nobody_served,
)
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.history import labelled_offers
from twin.placement.learned import (
    ACCEPTANCE,
    AnswerConfig,
    AnswerModel,
    answer_network,
    learned_answers,
    num_inputs,
    num_offer_inputs,
)
from twin.placement.model import load_windows
from twin.placement.responses import drawn_response
from twin.placement.types import COMPLETED, FAILED, REJECTED, UNKNOWN, Fate, Reaction
from twin.placement.windows import replayed_arrivals

NUM_ROWS, NUM_AGENTS = 400, 7
REQUESTS = made_requests(np.random.default_rng(0), made_cluster(), (1, 2))


def drawn_log(seed):
    """(agent, arrival, finish, status, deadline) of one day, some hidden, refused, failed, late and unknown."""
    random = np.random.default_rng(seed)
    agent = random.integers(-1, NUM_AGENTS, size=NUM_ROWS)
    arrival_s = np.sort(random.uniform(0.0, 4_000.0, NUM_ROWS)).astype(np.float32)
    deadline_s = np.where(random.random(NUM_ROWS) < 0.9, 60.0, np.inf).astype(np.float32)
    status = random.choice([COMPLETED, FAILED, REJECTED], p=[0.7, 0.1, 0.2], size=NUM_ROWS)
    run_s = random.exponential(60.0, NUM_ROWS).astype(np.float32)
    finish_s = np.where(status == REJECTED, np.inf, arrival_s + run_s).astype(np.float32)
    return agent, arrival_s, finish_s, status, deadline_s


@pytest.mark.slow
def test_the_log_and_the_account_of_a_twin_agree():
    agent, arrival_s, finish_s, status, deadline_s = drawn_log(0)
    of_log = discontent_along(agent, np.zeros(NUM_ROWS), arrival_s, finish_s, status, deadline_s)
    served, found = nobody_served(16, (1,)), []

    @jax.jit
    def step(served, request, clock_s, fate):
        now = discontent_of(served, request, clock_s)
        return now, after_answers(served, request, now, clock_s, fate, jnp.ones((1, 1), bool))

    for row in range(NUM_ROWS):
        request = REQUESTS._replace(
            agent=jnp.full((1, 1), agent[row]),
            deadline_s=jnp.full((1, 1), deadline_s[row]),
            discontent=jnp.full((1, 1), of_log[row] if agent[row] >= 0 else 0.0),
            day_fraction=jnp.full((1, 1), arrival_s[row] / 86_400.0),
        )
        clock_s = jnp.array([arrival_s[row]])
        fate = Fate(
            *(
                jnp.full((1, 1), one)
                for one in (status[row] != REJECTED, arrival_s[row], finish_s[row], status[row])
            )
        )
        now, served = step(served, request, clock_s, fate)
        found.append(float(now[0, 0]))
    np.testing.assert_allclose(found, of_log, atol=1e-6)
    assert of_log.max() > 0.5


def test_what_is_not_known_yet_does_not_count_and_a_new_day_begins_at_nothing():
    agent, status = np.zeros(4, int), np.array([COMPLETED, COMPLETED, UNKNOWN, COMPLETED])
    arrival_s = np.array([0.0, 5.0, 20.0, 90_000.0])
    finish_s = np.array([10.0, 300.0, np.inf, np.inf])
    found = discontent_along(agent, np.array([0, 0, 0, 1]), arrival_s, finish_s, status, np.full(4, 12.0))
    # at 5 s the first still runs in time; at 20 s the second is overdue
    np.testing.assert_allclose(found, [0.0, 0.0, FADING, 0.0])


def test_an_agent_begins_at_its_discontent_of_the_log():
    request = REQUESTS._replace(agent=jnp.array([[3, -1]]), discontent=jnp.array([[0.4, 0.2]]))
    served = nobody_served(4, (2,))
    np.testing.assert_allclose(discontent_of(served, request, jnp.zeros(2)), [[0.4, 0.2]])


def test_who_asks_first_is_as_discontent_as_the_episode_goes_ill_beside_the_log():
    """Streams: as in the log, never ill, always ill; what the log does not show counts in none."""
    request = made_requests(np.random.default_rng(0), made_cluster(), (1, 3))
    served, log = (
        nobody_served(64, (3,)),
        np.random.default_rng(2).choice([1.0, 0.0, np.nan], 60, p=[0.3, 0.4, 0.3]),
    )
    for number, ill_in_log in enumerate(log):
        asks = request._replace(
            agent=jnp.full((1, 3), number),
            discontent=jnp.full((1, 3), 0.4),
            ill_in_log=jnp.full((1, 3), ill_in_log),
        )
        status = jnp.array([[REJECTED if ill_in_log == 1.0 else COMPLETED, COMPLETED, REJECTED]])
        fate = Fate(status != REJECTED, *(jnp.zeros((1, 3)),) * 2, status)
        served = after_answers(served, asks, jnp.zeros((1, 3)), jnp.zeros(3), fate, jnp.ones((1, 3), bool))
    found = discontent_of(served, asks._replace(agent=jnp.full((1, 3), 63)), jnp.zeros(3))[0]
    num_ill, num_known = np.nansum(log), np.isfinite(log).sum()
    never, always = (0.4 * (ILL_BEFORE + ill) / (ILL_BEFORE + num_ill) for ill in (0, num_known))
    np.testing.assert_allclose(found, [0.4, never, min(always, 1.0)], rtol=1e-6)
    assert never < 0.15 < 0.8 < always


def answered(effect, num_requests, seed=1):
    """(accepted, discontent, agent) of agents who ask so often in a day, each of a will of its own."""
    random, num_agents = np.random.default_rng(seed), 12_000 // num_requests
    agent = np.tile(np.arange(num_agents), num_requests)
    will = np.clip(random.normal(0.8, 0.1, num_agents), 0.05, 1.0)
    discontent, accepted = np.zeros((2, num_requests, num_agents))
    for number in range(num_requests):
        if number:
            ill = (accepted[number - 1] == 0.0) | (random.random(num_agents) < 0.3)
            discontent[number] = discontent[number - 1] + FADING * (ill - discontent[number - 1])
        accepted[number] = random.random(num_agents) < will + effect * discontent[number]
    return accepted.ravel(), discontent.ravel(), agent


@pytest.mark.parametrize("num_requests", [8, 20, 100])
@pytest.mark.parametrize("effect", [0.0, -0.4])
def test_a_reaction_is_found_where_there_is_one_however_often_agents_ask(effect, num_requests):
    """Less the mean of all answers of an agent's day, independent ones would rise with the refusals before them."""
    accepted, discontent, agent = answered(effect, num_requests)
    usual, day = np.full(len(accepted), accepted.mean()), np.zeros(len(accepted), int)
    found = fit_reaction(accepted, usual, discontent, agent, day)
    if effect:
        assert found.effect == pytest.approx(effect, abs=0.1)
        assert found.mean == pytest.approx(discontent.mean())
        assert found.num_slots >= 2 * len(np.unique(agent))
    else:
        assert found is None
    assert fit_reaction(np.full(len(accepted), np.nan), usual, discontent, agent, day) is None
    assert fit_reaction(np.ones(len(accepted)), np.ones(len(accepted)), discontent, agent, day) is None


def test_agents_who_are_the_readier_the_worse_they_are_served_are_left_alone():
    accepted, discontent, agent = answered(0.2, 40)
    usual, day = np.full(len(accepted), accepted.mean()), np.zeros(len(accepted), int)
    assert fit_reaction(accepted, usual, discontent, agent, day) is None


def test_at_midnight_an_account_begins_anew():
    asks = REQUESTS._replace(agent=jnp.array([[1, 1]]), discontent=jnp.array([[0.0, 0.0]]))
    late, early = (asks._replace(day_fraction=jnp.full((1, 2), at)) for at in (0.99, 0.01))
    refusal = Fate(jnp.zeros((1, 2), bool), *(jnp.full((1, 2), jnp.inf),) * 2, jnp.full((1, 2), REJECTED))
    served = nobody_served(4, (2,))
    for clock_s in (0.0, 1.0):
        now = discontent_of(served, late, jnp.full(2, clock_s))
        served = after_answers(served, late, now, jnp.full(2, clock_s), refusal, jnp.ones((1, 2), bool))
    assert float(discontent_of(served, late, jnp.full(2, 2.0))[0, 0]) > 0.4
    assert float(discontent_of(served, early, jnp.full(2, 3.0))[0, 0]) == 0.0


@pytest.fixture(scope="module")
def accounted():
    """An encoding whose agents answer by how they were served, and windows of a made log."""
    encoding = made_encoding(replace(made_cluster(), reaction=Reaction(16, -0.4, 0.2)), depth=8)
    rows = made_rows(np.random.default_rng(11), encoding.cluster, 90)
    return encoding, rows, cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=30)


@pytest.mark.slow
def test_answers_are_fitted_on_the_discontent_of_the_log(accounted, tmp_path):
    encoding, rows, windows = accounted
    discontent = windows.request.discontent
    assert 0.2 < discontent.max() <= 1.0
    offers = labelled_offers(windows, encoding)
    assert len(offers.inputs) == num_inputs(encoding.cluster)
    seen = offers.inputs[num_offer_inputs(encoding.cluster)] / 4.0
    assert np.isin(seen.round(5), discontent.round(5)).all()
    assert seen.max() > 0.2
    plain = labelled_offers(windows, replace(encoding, cluster=replace(encoding.cluster, reaction=None)))
    shift = offers.inputs[ACCEPTANCE] - plain.inputs[ACCEPTANCE]
    np.testing.assert_allclose(shift, -0.4 * (seen - 0.2), atol=1e-5)
    assert Encoding.from_json(encoding.to_json()).cluster.reaction == encoding.cluster.reaction
    save_arrays(tmp_path / "windows.npz", windows)
    kept = load_windows(tmp_path / "windows.npz", encoding.cluster)
    np.testing.assert_array_equal(kept.request.discontent, discontent)
    np.testing.assert_array_equal(kept.request.ill_in_log, windows.request.ill_in_log)
    row = windows.row[windows.valid()]
    refused = rows.status[row] == REJECTED
    assert refused.any()
    assert (windows.request.ill_in_log[windows.valid()][refused] == 1.0).all()


@pytest.mark.slow
def test_a_twin_keeps_account_of_the_agents_that_asked(accounted):
    encoding, _, windows = accounted
    config = AnswerConfig(num_members=1, hidden=(2,))
    zeros = jnp.zeros((num_inputs(encoding.cluster), 1))
    parameters = answer_network(config).init(jax.random.key(0), zeros)
    model = AnswerModel(jax.tree.map(lambda leaf: leaf[None], parameters), 30.0, 60.0, 0.0)
    answers = learned_answers(encoding, config, model)
    response = drawn_response(encoding.cluster, 8, replayed_arrivals(windows), answers)
    system = environment(placement(encoding.cluster, encoding.problem), response)
    state = jax.jit(lambda key: system.reset(key, (3,)))(jax.random.key(1))
    step = jax.jit(system.step)
    asked = [set(), set(), set()]
    for number in range(20):
        agents, active = np.asarray(state.problem.request.agent[0]), np.asarray(state.problem.active[0])
        for stream in np.flatnonzero(active & (agents >= 0)):
            asked[stream].add(int(agents[stream]))
        state, _ = step(jax.random.key(number), state, jnp.zeros((1, 3), jnp.int32))
    discontent = np.asarray(state.response.memory.served.discontent)
    for stream, those in enumerate(asked):
        assert set(np.flatnonzero(discontent[:, stream] >= 0.0)) == those
    assert 0.1 < discontent.max() <= 1.0
