"""The training scan: cut, killed and resumed it computes the same bits; what goes wrong is said."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.algorithm import Algorithm
from offline_rl.algorithms import BehaviourCloningConfig, behaviour_cloning
from offline_rl.errors import TrainingError
from offline_rl.networks import example_of
from offline_rl.selecting import train_kept, train_selecting
from offline_rl.training_loop import from_logs, in_twin, train, updates
from tests.toys import toy_problem, toy_response
from twin.arrays import load_arrays, save_arrays
from twin.environment import environment
from twin.fitting_loop import Checkpoint
from twin.rollout import rollout

ENVIRONMENT = environment(toy_problem(), toy_response(length=40))
KEY = jax.random.key(3)


def assert_same_bits(left, right) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, two in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


def cloning(width: int) -> Algorithm:
    """A learner with an optimiser's state and keys of its own, and the smallest program."""
    return behaviour_cloning(example_of(ENVIRONMENT), BehaviourCloningConfig(hidden=(width,)))


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.slow
def test_a_run_in_chunks_killed_and_resumed_equals_one_scan(tmp_path):
    algorithm, experience = cloning(8), in_twin(ENVIRONMENT, 4, (4,))
    state, info = train(KEY, algorithm, experience, 5)
    file = tmp_path / "checkpoint.npz"
    heard, evaluations = [], itertools.count()  # later is better: the last state is the best

    def run(key=KEY, algorithm=algorithm, die_at=None):
        def hear(done, _seen):
            heard.append(done)
            if done == die_at:
                raise Killed

        return train_selecting(
            key,
            algorithm,
            experience,
            5,
            lambda _state: next(evaluations),
            updates_per_look=2,
            checkpoint=file,
            on_evaluation=hear,
        )

    with pytest.raises(Killed):
        run(die_at=4)
    assert heard == [2, 4]
    resumed = run()
    assert heard == [2, 4, 5]
    assert_same_bits((resumed.best, resumed.info), (state, info))
    assert_same_bits(run(), resumed)
    with pytest.raises(ProductError, match="another key"):
        run(jax.random.key(4))
    with pytest.raises(ProductError, match="another model or configuration"):
        run(algorithm=cloning(9))


def counting(diverge_at: int) -> Algorithm:
    """An algorithm that counts its updates and adds up a piece of the experience."""

    def step(_key, state, trajectory):
        count = state + jnp.where(state == diverge_at, jnp.inf, 1.0)
        return count, {"seen": jnp.sum(trajectory.elapsed_s)}

    def policy(_state):
        return lambda _key, observation, legal: jax.tree.map(
            lambda mask: jnp.zeros(mask.shape[1:], jnp.int32), legal
        )

    return Algorithm(lambda _key: jnp.zeros(()), step, policy, policy)


def test_a_training_that_is_kept_is_killed_and_goes_on_as_one_in_one_go(tmp_path, monkeypatch):
    algorithm, experience = counting(-1), in_twin(ENVIRONMENT, 4, (4,))
    file, saved = tmp_path / "kept.npz", []
    save = Checkpoint.save

    def dying(checkpoint, record):
        save(checkpoint, record)
        saved.append(int(record.done))
        if saved == [2, 4]:
            raise Killed

    monkeypatch.setattr(Checkpoint, "save", dying)
    with pytest.raises(Killed):
        train_kept(KEY, algorithm, experience, 5, file, updates_per_save=2)
    found = train_kept(KEY, algorithm, experience, 5, file, updates_per_save=2)
    assert saved == [2, 4, 5]
    assert_same_bits(found, train(KEY, algorithm, experience, 5))
    assert_same_bits(found, train_kept(KEY, algorithm, experience, 5, None))


@pytest.mark.slow
def test_divergence_stops_between_chunks_and_keeps_what_was_good(tmp_path):
    file = tmp_path / "checkpoint.npz"
    experience = in_twin(ENVIRONMENT, 2, (2,))

    def run(algorithm):
        return train_selecting(KEY, algorithm, experience, 9, float, updates_per_look=3, checkpoint=file)

    with pytest.raises(TrainingError, match="diverged") as caught:
        run(counting(5))
    assert "updates 3 to 5" in caught.value.where
    selected = run(counting(100))
    assert selected.evaluations.tolist() == [0.0, 3.0, 6.0, 9.0]
    assert float(selected.best) == 9.0
    assert selected.info["seen"].shape == (9,)


@pytest.mark.slow
def test_experience_from_logs_draws_whole_streams_without_replacement():
    algorithm = counting(-1)
    log = jax.jit(lambda: rollout(KEY, ENVIRONMENT, algorithm.policy(None), 3, (6,)))()
    log = log._replace(elapsed_s=jnp.broadcast_to(10.0 ** jnp.arange(6.0)[None], (3, 6)))
    _, info = train(KEY, algorithm, from_logs(log, 2), 40)
    digits = [f"{round(float(total) / 3):06d}" for total in info["seen"]]
    assert all(sorted(number) == sorted("000011") for number in digits)
    assert len(set(digits)) > 5
    _, info = train(KEY, algorithm, from_logs(log, 6), 1)
    assert float(info["seen"][0]) == 3 * 111111
    with pytest.raises(TrainingError, match="cannot draw 7 streams from a trajectory of 6"):
        from_logs(log, 7)


def test_two_algorithms_that_train_side_by_side_keep_their_programs():
    one, other = counting(1), counting(2)
    program = updates(one, 3)
    updates(other, 3)
    assert updates(one, 3) is program


def test_arrays_come_back_by_name_and_damage_is_told(tmp_path):
    file = tmp_path / "arrays.npz"
    tree = {"a": [np.arange(3), np.float32(2)], "curves": {"b": np.zeros((4, 2))}}
    save_arrays(file, tree)
    assert [path.name for path in tmp_path.iterdir()] == ["arrays.npz"]
    assert_same_bits(load_arrays(file, tree), tree)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), tree)
    assert_same_bits(load_arrays(file, shapes), tree)
    shorter = {**tree, "curves": {"b": np.ones((1, 2))}}
    assert_same_bits(load_arrays(file, shorter, growing=("curves",)), tree)
    with pytest.raises(ProductError, match=r"curves/b is float64\(4, 2\), not float64\(1, 2\)"):
        load_arrays(file, shorter)
    with pytest.raises(ProductError, match="c is missing"):
        load_arrays(file, {**tree, "c": np.zeros(1)})
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ProductError, match="cannot read the arrays"):
        load_arrays(file, tree)
    np.savez(file, a=np.array([{}], object))
    with pytest.raises(ProductError, match="cannot read the arrays"):
        load_arrays(file, tree)
