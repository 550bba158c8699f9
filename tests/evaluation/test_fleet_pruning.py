"""Pruning: what a running bundle was made from stays, whatever else goes; nothing is lost wherever it is stopped."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from evaluation.commands.cli import main
from evaluation.jobs.engine.config import HERE
from evaluation.jobs.unfinished import Unfinished
from evaluation.pipeline.fleet.config import Fleet, load_fleet
from evaluation.pipeline.fleet.holdings import Holding, What
from evaluation.pipeline.fleet.keeping import _current, _with_ancestors
from evaluation.pipeline.fleet.outcomes import now, write_outcome
from evaluation.pipeline.fleet.pruning import PrunePlan, plan_of, prune, running_hashes
from evaluation.pipeline.refresh.job import FOLDER
from logs_schema.atomic_folders import locked_folder, try_lock
from logs_schema.errors import ProductError
from logs_schema.packs import as_written
from logs_schema.product import Manifest, read_manifest, verify, writing
from tests.evaluation.fleets import EXPORTED, FAILED, KEPT, made_fleet, order, outcome_at, refreshed
from tests.evaluation.stopped_points import die_at
from tests.serving.bundles import make_bundle


def history_of_exports(folder: Path, number: int, keep: int = 0, last: str = KEPT) -> Fleet:
    """A cluster after some exports, and a refresh that exported nothing."""
    fleet = made_fleet(folder, {"a": EXPORTED}, f"keep_exports = {keep}")
    for index in range(number):
        order(folder, "a", index, EXPORTED)
        refreshed(fleet.clusters[0])
    order(folder, "a", number, last)
    refreshed(fleet.clusters[0])
    return fleet


def planned(fleet: Fleet) -> PrunePlan:
    return plan_of(fleet.clusters[0], running_hashes(fleet.clusters), fleet.settings.keep_exports)


def goes(plan: PrunePlan, work: Path) -> set[str]:
    return {one.path.relative_to(work).as_posix() for one in plan.fates if one.goes}


def everything(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): b"" if path.is_dir() or path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    lock = try_lock(folder)
    assert lock is not None
    yield
    os.close(lock)


def test_what_the_running_bundle_was_made_from_stays_and_older_exports_go(tmp_path: Path) -> None:
    fleet = history_of_exports(tmp_path, 3)
    work, before = fleet.clusters[0].work, everything(tmp_path)
    running = fleet.clusters[0].running
    assert running is not None
    mine = f"exports/{read_manifest(running).content_hash[:16]}"
    plan = planned(fleet)
    others = {one.name for one in (work / "exports").iterdir()} - {Path(mine).name}
    names = ("bundle", "candidate", "certificate", "decision", "policy", "twin")
    assert goes(plan, work) == {f"exports/{other}/{name}" for other in others for name in names}
    why = {one.path.relative_to(work).as_posix(): one.why for one in plan.fates}
    assert why[f"{mine}/bundle"] == "the running bundle of a"
    assert why[f"{mine}/twin"] == "policy was made from it, for the running bundle of a"
    assert why["refresh/history"] == "an archive is never removed"
    assert why["refresh/twin"] == "the next job goes on from it"
    assert everything(tmp_path) == before

    prune(fleet, fleet.clusters, apply=True)
    assert [one.name for one in (work / "exports").iterdir()] == [Path(mine).name]
    chain = [work / mine / name for name in ("bundle", "candidate", "policy", "twin")]
    for made, source in pairwise(chain):
        assert read_manifest(made).made_from[source.name] == verify(source).content_hash
    assert goes(planned(fleet), work) == set()
    assert refreshed(fleet.clusters[0]).result.value == KEPT


def test_as_many_exports_are_kept_as_the_file_says(tmp_path: Path) -> None:
    fleet = history_of_exports(tmp_path, 4, keep=3)
    work = fleet.clusters[0].work
    prune(fleet, fleet.clusters, apply=True)
    kept = list((work / "exports").iterdir())
    assert len(kept) == 3
    assert all(len(list(one.iterdir())) == 6 for one in kept)


def test_a_bundle_that_runs_elsewhere_keeps_its_export(tmp_path: Path) -> None:
    """The oldest export was gone back to, from a copy of another cluster's."""
    fleet = history_of_exports(tmp_path, 3)
    work = fleet.clusters[0].work
    oldest = next(
        one for one in (work / "exports").iterdir() if (one / "twin" / "text").read_text() == "twin 0"
    )
    shutil.copytree(oldest / "bundle" / "bundle", tmp_path / "deployed")
    file = tmp_path / "fleet.toml"
    other = '[[clusters]]\nname = "b"\nconfig = "job.toml"\nlog = "decisions/a"\nwork = "work/b"\nbundle = "deployed"\n'
    file.write_text(file.read_text() + "\n" + other)
    fleet = load_fleet(file)
    prune(fleet, fleet.clusters, apply=True)
    assert len(list(oldest.iterdir())) == 6
    assert len(list((work / "exports").iterdir())) == 2


