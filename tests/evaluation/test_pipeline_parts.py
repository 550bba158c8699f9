"""Parts of the main job, each made again by itself: tasks, seeds, estimates, policies of one's own."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evaluation.commands import cli
from evaluation.comparison.products import load_comparison
from evaluation.comparison.shifts import ShiftConfig, answerable
from evaluation.comparison.training_days import plan_of
from evaluation.jobs.engine.config import EngineConfig
from evaluation.problems.configuration import LogConfig
from evaluation.problems.placement.shifted import fit_beside
from evaluation.problems.placement.starting import start_beside
from logs_schema import Archive
from logs_schema.mapping import TaskMap, one_by_one
from logs_schema.product import read_manifest
from logs_schema.progress import SilentProgress
from offline_rl.recipes.config import TrainingConfig
from offline_rl.recipes.schedulers import Schedulers, load_schedulers
from offline_rl.recipes.training import start_of, train_contenders
from tests.evaluation.tiny_job import KNOWING, TINY, WITH_SHIFTED, do, make_small
from twin.placement.model import PlacementTwin, fit_twin


@pytest.mark.slow
def test_tasks_make_what_one_process_makes(
    products: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks of seeds, judges and parts of the certificate, run here one by one: the same products, every byte."""
    make_small(monkeypatch)
    shutil.copytree(products["archive"].parents[1], tmp_path / "one")
    made = do(tmp_path / "one", WITH_SHIFTED)
    ran: list[str] = []

    @contextmanager
    def here(*_: Any) -> Iterator[TaskMap]:
        def run_tasks(task: Callable[[Any], Any], items: Sequence[Any], name: str = "") -> Iterator[Any]:
            ran.extend(f"{name}: {item.name if name != 'judge' else item.judge}" for item in items)
            return one_by_one(task, items, name)

        yield run_tasks

    monkeypatch.setattr("evaluation.jobs.unfinished.tasks_on", here)
    found = do(tmp_path / "tasks", replace(WITH_SHIFTED, engine=EngineConfig(workers=2)))
    for step in ("certificate", "policy", "comparison", "bundle"):
        assert read_manifest(found[step]).content_hash == read_manifest(made[step]).content_hash, step
    judged = load_comparison(made["comparison"])
    for shift, says in ((0, True), (30, False)):
        cell = judged.cell("twin of shifted days", shift, "twin", "on_time")
        assert (cell is not None and cell.value is not None) == says
    judges = ("truth", "replay", "twin of shifted days", "training twin", "off policy")
    assert {"train: seed 3", *(f"judge: {judge}" for judge in judges)} <= set(ran)
    assert sum(one.startswith("certify") for one in ran) == 3


