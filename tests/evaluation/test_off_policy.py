"""Off-policy estimates where the value is known: a contextual bandit and a small Markov decision process."""

import datetime as dt
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.judges.off_policy import (
    FittedQConfig,
    Logged,
    OffPolicyConfig,
    Target,
    doubly_robust,
    fitted_q,
    fitted_reward,
    importance_sampling,
)
from evaluation.judges.off_policy.fitted_q import _padded, fit_values
from evaluation.judges.off_policy.judging import by_parts, features_of, logged_propensities, put_chosen
from logs_schema import Archive, ArchiveWriter
from logs_schema.columns import arrow_schema
from logs_schema.errors import ConfigError
from logs_schema.tables import REQUESTS, SCHEMA_VERSION
from tests.offline_rl.walks import DISCOUNT, FOLLOWING, HORIZON_S, NUM_STATES, REWARD, STEP_S
from twin.contracts import Trajectory

NUM_CONTEXTS, NUM_ACTIONS = 4, 3
MEAN = np.array([[0.2, 0.5, 0.9], [0.8, 0.1, 0.4], [0.3, 0.6, 0.2], [0.5, 0.5, 0.7]])
TARGET = np.array([[0.1, 0.2, 0.7], [0.6, 0.2, 0.2], [0.3, 0.5, 0.2], [0.1, 0.1, 0.8]])
VALUE = float(np.mean(np.sum(MEAN * TARGET, axis=1)))
CONFIG = OffPolicyConfig(intervals=IntervalConfig(num_replicates=400))
FIT = FittedQConfig(num_updates=300, hidden=(32,), learning_rate=1e-2)


def bandit(num_rows=6000, seed=0):
    random = np.random.default_rng(seed)
    context = random.integers(NUM_CONTEXTS, size=num_rows)
    propensity = np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1]])[context]
    action = (random.random(num_rows)[:, None] > np.cumsum(propensity, axis=1)).sum(axis=1)
    reward = (random.random(num_rows) < MEAN[context, action]).astype(float)
    following = np.append(np.arange(1, num_rows), -1)
    logged = Logged(
        np.eye(NUM_CONTEXTS, dtype=np.float32)[context],
        np.ones((num_rows, NUM_ACTIONS), bool),
        action,
        propensity,
        reward,
        np.ones(num_rows),
        following,
        np.arange(num_rows) // 100,
    )
    return logged, Target("wanted", TARGET[context])


def covers(estimate) -> bool:
    return estimate.value.low <= VALUE <= estimate.value.high


def test_weighting_and_the_doubly_robust_estimate_cover_the_known_value():
    logged, target = bandit()
    weighted = importance_sampling(logged, target, CONFIG)
    assert covers(weighted)
    assert weighted.overlap == pytest.approx(1.0)
    assert logged.num_rows > weighted.effective_size > 1000
    robust = doubly_robust(logged, target, fitted_reward(logged, FIT), CONFIG)
    assert covers(robust)
    assert robust.value.high - robust.value.low < weighted.value.high - weighted.value.low


def test_the_doubly_robust_estimate_survives_one_of_two_errors():
    logged, target = bandit()
    nonsense = np.random.default_rng(1).normal(size=logged.legal.shape)
    assert covers(doubly_robust(logged, target, nonsense, CONFIG))
    truth = MEAN[np.argmax(logged.features, axis=1)]
    wrong = logged._replace(propensity=np.full_like(logged.propensity, 1 / 3))
    assert covers(doubly_robust(wrong, target, truth, CONFIG))
    assert not covers(importance_sampling(wrong, target, CONFIG))


def test_intervals_cover_as_often_as_they_say():
    hits = [covers(importance_sampling(*bandit(2000, seed), CONFIG)) for seed in range(60)]
    assert np.mean(hits) > 0.85  # 95 % of 60 is 57; fewer than 51 has probability 2e-4


def test_weights_over_many_decisions_are_worth_nothing_and_it_declines():
    logged, target = bandit()
    sizes = []
    for num_decisions in (1, 2, 5, 20):
        found = importance_sampling(logged, target, CONFIG, num_decisions=num_decisions)
        sizes.append(found.effective_size)
    assert sizes == sorted(sizes, reverse=True)
    assert found.value.value is None
    assert "declines" in found.value.reason
    by_hand = importance_sampling(
        logged._replace(following=np.full(logged.num_rows, -1)), target, CONFIG, num_decisions=2
    )
    assert by_hand.effective_size == 0.0  # no decision has one before it


