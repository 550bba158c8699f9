"""A fleet: which clusters are due, one's failure and the others, and bad input."""

import datetime as dt
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.commands.cli import main
from evaluation.jobs.engine.config import EngineConfig
from evaluation.jobs.engine.errors import late
from evaluation.pipeline.fleet.config import ClusterConfig, Fleet, load_fleet, trouble_of
from evaluation.pipeline.fleet.outcomes import (
    OUTCOME,
    due_at,
    is_overdue,
    now,
    read_outcome,
    worst,
    write_attempt,
    write_outcome,
)
from evaluation.pipeline.fleet.refreshing import Refreshed, Why, refresh_fleet, refresh_one, run_all
from evaluation.pipeline.fleet.states import Phase, state_of
from evaluation.pipeline.refresh.job import FOLDER
from logs_schema.atomic_folders import try_lock
from logs_schema.errors import ConfigError, SchedtwinError
from logs_schema.mapping import one_by_one
from logs_schema.progress import SilentProgress
from tests.evaluation.fleets import (
    DIES,
    EACH,
    EXPORTED,
    HANGS,
    KEPT,
    NOON,
    made_fleet,
    obeys,
    outcome_at,
    refreshed,
    tasks_of,
)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = try_lock(folder)
    assert lock is not None
    try:
        yield
    finally:
        os.close(lock)


def test_whatever_one_comes_to_the_others_go_on(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {name: comes_to for name, (comes_to, _) in EACH.items()})
    found = run_all(tasks_of(fleet), one_by_one)
    assert [(one.name, one.outcome.status if one.outcome else None) for one in found] == [
        (name, status) for name, (_, status) in EACH.items()
    ]
    by_name = {one.name: one for one in fleet.clusters}
    error = read_outcome(by_name["bad"].work)
    assert error is not None
    assert "where: row 7" in error.reason
    assert "what to do: write others" in error.reason
    assert "ZeroDivisionError" in (by_name["bug"].work / "fleet" / "refresh.log").read_text()
    assert worst([status for _, status in EACH.values()]) == 1
    assert [worst(list(one)) for one in ((), (0, 10), (12, 10), (12, 11), (11, 13), (13, 2))] == [
        0,
        10,
        12,
        11,
        13,
        2,
    ]


def test_a_task_that_does_not_come_back_fails_its_cluster_and_the_others_run_again(tmp_path: Path) -> None:
    """The engine ends with an error after the first cluster; the third was taken with the second."""
    fleet = made_fleet(tmp_path, {"one": EXPORTED, "two": HANGS, "three": KEPT})
    calls: list[list[str]] = []

    def ends_late(task: Callable[[Any], Any], items: Sequence[Any], name: str = "") -> Iterator[Any]:
        calls.append([str(item) for item in items])
        done = [task(items[0])]
        if len(items) > 1:
            raise late(name, items[1], 1.0)
        return iter(done)

    found = run_all(tasks_of(fleet), ends_late)
    assert calls == [["one", "two", "three"], ["three"]]
    assert [one.outcome.result for one in found if one.outcome] == [EXPORTED, "error", KEPT]
    recorded = read_outcome(fleet.clusters[1].work)
    assert recorded is not None
    assert "did not end within 1 s" in recorded.reason


def test_a_work_folder_that_cannot_be_used_stops_its_cluster_only(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {"file": KEPT, "other": KEPT, "gone": KEPT})
    (tmp_path / "work").mkdir()
    for name in ("file", "gone"):
        (tmp_path / "work" / name).write_text("no folder")
    (tmp_path / "decisions" / "gone" / "orders.csv").unlink()
    found = [one for task in tasks_of(fleet)[:2] for one in run_all([task], one_by_one)]
    found += refresh_fleet(fleet, fleet.clusters[2:], SilentProgress(), step=obeys)
    assert [one.outcome.status for one in found if one.outcome] == [2, 10, 2]
    assert [one.exit_status for one in state_of(fleet.clusters).clusters] == [13, 10, 2]


