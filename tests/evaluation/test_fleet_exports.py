"""What is kept of an export: the products that its bundle was made from, and none of another day."""

from pathlib import Path
from typing import Any

import pytest

from evaluation.jobs.job import run_steps
from evaluation.pipeline.fleet import refreshing
from evaluation.pipeline.fleet.config import FleetCluster
from evaluation.pipeline.fleet.exports import folder_of, keep_export
from evaluation.pipeline.fleet.refreshing import refresh_cluster
from evaluation.pipeline.refresh.job import FOLDER
from logs_schema.product import MANIFEST, read_manifest
from logs_schema.progress import SilentProgress
from offline_rl.bundle import read_bundle
from tests.evaluation.fleets import EXPORTED, FAILED, KEPT, decision_of, made_fleet, steps_of

WHOLE = ["bundle", "candidate", "certificate", "decision", "policy", "twin"]


def made(work: Path, number: int, comes_to: str) -> None:
    """The products of a refresh, as the command or a refresh that is killed at its end leaves them."""
    run_steps(steps_of(number, comes_to), work / FOLDER, SilentProgress())


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def refresh_of(cluster: FleetCluster, number: int, comes_to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fleet's refresh of a cluster, whose job makes such products."""

    def job(*_: Any, options: Any) -> Any:
        made(cluster.work, number, comes_to)
        return decision_of(comes_to), {}

    monkeypatch.setattr(refreshing, "refresh", job)
    refresh_cluster(cluster, SilentProgress())


@pytest.mark.parametrize("then", [EXPORTED, KEPT, FAILED])
def test_an_export_that_was_not_kept_is_kept_before_the_next_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    (cluster,) = made_fleet(tmp_path, {"a": EXPORTED}).clusters
    made(cluster.work, 1, EXPORTED)
    bundle = read_bundle(cluster.work / FOLDER / "bundle" / "bundle").content_hash
    refresh_of(cluster, 2, then, monkeypatch)
    kept = folder_of(cluster.work, bundle)
    assert names(kept) == WHOLE
    assert (kept / "twin" / "text").read_text() == "twin 1"
    assert (kept / "decision" / "text").read_text() == EXPORTED
    assert (
        read_manifest(kept / "bundle").made_from["candidate"]
        == read_manifest(kept / "candidate").content_hash
    )
    assert len(names(cluster.work / "exports")) == (2 if then == EXPORTED else 1)


def test_a_bundle_is_never_kept_with_the_products_of_another_day(tmp_path: Path) -> None:
    work = tmp_path / "work"
    made(work, 1, EXPORTED)
    made(work, 2, KEPT)  # another candidate, from another policy, twin and certificate
    kept = keep_export(work)
    assert kept is not None
    assert names(kept) == ["bundle"]


def test_of_a_day_that_trained_nothing_its_twin_and_decision_are_not_kept(tmp_path: Path) -> None:
    work = tmp_path / "work"
    made(work, 1, EXPORTED)
    made(work, 2, FAILED)
    kept = keep_export(work)
    assert kept is not None
    assert names(kept) == ["bundle", "candidate", "policy"]


def test_a_damaged_export_does_not_hold_up_the_next_refresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cluster,) = made_fleet(tmp_path, {"a": EXPORTED}).clusters
    made(cluster.work, 1, EXPORTED)
    (cluster.work / FOLDER / "bundle" / "bundle" / MANIFEST).write_text("{")
    refresh_of(cluster, 2, EXPORTED, monkeypatch)
    assert len(names(cluster.work / "exports")) == 1
