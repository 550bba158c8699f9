"""What is said of a fleet: metrics, page and table, drift, and what an export was made from."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.commands.cli import main
from evaluation.pipeline.fleet.config import FleetCluster
from evaluation.pipeline.fleet.drifting import drift_of, split_days
from evaluation.pipeline.fleet.metrics import Family, _family_text, as_metrics
from evaluation.pipeline.fleet.outcomes import LogDrift, read_outcome, write_outcome
from evaluation.pipeline.fleet.refreshing import ClusterTask, refresh_one, run_all
from evaluation.pipeline.fleet.showing import as_text, in_age, write_page
from evaluation.pipeline.fleet.states import Phase, state_of
from evaluation.pipeline.refresh.deciding import ExportDecision
from evaluation.pipeline.refresh.job import FOLDER
from logs_schema.mapping import one_by_one
from logs_schema.product import read_manifest, writing
from logs_schema.progress import Progress
from offline_rl.contract import read_contract, write_contract
from tests.evaluation.fleets import (
    EACH,
    EXPORTED,
    FAILED,
    KEPT,
    NOON,
    made_fleet,
    order,
    outcome_at,
    refreshed,
    samples,
    tasks_of,
)
from tests.evaluation.test_survey import write_log
from tests.serving.bundles import make_bundle


def test_metrics_say_the_state_in_prometheus_own_format(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {name: comes_to for name, (comes_to, _) in EACH.items()})
    run_all(tasks_of(fleet), one_by_one)
    state = state_of(fleet.clusters)
    found = samples(as_metrics(state))

    def value(name: str, **labels: str) -> float:
        return found[f"schedtwin_{name}", frozenset(labels.items())]

    assert value("fleet_clusters") == len(EACH)
    assert value("fleet_exit_status") == state.exit_status == 1
    for name, (_, status) in EACH.items():
        assert (
            value("refresh_exit_status", cluster=name) == value("cluster_exit_status", cluster=name) == status
        )
        assert sum(value("refresh_phase", cluster=name, phase=one.value) for one in Phase) == 1.0
    assert value("certificate_verdict", cluster="failed", verdict="fail") == 1.0
    assert value("certificate_verdict", cluster="edge", verdict="fail") == 0.0
    assert value("certificate_verdict", cluster="unsure", verdict="cannot tell") == 1.0
    running = fleet.clusters[0].running
    assert running is not None
    hash_ = read_manifest(running).content_hash
    assert value("bundle_info", cluster="edge", content_hash=hash_, problem="placement") == 1.0
    # Of the first cluster: until the end of the second of January
    twin_day = dt.datetime(2024, 1, 3, tzinfo=dt.UTC)
    assert value("twin_last_day_timestamp_seconds", cluster="edge") == twin_day.timestamp()
    outcome = read_outcome(fleet.clusters[0].work)
    assert outcome is not None
    ended = dt.datetime.fromisoformat(outcome.ended).timestamp()
    assert value("refresh_ended_timestamp_seconds", cluster="edge") == ended


def test_labels_and_numbers_are_read_as_they_were() -> None:
    label = 'a "b" \\ c\nd'
    family = Family("x", "one \\ two")
    for number, value in enumerate((0.1, -1e-300, float("inf"), float("-inf"), 12345678901.5)):
        family.add(value, label=f"{label}{number}")
    family.add(None, label="not there")
    found = samples(_family_text(family))
    assert list(found.values()) == [0.1, -1e-300, float("inf"), float("-inf"), 12345678901.5]
    assert ("schedtwin_x", frozenset({("label", f"{label}0")})) in found


def test_page_table_and_json_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = made_fleet(tmp_path, {name: comes_to for name, (comes_to, _) in EACH.items()})
    run_all(tasks_of(fleet), one_by_one)
    assert main(["fleet", "status", str(tmp_path / "fleet.toml"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["exit_status"] == 1
    assert {one["name"]: one["exit_status"] for one in told["clusters"]} == {
        name: status for name, (_, status) in EACH.items()
    }
    page, table = (tmp_path / "fleet.html").read_text(), as_text(state_of(fleet.clusters))
    running = told["clusters"][0]["running"]["content_hash"]
    assert running in page
    assert running[:12] in table
    for words in ("fail", "cannot tell", "the log is of no use", "ZeroDivisionError: by nothing"):
        assert words in page
        assert words in table
    assert main(["fleet", "status", str(tmp_path / "fleet.toml"), "--cluster", "kept"]) == 10
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["cluster", "kept"]
    assert main(["fleet", "status", str(tmp_path / "fleet.toml"), "--cluster", "kopt"]) == 2
    assert "allowed: edge, kept" in capsys.readouterr().err
    assert samples((tmp_path / "schedtwin.prom").read_text())
    assert not list(tmp_path.glob(".*"))  # nothing that was written aside stays


def test_text_of_others_cannot_write_into_the_page(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {"a": KEPT})
    write_outcome(
        fleet.clusters[0].work, outcome_at(NOON, reason="<script>1</script>", status=2, result="error")
    )
    write_page(state_of(fleet.clusters), fleet.page)
    assert "<script>" not in fleet.page.read_text()
    assert "&lt;script&gt;1" in fleet.page.read_text()


def test_an_error_without_words_is_named_and_shown(tmp_path: Path) -> None:
    def says_nothing(_cluster: FleetCluster, _progress: Progress) -> ExportDecision:
        raise OSError

    fleet = made_fleet(tmp_path, {"edge": KEPT})
    found = refresh_one(ClusterTask(fleet.clusters[0], 7, says_nothing))
    assert found.outcome is not None
    assert found.outcome.reason == "OSError"
    write_outcome(fleet.clusters[0].work, replace(found.outcome, reason=""))  # of an older version
    assert "error" in as_text(state_of(fleet.clusters))


def test_ages_in_words() -> None:
    assert [in_age(one) for one in (-5.0, 0.0, 299.0, 3600.0, 47 * 3600.0, 72 * 3600.0)] == [
        "0 min",
        "0 min",
        "5 min",
        "1 h",
        "47 h",
        "3 d",
    ]


def test_an_export_is_kept_with_what_it_was_made_from(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {"a": EXPORTED})
    (cluster,) = fleet.clusters
    refreshed(cluster)
    (first,) = (cluster.work / "exports").iterdir()
    assert sorted(one.name for one in first.iterdir()) == [
        "bundle",
        "candidate",
        "certificate",
        "decision",
        "policy",
        "twin",
    ]
    hashes = {one.name: read_manifest(one).content_hash for one in first.iterdir()}
    order(tmp_path, "a", 8, FAILED)
    refreshed(cluster)
    assert {one.name: read_manifest(one).content_hash for one in first.iterdir()} == hashes
    assert read_manifest(cluster.work / FOLDER / "twin").content_hash != hashes["twin"]
    order(tmp_path, "a", 9, EXPORTED)
    refreshed(cluster)
    refreshed(cluster)
    assert len(list((cluster.work / "exports").iterdir())) == 2


def test_drift_is_the_planted_one_in_its_unit(tmp_path: Path) -> None:
    """Run times of day 5 and later are ten times as long: a decade; the mix of services is the same throughout."""
    fleet = made_fleet(tmp_path, {"a": EXPORTED})
    (cluster,) = fleet.clusters
    write_log(
        cluster.work / FOLDER / "history" / "archive",
        lambda day, rng: float(rng.lognormal(3.0, 0.5)) * (10.0 if day >= 4 else 1.0),
        lambda day, rng: f"s{rng.integers(5)}",
    )
    bundle, running = make_bundle(tmp_path / "bundle"), tmp_path / "running"

    def trained_on(first: str, last: str) -> LogDrift:
        window = {"first_day": first, "last_day": last}
        with writing(running, "bundle", replace=True) as folder:
            write_contract(folder, replace(read_contract(bundle), trained_on=window))
        return drift_of(cluster.work, running, 3)

    found = trained_on("2024-01-01", "2024-01-04")
    by_name = {one.aspect: one for one in found.aspects}
    assert by_name["run times"].distance == pytest.approx(1.0, abs=0.05)
    assert [one.aspect for one in found.aspects if one.has_drifted] == ["run times"]
    assert found.newest_day == "2024-01-08"
    same = trained_on("2024-01-05", "2024-01-06")
    assert not [one.aspect for one in same.aspects if one.has_drifted]
    assert trained_on("2024-01-05", "2024-01-08").note.startswith("the history holds no day after")
    assert trained_on("2023-01-05", "2023-01-08").note.startswith("the history holds none of the days")
    assert drift_of(cluster.work, None, 3).note == "no policy is running"


def test_days_of_training_and_newest_days() -> None:
    days = [dt.date(2024, 1, day) for day in range(1, 10)]
    trained, newest = split_days(days, "2024-01-02", "2024-01-05", 2)
    assert ([one.day for one in trained], [one.day for one in newest]) == ([4, 5], [8, 9])
    assert split_days(days, "", "", 2) == ([], [])