def test_a_policy_that_does_what_was_never_tried_is_not_estimated():
    logged, _ = bandit()
    never = logged._replace(
        propensity=np.where(np.arange(3)[None] == 2, 0.0, 0.5) * np.ones((logged.num_rows, 1))
    )
    always = Target("untried", np.eye(NUM_ACTIONS)[np.full(logged.num_rows, 2)])
    for found in (
        importance_sampling(never, always, CONFIG),
        doubly_robust(never, always, np.zeros(never.legal.shape), CONFIG),
        fitted_q(never, always, np.zeros(never.legal.shape), FIT, CONFIG),
    ):
        assert found.value.value is None
        assert "hardly ever taken" in found.value.reason
    with pytest.raises(ConfigError, match="floors"):
        OffPolicyConfig(min_overlap=1.5)


def test_fitted_q_solves_the_equations_of_a_known_process():
    """Q of a fixed stochastic policy, by a linear system, against the fit on random walks."""
    random = np.random.default_rng(3)
    num_rows = 4000
    state, states = 0, []
    action = random.integers(3, size=num_rows)
    for taken in action:
        states.append(state)
        state = FOLLOWING[state, taken]
    states = np.array(states)
    policy = np.array([[0.2, 0.2, 0.6], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]])
    move = np.zeros((NUM_STATES, NUM_STATES))
    for taken in range(3):
        np.add.at(move, (np.arange(NUM_STATES), FOLLOWING[:, taken]), policy[:, taken])
    value = np.linalg.solve(
        np.eye(NUM_STATES) - DISCOUNT * move, (1 - DISCOUNT) * np.sum(policy * REWARD, axis=1)
    )
    wanted = (1 - DISCOUNT) * REWARD + DISCOUNT * value[FOLLOWING]
    logged = Logged(
        np.eye(NUM_STATES, dtype=np.float32)[states],
        np.ones((num_rows, 3), bool),
        action,
        np.full((num_rows, 3), 1 / 3),
        REWARD[states, action],
        np.full(num_rows, STEP_S),
        np.append(np.arange(1, num_rows), -1),
        np.arange(num_rows) // 200,
    )
    fit = FittedQConfig(HORIZON_S, num_updates=1500, target_rate=0.05, hidden=(32,), learning_rate=5e-3)
    target = Target("fixed", policy[states])
    expected = REWARD[states]
    found = fit_values(logged, target, expected, fit)
    rows = [int(np.flatnonzero(states == one)[0]) for one in range(NUM_STATES)]
    np.testing.assert_allclose(found[rows], wanted, atol=0.03)
    estimate = fitted_q(logged, target, expected, fit, CONFIG)
    assert estimate.value.value == pytest.approx(float(np.mean(value[states])), abs=0.03)


def test_a_fit_of_few_updates_and_a_long_horizon_is_the_direct_estimate():
    """Decisions that change nothing: the value is the mean reward, however far ahead one looks."""
    logged, target = bandit(1000)
    always = Target("always the second", np.tile([0.0, 1.0, 0.0], (logged.num_rows, 1)))
    fit = FittedQConfig(horizon_s=100.0, num_updates=200, hidden=(32,))
    truth = MEAN[np.argmax(logged.features, axis=1)]
    for policy, value in ((target, VALUE), (always, float(np.mean(MEAN[:, 1])))):
        found = fitted_q(logged, policy, truth, fit, CONFIG)
        assert found.value.value == pytest.approx(value, abs=0.03)
        assert found.value.low is None  # the scatter of states knows nothing of the fit


@pytest.mark.slow
def test_a_large_table_of_features_is_padded_to_blocks_and_predicted_by_them(monkeypatch):
    logged, _ = bandit(1100)
    whole = fitted_reward(logged, FIT)
    module = sys.modules[fit_values.__module__]  # the package's function has its name
    monkeypatch.setattr(module, "MOST_CELLS", 1000 * NUM_CONTEXTS)
    monkeypatch.setattr(module, "ROWS", 100)
    assert _padded(logged.features).shape == (1100, NUM_CONTEXTS)
    assert _padded(logged.action).shape == (2048,)
    np.testing.assert_allclose(fitted_reward(logged, FIT), whole, atol=1e-5)


