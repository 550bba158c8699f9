"""Networks from a log of grants, and by policy gradients: their trajectories, and their form."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.algorithm import choices_of
from offline_rl.autoscaling.from_logs import LogLearnerConfig, evened, learn_from_log, logged_pairs
from offline_rl.autoscaling.policy_gradients import PolicyGradientConfig, around, medians
from offline_rl.autoscaling.teaching import teacher_policy
from offline_rl.distributions import greedy
from offline_rl.errors import TrainingError
from offline_rl.networks import actor, example_in
from tests.autoscaling.test_twin import CONFIG, LIMITS
from twin.autoscaling.logged_intervals import logged_events
from twin.autoscaling.problem import ScalingAction, autoscaling_problem, rescaled
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.scaling_log import DEPLOYMENT_COLUMNS, GATEWAY_COLUMNS, ScalingLog
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import Grants
from twin.contracts import Outcome

ROWS, GAP = 60, 40
WINDOW = CONFIG.window
same = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def actions():
    """[rows, deployments] steps, of the size that changes grants or none."""
    random = np.random.default_rng(0)
    return [
        ScalingAction(*(jnp.asarray(random.integers(-1, 2, 2), jnp.float32) for _ in range(3)))
        for _ in range(ROWS)
    ]


@pytest.fixture(scope="module")
def log(actions):
    """Grants that follow the actions and metrics that follow nothing; the log has a gap."""
    random = np.random.default_rng(1)
    columns = {name: random.uniform(0.1, 0.9, (ROWS, 2)) for name in DEPLOYMENT_COLUMNS}
    gateway = {name: random.uniform(0.01, 0.2, ROWS) for name in GATEWAY_COLUMNS}
    grants = Grants(jnp.full(2, 1.0), jnp.full(2, 0.5), jnp.full(2, 10.0))
    for row, action in enumerate(actions):
        grants = rescaled(CONFIG, LIMITS, grants, action)
        columns["cpu_cores"][row], columns["memory_gib"][row], columns["num_replicas"][row] = grants
    gateway["request_rate_per_s"] = random.uniform(1.0, 5.0, ROWS)
    gateway["response_s"][GAP] = np.nan
    return ScalingLog(("a", "b"), CONFIG.interval_s, CONFIG.interval_s * np.arange(ROWS), columns, gateway)


@pytest.fixture(scope="module")
def pairs(log):
    return logged_pairs(CONFIG, LIMITS, log, cost_under_slo())


def test_pairs_of_a_log_are_the_steps_of_the_problem(log, pairs, actions):
    """Observation, action and worth, as the bookkeeping of rollouts has them under the same events."""
    problem = autoscaling_problem(CONFIG, LIMITS, cost_under_slo())
    events = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), logged_events(log))
    no = jnp.bool_(False)

    @jax.jit
    def step(state, action, now):
        outcome = Outcome(jnp.float32(CONFIG.interval_s), no, no, now)
        moved, records = problem.apply(state, action, outcome, jnp.arange(2))
        grants = problem.decision_info(state, action)
        return moved, problem.observe(state), grants, problem.reward(grants, records.outcome)

    seconds = [*range(WINDOW + 1, GAP), *range(GAP + WINDOW + 2, ROWS)]
    assert pairs.reward.shape == (2, 2, len(seconds))
    for place, second in enumerate(seconds):
        first = second - 1
        past = jax.tree.map(lambda leaf: np.moveaxis(leaf[..., first - WINDOW : first], -1, 0), events)  # noqa: B023
        state = ScalingState(jax.tree.map(lambda leaf: leaf[-1], past.grants), past)
        for number, row in enumerate((first, second)):
            now = jax.tree.map(lambda leaf: leaf[..., row], events)  # noqa: B023
            moved, seen, grants, worth = step(state, actions[row], now)
            one = jax.tree.map(lambda leaf: leaf[number, ..., place], pairs)  # noqa: B023
            jax.tree.map(same, one.observation, seen)
            same(one.reward, worth)
            jax.tree.map(same, step(state, one.action, now)[2], grants)
            state = moved
    assert float(pairs.elapsed_s.min()) == float(pairs.elapsed_s.max()) == CONFIG.interval_s


def test_what_a_log_did_beyond_the_reach_is_cut_off_there(log):
    columns = log.columns | {"num_replicas": np.where(np.arange(ROWS)[:, None] < 20, 1.0, 19.0) + np.zeros(2)}
    found = logged_pairs(CONFIG, LIMITS, replace(log, columns=columns), cost_under_slo())
    assert float(found.action.replicas.max()) == CONFIG.reach[2]


def test_a_log_without_two_intervals_in_a_row_is_refused(log):
    short = {name: values[: WINDOW + 1] for name, values in log.columns.items()}
    gateway = {name: values[: WINDOW + 1] for name, values in log.gateway.items()}
    cut = replace(log, time_s=log.time_s[: WINDOW + 1], columns=short, gateway=gateway)
    with pytest.raises(TrainingError, match=f"{WINDOW + 2} intervals without a gap"):
        logged_pairs(CONFIG, LIMITS, cut, cost_under_slo())


@pytest.mark.slow
def test_the_clone_of_a_log_does_as_the_log(log, pairs):
    """With next to no weight on values the policy nears the mean of the logged actions."""
    config = LogLearnerConfig(updates=300, batch=32)
    config = replace(config, td3_bc=replace(config.td3_bc, q_weight=1e-3))
    params = learn_from_log(jax.random.key(0), pairs, config)
    seen, legal, logged = choices_of(pairs)
    away = np.stack(teacher_policy(params)(jax.random.key(1), seen, legal)) - np.stack(logged)
    assert np.sqrt(np.mean(away**2)) < 0.8 * np.std(np.stack(logged))


def test_decisions_that_change_something_are_drawn_as_often_as_others(pairs):
    rare = pairs._replace(action=jax.tree.map(lambda leaf: leaf.at[0, :, 3:].set(0.2), pairs.action))
    found = np.any(
        [np.abs(leaf[0]) > CONFIG.dead_zone for leaf in evened(rare, CONFIG.dead_zone).action], axis=(0, 1)
    )
    assert found.sum() == (~found).sum() == 33 - 3
    none = rare._replace(action=jax.tree.map(jnp.zeros_like, rare.action))
    assert evened(none, CONFIG.dead_zone).reward.shape == none.reward.shape


def test_medians_of_an_actor_are_a_deterministic_policy(pairs):
    network = actor(example_in(pairs), PolicyGradientConfig().ppo.actor_hidden)
    params = jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape),
        network.init(jax.random.key(2)),
    )
    seen, legal, _ = choices_of(pairs)
    expected = greedy(network.logits(params, seen, legal))
    found = teacher_policy(medians(params))(jax.random.key(3), seen, legal)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=2e-6), found, expected)
    assert np.std(np.stack(expected)) > 0.05
    again = medians(around(medians(params), -1.0))
    jax.tree.map(np.testing.assert_array_equal, again, medians(params))
