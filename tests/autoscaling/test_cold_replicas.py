"""Replicas that have just started: what calls take more in them, read off a log and played in the twin."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.autoscaling.test_twin import CONFIG, LIMITS, LOG, NO_CHANCE, at_rest, begin
from twin.autoscaling import answers
from twin.autoscaling.answers import twin_response
from twin.autoscaling.fitting import LawsConfig, cold_starts, fit_laws
from twin.autoscaling.problem import ScalingAction, autoscaling_problem
from twin.autoscaling.rewards import cost_under_slo

COLD_WORK, COLD_S = 0.8, 60.0


def with_cold_replicas(log):
    """The log, its second deployment's calls taking more work in replicas that became ready lately."""
    ready, used = log.columns["ready_replicas"], log.columns["cpu_cores_used"].copy()
    new, young = np.maximum(np.diff(ready[:, 1], prepend=ready[0, 1]), 0.0), np.zeros(len(ready))
    for row in range(1, len(young)):
        young[row] = (young[row - 1] + new[row - 1]) * np.exp(-log.interval_s / COLD_S)
    used[:, 1] *= 1.0 + COLD_WORK * np.clip(young / ready[:, 1], 0.0, 1.0)
    return replace(log, columns=log.columns | {"cpu_cores_used": used})


def test_a_log_shows_how_much_more_work_calls_take_in_young_replicas_and_how_long():
    found = cold_starts(with_cold_replicas(LOG))
    assert found["cold_work"] == pytest.approx([0.0, COLD_WORK], abs=0.1)
    assert found["cold_s"][1] == COLD_S
    np.testing.assert_array_equal(cold_starts(LOG)["cold_work"], 0.0)


@pytest.fixture(scope="module")
def cold_laws():
    laws = fit_laws(LOG, LawsConfig(members=1, updates=50))
    ones = np.ones_like(laws.work_s)
    return laws._replace(cold_work=COLD_WORK * ones, cold_s=COLD_S * ones)


@pytest.mark.slow
def test_a_young_replica_costs_work_until_it_is_warm(cold_laws):
    law, grants = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], cold_laws), begin([2.0, 6.0])
    state, work = at_rest(grants)._replace(young=grants.replicas), []
    for _ in range(40):
        state, seen = answers._step(law, state, grants, jnp.float32(20.0), NO_CHANCE, 10.0)
        work.append(
            seen.measured.cpu_cores_used * seen.measured.ready / seen.measured.rate_per_s / law.work_s
        )
    expected = 1.0 + COLD_WORK * np.exp(-10.0 * np.arange(1, 41) / COLD_S)
    np.testing.assert_allclose(np.array(work), np.repeat(expected[:, None], 2, axis=1), rtol=1e-4)


@pytest.mark.slow
def test_replicas_of_another_size_are_new_ones(cold_laws):
    response = twin_response(cold_laws, CONFIG, LIMITS, np.full(40, 20.0, np.float32), 10, begin([2.0, 6.0]))
    problem = autoscaling_problem(CONFIG, LIMITS, cost_under_slo())
    private, outcome = response.init(jax.random.key(0), ())
    state, zeros = problem.start(outcome), jnp.zeros(2)
    stays, moves = (
        response.advance(jax.random.key(1), private, state, ScalingAction(cpu, zeros, zeros))[0]
        for cpu in (zeros, jnp.asarray([1.0, 0.0]))
    )
    np.testing.assert_allclose(stays.young, 0.0, atol=1e-4)
    assert float(moves.young[0]) == pytest.approx(2.0 * np.exp(-CONFIG.interval_s / COLD_S), rel=1e-3)
    assert float(moves.young[1]) == pytest.approx(0.0, abs=1e-4)
