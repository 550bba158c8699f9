"""The guard by itself: limits, the rules' window, and a rule that was handed over."""

from dataclasses import replace

import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.runner.scaling import Granted, ScalingPolicy
from offline_rl.serving.scaling_guard import FALLBACK, HOLD, POLICY, Guard, GuardConfig
from tests.autoscaling.guarded import GRANTED, discrete_policy, policy_of, readings, setting_of


def test_limits_hold_for_every_decision():
    policy, _ = policy_of(0.99)
    plenty = Granted(GRANTED.cpu_cores, GRANTED.memory_gib, np.array([2.0, 7.0]))
    found = Guard(policy, GuardConfig(most_added=1)).decide(0.0, plenty, readings(), readings())
    np.testing.assert_array_equal(found.wanted.replicas, [3.0, 8.0])
    tight = Guard(policy, GuardConfig(max_cores=4.5)).decide(0.0, plenty, readings(), readings())
    np.testing.assert_array_equal(tight.wanted.replicas, [2.0, 7.0])
    assert "4.5 are allowed" in tight.reasons[0]
    less, _ = policy_of(-0.99)
    found = Guard(less, GuardConfig(most_removed=1)).decide(0.0, plenty, readings(), readings())
    np.testing.assert_array_equal(found.wanted.replicas, [1.0, 6.0])
    with pytest.raises(ConfigError, match="allow nothing"):
        GuardConfig(most_added=0)


def test_the_rules_keep_what_was_desired_within_the_window():
    policy, _ = policy_of(0.6)
    guard = Guard(policy, GuardConfig())
    busy, idle = readings(rate=30.0, cores=0.5), readings(rate=30.0, cores=0.05)
    assert guard.decide(0.0, GRANTED, busy, busy).by_rules.replicas[0] == 4.0
    grown = GRANTED._replace(replicas=np.array([4.0, 4.0]))
    assert guard.decide(60.0, grown, idle, idle).by_rules.replicas[0] == 4.0
    assert guard.decide(400.0, grown, idle, idle).by_rules.replicas[0] == 1.0


def test_where_the_policy_cannot_decide_the_rules_size_is_approached_with_replicas_to_match():
    policy, _ = policy_of(0.6)
    deployments = tuple(replace(one, rule_cpu_cores=0.25) for one in policy.setting.deployments)
    policy.setting = replace(policy.setting, deployments=deployments)
    unlike = readings(rate=1000.0, cores=0.4)
    large = GRANTED._replace(cpu_cores=np.array([0.75, 0.25]))
    found = Guard(policy, GuardConfig(resources=True)).decide(0.0, large, unlike, unlike)
    assert found.arms == (FALLBACK, FALLBACK)
    np.testing.assert_allclose(found.wanted.cpu_cores, [0.5, 0.25])
    np.testing.assert_array_equal(found.wanted.replicas, [4.0, 6.0])  # ceil(2 * .4 / .5 / .5), and 2 + 4 of 7
    kept = Guard(policy, GuardConfig()).decide(0.0, large, unlike, unlike)
    np.testing.assert_array_equal(kept.wanted.cpu_cores, large.cpu_cores)
    np.testing.assert_array_equal(kept.wanted.replicas, [2.0, 6.0])  # .4 / .75 / .5 is within the tolerance


def test_memory_that_the_log_never_changed_or_never_named_stays_as_it_is_granted():
    policy, _ = policy_of(0.99)
    cart, front = policy.setting.deployments
    one_size = replace(cart, min_memory_gib=1.0, max_memory_gib=1.0)
    policy.setting = replace(policy.setting, deployments=(one_size, front))
    large = GRANTED._replace(memory_gib=np.array([4.0, 4.0]))
    found = Guard(policy, GuardConfig(resources=True)).decide(0.0, large, readings(), readings())
    np.testing.assert_array_equal(found.wanted.memory_gib, [4.0, 1.0])
    assert found.arms == (POLICY, FALLBACK)
    assert found.reasons[1] == "replicas of 4 GiB, training had 0.25 to 1"


