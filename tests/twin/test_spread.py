"""The ensemble's width, settled on rows of which the true distribution is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twin.contracts import Array, PyTree
from twin.placement.outcome_model import (
    NUM_OUTPUTS,
    RUN_PLACES,
    RUN_SCALES,
    WAIT_PLACES,
    WAIT_SCALES,
    Observed,
    log_likelihood,
    split_outputs,
)
from twin.placement.spread import calibrate_spread

ROWS, MEMBERS, UNIT_S = 2000, 5, 2.0
WAIT, RUN, SCALE = 6.0, 3.0, 0.1
"""Where the true waits and runs lie, and their scale, on the scales on which they are predicted."""


def members(scale: float, error: float = 0.0) -> PyTree:
    """Members who say this scale, and places that are off by `error` (a standard deviation), for each row anew."""
    bias = np.zeros((MEMBERS, NUM_OUTPUTS), np.float32)
    bias[:, [4, 16]] = 40.0  # the weight of the first component of both
    bias[:, 8], bias[:, 20] = WAIT - WAIT_PLACES[0], RUN - RUN_PLACES[0]
    bias[:, WAIT_SCALES], bias[:, RUN_SCALES] = np.log(scale), np.log(scale)
    off = error * np.random.default_rng(1).normal(size=(MEMBERS, ROWS))
    return {"params": {"Dense_1": {"bias": jnp.asarray(bias)}}, "off": jnp.asarray(off, jnp.float32)}


def rows() -> Observed:
    rng = np.random.default_rng(0)
    wait, run = (centre + SCALE * rng.normal(size=ROWS) for centre in (WAIT, RUN))
    yes, no = np.ones(ROWS, bool), np.zeros(ROWS, bool)
    return Observed(yes, no, no, 1e-3 * UNIT_S * np.expm1(wait), yes, UNIT_S * np.expm1(run), yes)


@jax.jit
def calibrated(parameters: PyTree, weight: Array, seen: Observed) -> tuple[PyTree, Array]:
    def likelihood(one: PyTree) -> Array:
        outputs = jnp.broadcast_to(one["params"]["Dense_1"]["bias"][:, None], (NUM_OUTPUTS, ROWS))
        outputs = outputs.at[jnp.array([8, 20])].add(one["off"][None])
        return log_likelihood(split_outputs(outputs), seen, UNIT_S)

    return calibrate_spread(likelihood, parameters, weight, "Dense_1")


def settled(
    parameters: PyTree, weight: np.ndarray | None = None, observed: Observed | None = None
) -> tuple[PyTree, np.ndarray]:
    weight = np.ones(ROWS) if weight is None else weight
    widened, factors = calibrated(parameters, weight, observed or rows())
    return widened, np.asarray(factors)


@pytest.mark.parametrize("factor", [*(pytest.param(one, marks=pytest.mark.slow) for one in (0.5, 1.0)), 2.0])
def test_a_wrong_width_is_put_right(factor: float) -> None:
    parameters, factors = settled(members(SCALE / factor))
    np.testing.assert_allclose(factors, factor, rtol=0.1)
    bias = np.asarray(parameters["params"]["Dense_1"]["bias"])
    np.testing.assert_allclose(np.exp(bias[:, [WAIT_SCALES.start, RUN_SCALES.start]]), SCALE, rtol=0.1)


@pytest.mark.slow
def test_members_that_are_each_right_are_together_too_wide() -> None:
    """Each is as wide as the truth and its own error make it; together they know the place better than that."""
    error = SCALE  # as much as the truth scatters
    _, factors = settled(members(np.sqrt(2.0) * SCALE, error))
    assert np.all(factors < 0.9)


def test_rows_without_weight_say_nothing() -> None:
    """The waits furthest off are left out, and what is left is narrower than the truth."""
    wait = np.log1p(1e3 * rows().wait_s / UNIT_S)
    _, factors = settled(members(SCALE), (np.abs(wait - WAIT) < SCALE).astype(float))
    assert factors[0] < 0.7
    assert factors[1] == pytest.approx(1.0, abs=0.11)


@pytest.mark.slow
def test_waits_that_are_all_nothing_leave_the_width_as_it_is() -> None:
    _, factors = settled(members(SCALE), observed=rows()._replace(wait_s=np.zeros(ROWS)))
    assert factors[0] == 1.0
    assert factors[1] == pytest.approx(1.0, abs=0.11)
