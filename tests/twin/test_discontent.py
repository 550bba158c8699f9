"""How ill agents were served: along a log, in a twin's account, and whether a log shows that answers depend on it."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_requests
from twin.placement.discontent import (
    FADING,
    LEAST_EFFECT,
    after_answers,
    agent_slots,
    discontent_along,
    discontent_of,
    nobody_served,
)
from twin.placement.types import COMPLETED, FAILED, REJECTED, UNKNOWN, Fate

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


def test_the_log_and_the_account_of_a_twin_agree():
    agent, arrival_s, finish_s, status, deadline_s = drawn_log(0)
    of_log = discontent_along(agent, np.zeros(NUM_ROWS), arrival_s, finish_s, status, deadline_s)
    served, found = nobody_served(16, (1,)), []
    for row in range(NUM_ROWS):
        request = REQUESTS._replace(
            agent=jnp.full((1, 1), agent[row]), deadline_s=jnp.full((1, 1), deadline_s[row]),
            discontent=jnp.full((1, 1), of_log[row] if agent[row] >= 0 else 0.0),
        )  # fmt: skip
        clock_s = jnp.array([arrival_s[row]])
        fate = Fate(
            *(
                jnp.full((1, 1), one)
                for one in (status[row] != REJECTED, arrival_s[row], finish_s[row], status[row])
            )
        )
        now = discontent_of(served, request, clock_s)
        served = after_answers(served, request, now, clock_s, fate, jnp.ones((1, 1), bool))
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


@pytest.mark.parametrize("effect", [0.0, 0.5])
def test_agents_are_accounted_for_where_they_answer_by_how_they_were_served(effect):
    random = np.random.default_rng(1)
    agent, day = random.integers(NUM_AGENTS, size=5_000), np.repeat([0, 1], 2_500)
    discontent = random.uniform(size=5_000)
    accepted = (random.random(5_000) < 0.9 - effect * discontent).astype(float)
    usual = np.full(5_000, accepted.mean())
    assert agent_slots(accepted, usual, discontent, agent, day) == (16 if effect else 0)
    assert agent_slots(np.full(5_000, np.nan), usual, discontent, agent, day) == 0
    assert agent_slots(np.ones(5_000), np.ones(5_000), discontent, agent, day) == 0
    assert LEAST_EFFECT > 0.0
