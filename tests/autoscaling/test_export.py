"""Exported autoscalers decide in NumPy as the original in JAX, from metrics to grants, or there is no bundle."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.problems.autoscaling.user_autoscalers import bundled_autoscaler
from logs_schema.errors import ProductError
from logs_schema.product import writing
from offline_rl.autoscaling.export import _drawn_state, _reading, config_of, export_scaling, network_places
from offline_rl.autoscaling.students import StudentConfig, _network, student_policy
from offline_rl.bundle import ARRAYS, GOLDEN
from offline_rl.recipes.scaling_training import policy_of
from offline_rl.rules.autoscaling.horizontal_pod import pod_places
from offline_rl.runner.scaling import (
    KIND,
    TREND_INTERVALS,
    DeploymentSetting,
    Granted,
    Reading,
    ScalingSetting,
    load_scaling,
)
from twin.autoscaling.observing import LOCAL_FEATURES, SHARED_FEATURES, observe
from twin.autoscaling.problem import ScalingAction, legal_steps, rescaled
from twin.legality import num_trailing
from twin.networks import MLP, apply, flatten_features

KEY = jax.random.key(3)


def setting_of(form, number=3):
    deployments = tuple(
        DeploymentSetting(f"service-{one}", 0.25, 2.0, 0.25, 1.0, 1, 8, 20.0 + 10 * one)
        for one in range(number)
    )
    return ScalingSetting(form, deployments, 30.0, 1, 0.25, 0.125, 0.5, (1.0, 1.0, 2.0), 0.25, 0.95)


def made(form, number=3):
    """Parameters drawn at random, large enough that something is decided, and the policy that they are of."""
    if form == "teacher":
        network = MLP((16, 16), 3)
        features = len(LOCAL_FEATURES) + len(SHARED_FEATURES) + number
        params = network.init(KEY, jnp.zeros((features, 1)))

        def policy(_key, observation, legal):
            place = jnp.tanh(apply(network, params, flatten_features(observation, num_trailing(legal))))
            return ScalingAction(*(one * entry.high for one, entry in zip(place, legal, strict=True)))

        return params, policy
    config = StudentConfig(discrete=form == "students_discrete")
    network = _network(config)
    params = jax.vmap(lambda key: network.init(key, jnp.zeros((len(LOCAL_FEATURES), 1))))(
        jax.random.split(KEY, number)
    )
    return params, student_policy(params, config)


@pytest.mark.parametrize(
    "form",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in ("teacher", "students")), "students_discrete"],
)
def test_numpy_grants_what_training_grants(tmp_path, form):
    setting = setting_of(form)
    params, policy = made(form)
    export_scaling(params, network_places(policy, setting), tmp_path / "bundle", setting, seed=1)
    loaded = load_scaling(tmp_path / "bundle")
    assert loaded.setting == setting
    config, limits = config_of(setting)
    state = _drawn_state(np.random.default_rng(9), config, setting)
    legal = legal_steps(config, state.grants)
    wished = rescaled(config, limits, state.grants, policy(KEY, observe(config, limits, state), legal))
    now, before = (_reading(config, state, age) for age in (0, TREND_INTERVALS))
    for row in range(20):
        granted = Granted(*(np.asarray(leaf)[:, row] for leaf in state.grants))
        found = loaded.decide(
            granted, *(Reading(*(leaf[row] for leaf in one.values())) for one in (now, before))
        )
        for mine, theirs in zip(found, wished, strict=True):
            np.testing.assert_allclose(mine, np.asarray(theirs)[:, row], atol=2e-3)


@pytest.mark.parametrize("size", [0.0, 0.75])
def test_the_rule_that_is_handed_over_is_that_of_the_comparison(tmp_path, size):
    setting = replace(setting_of("hpa"), tolerance=0.05, down_window_s=60.0)
    deployments = tuple(replace(one, target=0.4, rule_cpu_cores=size) for one in setting.deployments)
    setting = replace(setting, deployments=deployments)
    export_scaling({}, pod_places(setting), tmp_path / "bundle", setting, seed=2)
    loaded = load_scaling(tmp_path / "bundle")
    config, _ = config_of(setting)
    rule = bundled_autoscaler(tmp_path / "bundle", setting.names, policy_of)
    state = _drawn_state(np.random.default_rng(9), config, setting)
    # Nothing desired before holds it up
    low = state.grants._replace(replicas=jnp.ones_like(state.grants.replicas))
    _, wished = rule.decide(KEY, rule.init(low), state)
    now, changed = _reading(config, state, 0), 0
    for row in range(20):
        granted = Granted(*(np.asarray(leaf)[:, row] for leaf in state.grants))
        reading = Reading(*(leaf[row] for leaf in now.values()))
        found = loaded.decide(granted, reading, reading)
        theirs = np.asarray(wished.replicas)[:, row]
        slower = theirs < found.replicas  # the rule adds so many a period at most
        np.testing.assert_allclose(found.replicas[~slower], theirs[~slower])
        np.testing.assert_allclose(found.cpu_cores, np.asarray(wished.cpu_cores)[:, row], rtol=1e-6)
        assert np.array_equal(found.cpu_cores, granted.cpu_cores) == (not size)
        changed += int(np.sum(found.replicas != granted.replicas))
    assert changed > 10


def test_what_decides_otherwise_is_no_bundle(tmp_path):
    params, policy = made("students")
    places_of = network_places(policy, setting_of("students"))
    export_scaling(params, places_of, tmp_path / "bundle", setting_of("students"))
    other = jax.tree.map(lambda leaf: 1.3 * leaf, params)
    with pytest.raises(ProductError, match="does not decide as the original"):
        export_scaling(other, places_of, tmp_path / "other", setting_of("students"))
    assert not (tmp_path / "other").exists()
    with pytest.raises(ProductError, match="expected"):
        load_scaling(tmp_path / "bundle", expect="0" * 64)
    (tmp_path / "bundle" / ARRAYS).write_bytes(b"nothing")
    with pytest.raises(ProductError, match="do not agree"):
        load_scaling(tmp_path / "bundle")


@pytest.mark.parametrize("damage", [{"form": "oracle"}, {"deployments": []}, {"slo": 1.0}, {"reach": None}])
def test_a_setting_that_cannot_be_is_named(tmp_path, damage):
    params, policy = made("students")
    places_of = network_places(policy, setting_of("students"))
    export_scaling(params, places_of, tmp_path / "bundle", setting_of("students"))
    with writing(tmp_path / "bad", KIND) as folder:
        plain = json.loads((tmp_path / "bundle" / "scaling.json").read_text())
        (folder / "scaling.json").write_text(json.dumps(plain | damage))
        for name in (ARRAYS, GOLDEN):
            (folder / name).write_bytes((tmp_path / "bundle" / name).read_bytes())
    with pytest.raises(ProductError, match=r"scaling\.json"):
        load_scaling(tmp_path / "bad")
