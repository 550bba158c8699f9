"""Disagreement of an ensemble: nothing where the members agree, the known deviation where they do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.recipes.config import TrainingConfig
from offline_rl.recipes.twin_experience import rollouts_in
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.disagreement import disagreement
from twin.placement.encode import cut_windows
from twin.placement.learned import AnswerConfig, AnswerModel, learned_answers, num_inputs
from twin.placement.model import PlacementTwin
from twin.placement.outcome_model import NUM_OUTPUTS
from twin.placement.responses import drawn_response
from twin.placement.windows import replayed_arrivals
from twin.rollout import rollout

CLUSTER = made_cluster()
ENCODING = made_encoding(CLUSTER, reward="on_time")
CONFIG = AnswerConfig(num_members=2, hidden=())
ROWS = made_rows(np.random.default_rng(2), CLUSTER, 64)
EVEN = np.full(64, 0.5, np.float32)
"""Usual acceptance of which the members' own is all that is left."""
ROWS = ROWS._replace(
    request=ROWS.request._replace(
        deadline_s=np.full(64, np.inf, np.float32),
        accepts_home=EVEN,
        accepts_elsewhere=EVEN,
        accepts_cloud=EVEN,
    )
)
WINDOWS = cut_windows(ROWS, np.ones(64, bool), ENCODING, num_steps=32)


def ensemble(first: float, second: float) -> AnswerModel:
    """Two members that accept every offer with fixed probabilities; what they accept is done at once and on time."""
    chances = jnp.array([first, second])
    bias = jnp.zeros((2, NUM_OUTPUTS)).at[:, 1:3].set(-30.0).at[:, 3].set(30.0)
    bias = bias.at[:, 0].set(jnp.log(chances) - jnp.log1p(-chances))
    kernel = jnp.zeros((2, num_inputs(CLUSTER), NUM_OUTPUTS))
    return AnswerModel({"params": {"Dense_0": {"kernel": kernel, "bias": bias}}}, 10.0, 10.0, 0.0)


@jax.jit
def episodes(key):
    answers = learned_answers(ENCODING, CONFIG, ensemble(0.5, 0.5))
    arrivals = replayed_arrivals(WINDOWS)
    response = drawn_response(CLUSTER, ENCODING.problem.depth, arrivals, answers)
    system = environment(placement(CLUSTER, ENCODING.problem), response)
    zero = lambda _key, _seen, legal: jnp.argmax(legal, axis=0).astype(jnp.int32)  # noqa: E731
    return rollout(key, system, zero, 32, (64,))


@pytest.fixture(scope="module")
def disagreement_of():
    """The doubt about some members' answers along one trajectory."""
    trajectory = episodes(jax.random.key(0))
    return jax.jit(lambda model: disagreement(jax.random.key(1), ENCODING, CONFIG, model, trajectory))


@pytest.mark.slow
def test_members_that_agree_leave_no_doubt(disagreement_of):
    uncertainty = disagreement_of(ensemble(0.6, 0.6))
    assert uncertainty.shape == (32, 1, 64)
    np.testing.assert_array_equal(uncertainty, 0.0)


@pytest.mark.slow
def test_the_doubt_is_the_deviation_of_what_the_members_expect(disagreement_of):
    """With common draws member one's success implies member two's, so their means differ by the share in between."""
    uncertainty = np.asarray(disagreement_of(ensemble(0.3, 0.9)))
    assert abs(uncertainty.mean() - 0.6 / 2) < 0.01
    assert uncertainty.min() >= 0.0
    assert uncertainty.max() <= 0.5


@pytest.mark.slow
def test_doubt_costs_nothing_where_nothing_is_decided():
    """As `Trajectory` says of rewards: behind the last request of a short window, say."""
    windows = cut_windows(ROWS, np.arange(64) < 40, ENCODING, num_steps=32)
    assert sorted(windows.length) == [8, 32]
    twin = PlacementTwin(ENCODING, CONFIG, ensemble(0.3, 0.9), windows, None)  # type: ignore[arg-type]
    policy = lambda _key, _seen, legal: jnp.argmax(legal, axis=0).astype(jnp.int32)  # noqa: E731
    config = TrainingConfig(num_streams=8, randomise_nodes=0.0, randomise_services=0.0)
    seen = jax.jit(lambda experience: experience(jax.random.key(0), policy))(
        rollouts_in(twin, twin.model, config)
    )
    decides = np.asarray(seen.active)
    assert 0.0 < decides.mean() < 1.0
    assert len(np.unique(np.asarray(seen.reward)[decides])) > 2
    np.testing.assert_array_equal(np.asarray(seen.reward)[~decides], 0.0)
