"""How far run times depend on what a network sees, settled on rows of which the true distribution is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twin.contracts import Array, PyTree
from twin.placement.outcome_model import NUM_OUTPUTS, RUN, Observed, log_likelihood, split_outputs
from twin.placement.plain_runs import drawn_to_plain, plain_outputs

ROWS, MEMBERS, UNIT_S, BATCH = 2000, 3, 2.0, 500
SCATTER = 0.5
"""Standard deviation of the logarithm of run times."""
FIRST_LOCATION = RUN.start + 4
"""The output that moves the first component of run times."""


def rows(slope: float) -> tuple[np.ndarray, np.ndarray, Observed]:
    """What a network sees [rows], what is usual [rows], and runs whose logarithm rises by `slope` with the former."""
    rng = np.random.default_rng(0)
    seen, usual = rng.normal(size=ROWS), 3.0 + rng.uniform(size=ROWS)
    run = usual + slope * seen + SCATTER * rng.normal(size=ROWS)
    yes, no = np.ones(ROWS, bool), np.zeros(ROWS, bool)
    return (
        seen,
        usual,
        Observed(yes, no, no, np.zeros(ROWS), yes, UNIT_S * np.expm1(np.maximum(run, 0.0)), yes),
    )


@jax.jit
def settled(seen: Array, usual: Array, observed: Observed, learned: float) -> tuple[PyTree, Array, Array]:
    """Members [learned slope] drawn to the plain mixture; it; and the share that is left."""

    def of(outputs: Array, at: Array) -> Array:
        each = jax.tree.map(lambda leaf: leaf[at], observed)
        return log_likelihood(split_outputs(outputs, usual=usual[at]), each, UNIT_S)

    def same(outputs: Array, at: Array) -> Array:
        return of(jnp.broadcast_to(outputs[:, None], (NUM_OUTPUTS, at.shape[0])), at)

    plain = plain_outputs(jax.random.key(0), same, lambda key: jax.random.randint(key, (BATCH,), 0, ROWS))
    own = plain.at[RUN].set(jnp.where(jnp.arange(12) < 4, 40.0 * (jnp.arange(12) == 0), 0.0))
    own = (
        own.at[RUN.stop - 4].set(jnp.log(SCATTER)).at[FIRST_LOCATION].set(0.3)
    )  # its place is -.3 from the usual
    kernel = jnp.zeros((1, NUM_OUTPUTS)).at[0, FIRST_LOCATION].set(learned)
    layer = {"kernel": jnp.tile(kernel, (MEMBERS, 1, 1)), "bias": jnp.tile(own, (MEMBERS, 1))}

    def likelihood(one: PyTree) -> Array:
        layer = one["params"]["Dense_1"]
        return of(layer["kernel"].T @ seen[None] + layer["bias"][:, None], jnp.arange(ROWS))

    plains = jnp.tile(plain, (MEMBERS, 1))
    members, share = drawn_to_plain(
        likelihood, {"params": {"Dense_1": layer}}, plains, jnp.ones(ROWS), "Dense_1"
    )
    return members, plain, share


@pytest.mark.slow
def test_the_plain_mixture_is_that_of_the_rows() -> None:
    """Drawn anew from it, runs have the mean and the scatter of the log's."""
    seen, usual, observed = rows(slope=0.0)
    _, plain, _ = settled(seen, usual, observed, 0.0)
    run = split_outputs(jnp.asarray(plain)[:, None], usual=0.0).run
    weight, location = np.exp(np.asarray(run.log_weight)[:3, 0]), np.asarray(run.location)[:3, 0]
    assert weight.sum() == pytest.approx(1.0, abs=1e-3)  # the fourth does not count from what is usual
    mean = weight @ location
    variance = weight @ (np.exp(2.0 * np.asarray(run.log_scale)[:3, 0]) + (location - mean) ** 2)
    assert mean == pytest.approx(0.0, abs=0.05)
    assert np.sqrt(variance) == pytest.approx(SCATTER, rel=0.05)
    assert not np.any(np.delete(np.asarray(plain), np.r_[RUN]))


@pytest.mark.slow
def test_what_a_network_found_by_chance_is_dropped() -> None:
    seen, usual, observed = rows(slope=0.0)
    members, plain, share = settled(seen, usual, observed, 0.1)
    assert share == 0.0
    layer = members["params"]["Dense_1"]
    assert not np.any(layer["kernel"])
    np.testing.assert_allclose(layer["bias"][:, RUN], np.tile(plain[RUN], (MEMBERS, 1)))


@pytest.mark.slow
def test_what_runs_depend_on_is_kept() -> None:
    members, _, share = settled(*rows(slope=0.5), 0.5)
    assert share == 1.0
    np.testing.assert_allclose(members["params"]["Dense_1"]["kernel"][:, 0, FIRST_LOCATION], 0.5)


@pytest.mark.slow
def test_a_dependence_of_half_the_size_is_halved() -> None:
    _, _, share = settled(*rows(slope=0.4), 0.8)
    assert share == 0.5