@pytest.mark.parametrize("name", ["jobs", "exports"])
def test_the_last_export_stays_whatever_its_work_folder_is_called(tmp_path: Path, name: str) -> None:
    fleet = history_of_exports(tmp_path, 2)
    fleet.clusters[0].work.rename(tmp_path / name)
    make_bundle(tmp_path / "deployed", seed=99)
    (cluster,) = fleet.clusters
    moved = replace(cluster, work=tmp_path / name, bundle=tmp_path / "deployed")
    plan = plan_of(moved, running_hashes([moved]), 0)
    why = {one.path.relative_to(moved.work).as_posix(): one.why for one in plan.fates}
    assert why["refresh/bundle"] == "the last export"
    gone = goes(plan, moved.work)
    assert not {one for one in gone if one.startswith("refresh/")}
    prune(replace(fleet, clusters=(moved,)), [moved], apply=True)
    assert (moved.work / "refresh" / "bundle" / "manifest.json").is_file()


def test_products_made_from_what_is_gone_go(tmp_path: Path) -> None:
    """After a failed certificate the policy of an earlier refresh lies there, whose twin was replaced."""
    fleet = made_fleet(tmp_path, {"a": KEPT})
    work = fleet.clusters[0].work
    refreshed(fleet.clusters[0])
    order(tmp_path, "a", 1, FAILED)
    refreshed(fleet.clusters[0])
    plan = planned(fleet)
    assert goes(plan, work) == {"refresh/policy", "refresh/candidate"}
    size = sum(
        file.stat().st_blocks * 512
        for name in ("policy", "candidate")
        for file in (work / FOLDER / name).rglob("*")
        if file.is_file()
    )
    assert plan.bytes_freed == size > 0


def test_files_with_links_elsewhere_free_nothing(tmp_path: Path) -> None:
    fleet = history_of_exports(tmp_path, 2)
    plan = planned(fleet)
    (first,) = (one for one in plan.fates if one.goes and one.path.name == "twin")
    assert first.bytes_freed > 0  # replaced in the work folder, so this is its last link
    twins = [one.path for one in plan.fates if one.goes and one.path.name == "twin"]
    os.link(twins[0] / "text", tmp_path / "text")
    (again,) = (one for one in planned(fleet).fates if one.goes and one.path.name == "twin")
    assert again.bytes_freed == first.bytes_freed - (twins[0] / "text").stat().st_blocks * 512


def test_everything_of_an_unfinished_refresh_stays(tmp_path: Path) -> None:
    fleet = history_of_exports(tmp_path, 1)
    work = fleet.clusters[0].work
    shutil.rmtree(work / FOLDER / "decision")
    shutil.rmtree(work / FOLDER / "twin")
    assert not {path for path in goes(planned(fleet), work) if path.startswith("refresh/")}


def test_what_is_no_product_and_no_step_is_left_alone(tmp_path: Path) -> None:
    """Links are not followed, folders of others and their files are not touched, archives never removed."""
    fleet = made_fleet(tmp_path, {"a": KEPT})
    work = fleet.clusters[0].work
    refreshed(fleet.clusters[0])
    order(tmp_path, "a", 1, FAILED)
    refreshed(fleet.clusters[0])
    outside = tmp_path / "outside"
    shutil.copytree(work / FOLDER / "policy", outside / "policy")
    (work / "comparison").symlink_to(outside / "policy")
    (work / "exports").symlink_to(outside)
    (work / "notes").mkdir()
    (work / "notes" / "text").write_text("mine")
    (work / FOLDER / "policy" / "mine.txt").write_text("mine")
    (work / FOLDER / "candidate" / "link").symlink_to(outside)
    with (
        writing(work / "policy", "policy", made_from={"twin": "1f"}) as folder,
        writing(folder / "a", "archive"),
    ):
        pass
    with writing(work / "my-twin", "twin", made_from={"archive": "1f"}):
        pass
    before = everything(tmp_path)
    plan = planned(fleet)
    assert goes(plan, work) == set()
    why = {one.path.relative_to(work).as_posix(): one.why for one in plan.fates}
    assert why["comparison"] == why["exports"] == "left alone: a link, not followed"
    assert why["notes"] == "left alone: a folder without manifest.json"
    assert why["refresh/policy"] == "left alone: it holds mine.txt, which its manifest does not name"
    assert why["refresh/candidate"] == "left alone: it holds link, which its manifest does not name"
    assert why["policy"] == "an archive is never removed"
    assert why["my-twin"] == "not a step of a job"
    prune(fleet, fleet.clusters, apply=True)
    assert everything(tmp_path) == before


def test_a_damaged_manifest_stops_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = history_of_exports(tmp_path, 2)
    manifest = next((fleet.clusters[0].work / "exports").rglob("twin/manifest.json"))
    manifest.write_text(manifest.read_text().replace("twin", "twim", 1))
    before = everything(tmp_path)
    with pytest.raises(ProductError, match="does not agree with its own hash"):
        prune(fleet, fleet.clusters, apply=True)
    assert main(["fleet", "prune", str(tmp_path / "fleet.toml"), "--apply"]) == 2
    assert str(manifest) in capsys.readouterr().err
    assert everything(tmp_path) == before


