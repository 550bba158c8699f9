"""The scorer: choices are treated alike, illegal ones do not exist, and it finds a hidden table."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from offline_rl.distributions import joint_log_prob
from offline_rl.errors import TrainingError
from offline_rl.losses import MASKED_LOGIT
from offline_rl.networks import Example
from offline_rl.scorer import ScorerConfig, scorer

NUM_FEATURES, NUM_CONTEXT = 3, 4
ALIKE = ScorerConfig((8, 8), identity=False)


def example(num_choices):
    return Example(
        (
            jax.ShapeDtypeStruct((NUM_FEATURES, num_choices, 1), jnp.float32),
            jax.ShapeDtypeStruct((NUM_CONTEXT, 1), jnp.float32),
        ),
        jax.ShapeDtypeStruct((num_choices, 1), jnp.bool_),
        None,
    )


def drawn(num_choices, streams=(5,)):
    random = np.random.default_rng(3)
    choices = random.normal(size=(NUM_FEATURES, num_choices, 1, *streams)).astype(np.float32)
    context = random.normal(size=(NUM_CONTEXT, 1, *streams)).astype(np.float32)
    legal = random.random((num_choices, 1, *streams)) < 0.7
    legal[0] = True
    return (choices, context), legal


@pytest.mark.parametrize("pooled", [False, True])
def test_permuting_the_choices_permutes_the_scores(pooled):
    network = scorer(example(6), ScorerConfig((8, 8), identity=False, pooled=pooled))
    params = network.init(jax.random.key(0))
    (choices, context), legal = drawn(6)
    order = np.array([4, 0, 5, 2, 1, 3])
    plain = np.asarray(network.logits(params, (choices, context), legal))
    permuted = np.asarray(network.logits(params, (choices[:, order], context), legal[order]))
    np.testing.assert_allclose(permuted, plain[order], rtol=1e-5, atol=1e-6)
    assert plain[legal].std() > 1e-4


def test_the_same_weights_score_any_number_of_choices_and_illegal_ones_do_not_exist():
    params = scorer(example(4), ALIKE).init(jax.random.key(0))
    (choices, context), legal = drawn(9)
    legal[4:] = False
    wide = np.asarray(scorer(example(9), ALIKE).logits(params, (choices, context), legal))
    narrow = np.asarray(scorer(example(4), ALIKE).logits(params, (choices[:, :4], context), legal[:4]))
    np.testing.assert_allclose(wide[:4], narrow, rtol=1e-5, atol=1e-6)
    assert np.all(wide[4:] == MASKED_LOGIT)


@pytest.mark.slow
def test_single_streams_are_scored_the_same():
    network = scorer(example(6))
    params = network.init(jax.random.key(1))
    observation, legal = drawn(6)
    plain = np.asarray(network.logits(params, observation, legal))
    one = network.logits(params, jax.tree.map(lambda leaf: leaf[..., 2], observation), legal[..., 2])
    np.testing.assert_allclose(np.asarray(one), plain[..., 2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("identity", "finds_it"), [(True, True), (False, False)])
def test_only_choices_with_an_identity_can_learn_a_hidden_table(identity, finds_it):
    """The right choice is a function of the context alone: nothing that is seen of the choices tells it."""
    network = scorer(example(4), ScorerConfig((16, 16), identity=identity))
    context = jnp.eye(NUM_CONTEXT)[:, None]
    observation = (jnp.zeros((NUM_FEATURES, 4, 1, NUM_CONTEXT)), context)
    legal = jnp.ones((4, 1, NUM_CONTEXT), bool)
    right = jnp.array([[2, 0, 3, 1]])
    optimizer = optax.adam(0.03)

    def loss(params):
        return -jnp.mean(joint_log_prob(network.logits(params, observation, legal), right))

    def update(carry, _):
        params, memory = carry
        change, memory = optimizer.update(jax.grad(loss)(params), memory, params)
        return (optax.apply_updates(params, change), memory), None

    params = network.init(jax.random.key(0))
    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(update, carry, None, 200))(
        (params, optimizer.init(params))
    )
    found = np.asarray(jnp.argmax(network.logits(params, observation, legal), axis=0))
    assert np.array_equal(found, np.asarray(right)) == finds_it
    assert (float(loss(params)) < 0.1) == finds_it


def test_what_is_no_pair_of_choices_and_context_is_refused():
    flat = Example(jax.ShapeDtypeStruct((7, 1), jnp.float32), jax.ShapeDtypeStruct((4, 1), jnp.bool_), None)
    with pytest.raises(TrainingError, match="choice by choice"):
        scorer(flat)
    with pytest.raises(TrainingError, match="hidden layer"):
        scorer(example(4), ScorerConfig(()))
