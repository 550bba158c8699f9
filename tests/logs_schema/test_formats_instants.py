"""Instants as programs print them: the zero of a clock, Go's zones, and ends in an hour that comes twice."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.logs_schema.test_formats_requests import ARRIVAL, imported

TIMES = f"{ARRIVAL}[columns.start]\n[columns.finish]\n"


@pytest.mark.parametrize(
    ("start", "finish", "kept"),
    [
        ("1709294400", "0", {"start"}),
        ("0", "0", set()),
        ("0.0", "1709294500", {"finish"}),
        ("1970-01-01T00:00:00Z", "1970-01-01T01:00:00+01:00", set()),
        ("1709294400", "1709294500", {"start", "finish"}),
    ],
)
def test_the_zero_of_the_clock_is_no_instant_of_requests_that_arrive_long_after_it(
    tmp_path: Path, start: str, finish: str, kept: set[str]
) -> None:
    """As Slurm's JSON, databases and HTCondor write what has not happened."""
    report, rows = imported(tmp_path, TIMES, "t,start,finish", f"1709294400,{start},{finish}")
    assert not report.quarantined
    assert [{"start", "finish"} & set(row) for row in rows.values()] == [kept]


def test_zero_is_the_first_instant_of_a_clock_that_begins_with_the_log(tmp_path: Path) -> None:
    _, rows = imported(tmp_path, TIMES, "t,start,finish", "0,0,5", "1,1,9")
    assert all({"start", "finish"} <= set(row) for row in rows.values())


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2024-03-01 12:00:00.123456789 +0000 UTC", 12),
        ("2024-03-01 12:00:00 +0100 CET", 11),
        ("2024-03-01 12:00:00.5 -0500 EST m=+0.000034", 17),
        ("2024-03-01 12:00:00 UTC", 12),
    ],
)
def test_instants_as_go_prints_them(tmp_path: Path, text: str, hour: int) -> None:
    report, rows = imported(tmp_path, ARRIVAL, "t", text)
    assert not report.quarantined
    (row,) = rows.values()
    assert row["arrival"].replace(microsecond=0) == datetime(2024, 3, 1, hour, tzinfo=UTC)


def test_what_never_started_ends_after_its_arrival_in_an_hour_that_comes_twice(tmp_path: Path) -> None:
    """Submitted at 02:50 in summer time, withdrawn at 02:10 in winter time, 20 minutes later."""
    report, rows = imported(
        tmp_path, f'time_zone = "Europe/Berlin"\n{TIMES}', "t,start,finish", "2024-10-27T02:50:00,,2024-10-27T02:10:00"
    )  # fmt: skip
    assert not report.quarantined
    (row,) = rows.values()
    assert (row["finish"] - row["arrival"]).total_seconds() == 20 * 60