@pytest.mark.slow
def test_processes_that_die_or_hang_take_nobody_with_them(tmp_path: Path) -> None:
    """One worker, which is a process apart."""
    fleet = made_fleet(tmp_path, {"first": EXPORTED, "dies": DIES, "hangs": HANGS, "last": KEPT})
    fleet = replace(fleet, settings=replace(fleet.settings, engine=EngineConfig(deadline_s=120.0)))
    found = refresh_fleet(fleet, fleet.clusters, SilentProgress(), step=obeys)
    assert [one.outcome.status if one.outcome else None for one in found] == [0, 2, 2, 10]
    reasons = [one.outcome.reason for one in found if one.outcome]
    assert "a worker died 3 times" in reasons[1]
    assert "did not end within 120 s" in reasons[2]
    assert [one.exit_status for one in state_of(fleet.clusters).clusters] == [0, 2, 2, 10]


@pytest.mark.parametrize(
    ("hour", "every_h", "at_h", "due"),
    [
        (12, 24.0, 0.0, 24),  # the period of a day begins at midnight
        (0, 24.0, 0.0, 24),
        (23, 24.0, 0.0, 24),
        (12, 24.0, 3.0, 27),
        (2, 24.0, 3.0, 3),  # before 3 o'clock it is yesterday's
        (5, 1.0, 0.5, 5.5),
    ],
)
def test_when_it_is_due_depends_on_the_clock_and_not_on_how_late_it_was(
    tmp_path: Path, hour: int, every_h: float, at_h: float, due: float
) -> None:
    settings = ClusterConfig("a", "", "", "", every_h=every_h, at_h=at_h)
    midnight = dt.datetime(2026, 3, 4, tzinfo=dt.UTC)
    for minutes in (0, 17):
        begun = midnight + dt.timedelta(hours=hour, minutes=minutes)
        write_attempt(tmp_path, begun.isoformat())
        write_outcome(tmp_path, outcome_at(begun))
        assert due_at(settings, tmp_path, begun + dt.timedelta(minutes=30)) == midnight + dt.timedelta(
            hours=due
        )
    period = dt.timedelta(hours=every_h)
    assert not is_overdue(settings, tmp_path, midnight + dt.timedelta(hours=due) + 0.99 * period)
    assert is_overdue(settings, tmp_path, midnight + dt.timedelta(hours=due) + period)


def test_what_never_ran_or_was_interrupted_is_due_at_once_and_an_error_after_a_while(tmp_path: Path) -> None:
    settings = ClusterConfig("a", "", "", "", retry_h=2.0)
    time = NOON + dt.timedelta(hours=1)
    assert due_at(settings, tmp_path, time) is None
    assert is_overdue(settings, tmp_path, NOON)
    write_attempt(tmp_path, NOON.isoformat())
    assert due_at(settings, tmp_path, time) is None
    write_outcome(tmp_path, outcome_at(NOON, status=2, result="error"))
    assert due_at(settings, tmp_path, time) == NOON + dt.timedelta(hours=2, minutes=10)
    write_outcome(tmp_path, outcome_at(NOON))
    assert due_at(settings, tmp_path, time) == dt.datetime(2026, 3, 5, tzinfo=dt.UTC)
    write_attempt(tmp_path, (NOON + dt.timedelta(days=1)).isoformat())  # and killed
    assert due_at(settings, tmp_path, time) is None


