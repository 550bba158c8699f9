"""Training the schedulers: what is held out is nowhere else, the same key gives the same bits."""

import datetime as dt
from dataclasses import replace

import jax
import numpy as np
import pytest

from evaluation.progress import SilentProgress
from evaluation.schedulers import Schedulers, best_seed, load_schedulers, save_schedulers
from evaluation.training import TrainingConfig, train_schedulers
from logs_schema.errors import ConfigError
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encode import cut_windows
from twin.placement.fit import fit_answers
from twin.placement.history import labelled_offers
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin

ENSEMBLE = AnswerConfig(num_members=2, hidden=(8,), num_steps=20, evaluate_every=10)
CONFIG = TrainingConfig(
    seeds=(0, 3),
    num_updates=2,
    num_streams=8,
    clone_updates=25,
    clone_streams=2,
    updates_per_look=1,
    from_logs=("cql",),
    from_logs_updates=2,
)


@pytest.fixture(scope="module")
def twin() -> PlacementTwin:
    cluster = made_cluster()
    encoding = made_encoding(cluster, depth=40)
    rows = made_rows(np.random.default_rng(1), cluster, 500)
    rows.request.demand[:] = 0.1
    everything = np.ones(500, bool)
    offers = labelled_offers(cut_windows(rows, everything, encoding, num_steps=32), encoding)
    model, report = fit_answers(jax.random.key(0), offers, encoding, ENSEMBLE)
    windows = cut_windows(rows, everything, encoding, num_steps=32, stride=16)
    return PlacementTwin(encoding, ENSEMBLE, model, windows, report)


@pytest.fixture(scope="module")
def schedulers(twin: PlacementTwin) -> Schedulers:
    return train_schedulers(jax.random.key(5), twin, CONFIG, SilentProgress())


def test_disjoint_windows_share_no_request(twin: PlacementTwin) -> None:
    disjoint = twin.disjoint_windows()
    rows = disjoint.row[disjoint.valid()]
    assert len(np.unique(rows)) == len(rows)
    assert len(rows) >= 0.9 * 500 - 32


def test_every_seed_learns_its_own_policy_from_the_same_clone(schedulers: Schedulers) -> None:
    first, second = schedulers.reward_curve  # what is kept may be the clone, where no look was better
    assert not np.array_equal(first, second)
    assert schedulers.reward_curve.shape == schedulers.kl_curve.shape == (2, 2)
    assert np.all(schedulers.kl_curve[:, 0] < 0.05)
    assert schedulers.held_out_curve.shape == (2, 3)
    assert set(schedulers.from_logs) == {"cql"}
    for params in schedulers.from_logs.values():
        assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, schedulers.trained)


def test_the_same_key_gives_the_same_bits_even_from_what_was_kept(
    twin: PlacementTwin, schedulers: Schedulers, tmp_path
) -> None:
    first = replace(CONFIG, seeds=(0,), from_logs=())
    train_schedulers(jax.random.key(5), twin, first, SilentProgress(), keep=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["seed-0.npz"]
    again = train_schedulers(jax.random.key(5), twin, CONFIG, SilentProgress(), keep=tmp_path)
    jax.tree.map(np.testing.assert_array_equal, schedulers, again)


def test_what_is_saved_is_what_is_loaded(twin: PlacementTwin, schedulers: Schedulers, tmp_path) -> None:
    save_schedulers(schedulers, twin, tmp_path)
    loaded, encoding = load_schedulers(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, schedulers, loaded)
    assert encoding.to_json() == twin.encoding.to_json()
    assert encoding.train_days == (dt.date(2020, 1, 1),)


def test_the_best_seed_is_the_one_whose_kept_policy_did_best(schedulers: Schedulers) -> None:
    curve = np.array([[0.1, 0.5, 0.2], [0.3, 0.4, 0.6]])
    assert best_seed(schedulers._replace(held_out_curve=curve), (7, 8)) == 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"seeds": ()},
        {"seeds": (1, 1)},
        {"num_updates": 0},
        {"network": "transformer"},
        {"from_logs": ("dqn",)},
        {"stray_nodes": -1.0},
    ],
)
def test_impossible_training_is_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        TrainingConfig(**wrong)