@pytest.mark.parametrize("memory_gib", [4.0, np.nan])
def test_a_policy_decides_as_in_training_where_the_log_has_one_size_of_memory_or_none(memory_gib):
    policy, arrays = policy_of(0.0)
    arrays["Dense_0/kernel"][:, 5, 0] = arrays["Dense_1/kernel"][:, 0, 0] = (
        1.0  # what is seen of memory granted
    )
    arrays["Dense_2/kernel"][:, 0, 2] = 2.0
    one_size = [replace(one, min_memory_gib=1.0, max_memory_gib=1.0) for one in policy.setting.deployments]
    policy = ScalingPolicy(replace(policy.setting, deployments=tuple(one_size)), arrays)
    other = GRANTED._replace(memory_gib=np.full(2, memory_gib))
    found = Guard(policy, GuardConfig()).decide(0.0, other, readings(), readings())
    assert found.arms == (POLICY, POLICY)
    np.testing.assert_array_equal(found.wanted.replicas, GRANTED.replicas)
    np.testing.assert_array_equal(found.wanted.memory_gib, other.memory_gib)


def test_where_replicas_have_another_size_than_ever_in_the_log_the_rules_decide():
    policy, _ = policy_of(0.99)
    large = GRANTED._replace(cpu_cores=np.array([4.0, 0.5]))
    found = Guard(policy, GuardConfig()).decide(0.0, large, readings(), readings())
    assert found.arms == (FALLBACK, POLICY)
    assert found.reasons[0] == "replicas of 4 cores, training had 0.25 to 2"
    rounded = GRANTED._replace(cpu_cores=np.array([2.004, 0.5]))
    assert Guard(policy, GuardConfig()).decide(0.0, rounded, readings(), readings()).arms == (POLICY, POLICY)


def test_a_rule_that_was_handed_over_decides_by_use_alone():
    guard = Guard(ScalingPolicy(setting_of("hpa"), {}), GuardConfig())
    nothing = np.full(2, np.nan)
    busy = readings(rate=1000.0, cores=0.5)._replace(
        response_s=nothing, gateway_quantile_s=np.asarray(np.nan)
    )
    found = guard.decide(0.0, GRANTED, busy, busy)
    assert found.arms == (POLICY, POLICY)
    np.testing.assert_array_equal(found.wanted.replicas, [4.0, 4.0])
    off = GRANTED._replace(replicas=np.array([0.0, 2.0]))
    found = guard.decide(30.0, off, busy._replace(cpu_cores_used=nothing), busy)
    assert found.arms == (HOLD, HOLD)
    np.testing.assert_array_equal(found.wanted.replicas, [0.0, 2.0])
    assert found.reasons == ("switched off", "the use of processors is not known")


def test_it_names_the_deployments_whose_sizes_nobody_writes():
    setting = setting_of("hpa")
    one = replace(
        setting, deployments=(replace(setting.deployments[0], rule_cpu_cores=1.0), setting.deployments[1])
    )
    assert Guard(ScalingPolicy(one, {}), GuardConfig()).unwritten == setting.names[:1]
    assert Guard(ScalingPolicy(one, {}), GuardConfig(resources=True)).unwritten == ()
    network, _ = policy_of(0.99)
    assert Guard(network, GuardConfig()).unwritten == network.setting.names


UNKNOWN = np.full(2, np.nan)