@pytest.mark.slow
def test_every_policy_is_estimated_off_policy_or_declined(
    products: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    shutil.copytree(products["archive"].parents[1], tmp_path, dirs_exist_ok=True)
    found = do(tmp_path, replace(TINY, judge=replace(TINY.judge, off_policy_updates=20)))
    comparison = load_comparison(found["comparison"])
    names = {policy.name for policy in comparison.policies}
    told = {(row.policy, row.method): row for row in comparison.off_policy if row.shift_days == 0}
    assert {policy for policy, _ in told} == names - {"history"} - {one.name for one in KNOWING}
    for row in told.values():
        assert (row.estimate.value is None) == row.estimate.reason.startswith("declines")
    assert told["twin", "importance sampling over 20"].estimate.reason.startswith("declines")
    assert all(row.estimated for row in comparison.off_policy)  # a simulated log hides its propensities
    assert "declines:" in found["report"].read_text()


def trained(twin: PlacementTwin, config: TrainingConfig, keep: Path | None = None) -> Schedulers:
    key = jax.random.key(TINY.seed)
    return train_contenders(key, twin, config, SilentProgress(), keep=keep).ranked(
        SilentProgress(), is_trusted=True
    )


@pytest.fixture(scope="module")
def schedulers(products: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Schedulers:
    """As the job trains them, but by two seeds, stopped and gone on with in between, and from the log alone as well."""
    twin, keep = PlacementTwin.load(products["twin"]), tmp_path_factory.mktemp("unfinished")
    one = replace(TINY.train, seeds=(0,))
    both = replace(TINY.train, seeds=(0, 3), from_logs=("cql",), from_logs_updates=2)
    first = trained(twin, one, keep)
    assert {"clone.npz", "seed-0.npz"} <= {file.name for file in keep.iterdir()}
    found = trained(twin, both, keep)
    assert_same_seed(found, 0, first)
    return found


def assert_same_seed(both: Schedulers, row: int, alone: Schedulers) -> None:
    """The same bits for one of two seeds as for that seed trained alone, and the same clone."""
    for name in ("trained", "reward_curve", "kl_curve", "held_out_curve"):
        of_both = jax.tree.map(lambda leaf: leaf[row], getattr(both, name))
        jax.tree.map(
            np.testing.assert_array_equal, of_both, jax.tree.map(lambda leaf: leaf[0], getattr(alone, name))
        )
    jax.tree.map(np.testing.assert_array_equal, both.clone, alone.clone)


@pytest.mark.slow
def test_the_same_key_gives_the_same_bits_whatever_seeds_stand_beside(
    products: dict[str, Path], schedulers: Schedulers
) -> None:
    """Trained anew: the job's own policy may come from less optimised programs (see `tests/conftest.py`)."""
    twin = PlacementTwin.load(products["twin"])
    alone = trained(twin, TINY.train)
    assert_same_seed(schedulers, 1, alone)


@pytest.mark.slow
def test_training_may_leave_out_policies_from_the_clone(products: dict[str, Path]) -> None:
    twin = PlacementTwin.load(products["twin"])
    found = trained(twin, replace(TINY.train, num_updates=0, residual_updates=2))
    assert found.num_trained == 0
    assert {"bc_greedy", "residual"} <= set(found.ladder)
    assert "twin" not in found.ladder


@pytest.mark.slow
def test_every_seed_learns_its_own_policy_from_the_same_clone(schedulers: Schedulers) -> None:
    first, second = schedulers.reward_curve  # what is kept may be the clone, where no look was better
    assert not np.array_equal(first, second)
    assert schedulers.reward_curve.shape == schedulers.kl_curve.shape == (2, 2)
    assert np.all(schedulers.kl_curve[:, 0] < 0.05)
    assert schedulers.held_out_curve.shape == (2, 3)
    assert set(schedulers.from_logs) == {"cql"}
    for params in schedulers.from_logs.values():
        assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, schedulers.trained)


@pytest.mark.slow
def test_a_log_without_a_choice_ends_with_the_comparison(products: dict[str, Path], tmp_path: Path) -> None:
    archive = Archive(products["archive"] / "archive")
    nodes = archive.nodes()
    rows = archive.read("requests")
    label = pa.array([nodes["node_id"][0].as_py()] * len(rows)).dictionary_encode()
    alone = pa.ListArray.from_arrays(np.arange(len(rows) + 1), label)
    for column, values in (("offered_node", label), ("ran_node", label), ("candidates", alone)):
        rows = rows.set_column(rows.column_names.index(column), column, values)
    folder = tmp_path / "log"
    folder.mkdir()
    for table, content in (("nodes", nodes), ("requests", rows)):
        pq.write_table(content, folder / f"{table}.parquet")
    config = replace(TINY, log=LogConfig(format="native", paths=("log",)), shifts=ShiftConfig("0d"))
    made = do(tmp_path, config)
    assert "policy" not in made
    assert "bundle" not in made
    page = made["report"].read_text()
    assert "no choice of node: every request of the training days had one legal node" in page


@pytest.mark.slow
def test_policies_of_ones_own_stand_beside_ours(
    products: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The bundle, judged as anybody's, is worth what the policy is that it was exported from."""
    (tmp_path / "policies_of_mine.py").write_text(
        "import jax.numpy as jnp\n\n\n"
        "def first(key, observation, legal):\n    return jnp.argmax(legal, axis=0)\n\n\n"
        "def last(key, observation, legal):\n    return jnp.full(legal.shape[1:], legal.shape[0])\n"
    )
    (tmp_path / "short.toml").write_text(
        '[shifts]\nshifts = "0d"\n[judge]\ncopies = 2\nnum_steps = 64\nnum_fit_steps = 20\noff_policy_updates = 0\n'
    )
    monkeypatch.chdir(tmp_path)
    words = (
        products["archive"] / "archive", products["twin"], products["policy"], "--config", "short.toml", "--out", "out",
        "--policy", "first=policies_of_mine:first", "--policy", "last=policies_of_mine:last",
        "--policy", f"old={products['bundle'] / 'bundle'}", "--no-progress",
    )  # fmt: skip
    assert cli.main(["compare", *map(str, words)]) == 2
    assert "'last' chose a node that is not legal" in capsys.readouterr().err
    comparison = load_comparison(tmp_path / "out")
    assert set(comparison.refused) == {"last"}
    for judge in ("replay", "twin of shifted days", "training twin", "truth"):
        cells = [comparison.cell(judge, 0, name, "on_time") for name in ("old", "ladder", "first", "last")]
        assert cells[0] == cells[1], judge
        assert cells[2] is not None, judge
        assert cells[3] is None, judge


@pytest.mark.slow
def test_a_training_begun_beside_the_fit_begins_at_the_twins_own_log_and_its_clone(
    products: dict[str, Path],
) -> None:
    twin = PlacementTwin.load(products["twin"])
    key, windows = jax.random.key(TINY.seed), twin.disjoint_windows()
    wanted = start_of(key, windows, twin.encoding, TINY.train, SilentProgress())
    begun = start_beside(products["archive"] / "archive", TINY).result()
    jax.tree.map(np.testing.assert_array_equal, begun.history, wanted.history)
    jax.tree.map(np.testing.assert_array_equal, begun.clone, wanted.clone)
    jax.tree.map(np.testing.assert_array_equal, begun.clone, load_schedulers(products["policy"])[0].clone)


@pytest.mark.slow
def test_twins_of_shifted_days_fitted_beside_the_training_are_those_fitted_alone(
    products: dict[str, Path],
) -> None:
    archive, twin = Archive(products["archive"] / "archive"), PlacementTwin.load(products["twin"])
    (shift,) = answerable(plan_of(archive, twin.encoding.train_days, TINY.shifts))
    key = jax.random.fold_in(jax.random.key(TINY.judge.seed), shift.shift_days)
    config = replace(twin.config, num_steps=WITH_SHIFTED.judge.num_fit_steps)
    alone = fit_twin(key, archive, twin.encoding, shift.days, config, num_steps=TINY.days.num_steps)
    begun = fit_beside(archive.path, products["twin"], WITH_SHIFTED).result()
    assert list(begun) == [shift.name]
    jax.tree.map(np.testing.assert_array_equal, begun[shift.name].model, alone.model)
    assert len(begun[shift.name].report.train_log_likelihood) == config.num_steps // config.evaluate_every
