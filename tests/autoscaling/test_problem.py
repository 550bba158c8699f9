"""The bookkeeping of grants, and the rules of Kubernetes' autoscaler, by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.autoscaling.config import ScaleConfig
from offline_rl.recipes.scaling_task import setting_of
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, desired_replicas, stabilised
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.fitting import ScalingCoverage
from twin.autoscaling.problem import ScalingAction, action_towards, rescaled
from twin.autoscaling.rewards import Earned, cost_under_slo, paper_reward, service_quality, utilisation_price
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import (
    LATENCY_S,
    NUM_BUCKETS,
    DeploymentMetrics,
    GatewayMetrics,
    Grants,
    ScalingEvents,
    kept_objective,
    quantile_s,
)

CONFIG = AutoscalingConfig(window=8)


def limits(number):
    def each(value):
        return jnp.full(number, value)

    return GrantLimits(each(0.25), each(2.0), each(0.125), each(1.0), each(1.0), each(10.0))


def test_actions_in_the_dead_zone_change_nothing_and_others_change_by_steps():
    grants = Grants(jnp.full(4, 0.5), jnp.full(4, 0.5), jnp.asarray([1.0, 5.0, 5.0, 10.0]))
    action = ScalingAction(
        jnp.asarray([0.5, 0.6, -1.0, 1.0]),
        jnp.asarray([-0.5, 0.8, -0.8, 1.0]),
        jnp.asarray([-1.0, -0.6, 0.6, 1.0]),
    )
    after = rescaled(CONFIG, limits(4), grants, action)
    np.testing.assert_allclose(after.cpu_cores, [0.5, 0.65, 0.25, 0.75], rtol=1e-6)
    np.testing.assert_allclose(after.memory_gib, [0.5, 0.6, 0.4, 0.625], rtol=1e-6)
    np.testing.assert_array_equal(after.replicas, [1.0, 4.0, 6.0, 10.0])  # at the limits nothing more


def test_an_action_towards_a_wish_leads_there():
    grants = Grants(jnp.full(3, 0.5), jnp.full(3, 0.5), jnp.asarray([1.0, 5.0, 9.0]))
    wanted = Grants(jnp.asarray([0.5, 1.0, 2.0]), jnp.full(3, 0.25), jnp.asarray([7.0, 5.0, 2.0]))
    after = rescaled(CONFIG, limits(3), grants, action_towards(CONFIG, grants, wanted))
    for found, asked in zip(after, wanted, strict=True):
        np.testing.assert_allclose(found, asked, rtol=1e-6)


def test_equations_1_to_3_at_hand_worked_points():
    np.testing.assert_allclose(
        service_quality(jnp.asarray([0.1, 0.2, 0.4]), 0.2), [1.0, 1.0, np.exp(-1.0)], rtol=1e-6
    )
    used = jnp.asarray([[0.6, 0.1], [0.75, 0.75]])
    np.testing.assert_allclose(
        utilisation_price(used, jnp.asarray([0.6, 0.75])), [1.0, 1.0 + 0.125 / 2], rtol=1e-5
    )
    outcome = Earned(*(jnp.asarray([value]) for value in (0.05, 0.375, 0.1, 1.0, 0.1, 0.1, 0.0)))
    grants = Grants(jnp.asarray([0.5]), jnp.asarray([0.5]), jnp.asarray([2.0]))
    quotient = paper_reward()(CONFIG, limits(1), grants, outcome)
    product = paper_reward(quotient=False)(CONFIG, limits(1), grants, outcome)
    np.testing.assert_allclose(quotient, 1.0 / 1.0625, rtol=1e-5)
    np.testing.assert_allclose(product, 2.0 - 1.0625, rtol=1e-5)


def test_a_kept_promise_costs_its_cores_and_a_broken_one_more():
    grants = Grants(jnp.asarray([0.5]), jnp.asarray([0.8]), jnp.asarray([2.0]))
    kept = Earned(*(jnp.asarray([value]) for value in (0.05, 0.375, 0.1, 1.0, 0.1, 0.2, 0.0)))
    late = kept._replace(gateway_quantile_s=jnp.asarray([0.25 * np.e]))
    reward = cost_under_slo()
    np.testing.assert_allclose(reward(CONFIG, limits(1), grants, kept), -1.2, rtol=1e-5)
    np.testing.assert_allclose(reward(CONFIG, limits(1), grants, late), -11.2, rtol=1e-5)


def test_quantiles_of_a_histogram():
    rng = np.random.default_rng(0)
    times = rng.gamma(2.0, 0.05, 200_000)
    counts = np.histogram(times, np.concatenate([[0.0], LATENCY_S, [np.inf]]))[0]
    for share in (0.5, 0.95, 0.999):
        found = float(quantile_s(jnp.asarray(counts, jnp.float32), share))
        assert found == pytest.approx(np.quantile(times, share), rel=0.05)
    assert float(quantile_s(jnp.zeros(NUM_BUCKETS), 0.95)) == 0.0


@pytest.mark.parametrize(
    ("answered_in_s", "failed", "kept"),
    [
        ((97, 3), 0, True),
        ((97, 3), 2, True),  # 97 of 102
        ((97, 3), 5, False),  # 97 of 105, though 97 of the 100 answered
        ((0, 0), 10, False),
        ((0, 0), 0, True),
    ],
)
def test_a_request_that_failed_misses_the_objective(answered_in_s, failed, kept):
    latency = jnp.zeros((NUM_BUCKETS, 1)).at[3].set(answered_in_s[0]).at[35].set(answered_in_s[1])
    found = kept_objective(latency, jnp.asarray([float(failed)]), 0.95, 0.2)
    assert found.tolist() == [kept]


def state_of(replicas, ready, used, cores=0.5):
    """A state whose every remembered interval was alike; one deployment."""
    one = jnp.asarray([1.0])
    measured = DeploymentMetrics(one, one * used, one, one * ready, one, one)
    gateway = GatewayMetrics(jnp.float32(1.0), jnp.float32(1.0), jnp.float32(0.0), jnp.zeros(NUM_BUCKETS))
    grants = Grants(one * cores, one, one * replicas)
    news = ScalingEvents(grants, measured, gateway, jnp.float32(0.0))
    return ScalingState(grants, jax.tree.map(lambda leaf: jnp.stack([leaf] * CONFIG.window), news))


@pytest.mark.parametrize(
    ("replicas", "ready", "use", "desired"),
    [
        (4, 4, 0.75, 4),  # at the target
        (4, 4, 0.81, 4),  # within the tolerance of .1
        (4, 4, 0.90, 5),  # ceil(4 * 1.2)
        (4, 4, 0.30, 2),  # ceil(4 * .4)
        (
            6,
            3,
            0.90,
            6,
        ),  # replicas that start count as idle: 3 * 1.2 / 6 < 1 flips the decision, nothing is done
        (4, 3, 1.50, 6),  # ceil(4 * (2.0 * 3 / 4))
        (4, 3, 0.30, 2),  # to scale down only ready replicas count: ceil(3 * .4)
    ],
)
def test_the_pod_autoscaler_desires_what_its_controller_does(replicas, ready, use, desired):
    state = state_of(replicas, ready, 0.5 * use)
    found = desired_replicas(CONFIG, PodAutoscalerConfig(), state, state.grants.cpu_cores)
    assert float(found[0]) == desired


def test_the_most_desired_within_the_window_stabilises_a_removal():
    settings, current = PodAutoscalerConfig(down_window_s=90.0), jnp.asarray([8.0])
    past = jnp.asarray([9.0, 6.0, 5.0, 4.0, 3.0])[:, None]  # the latest last: 90 s are the last four
    assert float(stabilised(CONFIG, settings, current, past)[0]) == 6.0
    assert float(stabilised(CONFIG, PodAutoscalerConfig(down_window_s=0.0), current, past)[0]) == 3.0


def test_policies_bound_how_many_replicas_come_at_once():
    past = jnp.full((4, 1), 100.0)
    # Doubled twice
    assert float(stabilised(CONFIG, PodAutoscalerConfig(), jnp.asarray([3.0]), past)[0]) == 12.0
    # 4 and 4 more
    assert float(stabilised(CONFIG, PodAutoscalerConfig(), jnp.asarray([1.0]), past)[0]) == 9.0


@pytest.mark.parametrize(
    "wrong",
    [{"interval_s": 0.0}, {"delay_intervals": 12}, {"dead_zone": 1.0}, {"slo_share": 95.0}, {"slo_s": -1.0}],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match="allowed"):
        AutoscalingConfig(**wrong)


def test_a_deployment_that_is_fixed_keeps_its_replicas():
    two = np.array([1.0, 4.0])
    log = SimpleNamespace(
        deployments=("db", "web"),
        gateway={"response_p95_s": np.ones(3)},
        memory_granted=np.ones((3, 2)),
        columns=dict.fromkeys(("cpu_cores", "num_replicas"), np.ones((3, 2))),
    )
    twin = SimpleNamespace(interval_s=30.0, coverage=ScalingCoverage(two, two, two, two, two))
    limits = setting_of(ScaleConfig(fixed=("db",)), twin, log).limits
    np.testing.assert_array_equal(limits.min_replicas, [1.0, 1.0])
    np.testing.assert_array_equal(limits.max_replicas, [1.0, 6.0])
    with pytest.raises(ConfigError, match="no deployment cache"):
        setting_of(ScaleConfig(fixed=("cache",)), twin, log)
