"""Jobs read from an archive: order, units, and the counted rules for what a log leaves open."""

from datetime import date

import numpy as np
import pytest

from logs_schema import Archive, import_log
from twin.ordering.jobs import clairvoyant, read_jobs
from twin.ordering.types import OrderingError

HEADER = "; UnixStartTime: 1000000000\n; MaxProcs: 8\n"
#      job submit wait run processors ... requested processors, time ... status user
LINES = (
    "10 50 5 60 2 -1 -1 2 120 -1 1 1 1 -1 1 -1 -1 -1",
    "9 50 0 30 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1",
    "2 20 0 0 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1",  # ended within the second
    "3 30 0 7 4 -1 -1 4 -1 -1 1 -1 1 -1 1 -1 -1 -1",  # names no run time, hides its user
    "4 40 -1 -1 4 -1 -1 4 60 -1 0 2 1 -1 1 -1 -1 -1",  # nobody knows how long it ran
    "5 41 90 0 4 -1 -1 4 60 -1 5 2 1 -1 1 -1 -1 -1",  # cancelled after 90 s
    "6 42 -1 0 4 -1 -1 4 60 -1 5 2 1 -1 1 -1 -1 -1",  # cancelled, nobody knows when
    "7 43 80 -1 4 -1 -1 4 60 -1 5 2 1 -1 1 -1 -1 -1",  # cancelled after 80 s
    "8 44 80 0 -1 -1 -1 -1 60 -1 5 2 1 -1 1 -1 -1 -1",  # cancelled, and asked for nothing
)


def archive_of(tmp_path, *lines):
    log = tmp_path / "log.swf"
    log.write_text(HEADER + "\n".join(lines) + "\n")
    import_log("swf", [log], tmp_path / "archive")
    return Archive(tmp_path / "archive")


def test_order_units_and_counted_rules(tmp_path):
    jobs = read_jobs(archive_of(tmp_path, *LINES))
    assert jobs.request_id.tolist() == ["2", "3", "9", "10"]  # 9 before 10: numbers count as numbers
    np.testing.assert_array_equal(jobs.arrival_s, [0, 10, 30, 30])
    np.testing.assert_array_equal(jobs.processors, [4, 4, 4, 2])
    np.testing.assert_array_equal(jobs.run_s, [1, 7, 30, 60])
    np.testing.assert_array_equal(jobs.requested_s, [60, 120, 60, 120])
    np.testing.assert_array_equal(jobs.logged_start_s, [0, 10, 30, 35])
    assert jobs.origin_us == 1_000_000_020_000_000
    assert (jobs.agent[0], jobs.agent[1]) == (jobs.agent[2], -1)
    assert dict(jobs.counts) == COUNTS
    assert jobs.withdrawn_s is None


COUNTS = {
    "cancelled": 4,
    "withdrawn": 0,
    "no_run_time": 1,
    "no_processors": 0,
    "zero_run_time": 1,
    "no_request": 1,
}


def test_counts_are_about_the_days_that_are_asked_for(tmp_path):
    archive = archive_of(tmp_path, *LINES, "11 200000 5 0 2 -1 -1 2 120 -1 1 1 1 -1 1 -1 -1 -1")
    later = date(2001, 9, 11)
    for pool in (None, archive.nodes()["node_class"][0].as_py()):
        counts = dict(read_jobs(archive, pool=pool, counted=(later, later)).counts)
        assert {rule for rule, count in counts.items() if count} == {"zero_run_time"}
        assert counts["zero_run_time"] == 1
        before = dict(read_jobs(archive, pool=pool, counted=(date(2001, 9, 9), date(2001, 9, 10))).counts)
        assert {rule: before[rule] for rule in COUNTS} == COUNTS


def test_jobs_given_up_before_they_started_are_left_out_or_withdrawn(tmp_path):
    archive = archive_of(tmp_path, *LINES)
    jobs = read_jobs(archive, withdraw=True)
    assert jobs.request_id.tolist() == ["2", "3", "5", "7", "9", "10"]
    np.testing.assert_array_equal(jobs.withdrawn_s, [np.nan, np.nan, 111.0, 103.0, np.nan, np.nan])
    assert dict(jobs.counts) == COUNTS | {"cancelled": 2, "withdrawn": 2}
    write_native(archive, tmp_path / "requests.csv")
    import_log("native", [tmp_path / "requests.csv"], tmp_path / "again")
    for withdraw in (False, True):
        again = read_jobs(Archive(tmp_path / "again"), withdraw=withdraw)
        assert again.counts == read_jobs(archive, withdraw=withdraw).counts
    np.testing.assert_array_equal(again.withdrawn_s, jobs.withdrawn_s)


def write_native(archive, path):
    """The requests as the project's own CSV."""
    columns = (
        "request_id",
        "arrival",
        "site",
        "cpu_cores",
        "requested_run_s",
        "start",
        "finish",
        "run_s",
        "status",
    )
    rows = archive.read("requests", columns=columns).to_pylist()
    told = [",".join("" if row[name] is None else str(row[name]) for name in columns) for row in rows]
    path.write_text("\n".join([",".join(columns), *told]) + "\n")


def test_where_nobody_names_a_run_time_the_longest_one_stands_in(tmp_path):
    jobs = read_jobs(
        archive_of(tmp_path, *(line.replace("120", "-1").replace(" 60 -1", " -1 -1") for line in LINES))
    )
    assert set(jobs.requested_s) == {60.0}  # the longest run time
    assert dict(jobs.counts)["no_request"] == 4


def test_a_finish_in_the_last_year_of_the_calendar_is_a_long_run(tmp_path):
    log = tmp_path / "requests.csv"
    log.write_text(
        "request_id,arrival,site,cpu_cores,start,finish,status\n"
        "1,2024-01-01,s,1,2024-01-01,9999-12-31,completed\n"
    )
    import_log("native", [log], tmp_path / "archive")
    assert read_jobs(Archive(tmp_path / "archive")).run_s[0] > 2e11


def test_clairvoyance_asks_for_the_truth(tmp_path):
    jobs = clairvoyant(read_jobs(archive_of(tmp_path, *LINES)))
    np.testing.assert_array_equal(jobs.requested_s, jobs.run_s)


def test_a_log_without_a_usable_job_says_so(tmp_path):
    with pytest.raises(OrderingError, match=r"run time(.|\n)*1 rows"):
        read_jobs(archive_of(tmp_path, LINES[4]))
