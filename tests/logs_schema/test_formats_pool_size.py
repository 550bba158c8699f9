"""Machines whose size the log does not tell: given, or guessed and called so."""

import numpy as np
import pytest

from logs_schema import Archive, FormatError, check_archive
from logs_schema.check import render
from logs_schema.errors import ConfigError
from logs_schema.formats import swf
from logs_schema.formats.pool_size import PoolUse, parse_capacity, pool_use
from logs_schema.importing import import_log
from tests.logs_schema.collecting import written
from tests.logs_schema.test_formats_csv import LUMOS_HEADER, LUMOS_JOB, TASK, swapped
from tests.logs_schema.test_formats_swf import JOB

# 8 nodes of 64 cores for 1,000 s, of which the last 10 s beside a second and a third job that fill the machine as well
OVERLAPPING = tuple(
    swapped(LUMOS_JOB, f2=str(number), f9=begin, f10="0", f11=run)
    for number, (begin, run) in enumerate((("1000", "1000"), ("1990", "500"), ("1990", "10")))
)


def imported(folder, *jobs, **options):
    log = written(folder, "t.csv", LUMOS_HEADER, *jobs)
    return import_log("lumos", [log], folder / "a", **options).archive


def node_line(report):
    return next(line for line in report.capabilities if line.name == "node_capacities")


def test_a_guessed_capacity_is_a_warning_and_no_finding(tmp_path):
    report = check_archive(imported(tmp_path, *OVERLAPPING))
    (warning,) = [line for line in report.warnings if "guess" in line]
    assert warning.startswith(
        "the capacity of pool is a guess: 1,536 cores, the largest use at once, 3 times the median use (512) and "
        "3 times the largest request (512); it may well be too large"
    )
    assert "--capacity" in warning
    assert report.capacities[0].num_guessed == 1
    assert (node_line(report).answer, node_line(report).fraction) == ("partial", 0.0)
    assert "1 guessed from this very use" in render(report, width=140)


def test_a_job_that_a_log_names_twice_is_in_use_once(tmp_path):
    archive = Archive(imported(tmp_path, *OVERLAPPING, *OVERLAPPING))
    assert archive.nodes()["cpu_cores"].to_pylist() == [1536.0]
    assert archive.facts["guessed_capacities"]["pool"]["median_use"] == 512.0
    assert archive.quarantined("requests") == {"duplicate_key": 3}


def test_a_log_without_a_job_guesses_nothing(tmp_path):
    archive = imported(tmp_path, swapped(LUMOS_JOB, f8="0", f7="0"))
    assert not [line for line in check_archive(archive).warnings if "guess" in line]


def test_a_guess_near_the_median_use_is_not_called_too_large(tmp_path):
    (warning,) = [
        line for line in check_archive(imported(tmp_path, OVERLAPPING[0])).warnings if "guess" in line
    ]
    assert "1 times the median use (512) and 1 times the largest request (512); whether" in warning


def test_a_capacity_that_is_given_is_believed(tmp_path):
    archive = imported(tmp_path, *OVERLAPPING, capacity={"pool": 1024.0})
    report = check_archive(archive)
    assert Archive(archive).nodes()["cpu_cores"].to_pylist() == [1024.0]
    assert [(place.peak, place.capacity) for place in report.capacities[0].over] == [(1536.0, 1024.0)]
    assert node_line(report).answer == "yes"
    assert not [line for line in report.warnings if "guess" in line]
    assert "16 nodes of 64 cores" in Archive(archive).facts["notes"][0]


def test_a_pool_of_an_swf_log_without_a_size_can_be_given_one(tmp_path):
    log = written(tmp_path, "log.swf", JOB)
    import_log("swf", [log], tmp_path / "a", capacity={"pool": 64})
    assert Archive(tmp_path / "a").nodes()["cpu_cores"].to_pylist() == [64.0]
    assert "node_capacities" not in Archive(tmp_path / "a").facts["limits"]
    assert "The size of pool was given at import: 64." in Archive(tmp_path / "a").facts["notes"]
    assert "node_capacities" in swf.facts([log])["limits"]


@pytest.mark.parametrize(
    ("name", "capacity", "message"),
    [
        ("lumos", {"batch": 5.0}, "'batch', which is no pool of this log"),
        ("lumos", {"pool": 0.0}, "cannot have 0 cores"),
        ("lumos", {"pool": float("nan")}, "cannot have nan cores"),
        (
            "alibaba2018",
            {"pool": 5.0},
            r"no pool whose size could be[\s\S]*capacities for lumos, requests_csv, swf",
        ),
    ],
)
def test_capacities_that_mean_nothing_are_refused(tmp_path, name, capacity, message):
    lines = (LUMOS_HEADER, LUMOS_JOB) if name == "lumos" else (TASK,)
    with pytest.raises(FormatError, match=message):
        import_log(name, [written(tmp_path, "t.csv", *lines)], tmp_path / "a", capacity=capacity)
    assert not (tmp_path / "a").exists()


def test_capacities_as_people_write_them():
    assert parse_capacity("786,432") == ("pool", 786_432.0)
    assert parse_capacity("a=b=4") == ("a=b", 4.0)
    for text in ("", "batch=", "many", "786_432"):
        with pytest.raises(ConfigError, match="is no capacity"):
            parse_capacity(text)


def test_use_over_time_against_a_loop():
    generator = np.random.default_rng(0)
    start = generator.integers(0, 50, 30).astype(float)
    finish, amount = start + generator.integers(0, 20, 30), generator.integers(1, 9, 30).astype(float)
    seconds = np.arange(start.min(), finish.max())
    use = [amount[(start <= second) & (second < finish)].sum() for second in seconds]
    found = pool_use(start, finish, amount)
    assert (found.peak, found.largest) == (max(use), amount.max())
    assert found.median == np.sort(use)[(len(use) - 1) // 2]
    assert pool_use(np.zeros(0), np.zeros(0), np.zeros(0)).peak == 0


def test_a_guess_has_room_for_the_largest_request_also_where_it_never_ran():
    assert PoolUse(peak=4.0, median=1.0, largest=6.0).guess(2.0) == {
        "cores": 12.0,
        "median_use": 2.0,
        "largest_request": 12.0,
    }
    assert PoolUse(peak=8.0, median=1.0, largest=6.0).guess()["cores"] == 8.0
