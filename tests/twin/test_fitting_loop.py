"""The fitting loop: the best evaluation is kept, patience ends it, a killed fit resumes; gradient steps in batches."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from logs_schema.errors import ProductError
from twin.descent import clipped_adam, descend, descend_in_batches
from twin.fitting_loop import Checkpoint, FitProgress, fit_keeping_best, is_finite

NAN = float("nan")


def fit_of(losses: list[float], num_steps: int = 8, **options: object) -> FitProgress:
    """A fit that counts its steps, two an evaluation, and is given its losses evaluation by evaluation."""

    def advance(state: jax.Array, done: int, count: int) -> tuple[jax.Array, np.ndarray, float]:
        return state + count, np.arange(done, done + count), losses[done // 2]

    return fit_keeping_best(jnp.zeros((), int), advance, num_steps, 2, curves=np.zeros(0, int), **options)  # type: ignore


@pytest.mark.parametrize(
    ("losses", "options", "best", "evaluations"),
    [
        ([3.0, 1.0, 2.0, 1.0], {}, 4, 4),
        ([3.0, 1.0, 2.0, 1.0], {"last_of_equals": True}, 8, 4),
        ([3.0, 1.0, 2.0, 1.0], {"first_evaluation": lambda: 0.5}, 0, 5),
        ([1.0, 2.0, 3.0, 0.0], {"patience": 2}, 2, 3),
        ([1.0, 2.0, 3.0, 0.0], {"patience": 2, "first_evaluation": lambda: 0.5}, 0, 3),
        ([NAN, 2.0, NAN, 1.0], {"patience": 2}, 8, 4),
        ([NAN] * 4, {"patience": 3}, 0, 3),
    ],
)
def test_the_lowest_loss_is_kept_and_patience_ends_it(
    losses: list[float], options: dict, best: int, evaluations: int
) -> None:
    fit = fit_of(losses, **options)
    assert (int(fit.best), len(fit.losses)) == (best, evaluations)
    np.testing.assert_array_equal(fit.curves, np.arange(int(fit.done)))


def test_the_last_look_comes_after_fewer_steps_and_only_what_is_asked_for_is_kept() -> None:
    fit = fit_of([3.0, 2.0, 1.0], num_steps=5, kept=lambda state: {"twice": 2 * state})
    assert (int(fit.done), int(fit.state), int(fit.best["twice"])) == (5, 5, 10)


def test_a_killed_fit_resumes_where_it_was(tmp_path: Path) -> None:
    losses, first = [3.0, 1.0, 2.0, 1.5], iter([4.0, 4.0])
    whole = fit_of(losses, first_evaluation=lambda: next(first))
    kept = Checkpoint(tmp_path / "fit.npz", jax.random.key(0))

    def die(fit: FitProgress) -> None:
        if fit.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_of(losses, first_evaluation=lambda: next(first), checkpoint=kept, on_evaluation=die)
    resumed = fit_of(losses, first_evaluation=lambda: next(first), checkpoint=kept)  # not looked at once more
    jax.tree.map(np.testing.assert_array_equal, resumed, whole)
    assert [type(leaf) for leaf in resumed] == [type(leaf) for leaf in whole]
    with pytest.raises(ProductError, match="another key"):
        fit_of(losses, checkpoint=kept._replace(key=jax.random.key(1)))
    with pytest.raises(ProductError, match="another model or configuration"):
        kept.resumed(resumed._replace(state=jnp.zeros(2)))


def test_a_scan_of_batches_is_one_step_after_another() -> None:
    data, keys = jnp.arange(12.0), jax.random.split(jax.random.key(0), 5)
    optimizer = clipped_adam(optax.cosine_decay_schedule(0.1, 5), 1.0)

    def loss(params: jax.Array, batch: jax.Array) -> jax.Array:
        return jnp.mean((params - batch) ** 2)

    def draw(key: jax.Array) -> jax.Array:
        return data[jax.random.randint(key, (3,), 0, 12)]

    params, memory = jnp.zeros(()), optimizer.init(jnp.zeros(()))
    found, past, losses = descend_in_batches(optimizer, loss, draw, keys, params)
    for number, key in enumerate(keys):
        np.testing.assert_allclose(losses[number], loss(params, draw(key)), rtol=1e-6)
        params, memory = descend(optimizer, jax.grad(loss)(params, draw(key)), memory, params)
    np.testing.assert_allclose(found, params, rtol=1e-6)
    before = descend_in_batches(optimizer, loss, draw, keys[:2], jnp.zeros(()))[:2]
    after = descend_in_batches(optimizer, loss, draw, keys[2:], *before)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-6), after[:2], (found, past))


def test_finite_is_said_of_floating_point_numbers() -> None:
    assert is_finite({"a": np.ones(2), "b": np.array([1, 2]), "c": jnp.zeros(())})
    assert not is_finite({"a": np.array([1.0, np.inf])})
