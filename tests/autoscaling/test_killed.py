"""A training that is killed goes on with the seeds that are missing, a comparison with the autoscalers."""

from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.comparison.entries import PolicyFacts
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.problems.autoscaling import comparing
from logs_schema.progress import SilentProgress
from offline_rl.autoscaling.config import ScaleConfig
from offline_rl.autoscaling.students import Students
from offline_rl.recipes import scaling_training
from offline_rl.recipes.scaling_task import ScalingTask
from offline_rl.rules.autoscaling import published
from tests.autoscaling.test_twin import CONFIG, LIMITS, LOG
from twin.autoscaling.fitting import LawsConfig, coverage_of, fit_laws
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.workload import fit_load


@pytest.fixture(scope="module")
def system():
    """A twin, the log that it was fitted to, and a task."""
    laws = fit_laws(LOG, LawsConfig(members=1, updates=1))
    twin = ApplicationTwin(LOG.deployments, LOG.interval_s, laws, fit_load(LOG), coverage_of(LOG, laws))
    return twin, LOG, ScalingTask(CONFIG, LIMITS)


def test_a_training_that_is_killed_keeps_its_networks(monkeypatch, tmp_path, system):
    """Parameters come from the file, so that they are the same after a kill."""
    made, dies_at = [], 3

    def learned(name, result):
        def make(*arguments):
            made.append(name)
            if len(made) == dies_at:
                raise KeyboardInterrupt
            return result({"params": {"bias": jnp.arange(3.0) + len(name)}})

        return make

    for name in ("teach", "students_of"):
        monkeypatch.setattr(scaling_training, name, learned(name, lambda params: Students(params, None)))
    monkeypatch.setattr(
        scaling_training, "train_teacher", learned("train_teacher", lambda params: (params, None))
    )
    monkeypatch.setattr(scaling_training, "teacher_of", learned("teacher_of", lambda params: params))

    def train(keep):
        return scaling_training._trained(*system, ScaleConfig(), None, 7, lambda *_: None, keep)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path)
    found = train(tmp_path)
    assert made == ["train_teacher", "teach", "teach", "teach", "teacher_of", "students_of"]
    calm = train(None)
    assert jax.tree.structure(found) == jax.tree.structure(calm)
    jax.tree.map(np.testing.assert_array_equal, found, calm)


def test_a_calibration_that_is_killed_keeps_its_settings(monkeypatch, tmp_path, system):
    searched = []

    def search(grid, *_, **__):
        searched.append(len(grid))
        return 3

    monkeypatch.setattr(published, "calibrated", search)
    twin, log, task = system

    def chosen(keep):
        rules = published.autoscalers(*task, twin, log, 1, ("hpa_calibrated", "hpa_sized"), keep)
        return {name: make().chosen for name, make in rules.items()}

    first, again = chosen(tmp_path), chosen(tmp_path)
    assert first == again == chosen(None)
    assert searched == 2 * [len(published.POD_GRID), len(published.SIZED_GRID)]


def test_a_comparison_that_is_killed_loses_one_autoscaler(monkeypatch, tmp_path):
    """The user's own play again: the name of a function does not identify its code."""
    days = [comparing.Day("twin", shift, np.arange(8), lambda *_: None, None) for shift in (0, 1)]
    ours = [
        comparing.ComparedAutoscaler(PolicyFacts(name, "baseline", ""), []) for name in ("hpa", "lookahead")
    ]
    users = comparing.ComparedAutoscaler(PolicyFacts("mine", "baseline", ""), [], is_users=True)
    archive = SimpleNamespace(path=Path("log"), content_hash="", num_rows=lambda _table: 0)
    monkeypatch.setattr(comparing, "_days", lambda *_: ((), days))
    played, dies_at = [], 5

    def sums(day, _task, _autoscalers, _reward, _seed, name):
        played.append((day.shift_days, name))
        if len(played) == dies_at:
            raise KeyboardInterrupt
        values = np.sin(np.arange(8) * len(name) + day.shift_days)
        return {part: values + place for place, part in enumerate(comparing.SUMS)}

    def compare(keep):
        return comparing.compare_autoscalers(
            archive, [], [], None, ["a"], [*ours, users], None, SilentProgress(), keep=keep
        )

    monkeypatch.setattr(comparing, "_sums", sums)
    keep = Unfinished(tmp_path / "units")
    with pytest.raises(KeyboardInterrupt):
        compare(keep)
    found = compare(keep)
    assert played[dies_at:] == [(0, "mine"), (1, "lookahead"), (1, "mine")]
    assert found == compare(NOTHING_KEPT)
