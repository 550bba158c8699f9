"""A training of many seeds that is killed goes on with the seeds that are missing."""

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.autoscaling import kit


def test_a_training_that_is_killed_keeps_what_its_seeds_learned(tmp_path):
    """Parameters come from the unit's file, so that they are the same after a kill."""
    unfinished, trainings = Unfinished(tmp_path / "units"), []

    def train():
        trainings.append(1)
        return {
            "teacher": {"params": {"bias": jnp.arange(3.0)}},
            "students": {"params": {"bias": jnp.ones(2)}},
        }

    first, again = (kit._kept(unfinished, 7, train) for _ in range(2))
    assert trainings == [1]
    assert jax.tree.structure(again) == jax.tree.structure(train())
    jax.tree.map(np.testing.assert_array_equal, first, again)
