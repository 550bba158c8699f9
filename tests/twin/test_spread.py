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

ROWS, UNIT_S = 2000, 2.0
TRUE_SCALE = 0.1


def members(scale: float, away: float) -> PyTree:
    """Two members that say waits around 6 and runs around 3 on their scales, one below and one above the truth."""
    bias = np.zeros((2, NUM_OUTPUTS), np.float32)
    bias[:, [4, 16]] = 40.0  # the weight of the first component of both
    bias[:, 8] = 6.0 - WAIT_PLACES[0] + np.array([-away, away])
    bias[:, 20] = 3.0 - RUN_PLACES[0] + np.array([-away, away])
    bias[:, WAIT_SCALES], bias[:, RUN_SCALES] = np.log(scale), np.log(scale)
    return {"params": {"Dense_1": {"bias": jnp.asarray(bias)}}}


def rows() -> Observed:
    rng = np.random.default_rng(0)
    wait, run = (centre + TRUE_SCALE * rng.logistic(size=ROWS) for centre in (6.0, 3.0))
    yes, no = np.ones(ROWS, bool), np.zeros(ROWS, bool)
    return Observed(yes, no, no, 1e-3 * UNIT_S * np.expm1(wait), yes, UNIT_S * np.expm1(run), yes)


def settled(parameters: PyTree, weight: np.ndarray) -> tuple[PyTree, np.ndarray]:
    seen = jax.tree.map(jnp.asarray, rows())

    def likelihood(one: PyTree) -> Array:
        outputs = jnp.broadcast_to(one["params"]["Dense_1"]["bias"][:, None], (NUM_OUTPUTS, ROWS))
        return log_likelihood(split_outputs(outputs), seen, UNIT_S)

    widened, factors = jax.jit(lambda p, w: calibrate_spread(likelihood, p, w, "Dense_1"))(parameters, weight)
    return widened, np.asarray(factors)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_a_wrong_width_is_put_right(factor: float) -> None:
    parameters, factors = settled(members(TRUE_SCALE / factor, 0.0), np.ones(ROWS))
    np.testing.assert_allclose(factors, factor, rtol=0.1)
    scale = np.exp(
        np.asarray(parameters["params"]["Dense_1"]["bias"])[:, [WAIT_SCALES.start, RUN_SCALES.start]]
    )
    np.testing.assert_allclose(scale, TRUE_SCALE, rtol=0.1)


def test_members_that_disagree_are_made_narrower() -> None:
    """Each alone has the true width; their mixture is wider than the truth by what lies between them."""
    _, factors = settled(members(TRUE_SCALE, 0.16), np.ones(ROWS))
    assert np.all(factors < 0.9)


def test_rows_without_weight_say_nothing() -> None:
    """The widest rows are left out, and what is left is narrower than the truth."""
    wait = np.log1p(1e3 * rows().wait_s / UNIT_S)
    _, factors = settled(members(TRUE_SCALE, 0.0), (np.abs(wait - 6.0) < TRUE_SCALE).astype(float))
    assert factors[0] < 0.7
    assert factors[1] == pytest.approx(1.0, abs=0.11)
