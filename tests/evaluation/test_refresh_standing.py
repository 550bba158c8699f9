"""Which decision stands where a refresh is repeated."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.jobs.job import run_steps
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.job import as_exported
from evaluation.pipeline.refresh.standing import DATA, DECISION, forced_export
from logs_schema.product import read_manifest
from logs_schema.progress import SilentProgress
from tests.evaluation.fleets import EXPORTED, KEPT, decision_of, steps_of
from tests.serving.bundles import make_bundle

PLAIN = RefreshConfig()


def made(place: Path, comes_to: str = EXPORTED, **asked: Any) -> Path:
    """The products of a refresh; what it exported."""

    def build(out: Path, inputs: Mapping[str, Path], _: Any) -> Mapping[str, Any]:
        new = read_manifest(inputs["candidate"] / "bundle").content_hash
        (out / DATA).write_text(json.dumps(replace(decision_of(comes_to), new=new).to_json()))
        return {"result": comes_to}

    steps = steps_of(1, comes_to)
    settings = {"accept": "better"} | asked
    steps = [replace(one, build=build, config=settings) if one.name == DECISION else one for one in steps]
    return run_steps(steps, place, SilentProgress())["candidate"] / "bundle"


def test_a_forced_export_stands_while_nothing_that_it_was_based_on_has_changed(tmp_path: Path) -> None:
    running, certificate = made(tmp_path, force=True), tmp_path / "certificate"
    for fitted in (None, certificate):
        found = forced_export(tmp_path, running, PLAIN, fitted)
        assert found is not None
        assert found.result.value == EXPORTED
    make_bundle(tmp_path / "other", seed=9)
    (changed,) = {run_steps(steps_of(2, KEPT)[:3], tmp_path / "later", SilentProgress())["certificate"]}
    for args in (
        (running, RefreshConfig(force=True), None),  # asked to go on
        (running, RefreshConfig(accept="not-worse"), None),
        (None, PLAIN, None),
        (tmp_path / "other", PLAIN, None),  # another policy runs
        (running, PLAIN, changed),
    ):
        assert forced_export(tmp_path, *args) is None
    (tmp_path / "bundle" / "manifest.json").unlink()
    assert forced_export(tmp_path, running, PLAIN, None) is None


def test_the_products_of_an_export_that_stands_are_named_as_those_of_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, force=True)
    monkeypatch.chdir(tmp_path)
    found = as_exported(Path(), {}, SilentProgress())
    assert {"candidate", DECISION, "bundle"} <= set(found)
    assert all(path.is_absolute() for path in found.values())


@pytest.mark.parametrize(("comes_to", "asked"), [(EXPORTED, {}), (KEPT, {"force": True})])
def test_no_other_decision_stands(tmp_path: Path, comes_to: str, asked: dict[str, Any]) -> None:
    running = made(tmp_path, comes_to, **asked)
    assert forced_export(tmp_path, running, PLAIN, None) is None


def test_a_damaged_decision_is_made_again(tmp_path: Path) -> None:
    running = shutil.copytree(made(tmp_path, force=True), tmp_path / "running")
    (tmp_path / DECISION / DATA).write_text("{}")
    assert forced_export(tmp_path, running, PLAIN, None) is None
