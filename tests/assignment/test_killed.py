"""A comparison of assignment that is killed loses one scheduler of one judge on one shift."""

import json

import numpy as np
import pytest

from evaluation.comparison.entries import PolicyFacts
from evaluation.comparison.metrics import MEAN_WAIT
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.problems.assignment.compared_assigners import ComparedAssigner, FixedEdges
from evaluation.problems.assignment.comparing import _judged
from evaluation.problems.assignment.kit import ASSIGNMENT_KIT
from evaluation.problems.configuration import load_config
from logs_schema import Archive
from logs_schema.progress import SilentProgress
from tests.assignment.archives import write_log
from tests.assignment.test_kit import TOML
from tests.command import run_silently as run
from tests.dying import Dying, resumed
from tests.evaluation.made import made_decisions


def first_hosting(costs):
    return np.argmax(np.isfinite(costs.work_s), axis=1)


def test_a_comparison_that_is_killed_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    """The user's own plays again: the name of a function does not identify its code."""
    log, twin = write_log(tmp_path / "log", num_days=5, num_rows=120), tmp_path / "twin"
    (tmp_path / "tiny.toml").write_text(
        TOML.replace("0d,2d", "2d").replace("copies = 2", "copies = 1").replace("= 60", "= 24")
    )
    tiny = ("--config", tmp_path / "tiny.toml")
    assert run("fit", log, "--problem", "assignment", "--out", twin, *tiny) == 0
    words = ("compare", log, twin, *tiny, "--policy", f"mine={__name__}:first_hosting")
    saved = resumed(monkeypatch, tmp_path, *words, dies_at=5)
    assert "twin-of-shifted-days--2d--at_once" in saved
    assert not [name for name in saved if "mine" in name]
    assert len(saved) == len(set(saved)) == 8
    found = json.loads((tmp_path / "calm" / "product" / "comparison.json").read_text())
    assert "mine" in {cell["policy"] for cell in found["cells"]}


def test_a_comparison_of_a_refresh_that_is_killed_goes_on_too(tmp_path, monkeypatch):
    log, twin = write_log(tmp_path / "log", num_days=5, num_rows=120), tmp_path / "twin"
    (tmp_path / "tiny.toml").write_text(TOML.replace("= 60", "= 24"))
    tiny = ("--config", tmp_path / "tiny.toml")
    assert run("fit", log, "--problem", "assignment", "--out", twin, *tiny) == 0
    parts = ASSIGNMENT_KIT.refresh(load_config(tmp_path / "tiny.toml"))
    days, dying = tuple(Archive(log).days("requests")[-2:]), Dying(monkeypatch)

    def judge(keep):
        return parts.judge(log, twin, days, first_hosting, first_hosting, SilentProgress(), keep)

    keep, dying.dies_at = Unfinished(tmp_path / "kept"), 3
    with pytest.raises(KeyboardInterrupt):
        judge(keep)
    assert judge(keep) == judge(NOTHING_KEPT)
    first, second, third = (dying.saved[at] for at in range(3))
    # Where nothing is kept it has a folder of its own
    assert dying.saved.count(first) == dying.saved.count(second) == 2
    assert dying.saved.count(third) == 3


def test_what_is_kept_of_several_seeds_is_what_is_judged_without(tmp_path):
    """A run holds the decisions of all its seeds, by which the judges are held against the truth."""
    late = [made_decisions(6, wait_s=np.full(6, wait_s)) for wait_s in (10.0, 30.0)]
    one = ComparedAssigner(PolicyFacts("trained", "trained", ""), late)
    fixed = FixedEdges(np.zeros(6, int), np.zeros(6, int), None)

    def judged(keep):
        (run,) = _judged("twin", 0, [one], fixed, lambda decisions: decisions, {}, keep)
        return run.decisions.num_rows, MEAN_WAIT.compute(run.decisions)

    assert judged(NOTHING_KEPT) == judged(Unfinished(tmp_path / "kept")) == (12, 20.0)
