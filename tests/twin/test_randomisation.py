"""Factors of randomised twins: lawful, fixed for an episode, and absent unless asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from twin.placement.randomisation import Randomisation, draw_seeds, factors

NUM = 40_000
SEEDS = draw_seeds(jax.random.key(0), (NUM,))


def logs(randomisation, node, service):
    whole = jnp.full((1, NUM), node, jnp.int32), jnp.full((1, NUM), service, jnp.int32)
    return tuple(np.log(np.asarray(factor)[0]) for factor in factors(randomisation, SEEDS, *whole))


def test_factors_have_the_deviations_asked_for_and_are_independent_across_nodes_and_services():
    randomisation = Randomisation(nodes=0.3, services=0.4)
    on_wait, on_run = logs(randomisation, 2, 5)
    other_wait, other_run = logs(randomisation, 3, 5)
    same_wait, same_run = logs(randomisation, 2, 6)
    # cut off at 2.5 deviations, a logistic keeps 0.963 of its deviation (by quadrature)
    kept = 0.963
    np.testing.assert_allclose([on_wait.std(), (on_run - on_wait).std()], [0.3 * kept, 0.4 * kept], rtol=0.02)
    np.testing.assert_allclose([on_wait.mean(), on_run.mean()], 0.0, atol=0.01)
    np.testing.assert_array_equal(same_wait, on_wait)
    series = np.stack([on_wait, other_wait, on_run - on_wait, other_run - other_wait, same_run - same_wait])
    assert np.abs(np.corrcoef(series) - np.eye(5)).max() < 4 / np.sqrt(NUM)


def test_nothing_strays_unless_asked_for():
    assert not Randomisation().is_on
    for factor in logs(Randomisation(), 1, 1):
        np.testing.assert_array_equal(factor, 0.0)
    with pytest.raises(ConfigError, match="deviations of a logarithm"):
        Randomisation(nodes=-0.1)


def test_of_a_share_of_the_streams_every_one_varies_as_before_and_the_others_do_not():
    all_wait, all_run = logs(Randomisation(0.3, 0.4), 2, 5)
    wait, run = logs(Randomisation(0.3, 0.4, share=0.25), 2, 5)
    varies = run != 0.0
    assert varies.mean() == pytest.approx(0.25, abs=0.01)
    np.testing.assert_array_equal(wait[~varies], 0.0)
    np.testing.assert_array_equal(np.stack([wait, run])[:, varies], np.stack([all_wait, all_run])[:, varies])
    assert all_run[varies].mean() == pytest.approx(0.0, abs=0.02), "which streams vary says nothing of how"
    with pytest.raises(ConfigError, match="share of the streams"):
        Randomisation(share=0.0)