@pytest.mark.parametrize("policy", [discrete_policy(), policy_of(0.6)[0]], ids=["steps", "numbers"])
@pytest.mark.parametrize(
    ("grants", "metrics", "arm", "words"),
    [
        ({"memory_gib": UNKNOWN}, {}, FALLBACK, "cores or the memory"),
        ({"cpu_cores": UNKNOWN}, {}, HOLD, "cores or the memory"),
        ({}, {"gateway_rate_per_s": np.asarray(np.nan)}, FALLBACK, "what users see"),
        ({}, {"gateway_failures": np.asarray(np.nan)}, FALLBACK, "what users see"),
        ({}, {"num_failures": UNKNOWN}, FALLBACK, "are missing"),
        ({}, {"rate_per_s": np.full(2, -1.0)}, FALLBACK, "no answer"),  # it has no logarithm
    ],
)
def test_a_policy_decides_only_where_all_that_it_reads_is_known(policy, grants, metrics, arm, words):
    granted, now = GRANTED._replace(**grants), readings()._replace(**metrics)
    with np.errstate(invalid="ignore"):
        assert np.isnan(policy.decide(granted, now, readings()).replicas).all()
    found = Guard(policy, GuardConfig()).decide(0.0, granted, now, readings())
    assert found.arms == (arm, arm)
    assert words in found.reasons[0]
    np.testing.assert_array_equal(found.wanted.replicas, GRANTED.replicas)  # of the rules: ceil(2 * 0.8)


def test_a_rule_that_was_handed_over_needs_the_cores_of_replicas():
    guard = Guard(ScalingPolicy(setting_of("hpa"), {}), GuardConfig())
    gone = GRANTED._replace(cpu_cores=np.array([np.nan, 0.5]), replicas=np.array([2.0, np.nan]))
    found = guard.decide(0.0, gone, readings(), readings())
    assert found.arms == (HOLD, HOLD)
    assert found.reasons == (
        "the use of processors is not known",
        "the policy has no answer to these metrics",
    )
    np.testing.assert_array_equal(found.wanted.replicas, gone.replicas)


def test_the_rules_window_begins_with_what_is_granted():
    idle, grown = readings(rate=30.0, cores=0.05), GRANTED._replace(replicas=np.array([8.0, 8.0]))
    for form in ("hpa", "students"):
        guard = Guard(
            ScalingPolicy(setting_of(form), policy_of(0.6)[1] if form != "hpa" else {}), GuardConfig()
        )
        away = grown._replace(replicas=np.array([8.0, np.nan]))  # one that is not known yet begins later
        assert guard.decide(0.0, away, idle, idle).wanted.replicas[0] == 8.0
        found = guard.decide(200.0, grown, idle, idle)
        np.testing.assert_array_equal(found.wanted.replicas, [8.0, 8.0])
        found = guard.decide(400.0, grown, idle, idle)
        np.testing.assert_array_equal(found.wanted.replicas, [6.0, 8.0])


def test_a_clock_that_is_set_back_leaves_nothing_of_the_future_in_the_window():
    guard = Guard(ScalingPolicy(setting_of("hpa"), {}), GuardConfig())
    busy, idle = readings(cores=0.5), readings(cores=0.05)
    grown = GRANTED._replace(replicas=np.array([4.0, 4.0]))
    guard.decide(86400.0, GRANTED, busy, busy)
    assert guard.decide(0.0, grown, idle, idle).wanted.replicas[0] == 4.0  # it begins anew
    assert guard.decide(200.0, grown, idle, idle).wanted.replicas[0] == 4.0
    assert guard.decide(400.0, grown, idle, idle).wanted.replicas[0] == 2.0
    assert len(guard.desired) == 2


def test_a_bound_of_cores_holds_what_it_cannot_sum():
    policy, _ = policy_of(0.6)
    some = GRANTED._replace(cpu_cores=np.array([0.5, np.nan]))
    found = Guard(policy, GuardConfig(max_cores=2.0)).decide(0.0, some, readings(), readings())
    np.testing.assert_array_equal(found.wanted.replicas, [2.0, 2.0])
    assert found.reasons[0] == "the cores of front are not known, 2 are allowed of all"
    assert found.arms[1] == HOLD
    less, _ = policy_of(-0.6)
    found = Guard(less, GuardConfig(max_cores=2.0)).decide(0.0, some, readings(), readings())
    np.testing.assert_array_equal(found.wanted.replicas, [1.0, 2.0])  # less is always affordable
