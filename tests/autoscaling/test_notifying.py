"""Whether training is due: rewards under what the training days earned, unseen loads, another composition."""

import re
from dataclasses import replace

import numpy as np
import pytest

from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.problems.autoscaling.notifying import Rewards, earned_at, retraining_notice, rewards_of
from logs_schema.errors import ConfigError
from offline_rl.runner.scaling import STUDENTS, DeploymentSetting, ScalingSetting
from twin.autoscaling.scaling_log import DEPLOYMENT_COLUMNS, GATEWAY_COLUMNS, ScalingLog

SLO_S = 0.2
CALLS = np.array([1.0, 0.5])  # a request of a user


def setting():
    ends = {"min_cpu_cores": 0.1, "max_cpu_cores": 2.0, "min_memory_gib": 0.1, "max_memory_gib": 1.0}
    both = tuple(
        DeploymentSetting(name, **ends, min_replicas=1, max_replicas=9, most_rate_per_s=60.0 * calls)
        for name, calls in zip(("cart", "web"), CALLS, strict=True)
    )
    return ScalingSetting(
        STUDENTS, both, 30.0, 1, 0.25, 0.125, 0.5, (1.0, 1.0, 2.0), slo_s=SLO_S, slo_share=0.95
    )


def log(rates, *, response_s=0.05, calls=CALLS, cores=0.5):
    """As many replicas as a rate of 10 each needs; every interval is answered in the same time."""
    rates = np.array(rates, float)
    columns = {name: np.zeros((len(rates), 2)) for name in DEPLOYMENT_COLUMNS}
    columns["request_rate_per_s"] = rates[:, None] * calls
    columns["num_replicas"] = columns["ready_replicas"] = np.ceil(rates[:, None] * calls / 10.0)
    columns["cpu_cores"] += cores
    columns["memory_gib"] += 0.8
    columns["response_s"] += 0.02
    gateway = {name: np.zeros(len(rates)) for name in GATEWAY_COLUMNS}
    gateway |= {
        "request_rate_per_s": rates,
        "response_s": rates * 0 + response_s,
        "response_p95_s": rates * 0 + 3 * response_s,
    }
    return ScalingLog(("cart", "web"), 30.0, 30.0 * np.arange(len(rates)), columns, gateway)


DAY = 40.0 + 15.0 * np.sin(np.linspace(0.0, 2 * np.pi, 480, endpoint=False))


def test_within_the_objective_the_reward_is_minus_what_is_granted():
    found, rates, _ = rewards_of(setting(), log([20.0, 40.0]))
    granted = np.array([2 + 1, 4 + 2]) * (0.5 + 0.8 / 8.0)
    np.testing.assert_allclose(found, -granted, rtol=1e-5)
    np.testing.assert_array_equal(rates, [20.0, 40.0])


def test_intervals_of_which_something_is_not_known_have_no_reward():
    holed = log(DAY)
    holed.columns["cpu_cores"][3, 1] = np.nan
    holed.gateway["request_rate_per_s"][7] = np.nan
    assert len(rewards_of(setting(), holed)[0]) == len(DAY) - 2


def test_a_deployment_that_is_not_called_takes_no_reward_away_and_the_price_is_the_others():
    seldom, never = log(DAY, response_s=0.5), log(DAY, response_s=0.5, calls=np.array([1.0, 0.0]))
    never.columns["response_s"][:, 1] = np.nan
    found = rewards_of(setting(), never).reward
    assert len(found) == len(DAY)
    price = found + (never.columns["num_replicas"] * 0.6).sum(axis=1)
    assert price == pytest.approx(
        rewards_of(setting(), seldom).reward + (seldom.columns["num_replicas"] * 0.6).sum(axis=1),
        rel=1e-4,
    )


