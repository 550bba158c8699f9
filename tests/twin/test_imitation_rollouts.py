"""Imitated agents in the bookkeeping: what was drawn is drawn again; the black box."""

import jax
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from tests.benchmarks.black_box import black_box_states, fit_black_box
from tests.benchmarks.compounding import compounding, logged_states
from tests.twin.imitation_world import campaign_encoding, campaigns
from twin.imitation.config import ImitationConfig
from twin.imitation.game import again, play, played
from twin.imitation.generator import Limits, draw_noise, init_generator
from twin.placement.types import DROPPED, FAILED, REJECTED

ENCODING = campaign_encoding()


@pytest.mark.slow
def test_what_a_rollout_drew_is_drawn_again() -> None:
    """The premise of pathwise gradients: states visited and noise give decisions and answers back, value by value."""
    config = ImitationConfig(num_members=2, hidden=(8,))
    windows = campaigns(0, 4, 10)
    generator = init_generator(jax.random.key(0), ENCODING.cluster, config)
    generator = jax.tree.map(lambda leaf: 3.0 * leaf, generator)
    noise = draw_noise(jax.random.key(1), 10, 4, ENCODING.cluster.num_nodes)
    limits = Limits(100.0, 100.0)
    history = jax.jit(lambda: play(ENCODING, config, generator, limits, windows, noise))()
    seen = played(history, noise)
    drawn = again(ENCODING, config, generator, limits, seen)
    np.testing.assert_array_equal(np.argmax(drawn.chosen, axis=0), history.action[:, 0])
    status, outcome = np.asarray(history.outcome.status)[:, 0], history.outcome
    accepted = status != REJECTED
    assert 0 < accepted.sum() < accepted.size
    np.testing.assert_array_equal(np.asarray(drawn.drawn.accepted) > 0.5, accepted)
    dropped, failed = (np.asarray(leaf) > 0.5 for leaf in (drawn.drawn.dropped, drawn.drawn.failed))
    np.testing.assert_array_equal((dropped & accepted), status == DROPPED)
    np.testing.assert_array_equal((failed & accepted & ~dropped), status == FAILED)
    ran = accepted & ~dropped
    wait_s = (outcome.start_s - history.decision_info.arrival_s)[:, 0]
    np.testing.assert_allclose(np.asarray(drawn.drawn.wait_s)[ran], wait_s[ran], rtol=1e-3, atol=1e-3)
    run_s = (outcome.finish_s - outcome.start_s)[:, 0]
    np.testing.assert_allclose(np.asarray(drawn.drawn.run_s)[ran], run_s[ran], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_the_black_box_starts_where_the_log_does_and_then_tells_its_own() -> None:
    train, test = campaigns(0, 8, 12), campaigns(1, 6, 12)
    model = fit_black_box(jax.random.key(0), train, ENCODING, hidden=(8,), num_steps=40, num_streams=4)
    told = black_box_states(jax.random.key(1), model, test, ENCODING, (0, 11))
    real = logged_states(test, ENCODING, (0, 11))
    assert told.shape == real.shape
    np.testing.assert_allclose(told[0], real[0], atol=1e-6)
    assert np.isfinite(told[1]).all()
    assert (told[1] != real[1]).any()


def test_horizons_that_no_window_reaches_are_refused() -> None:
    windows = campaigns(0, 4, 6)
    with pytest.raises(ConfigError, match="longer than 20"):
        compounding({}, windows, windows, windows, ENCODING, horizons=(1, 20))