def test_windows_of_many_decisions_and_nodes_are_looked_at_some_at_a_time(monkeypatch):
    """Parts are of one width, and what is computed in them stands where it belongs."""
    random = np.random.default_rng(0)
    legal = random.random((6, 5, 1, 7)) < 0.5  # [T, A, seats, W]
    history = Trajectory(random.random((6, 2, 1, 7)), None, legal, *[None] * 10)
    seen = []

    def run(part, number):
        seen.append((part.legal.shape[-1], int(number)))
        return part.observation[:, :1, 0] * part.legal[:, :, 0]

    for most, parts in (
        (30 * 7, [(7, 0)]),
        (30 * 3, [(3, 0), (3, 1), (3, 2)]),
        (1, [(1, n) for n in range(7)]),
    ):
        monkeypatch.setattr("evaluation.judges.off_policy.judging.MOST_VIEWS", most)
        seen.clear()
        found = by_parts(run, history)
        np.testing.assert_array_equal(found, history.observation[:, :1, 0] * legal[:, :, 0])
        assert seen == parts


def test_rows_hold_the_features_of_their_decisions_window_by_window():
    random = np.random.default_rng(0)
    seen = (random.random((4, 2, 3, 1, 5), np.float32), random.integers(2, size=(4, 1, 5)) > 0)
    history = Trajectory(seen, *[None] * 12)
    mask = random.random((4, 5)) < 0.6
    mask[:, 2] = False  # a window of which nothing is settled
    found = features_of(history, mask)
    wanted = [
        np.append(seen[0][step, :, :, 0, window].ravel(), seen[1][step, 0, window])
        for window in range(5)
        for step in range(4)
        if mask[step, window]
    ]
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))


def test_fitted_q_declines_where_no_decision_follows_another():
    logged, target = bandit(50)
    alone = logged._replace(following=np.full(50, -1))
    found = fitted_q(alone, target, np.zeros(alone.legal.shape), FIT, CONFIG)
    assert found.value.value is None
    assert found.value.reason == "declines: no decision is followed by another"


def test_a_known_propensity_leaves_the_rest_to_the_other_actions():
    probability = np.array([0.001, 0.998, 0.001, 0.0])
    legal = np.array([True, True, True, False])
    put_chosen(probability, legal, 1, 1 / 3)
    np.testing.assert_allclose(probability, [1 / 3, 1 / 3, 1 / 3, 0.0])
    nothing_left = np.array([0.0, 1.0, 0.0, 0.0])
    put_chosen(nothing_left, legal, 1, 0.5)
    np.testing.assert_allclose(nothing_left, [0.25, 0.5, 0.25, 0.0])
    alone = np.array([1.0, 0.0])
    put_chosen(alone, np.array([True, False]), 0, 0.9)
    np.testing.assert_allclose(alone, [0.9, 0.0])


def test_the_propensity_of_a_machine_is_not_that_of_its_class(tmp_path):
    """Ten machines alike: each is chosen once in ten, the class of nine of them nine times as often."""
    machines = [f"small-{number}" for number in range(9)] + ["large-0"]
    offers = [*machines, "small", None]
    day = dt.datetime(2024, 3, 4, tzinfo=dt.UTC)
    rows = [
        {"request_id": str(number), "arrival": day + dt.timedelta(seconds=number), "site": "a", "status": "completed",
         "offered_node": name, "propensity": 0.9 if name == "small" else 0.1}
        for number, name in enumerate(offers)
    ]  # fmt: skip
    schema = arrow_schema(REQUESTS, SCHEMA_VERSION)
    with ArchiveWriter(tmp_path / "log", source={}, facts={}) as writer:
        filled = [{name: row.get(name) for name in schema.names} for row in rows]
        writer.write("requests", pa.Table.from_pylist(filled, schema), source="made")
    of_name = {name: int(name == "large-0") for name in machines} | {"small": 0, "large": 1}
    log, days = Archive(tmp_path / "log"), [day.date()]
    by_class = SimpleNamespace(cluster=SimpleNamespace(node_names=("small", "large")), node_of_name=of_name)
    assert logged_propensities(log, by_class, days) == {"9": 0.1, "10": 0.9}
    by_node = SimpleNamespace(
        cluster=SimpleNamespace(node_names=tuple(machines)),
        node_of_name={name: row for row, name in enumerate(machines)},
    )
    assert logged_propensities(log, by_node, days) == {str(number): 0.1 for number in range(10)}
