"""A training that is killed goes on with the seeds that are missing, a comparison with the autoscalers."""

from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.comparison.entries import PolicyFacts
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.problems.autoscaling import comparing, kit
from logs_schema.progress import SilentProgress


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