def test_what_a_clock_that_was_ahead_has_written_is_due_at_once(tmp_path: Path) -> None:
    settings = ClusterConfig("a", "", "", "")
    for ahead in (dt.timedelta(minutes=1), dt.timedelta(days=2000)):
        write_attempt(tmp_path, (NOON + ahead).isoformat())
        for changes in ({}, {"status": 2, "result": "error"}):
            write_outcome(tmp_path, outcome_at(NOON + ahead, **changes))
            assert due_at(settings, tmp_path, NOON) is None
        write_attempt(tmp_path, NOON.isoformat())  # a refresh under the right clock, which was killed
        assert due_at(settings, tmp_path, NOON + dt.timedelta(seconds=1)) is None
    assert is_overdue(settings, tmp_path, NOON)
    ends = outcome_at(NOON, ended=(NOON + dt.timedelta(days=2000)).isoformat(), status=2, result="error")
    write_outcome(tmp_path, ends)
    assert due_at(settings, tmp_path, NOON) is None
    write_outcome(tmp_path, outcome_at(NOON))
    assert due_at(settings, tmp_path, NOON + dt.timedelta(hours=1)) == dt.datetime(2026, 3, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "changes",
    [
        {"begun": 3}, {"begun": "yesterday"}, {"begun": "2024-01-01T00:00:00"}, {"status": 99}, {"status": "10"},
        {"drift": {"aspects": 3, "note": "", "newest_day": ""}},
    ],
)  # fmt: skip
def test_an_outcome_that_another_version_has_written_is_none_and_stops_nobody(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    fleet = made_fleet(tmp_path, {"edge": KEPT, "other": KEPT})
    work = fleet.clusters[0].work
    write_outcome(work, outcome_at(NOON))
    assert read_outcome(work) is not None
    file = work / "fleet" / OUTCOME
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert read_outcome(work) is None
    assert state_of(fleet.clusters).clusters[0].outcome is None


def test_only_what_is_due_is_refreshed_and_bad_data_is_named_before_work_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = made_fleet(tmp_path, {"done": KEPT, "gone": KEPT})
    begun = now().isoformat()
    write_outcome(fleet.clusters[0].work, outcome_at(dt.datetime.fromisoformat(begun)))
    (tmp_path / "decisions" / "gone" / "orders.csv").rename(tmp_path / "orders.csv")
    (tmp_path / "decisions" / "gone").rmdir()
    found = refresh_fleet(fleet, fleet.clusters, SilentProgress(), step=obeys)
    assert found[0] == Refreshed("done", skipped=Why.NOT_DUE)
    assert found[1].outcome is not None
    assert (found[1].outcome.status, found[1].outcome.result) == (2, "error")
    assert "the decision log of cluster 'gone' does not exist" in found[1].outcome.reason
    again = refresh_fleet(fleet, fleet.clusters, SilentProgress(), step=obeys)
    assert [one.skipped for one in again] == [Why.NOT_DUE] * 2  # the error waits an hour
    assert main(["fleet", "refresh", str(tmp_path / "fleet.toml"), "--no-progress"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "done: not refreshed, not due",
        "gone: not refreshed, not due",
    ]


def test_a_cluster_at_work_is_left_alone_and_its_records_stay(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {"one": KEPT})
    (task,) = tasks_of(fleet)
    work = fleet.clusters[0].work
    for folder in (work, work / "fleet"):
        with locked(folder):
            assert refresh_one(task) == Refreshed("one", skipped=Why.BUSY)
            phase = state_of(fleet.clusters).clusters[0].phase
            assert phase is (Phase.UNDER_WAY if folder.name == "fleet" else Phase.DUE)
    assert read_outcome(work) is None


def test_a_cluster_that_another_call_has_refreshed_meanwhile_is_not_refreshed_again(tmp_path: Path) -> None:
    (task,) = tasks_of(made_fleet(tmp_path, {"one": KEPT}))
    waiting = replace(task, asked=now())
    assert refresh_one(replace(task, asked=now())).outcome is not None
    assert refresh_one(waiting) == Refreshed("one", skipped=Why.DONE)
    since = now() + dt.timedelta(seconds=1)  # clocks here count seconds
    assert refresh_one(replace(task, asked=since)).outcome is not None


def test_a_refresh_that_was_killed_is_said_to_be_interrupted_and_goes_on(tmp_path: Path) -> None:
    fleet = made_fleet(tmp_path, {"one": EXPORTED})
    (cluster,) = fleet.clusters
    write_attempt(cluster.work, now().isoformat())
    assert state_of(fleet.clusters).clusters[0].phase is Phase.INTERRUPTED
    (found,) = run_all(tasks_of(fleet), one_by_one)
    assert found.outcome is not None
    state = state_of(fleet.clusters).clusters[0]
    assert (state.phase, state.exit_status) == (Phase.WAITING, 0)


TWO = '[[clusters]]\nname = "b"\nconfig = "job.toml"\nlog = "decisions/a"\nwork = "{work}"\n'


BAD_FLEETS = {
    "an unknown key": ("pages = 3", "", "unknown key pages", "clusters, page, metrics"),
    "an unknown key of a cluster": ("", "when = 3", "unknown key when", "name, config"),
    "a wrong type": ("", 'every_h = "daily"', "is of the wrong type", "every_h"),
    "no period": ("", "every_h = 0", "every_h = 0", "every_h from 0.01"),
    "a period of no time": ("", "every_h = 1e-10", "every_h = 1e-10", "every_h from 0.01"),
    "a period of all times": ("", "every_h = 1e6", "every_h = 1e.06", "to 87600"),
    "no retry": ("", "retry_h = 1e6", "retry_h = 1e.06", "retry_h to 87600"),
    "no such hour": ("", "at_h = 24", "at_h = 24", "below 24"),
    "an unknown problem": ("", 'problem = "knapsack"', "no problem 'knapsack'", "placement"),
    "an unknown condition": ("", 'accept = "always"', "misconfigured", "better, not-worse"),
    "the same name": (
        "",
        TWO.replace('"b"', '"a"').format(work="other"),
        "two clusters are called a",
        "unique",
    ),
    "the same work folder": ("", TWO.format(work="work/../work/a"), "share a work folder", "of its own"),
    "a work folder in another": ("", TWO.format(work="work/a/b"), "share a work folder", "none inside"),
    "metrics that nobody reads": ('metrics = "twins.txt"', "", "does not read", ".prom"),
    "a job that is not there": ("", TWO.format(work="b").replace("job", "jab"), "cannot read", "jab.toml"),
}


@pytest.mark.parametrize(("more", "each", "what", "where"), BAD_FLEETS.values(), ids=BAD_FLEETS)
def test_a_fleet_that_is_described_wrongly_is_refused_as_a_whole(
    tmp_path: Path, more: str, each: str, what: str, where: str
) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        made_fleet(tmp_path, {"a": KEPT}, more, each)
    assert where in str(caught.value)
    assert not (tmp_path / "work").exists()


def test_a_fleet_without_clusters_or_a_job_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no clusters"):
        made_fleet(tmp_path, {}, "clusters = []")
    made_fleet(tmp_path, {"a": KEPT})
    (tmp_path / "job.toml").write_text("seed = 1\n")
    with pytest.raises(ConfigError, match="names no log") as caught:
        load_fleet(tmp_path / "fleet.toml")
    assert "cluster 'a'" in caught.value.where
    assert main(["fleet", "status", str(tmp_path / "gone.toml")]) == 2


def break_log(fleet: Fleet) -> None:
    (fleet.clusters[0].config.parent / "log" / "requests.csv").unlink()
    (fleet.clusters[0].config.parent / "log").rmdir()


def break_decisions(fleet: Fleet) -> None:
    (fleet.clusters[0].log / "orders.csv").unlink()


def break_manifest(fleet: Fleet) -> None:
    (fleet.clusters[0].work / FOLDER / "history" / "manifest.json").write_text("{}")


def break_bundle(fleet: Fleet) -> None:
    file = fleet.clusters[0].work / FOLDER / "bundle" / "bundle" / "manifest.json"
    file.write_text(file.read_text().replace('"kind": "bundle"', '"kind": "bandle"'))


def name_no_bundle(fleet: Fleet) -> None:
    file = fleet.clusters[0].config.parent / "fleet.toml"
    file.write_text(file.read_text() + '\nbundle = "not/yet"\n')


def other_problem(fleet: Fleet) -> None:
    job = fleet.clusters[0].config
    job.write_text(job.read_text() + "[order]\nprocessors = 4.0\n")


BAD_DATA: dict[str, tuple[Callable[[Fleet], None], str]] = {
    "no log": (break_log, "the log of cluster 'a' does not exist"),
    "no decisions": (break_decisions, "no"),
    "a damaged history": (break_manifest, "the manifest"),
    "a damaged running bundle": (break_bundle, "the manifest does not agree"),
    "no running bundle": (name_no_bundle, "the running bundle of cluster 'a' is not there"),
    "a bundle of another problem": (other_problem, "of the problem 'placement', the refresh of 'ordering'"),
}


@pytest.mark.parametrize(("breaks", "what"), BAD_DATA.values(), ids=BAD_DATA)
def test_bad_data_stops_its_cluster_only(tmp_path: Path, breaks: Callable[[Fleet], None], what: str) -> None:
    fleet = made_fleet(tmp_path, {"a": EXPORTED})
    refreshed(fleet.clusters[0])
    assert trouble_of(fleet.clusters[0]) is None
    breaks(fleet)
    (cluster,) = load_fleet(tmp_path / "fleet.toml").clusters
    error = trouble_of(cluster)
    assert isinstance(error, SchedtwinError)
    assert what in error.what
    assert error.where
    assert error.allowed or error.advice
