"""Clocks of a place: hours that come twice, and hours that never come."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from logs_schema.archive import Archive
from logs_schema.importing import ImportReport, import_log

METRICS = (
    'time_column = "at"\ndeployment_column = "name"\ninterval_s = 1800\ntime_zone = "Europe/Berlin"\n'
    '[metrics.num_replicas]\nsource = "n"\n'
)
BACK = ("01:30", "02:00", "02:30", "02:00", "02:30", "03:00")
"""Half hours of the night of 27 October 2024, when clocks in Berlin go back at 3."""


def metrics_of(folder: Path, *lines: str) -> tuple[ImportReport, list[dict[str, Any]]]:
    """What lines of metrics become, in order of time."""
    folder.mkdir()
    (folder / "mapping.toml").write_text(METRICS)
    (folder / "a.csv").write_text("\n".join(["at,name,n", *lines, ""]))
    report = import_log("metrics_csv", [folder], folder / "archive")
    return report, Archive(folder / "archive").read("deployment_samples").to_pylist()


def half_hours(rows: list[dict[str, Any]]) -> list[tuple[float, int]]:
    """Half hours since 23:30 in UTC, and replicas."""
    begin = dt.datetime(2024, 10, 26, 23, 30, tzinfo=dt.UTC)
    return [((row["time"] - begin) / dt.timedelta(minutes=30), row["num_replicas"]) for row in rows]


@pytest.mark.parametrize("names", [("web",), ("web", "db")])
def test_lines_alike_in_an_hour_that_comes_twice_are_not_one(tmp_path: Path, names: tuple[str, ...]) -> None:
    lines = [f"2024-10-27 {time},{name},1" for time in BACK for name in names]
    report, rows = metrics_of(tmp_path / "log", *lines, lines[-1])
    assert report.quarantined["deployment_samples"] == {"duplicate_key": 1}  # the last, which is there twice
    assert half_hours(rows) == [(place, 1) for place in range(6) for _ in names]


@pytest.mark.parametrize("names", [("web",), ("web", "db")])
def test_an_hour_that_comes_twice_is_read_from_the_newest_line_on_as_well(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    lines = [f"2024-10-27 {time},{name},{place}" for place, time in enumerate(BACK) for name in names]
    report, rows = metrics_of(tmp_path / "log", *reversed(lines))
    assert not report.quarantined
    assert half_hours(rows) == [(place, place) for place in range(6) for _ in names]


def test_an_hour_that_never_comes_is_no_instant(tmp_path: Path) -> None:
    """At 2 on 31 March 2024 clocks in Berlin go to 3: what names half past two is of another zone."""
    lines = [f"2024-03-31 {time},web,1" for time in ("01:30", "02:00", "02:30", "03:00")]
    report, rows = metrics_of(tmp_path / "metrics", *lines)
    assert report.quarantined["deployment_samples"] == {"not_an_instant:time": 2}
    assert [row["time"].hour for row in rows] == [0, 1]

    folder = tmp_path / "requests"
    folder.mkdir()
    (folder / "mapping.toml").write_text('time_zone = "Europe/Berlin"\n[columns.arrival]\n[columns.start]\n')
    text = "arrival,start\n2024-03-31 01:59:59,2024-03-31 03:00:00\n2024-03-31 02:30:00,2024-03-31 03:40:00\n"
    (folder / "a.csv").write_text(text + "2024-03-31 02:30:00Z,2024-03-31T02:30:00+00:00\n")
    report = import_log("requests_csv", [folder], folder / "archive")
    assert report.quarantined["requests"] == {"skipped_by_clock:arrival": 1}
    assert report.rows["requests"] == 2
