"""While requests fail nothing is taken away and the load at the gateway is provided for, in training as in service."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.autoscaling.export import _drawn_state, _reading, config_of
from offline_rl.rules.autoscaling.autoscaler import Autoscaler
from offline_rl.rules.autoscaling.rescue import rescued
from offline_rl.runner import scaling as runner
from offline_rl.runner.scaling import Granted, Reading, ScalingPolicy
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from tests.autoscaling.guarded import GRANTED, policy_of, readings, setting_of
from twin.autoscaling.types import Grants

CORE_S = np.array([0.05, 0.2])


def with_work(setting):
    deployments = zip(setting.deployments, CORE_S.tolist(), strict=True)
    return replace(
        setting, deployments=tuple(replace(one, core_s_per_request=each) for one, each in deployments)
    )


def taking(grants):
    """An autoscaler that takes half of everything away."""
    return Autoscaler(lambda _grants: (), lambda _key, memory, _state: (memory, grants))


def test_the_rescue_of_training_is_that_of_the_runner():
    setting = with_work(setting_of())
    config, limits = config_of(setting)
    state = _drawn_state(np.random.default_rng(3), config, setting)
    gateway = state.window.gateway
    failures = np.random.default_rng(4).uniform(0.0, 0.04, gateway.rate_per_s.shape)
    gateway = gateway._replace(num_failures=failures * gateway.rate_per_s * setting.interval_s)
    state = state._replace(window=state.window._replace(gateway=gateway))
    halves = Grants(*(0.5 * leaf for leaf in state.grants))
    autoscaler = rescued(config, limits, taking(halves), CORE_S)
    _, found = jax.jit(lambda state: autoscaler.decide(jax.random.key(0), (), state))(state)
    now, failed = _reading(config, state, 0), 0
    for row in range(len(now["time_s"])):
        reading = Reading(*(now[name][row] for name in Reading._fields))
        granted, wanted = (
            Granted(*(np.asarray(leaf)[:, row] for leaf in leaves)) for leaves in (state.grants, halves)
        )
        fails = runner.failing(setting, reading) > 0.0
        failed += fails
        expected = runner.rescued(setting, granted, reading, wanted) if fails else wanted
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one)[:, row], other, rtol=1e-5)
    assert 20 < failed < 44


def failing_readings(share, rate=40.0):
    return readings()._replace(
        gateway_rate_per_s=np.asarray(rate), gateway_failures=np.asarray(share * rate * 30.0)
    )


def guard_of(place, **config):
    policy, arrays = policy_of(place)
    return Guard(ScalingPolicy(with_work(policy.setting), arrays), GuardConfig(**config))


def test_a_policy_that_removes_replicas_adds_them_while_requests_fail():
    quiet = guard_of(-0.99).decide(0.0, GRANTED, failing_readings(0.0), readings())
    assert quiet.wanted.replicas.tolist() == [1.0, 1.0]
    found = guard_of(-0.99).decide(0.0, GRANTED, failing_readings(0.5), readings())
    # 40 requests of .05 and .2 core-seconds on replicas of half a core, of which they take .6: 7 and 27
    assert found.wanted.replicas.tolist() == [6.0, 6.0]  # four at once, at most
    assert all("50% of the requests fail" in reason for reason in found.reasons)
    grown = GRANTED._replace(replicas=np.array([7.0, 8.0]))
    assert guard_of(-0.99).decide(0.0, grown, failing_readings(0.5), readings()).wanted.replicas.tolist() == [
        7.0,
        8.0,
    ]


def test_a_few_failures_are_no_reason():
    found = guard_of(-0.99).decide(0.0, GRANTED, failing_readings(0.015), readings())
    assert found.wanted.replicas.tolist() == [1.0, 1.0]
    assert not any(found.reasons)


@pytest.mark.parametrize("stale", ["", "the metrics are old"])
def test_what_is_switched_off_or_not_known_stays(stale):
    off = GRANTED._replace(replicas=np.array([0.0, 2.0]))
    found = guard_of(-0.99).decide(0.0, off, failing_readings(0.5), readings(), stale)
    assert found.wanted.replicas[0] == 0.0
    assert (found.wanted.replicas[1] > 2.0) == (not stale)


def test_a_bundle_that_does_not_know_the_work_takes_nothing_away():
    policy, _ = policy_of(-0.99)
    found = Guard(policy, GuardConfig()).decide(0.0, GRANTED, failing_readings(0.5), readings())
    assert found.wanted.replicas.tolist() == [2.0, 2.0]
    assert jnp.isfinite(found.wanted.cpu_cores).all()


def test_grants_beyond_the_bounds_are_not_cut_while_requests_fail():
    far = GRANTED._replace(replicas=np.array([20.0, 2.0]))
    assert guard_of(0.0).decide(0.0, far, failing_readings(0.0), readings()).wanted.replicas[0] == 18.0
    assert guard_of(0.0).decide(0.0, far, failing_readings(0.5), readings()).wanted.replicas[0] == 20.0


def test_a_deployment_without_metrics_stays_and_says_why():
    now = failing_readings(0.5)
    now = now._replace(cpu_cores_used=np.array([np.nan, 0.2]))
    found = guard_of(-0.99).decide(0.0, GRANTED, now, readings())
    assert found.wanted.replicas.tolist() == [2.0, 6.0]
    assert found.reasons[0] == "metrics of the deployment are missing: cpu_cores_used"
    assert "fail" in found.reasons[1]


def test_little_use_behind_a_deployment_that_fails_is_no_error_of_units():
    starved = failing_readings(0.98)._replace(cpu_cores_used=np.array([0.5, 0.001]))
    found = guard_of(-0.99).decide(0.0, GRANTED, starved, readings())
    assert found.wanted.replicas.tolist() == [6.0, 6.0]
    unmixed = starved._replace(gateway_failures=np.asarray(0.0))
    assert "is the unit right" in guard_of(-0.99).decide(0.0, GRANTED, unmixed, readings()).reasons[1]
