"""Bookkeeping of intervals: small changes count at once, windows reach as far as they say, gaps stay gaps."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.problems.autoscaling import certifying
from evaluation.problems.autoscaling.certifying import simulated_again, value_off_by
from evaluation.problems.autoscaling.notifying import rewards_of
from evaluation.reproduction import drpc
from evaluation.reproduction.drpc import DrpcConfig, traces_of
from logs_schema.errors import ConfigError
from offline_rl.autoscaling.config import SCALE_CODE
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, horizontal_pod
from tests.autoscaling.guarded import setting_of
from tests.autoscaling.test_twin import CONFIG, LIMITS, LOG, NO_CHANCE, begin
from twin.autoscaling import answers, scaling_log
from twin.autoscaling.config import AutoscalingConfig
from twin.autoscaling.fit import fit_application
from twin.autoscaling.fitting import LawsConfig, fit_laws
from twin.autoscaling.forecasting import windows_of
from twin.autoscaling.logged_intervals import logged_events
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import DeploymentMetrics, GatewayMetrics, ScalingEvents
from twin.autoscaling.workload import fit_load, made_rates

ROWS = slice(1000, 1040)
DAY_S = 86400.0


def cut(log, rows=ROWS):
    return replace(
        log,
        time_s=log.time_s[rows],
        columns={name: leaf[rows].copy() for name, leaf in log.columns.items()},
        gateway={name: leaf[rows].copy() for name, leaf in log.gateway.items()},
    )


@pytest.mark.slow
def test_small_changes_of_cores_count_in_the_interval_in_which_they_are_granted():
    twin, log = fit_application(LOG, LawsConfig(members=1, updates=100)), cut(LOG)
    is_more = np.arange(len(log.time_s)) % 2 == 1
    log.columns["cpu_cores"][:] = np.where(is_more, 0.6, 0.5)[:, None]
    log.columns["num_replicas"][:] = 6.0
    log.gateway["request_rate_per_s"][:] = log.gateway["request_rate_per_s"][0]
    found = simulated_again(twin, log).mean_s[10:]
    assert np.median(found[is_more[10:]]) < 0.7 * np.median(found[~is_more[10:]])


def test_the_twins_value_of_logged_grants_is_off_by_what_violations_cost_more_or_less(monkeypatch):
    log = cut(LOG)
    logged_s, mine_s = log.gateway["response_p95_s"], np.full(len(log.time_s), 0.4)
    logged_s[:] = 0.2
    # The last two do not count
    mine_s[:10], logged_s[10], log.gateway["num_failures"][11] = (
        0.05,
        np.nan,
        1e6,
    )
    played = certifying.ReplayedDays(mine_s, mine_s, mine_s, mine_s[:, None])
    monkeypatch.setattr(certifying, "simulated_again", lambda _twin, _log: played)
    assert value_off_by(None, log, AutoscalingConfig(slo_s=0.3)) == pytest.approx(
        10.0 * 28 * np.log(0.4 / 0.3) / 38
    )
    logged_s[:] = np.nan
    assert value_off_by(None, log, AutoscalingConfig(slo_s=0.3)) == 0.0


@pytest.mark.parametrize("interval_s", [5.0, 30.0])
def test_the_window_of_the_pod_autoscaler_is_as_long_as_it_says(interval_s):
    config, down_s = replace(CONFIG, interval_s=interval_s), 300.0
    rule = horizontal_pod(config, LIMITS, PodAutoscalerConfig(target=0.5, down_window_s=down_s))
    grants, ones = begin([8.0, 8.0]), jnp.ones(2)
    measured = DeploymentMetrics(10.0 * ones, 0.1 * ones, 0.3 * ones, 8.0 * ones, 0.05 * ones, 0.0 * ones)
    gateway = GatewayMetrics(jnp.asarray(10.0), jnp.asarray(0.1), jnp.asarray(0.0), jnp.ones(42))
    events = ScalingEvents(grants, measured, gateway, jnp.asarray(0.0))
    window = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (config.window, *leaf.shape)), events)
    memory, kept = rule.init(grants), 0
    while kept < 100:
        memory, wanted = rule.decide(jax.random.key(0), memory, ScalingState(grants, window))
        if float(wanted.replicas[0]) < 8.0:
            break
        kept += 1
    assert kept == round(down_s / interval_s)


def test_a_deployment_without_a_column_is_taken_as_a_log_without_it_is():
    log = cut(LOG, slice(0, 5760))
    for name in ("ready_replicas", "memory_gib", "memory_gib_used", "num_failures"):
        log.columns[name][:, 1] = np.nan
    filled = log.columns | {"ready_replicas": scaling_log.ready_or_granted(log.columns)}
    np.testing.assert_array_equal(filled["ready_replicas"][:, 1], log.columns["num_replicas"][:, 1])
    np.testing.assert_array_equal(filled["ready_replicas"][:, 0], log.columns["ready_replicas"][:, 0])
    assert np.isfinite(logged_events(replace(log, columns=filled)).grants.memory_gib).all()
    assert len(rewards_of(setting_of(), replace(log, columns=filled)).reward) == 5760
    work_s = fit_application(replace(log, columns=filled), LawsConfig(members=1, updates=1)).laws.work_s
    assert work_s[0, 1] == pytest.approx(0.01, rel=0.2)


def test_the_profile_of_a_day_is_that_of_the_middles_of_intervals():
    """A load that rises steadily within the day has no deviations from its profile."""
    interval_s = 1800.0
    time_s = np.arange(96) * interval_s
    middle_s = (time_s + 0.5 * interval_s) % DAY_S
    rate = np.exp(middle_s / DAY_S)
    log = replace(
        LOG,
        interval_s=interval_s,
        time_s=time_s,
        columns={name: np.full((96, 2), 0.1) for name in LOG.columns} | {"cpu_cores": np.ones((96, 2))},
        gateway={name: np.zeros(96) for name in LOG.gateway} | {"request_rate_per_s": rate},
    )
    load = fit_load(log)
    assert np.abs(load.deviation).max() < 1e-6
    np.testing.assert_allclose(made_rates(load, 1, 0), rate[:48], rtol=1e-5)


def test_forecasts_leave_out_windows_with_gaps_and_refuse_intervals_that_do_not_fit():
    rate = 2.0 + np.sin(np.arange(4 * 2880) / 2880.0 * 2.0 * np.pi)
    whole = windows_of(rate, 30.0)
    rate[100:140], rate[9000] = np.nan, np.nan
    train, held_out = windows_of(rate, 30.0)
    assert all(np.isfinite(leaf).all() for part in (train, held_out) for leaf in part)
    assert 0 < len(whole[0].past) - len(train.past) < 60
    assert len(whole[1].past) == len(held_out.past)  # of a bin with one gap the rest tells the mean
    with pytest.raises(ConfigError, match="do not fit"):
        windows_of(rate, 120.0)


def test_no_trace_goes_beyond_its_day(monkeypatch):
    class Latest:
        def integers(self, low, high):
            return high - 1

    config = DrpcConfig(preset="chain", log_days=1, minutes=60, shifts=(0,), num_seeds=1)
    usual = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Latest() if 0xD19C in seed else usual(seed))
    traces = traces_of(config)
    assert traces.starts[0] + traces.length < 2880  # it begins from a row, and plays as many after it


def test_calls_that_are_refused_are_not_held_by_a_replica():
    """A replica holds 240 calls of four seconds each, however many more are refused."""
    log = cut(LOG, slice(0, 2880))
    rows = slice(100, 110)
    for name, value in (("ready_replicas", 2.0), ("response_s", 4.0), ("request_rate_per_s", 200.0)):
        log.columns[name][rows, 0] = value
    log.columns["num_failures"][rows, 0] = 80.0 * log.interval_s
    log.gateway["num_failures"][rows] = 80.0 * log.interval_s
    assert fit_laws(log, LawsConfig(members=1, updates=1)).connections[0, 0] == pytest.approx(240.0)


@pytest.mark.parametrize("dt_s", [5.0, 10.0, 100.0])
def test_replicas_short_of_memory_restart_as_fast_in_steps_of_any_length(dt_s):
    laws = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], fit_laws(LOG, LawsConfig(members=1, updates=1)))
    grants = begin([4.0, 4.0])._replace(memory_gib=jnp.full(2, 0.05))
    zeros = jnp.zeros(2)
    state = answers.TwinApplicationState(
        zeros, grants.replicas, zeros, jnp.zeros((24, 2)), *(jnp.int32(1),) * 3
    )
    left, _ = answers._step(laws, state, grants, jnp.float32(60.0), NO_CHANCE, dt_s)
    np.testing.assert_allclose(left.ready, 4.0 * 0.5 ** (dt_s / 10.0), rtol=1e-4)


def test_what_older_code_found_is_found_again():
    """A twin, forecasts and plays of a work folder are made anew where the code of applications has changed."""
    config = DrpcConfig(preset="chain", log_days=4)
    steps = (
        drpc._twin_step(config),
        drpc._forecast_step(),
        drpc._play_step(config, None, "hpa", lambda: None, ("twin",)),
    )
    assert {step.code_version for step in steps} == {SCALE_CODE}
