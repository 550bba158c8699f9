"""How many windows a clone's gradient step takes."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from offline_rl.recipes.cloning import MOST_CHOICES, affordable


@pytest.mark.parametrize(
    ("num_choices", "wanted", "taken"),
    [(10, 16, 16), (MOST_CHOICES, 16, 16), (2 * MOST_CHOICES, 16, 8), (500, 16, 4), (10_000, 16, 2), (10_000, 1, 1)],
)  # fmt: skip
def test_of_many_choices_a_gradient_step_takes_fewer_windows(
    num_choices: int, wanted: int, taken: int
) -> None:
    legal = jax.ShapeDtypeStruct((num_choices, 1), np.bool_)
    assert affordable(wanted, SimpleNamespace(legal=legal)) == taken