def test_what_was_never_called_in_training_changes_the_composition():
    trained = log(DAY, calls=np.array([1.0, 0.0]))
    notice = retraining_notice(setting(), trained, log(DAY), None)
    assert notice.needed
    assert any("web inf" in reason for reason in notice.reasons)


def test_what_was_earned_at_a_load_is_that_of_its_neighbours():
    rates = np.random.default_rng(0).permutation(np.arange(200.0))
    asked = np.array([-5.0, 100.0, 500.0])
    found = earned_at(Rewards(asked, asked, asked * 0), Rewards(-2.0 * rates, rates, rates * 0))
    np.testing.assert_allclose(found, [-2.0 * 12.0, -2.0 * 100.0, -2.0 * 187.0])


def test_the_same_days_again_need_no_training():
    notice = retraining_notice(setting(), log(DAY), log(DAY + 0.1), None)
    assert not notice.needed, notice
    assert "is not surely below" in notice.reasons[0]


def test_what_differs_by_chance_alone_is_seldom_a_cause():
    """Of 20 pairs of days one, more or less: the chance of four or more is .016."""
    needed = [differs_by_chance(np.random.default_rng(seed)) for seed in range(20)]
    assert sum(needed) <= 3


def differs_by_chance(rng):
    before, after = (log(DAY, response_s=0.06 * rng.lognormal(0.0, 0.3, len(DAY))) for _ in range(2))
    return retraining_notice(setting(), before, after, None).needed


def test_a_day_no_worse_than_one_of_the_training_days_is_no_cause():
    """Two training days, one of them slow: another slow day is nothing new, a slower one is."""
    slow = np.repeat([0.05, 0.3], 2880)
    trained = log(np.tile(DAY, 12), response_s=slow)
    for response_s, due in ((0.29, False), (0.5, True)):
        found = retraining_notice(setting(), trained, log(DAY, response_s=response_s), None)
        assert found.needed == due, found


def test_more_load_alone_is_no_lower_reward():
    """It costs more, and did so on the training days."""
    busy = log(DAY[DAY > 45.0])
    assert np.mean(rewards_of(setting(), busy)[0]) < np.mean(rewards_of(setting(), log(DAY))[0])
    notice = retraining_notice(setting(), log(DAY), busy, None)
    assert not notice.needed, notice


@pytest.mark.parametrize(
    ("newest", "named"),
    [
        (log(DAY, response_s=0.3), "is surely below what the training days earned at these loads"),
        (log(DAY, cores=0.9), "is surely below what the training days earned at these loads"),
        (log(DAY + 8.0), "have more calls than the training days: cart, web"),
        (log(DAY, calls=np.array([1.0, 0.7])), "calls per request of a user.*: web 1.4"),
    ],
    ids=["slower", "dearer", "unseen", "composition"],
)
def test_training_is_due(newest, named):
    trained = log(DAY) if "unseen" not in named else log(np.concatenate([DAY, DAY + 8.0]))
    found = retraining_notice(setting(), trained, newest, None)
    assert found.needed
    assert len([cause for cause in found.reasons if re.search(named, cause)]) == 1


def test_a_threshold_of_ones_own_counts_and_needs_no_training_days():
    for below, due in ((-5.0, False), (-2.0, True)):
        notice = retraining_notice(setting(), None, log([40.0] * 30), below)
        assert notice.needed == due
        assert f"below the threshold, {below:.3g}" in notice.reasons[0]


def test_too_few_rewards_say_nothing():
    notice = retraining_notice(setting(), log(DAY), log(DAY[:19], response_s=9.0), None)
    assert not notice.needed
    assert notice.reasons == ("19 rewards are known, and 20 are asked for",)


def test_another_application_is_trained_for():
    other = replace(log(DAY), deployments=("cart", "shop"))
    assert retraining_notice(setting(), log(DAY), other, None).needed


def test_a_threshold_without_the_notifier_is_refused():
    with pytest.raises(ConfigError, match="without the notifier"):
        RefreshConfig(reward_below=-1.0)