def test_remains_and_units_go_once_nobody_can_want_them(tmp_path: Path) -> None:
    fleet = history_of_exports(tmp_path, 1, keep=9)
    (cluster,) = fleet.clusters
    place = cluster.work / FOLDER
    dead, lock = locked_folder(place / "twin")
    os.close(lock)
    alive, lock = locked_folder(place / "twin")
    (place / ".twin.00000000.replaced").mkdir()
    (place / ".lost.00000000.replaced").mkdir()
    Unfinished.beside(place / "policy", "policy", {}, {}, 0, HERE).tree("a", lambda: np.zeros(1), lambda: 0)
    (units,) = place.glob(".unfinished-*")
    assert goes(planned(fleet), place) == {dead.name, ".twin.00000000.replaced"}
    write_outcome(cluster.work, outcome_at(now().replace(year=2099)))  # a refresh that began after all of it
    assert goes(planned(fleet), place) == {dead.name, ".twin.00000000.replaced", units.name}
    write_outcome(cluster.work, outcome_at(now().replace(year=2099), result="error"))
    assert goes(planned(fleet), place) == {dead.name, ".twin.00000000.replaced"}
    prune(fleet, fleet.clusters, apply=True)
    assert (dead.exists(), alive.exists()) == (False, True)
    os.close(lock)


def test_nothing_is_removed_while_a_job_is_at_work(tmp_path: Path) -> None:
    fleet = history_of_exports(tmp_path, 2)
    work = fleet.clusters[0].work
    before = everything(tmp_path)
    for folder in (work, work / "fleet"):
        folder.mkdir(exist_ok=True)
        with locked(folder):
            assert [one.busy for one in prune(fleet, fleet.clusters, apply=True)] == [True]
    assert set(everything(tmp_path)) - set(before) <= {"work/a/fleet"}


def test_ancestors_are_the_transitive_closure() -> None:
    """Against powers of the adjacency matrix, on random graphs."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        edges = np.triu(rng.random((12, 12)) < 0.2, 1)  # edges[i, j]: i was made from j
        closure = np.linalg.matrix_power(edges.astype(float) + np.eye(12), 12) > 0
        products = [
            Holding(
                Path(f"/nowhere/{index}"),
                What.PRODUCT,
                Manifest(
                    "kind",
                    content_hash=f"hash {index}",
                    made_from={f"{other}": f"hash {other}" for other in np.flatnonzero(row)},
                ),
            )
            for index, row in enumerate(edges)
        ]
        for index in range(12):
            found = {int(path.name) for path, _ in _with_ancestors(products[index].path, products)}
            assert found == set(np.flatnonzero(closure[index]).tolist())


def test_what_was_made_from_an_archive_stays_where_the_archive_was_compacted() -> None:
    piece = {"first_group": 0, "num_groups": 1, "num_bytes": 1, "sha256": "a"}
    packed = Manifest("archive", files={"pack": "p"}, extra={"packs": {"pack": {"file": piece}}})
    twin = Manifest("twin", made_from={"archive": as_written(packed).content_hash})
    products = [
        Holding(Path("/nowhere/archive"), What.PRODUCT, packed),
        Holding(Path("/nowhere/twin"), What.PRODUCT, twin),
    ]
    assert _current(products) == {one.path for one in products}
    assert [path.name for path, _ in _with_ancestors(products[1].path, products)] == ["twin", "archive"]


def test_the_command_shows_first_and_removes_only_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = history_of_exports(tmp_path, 2)
    words = ["fleet", "prune", str(tmp_path / "fleet.toml")]
    before = everything(tmp_path)
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert everything(tmp_path) == before
    gone = {one["path"] for one in told["clusters"][0]["entries"] if one["goes"]}
    assert main([*words, "--all"]) == 0
    shown = capsys.readouterr().out
    assert "the running bundle of a" in shown
    assert "--apply removes them" in shown
    assert main([*words, "--apply"]) == 0
    assert f"{len(gone)} removed" in capsys.readouterr().out
    assert not [path for path in gone if Path(path).exists()]
    assert main(words) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    assert fleet.clusters[0].running is not None


class Killed(BaseException):
    """Nothing catches this, as nothing catches a kill."""


def killed() -> None:
    raise Killed


@pytest.mark.slow
def test_killed_at_any_point_it_leaves_products_whole_and_the_next_call_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    history_of_exports(made, 2)
    number, was_killed, ends = 0, True, set[str]()
    while was_killed:
        here = tmp_path / str(number)
        shutil.copytree(made, here)
        fleet, was_killed = load_fleet(here / "fleet.toml"), False
        with monkeypatch.context() as patches:
            die_at(number, killed, ("rename", "rmdir"), patches.setattr)
            try:
                prune(fleet, fleet.clusters, apply=True)
            except Killed:
                was_killed = True
        work = here / "work" / "a"
        for path in (*(work / FOLDER).glob("[!.]*"), *(work / "exports").glob("[!.]*/*")):
            verify(path)
        prune(fleet, fleet.clusters, apply=True)
        ends.add(json.dumps(sorted(everything(here))))
        shutil.rmtree(here)
        number += 1
    assert number > 8
    assert len(ends) == 1
