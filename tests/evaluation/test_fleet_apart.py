"""Clusters of a fleet apart: no defect of one, no measurement beside it and no onlooker keeps one from its refresh."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluation.pipeline.fleet.refreshing import refresh_fleet, refresh_one, run_all
from evaluation.pipeline.fleet.states import state_of
from logs_schema.atomic_folders import try_lock
from logs_schema.mapping import one_by_one
from logs_schema.progress import SilentProgress
from tests.evaluation.fleets import EXPORTED, KEPT, made_fleet, obeys, tasks_of


def test_a_decision_stands_where_its_drift_cannot_be_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("no days")

    monkeypatch.setattr("evaluation.pipeline.fleet.refreshing.drift_of", breaks)
    fleet = made_fleet(tmp_path, {"edge": EXPORTED})
    (found,) = run_all(tasks_of(fleet), one_by_one)
    assert found.outcome is not None
    assert (found.outcome.status, found.outcome.result) == (0, EXPORTED)
    assert found.outcome.drift is not None
    assert "no days" in found.outcome.drift.note


def test_a_defect_met_with_one_cluster_s_data_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = made_fleet(tmp_path, {"bad": KEPT, "good": KEPT})

    def breaks(work: Path) -> Iterator[Path]:
        if work.name == "bad":
            raise ZeroDivisionError("by nothing")
        return iter(())

    monkeypatch.setattr("evaluation.pipeline.fleet.config._needed_products", breaks)
    (bad,) = refresh_fleet(fleet, fleet.clusters[:1], SilentProgress(), step=obeys)
    assert bad.outcome is not None
    assert (bad.outcome.status, bad.outcome.reason) == (1, "ZeroDivisionError: by nothing")
    assert [one.trouble for one in state_of(fleet.clusters).clusters] == ["by nothing", ""]


def test_who_only_looks_at_a_cluster_keeps_nobody_from_refreshing_it(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {"edge": KEPT})
    folder = fleet.clusters[0].work / "fleet"
    folder.mkdir(parents=True)
    lock = try_lock(folder)
    assert lock is not None
    threading.Timer(0.02, os.close, [lock]).start()
    assert refresh_one(tasks_of(fleet)[0]).skipped is None
