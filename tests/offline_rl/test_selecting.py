"""Training that keeps what looked best: it does, it stops, and it resumes bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.algorithm import Algorithm
from offline_rl.errors import TrainingError
from offline_rl.selecting import train_selecting
from offline_rl.training_loop import in_twin
from tests.toys import toy_problem, toy_response
from twin.environment import environment

EXPERIENCE = in_twin(environment(toy_problem(), toy_response(length=40)), 2, (2,))
KEY = jax.random.key(1)


def walking() -> Algorithm:
    """A state that counts updates and carries noise of the key; the policy is the first choice."""

    def step(key, state, trajectory):
        noise = jax.random.normal(key) + 0.0 * trajectory.reward.sum()
        return {"count": state["count"] + 1.0, "noise": state["noise"] + noise}, {"noise": noise}

    def policy(_state):
        return lambda _key, _seen, legal: jax.tree.map(
            lambda mask: jnp.zeros(mask.shape[1:], jnp.int32), legal
        )

    return Algorithm(
        lambda key: {"count": jnp.zeros(()), "noise": jax.random.normal(key)}, step, policy, policy
    )


def best_at(count):
    return lambda state: -abs(float(state["count"]) - count)


@pytest.mark.slow
def test_the_best_look_is_kept():
    found = train_selecting(KEY, walking(), EXPERIENCE, 20, best_at(6), updates_per_look=3)
    assert float(found.best["count"]) == 6
    assert found.evaluations.tolist() == [-abs(6 - min(3 * evaluation, 20)) for evaluation in range(8)]
    assert len(found.info["noise"]) == 20
    nothing = train_selecting(KEY, walking(), EXPERIENCE, 20, best_at(0), updates_per_look=3)
    assert float(nothing.best["count"]) == 0  # what training started from was best


@pytest.mark.slow
def test_a_killed_run_resumes_bit_for_bit(tmp_path):
    whole = train_selecting(KEY, walking(), EXPERIENCE, 11, best_at(6), updates_per_look=3)
    file, heard = tmp_path / "run.npz", []

    def die(done, seen):
        heard.append((done, seen))
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_selecting(
            KEY, walking(), EXPERIENCE, 11, best_at(6), updates_per_look=3, checkpoint=file, on_evaluation=die
        )
    assert heard == [(3, -3.0), (6, 0.0)]
    resumed = train_selecting(KEY, walking(), EXPERIENCE, 11, best_at(6), updates_per_look=3, checkpoint=file)
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    with pytest.raises(ProductError, match="another key"):
        train_selecting(
            jax.random.key(9), walking(), EXPERIENCE, 11, best_at(6), updates_per_look=3, checkpoint=file
        )


def test_a_look_that_is_no_number_is_refused():
    with pytest.raises(TrainingError, match="not a number after 0 updates"):
        train_selecting(KEY, walking(), EXPERIENCE, 3, lambda _state: float("nan"))
