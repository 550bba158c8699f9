"""What an autoscaler gains over the log's own grants in the twin; calls and work that scatter there as in the log."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.rules.autoscaling import logged
from offline_rl.rules.autoscaling.autoscaler import free_limits
from offline_rl.rules.autoscaling.logged import as_that_day, gains, least, logged_load
from offline_rl.rules.autoscaling.published import typical_grants
from tests.autoscaling.test_twin import CALLS, CONFIG, LIMITS, LOG, WORK_S, begin
from twin.autoscaling.answers import twin_response
from twin.autoscaling.fit import fit_application
from twin.autoscaling.fitting import LawsConfig, scatter

OF_RATE, OF_WORK = 0.7, 1.5


def with_scatter(log):
    """The log; its calls and their work scatter as sums of independent ones do, its mix drifts over the day."""
    random, drift = np.random.default_rng(3), np.exp(0.3 * np.sin(2 * np.pi * log.time_s / 43200.0))[:, None]
    number = log.gateway["request_rate_per_s"][:, None] * CALLS * drift * log.interval_s
    calls = number * (1.0 + random.normal(0.0, np.sqrt(OF_RATE / number)))
    work = calls * WORK_S * (1.0 + random.normal(0.0, np.sqrt(OF_WORK / number)))
    ready = log.columns["ready_replicas"]
    columns = {
        "request_rate_per_s": calls / log.interval_s,
        "cpu_cores_used": work / log.interval_s / ready,
        "cpu_cores": np.ones_like(ready),
    }
    return replace(log, columns=log.columns | columns)


@pytest.fixture(scope="module")
def twin():
    return fit_application(LOG, LawsConfig(members=2, updates=50))


def test_a_log_tells_scatter_from_drift():
    found = scatter(with_scatter(LOG))
    assert found["rate_scatter"] == pytest.approx([OF_RATE] * 2, rel=0.15)
    assert found["work_scatter"] == pytest.approx([OF_WORK] * 2, rel=0.15)
    assert scatter(LOG)["rate_scatter"] == pytest.approx([0.0, 0.0], abs=1e-6)


@pytest.mark.slow
def test_calls_and_cores_in_use_scatter_in_the_twin_as_in_the_log(twin):
    ones = np.ones_like(twin.laws.work_s)
    laws = twin.laws._replace(rate_scatter=OF_RATE * ones, work_scatter=OF_WORK * ones)
    asked = 20.0
    response = twin_response(laws, CONFIG, LIMITS, np.full(9, asked, np.float32), 5, begin([8.0, 8.0]))
    _, outcome = response.init(jax.random.key(0), (20_000,))
    measured, number = outcome.observed_events.measured, asked * CALLS * CONFIG.interval_s
    rate, work = measured.rate_per_s, measured.cpu_cores_used * measured.ready / measured.rate_per_s
    for values, scattered in ((rate, OF_RATE), (work, OF_WORK)):
        away = np.asarray(values / jnp.mean(values, axis=1, keepdims=True) - 1.0)
        np.testing.assert_allclose(np.mean(away**2, axis=1) * number, scattered, rtol=0.1)
    np.testing.assert_allclose(np.mean(rate, axis=1), asked * CALLS, rtol=0.01)


@pytest.mark.slow
def test_grants_as_logged_gain_nothing_and_fewer_of_them_are_told_apart(twin):
    limits = free_limits(2)
    load = logged_load(LOG, CONFIG, limits, typical_grants(LOG), 2)
    load = load._replace(measured=np.full_like(load.measured, np.nan))
    assert len(load.starts) % 2 == 0
    half = load.grants._replace(replicas=jnp.ceil(0.5 * load.grants.replicas))
    played = {
        name: as_that_day(grants, load.starts) for name, grants in (("same", load.grants), ("fewer", half))
    }
    gained = gains(played, load, twin, CONFIG, limits)
    np.testing.assert_allclose(gained["same"], 0.0, atol=1e-4)
    assert np.mean(gained["fewer"]) < 0.0


def test_logged_grants_that_break_down_in_the_twin_alone_are_believed_to_a_point():
    """What the log measured bounds what its grants came to: else all that answers to a queue would gain by it."""
    load = logged_load(LOG, CONFIG, LIMITS, typical_grants(LOG), 2)
    load = load._replace(measured=np.full_like(load.measured, -10.0))
    load.measured[load.starts[5] :] = np.nan
    in_twin = np.array([-10.5, -9.5, -10.5, -9.5, *[-300.0] * (len(load.starts) - 4)])
    least_believed = logged._least_believed(in_twin, load)
    np.testing.assert_allclose(least_believed[:5], -10.0 - logged.FAR * 0.5)
    assert np.isneginf(least_believed[5:]).all()


def test_a_log_of_few_intervals_and_many_gaps_has_episodes():
    asked = np.full(30, np.nan)
    asked[::3] = 20.0
    columns = {name: values[:30] for name, values in LOG.columns.items()}
    gateway = {name: values[:30] for name, values in LOG.gateway.items()} | {"request_rate_per_s": asked}
    load = logged_load(replace(LOG, columns=columns, gateway=gateway), CONFIG, LIMITS, typical_grants(LOG), 5)
    assert len(load.starts)
    assert max(load.starts) + load.steps < 30
    assert np.isfinite(load.rates).all()


def test_a_gain_is_told_with_what_it_is_at_least():
    assert least(np.array([2.0, -1.5, 2.0, -1.5])) < 0.0 < least(np.array([0.1, 0.2, 0.1, 0.2]))
    assert least(np.array([0.3])) == 0.3
