"""The generator's statistics against laws whose divergences are known, and gradients that reach the generator."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.twin.population.toys import agents
from twin.population import codes
from twin.population.adversaries import clipped, gradient_penalty, logistic, probability
from twin.population.encoding import Block, fit_agent_encoding
from twin.population.generators import draw_levels, in_chain

BLOCKS = (Block(0, 2, True), Block(2, 2, True))
ENCODING = fit_agent_encoding(agents(300))


def rows_of(counts: list[int]) -> np.ndarray:
    """Agents of two binary columns: how many of (0, 0), (0, 1), (1, 0), (1, 1)."""
    pair = np.repeat(np.arange(4), counts)
    return np.stack([pair < 2, pair >= 2, pair % 2 == 0, pair % 2 == 1]).astype(np.float32)


def test_divergences_and_entropy_of_known_tables() -> None:
    tables = jax.jit(lambda rows: codes.tables(BLOCKS, rows))
    real, bent = (tables(rows_of(c)) for c in ([25] * 4, [40, 10, 10, 40]))
    share = np.zeros((4, 4), np.float32)
    share[:2, 2:] = 1.0
    expected = 0.5 * np.log(0.25 / 0.4) + 0.5 * np.log(0.25 / 0.1)
    pairs, marginal, entropy = jax.jit(
        lambda: (
            codes.pairwise_kl(share, real, bent),
            codes.marginal_kl(2, real, bent),
            codes.marginal_entropy(2, bent),
        )
    )()
    assert np.isclose(pairs, expected, atol=1e-4)
    assert np.isclose(marginal, 0.0, atol=1e-5)  # marginals cannot see it
    assert np.isclose(entropy, np.log(2.0), atol=1e-4)


def test_pairs_are_counted_once_and_columns_not_with_themselves() -> None:
    share = codes.pair_share(ENCODING)  # service 3, site 2, a rank in bins
    widths = [3, 2, codes.NUM_BINS]
    assert share.shape == (sum(widths),) * 2
    cells = [3 * 2, 3 * codes.NUM_BINS, 2 * codes.NUM_BINS]
    assert np.isclose(share.sum(), sum(cells) / 3)
    assert not share[:3, :3].any()
    assert not np.tril(share).any()


def test_ranks_fall_into_their_bins() -> None:
    centre = (2.0 * np.arange(codes.NUM_BINS) + 1.0) / codes.NUM_BINS - 1.0
    found = codes.soft_codes((Block(0, 1, False),), jnp.asarray(centre[None], jnp.float32))
    assert np.allclose(found, np.eye(codes.NUM_BINS), atol=1e-4)
    assert np.allclose(np.sum(found, axis=0), 1.0, atol=1e-6)


def test_drawn_levels_follow_their_law_and_carry_a_gradient() -> None:
    law = np.array([0.6, 0.3, 0.1], np.float32)
    logits = np.log(law)[:, None] + np.zeros((1, 20_000), np.float32)

    def mean_of_first(shift: jax.Array) -> jax.Array:
        drawn = draw_levels(jax.random.key(0), jnp.asarray(logits).at[0].add(shift), 0.5)
        return jnp.mean(drawn.hard[0])

    drawn = jax.jit(lambda: draw_levels(jax.random.key(0), logits, 0.5))()
    assert set(np.unique(np.round(drawn.hard, 5))) == {0.0, 1.0}
    assert np.allclose(np.mean(drawn.hard, axis=1), law, atol=0.015)
    assert float(jax.jit(jax.grad(mean_of_first))(0.0)) > 0.05


def test_the_likelihood_of_the_chain_is_the_law_it_draws_from() -> None:
    generator = in_chain(ENCODING, (8,), 0.5)
    asked = ENCODING.encode_conditions(agents(1).conditions)
    many = np.repeat(asked, 20_000, axis=1)

    @jax.jit
    def drawing(key):
        parameters = generator.init(key)
        return parameters, generator.generate(parameters, jax.random.key(1), many).hard

    parameters, drawn = drawing(jax.random.key(0))
    assert generator.log_likelihood is not None
    likelihood = jax.jit(generator.log_likelihood)
    for service in range(3):
        row, place = np.zeros((6, 64), np.float32), np.arange(64)
        row[service] = 1.0
        row[3:] = place < 32, place >= 32, (2.0 * (place % 32) + 1.0) / 32 - 1.0
        mass = np.sum(np.exp(likelihood(parameters, row, np.repeat(asked, 64, axis=1))))
        assert abs(mass - np.mean(drawn[service])) < 0.015


def test_adversaries_at_known_scores() -> None:
    key, real, made = jax.random.key(0), jnp.ones((1, 4)), -jnp.ones((1, 4))
    flat = jnp.zeros(4)
    for one in (probability(), logistic()):  # a discriminator that cannot tell says one half: loss 2 log 2
        assert np.isclose(
            one.discriminator_loss(key, lambda rows: 0.0 * rows[0], real, made), 2 * np.log(2), atol=1e-6
        )
    assert np.isclose(probability().generator_loss(flat), -0.5)
    assert np.isclose(logistic().generator_loss(flat), np.log(2), atol=1e-6)
    assert np.isclose(clipped(0.1).discriminator_loss(key, lambda rows: rows[0], real, made), -2.0)
    assert np.allclose(clipped(0.1).project({"w": jnp.array([-3.0, 0.05])})["w"], [-0.1, 0.05])
    steep = gradient_penalty(10.0).discriminator_loss(key, lambda rows: 3.0 * rows[0], real, made)
    assert np.isclose(steep, -6.0 + 10.0 * (3.0 - 1.0) ** 2, atol=1e-3)
    unit = gradient_penalty(10.0).discriminator_loss(key, lambda rows: rows[0], real, made)
    assert np.isclose(unit, -2.0, atol=1e-4)
