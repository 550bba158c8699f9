"""FIRM: signs by hand, the locator finds who is to blame, and only who is blamed is given more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.rules.autoscaling.critical_path import (
    CriticalPath,
    CriticalPathConfig,
    Locator,
    _faults,
    broken,
    critical_path,
    fit_locator,
    signs,
    to_blame,
)
from tests.autoscaling.test_problem import CONFIG, limits
from twin.autoscaling.laws import histogram
from twin.autoscaling.problem import ScalingAction, rescaled
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import DeploymentMetrics, GatewayMetrics, Grants, ScalingEvents
from twin.contracts import Outcome, Response

KEY = jax.random.key(0)


def two_deployments(latest_s: float) -> ScalingState:
    """Of two deployments the second grows slow, and the whole request with it."""
    window = CONFIG.window
    own = np.full((window, 2), 0.02)
    own[:, 1] = np.linspace(0.02, latest_s, window)
    whole = jnp.asarray(own.sum(axis=1))
    both = jnp.ones((window, 2))
    grants = Grants(0.5 * both, 0.5 * both, 2.0 * both)
    latency = jnp.stack([histogram(mean, 3.0 * mean, jnp.asarray(30.0)) for mean in whole])
    measured = DeploymentMetrics(both, 0.2 * both, 0.1 * both, 2.0 * both, jnp.asarray(own), 0.0 * both)
    gateway = GatewayMetrics(jnp.ones(window), whole, jnp.zeros(window), latency)
    now = jax.tree.map(lambda leaf: leaf[-1], grants)
    return ScalingState(now, ScalingEvents(grants, measured, gateway, jnp.zeros(window)))


def test_signs_tell_who_moves_with_the_request():
    state = two_deployments(1.0)
    found = np.asarray(signs(CONFIG, state))
    known = np.asarray(state.window.measured.response_s)[: CONFIG.window - CONFIG.delay_intervals, 1]
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found[0], [0.0, 1.0], atol=1e-3)
    np.testing.assert_allclose(found[1], [0.0, np.log(known[-1] / np.median(known))], atol=1e-3)
    np.testing.assert_allclose(found[2], np.array([0.02, known[-1]]) / (0.02 + known[-1]), rtol=1e-4)


def test_the_locator_finds_blame_in_signs_of_any_scale():
    random = np.random.default_rng(0)
    blame = random.uniform(size=400) < 0.2
    found = random.normal(size=(400, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 0.0]
    found[:, 1] += 60.0 * blame
    locator = fit_locator(found, blame)
    told = np.asarray(to_blame(locator, jnp.asarray(found.T)))
    assert np.mean(told == blame) > 0.98
    with pytest.raises(ConfigError, match="loses replicas"):
        fit_locator(found, np.zeros(400, bool))


@pytest.mark.parametrize(("latest_s", "replicas"), [(1.0, [2.0, 3.0]), (0.03, [2.0, 2.0])])
def test_more_is_granted_where_the_fault_is_found_and_the_objective_broken(latest_s, replicas):
    ones = jnp.ones(2)
    policy = CriticalPath(
        Locator(jnp.asarray([0.0, 0.0, 1.0]), jnp.asarray(-0.55)),  # whoever takes most of the time
        lambda _key, _seen, _legal: ScalingAction(0.0 * ones, 0.0 * ones, ones),
    )
    state = two_deployments(latest_s)
    assert bool(broken(CONFIG, state)) == (latest_s > CONFIG.slo_s)
    _, wanted = critical_path(CONFIG, limits(2), policy).decide(KEY, (), state)
    np.testing.assert_allclose(wanted.replicas, replicas)


def test_grants_are_taken_back_wherever_the_policy_says():
    ones = jnp.ones(2)
    policy = CriticalPath(
        Locator(jnp.zeros(3), jnp.asarray(-1.0)),
        lambda _key, _seen, _legal: ScalingAction(0.0 * ones, 0.0 * ones, -ones),
    )
    _, wanted = critical_path(CONFIG, limits(2), policy).decide(KEY, (), two_deployments(1.0))
    np.testing.assert_allclose(wanted.replicas, [1.0, 1.0])


def answered(grants):
    """A deployment of two replicas or fewer is slow, and so is the whole then."""
    own = jnp.where(grants.replicas < 3.0, 1.0, 0.02)
    whole, ones = jnp.sum(own, axis=0), jnp.ones(own.shape)
    latency = histogram(whole, 3.0 * whole, 30.0 * jnp.ones(whole.shape))
    measured = DeploymentMetrics(ones, 0.375 * ones, 0.1 * ones, grants.replicas, own, 0.0 * ones)
    gateway = GatewayMetrics(jnp.ones(whole.shape), whole, jnp.zeros(whole.shape), latency)
    return ScalingEvents(grants, measured, gateway, jnp.zeros(whole.shape))


def test_who_is_at_fault_is_to_blame_in_the_interval_whose_signs_are_seen():
    bounds = limits(2)._replace(min_replicas=jnp.full(2, 1.0), max_replicas=jnp.full(2, 6.0))

    def outcome(grants):
        no = jnp.zeros(grants.replicas.shape[1:], bool)
        return (), Outcome(jnp.zeros(no.shape), no, no, answered(grants))

    def init(_key, streams):
        full = jnp.ones((2, *streams))
        return outcome(Grants(0.5 * full, 0.5 * full, 6.0 * full))

    def advance(_key, _private, state, action):
        wanted = rescaled(CONFIG, bounds, state.grants, action)
        return outcome(wanted)

    response = Response(init, advance, lambda _private, state: state)
    rewarded, settings = cost_under_slo(), CriticalPathConfig(steps=120, streams=4)
    found, blame = _faults(KEY, response, CONFIG, bounds, rewarded, settings)
    share = found[:, 2]  # of the request's time
    assert blame.any()
    assert share[blame].min() > 0.4  # of both, where both are at fault
