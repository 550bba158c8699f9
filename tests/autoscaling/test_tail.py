"""The 95 % quantile from end to end, where it follows other deployments than the mean does."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests.autoscaling.test_twin import LOG
from twin.autoscaling.fitting import LawsConfig, fit_laws, rho_of
from twin.autoscaling.laws import tail_features

CALLS, IN_TAIL = np.array([1.0, 0.2]), np.array([1.2, 0.7])


def as_seldom_called(log, in_tail=IN_TAIL):
    """The log with a second deployment that is called by a fifth of the requests, and makes the slowest of them."""
    own, asked = log.columns["response_s"], log.gateway["request_rate_per_s"]
    columns = log.columns | {"request_rate_per_s": asked[:, None] * CALLS}
    users = log.gateway | {"response_s": own @ CALLS, "response_p95_s": own @ in_tail}
    return replace(log, columns=columns, gateway=users)


def quantile_of(laws, log):
    """[intervals] the quantile that the first member makes of the logged times of deployments."""
    own = log.columns["response_s"].T
    time_s, tail_s = (one[0][:, None] * own for one in (laws.weight, laws.tail_weight))
    rho = rho_of(log, laws.work_s[0], laws.most_cores[0]).T
    features = np.asarray(tail_features(jnp.asarray(time_s), jnp.asarray(tail_s), jnp.asarray(rho)))
    return time_s.sum(axis=0) * np.exp(laws.tail[0] @ features)


def test_a_deployment_that_is_seldom_called_and_slow_counts_in_the_quantile_as_the_log_has_it():
    log = as_seldom_called(LOG)
    laws = fit_laws(log, LawsConfig(members=1, updates=50))
    tail_s = log.gateway["response_p95_s"]
    away = np.log(quantile_of(laws, log) / tail_s)[~log.censored]
    assert np.log(tail_s / log.gateway["response_s"]).std() > 0.12  # no multiple of the mean
    assert np.abs(away).mean() < 0.02
    assert laws.tail_weight[0] == pytest.approx(IN_TAIL, rel=0.15)
    assert laws.weight[0] == pytest.approx(CALLS, rel=0.15)


def test_a_log_without_quantiles_has_those_of_exponential_times():
    log = as_seldom_called(LOG)
    log = replace(log, gateway=log.gateway | {"response_p95_s": np.full(len(log.time_s), np.nan)})
    laws = fit_laws(log, LawsConfig(members=1, updates=5))
    np.testing.assert_allclose(
        quantile_of(laws, log), np.log(20.0) * log.columns["response_s"] @ laws.weight[0], rtol=1e-4
    )
