"""What all jobs of a log in the Standard Workload Format tell beside its header."""

import pytest

from logs_schema import Archive, check_archive
from logs_schema.formats import swf
from logs_schema.importing import import_log
from tests.logs_schema.collecting import collect, written
from tests.logs_schema.test_formats_swf import JOB, changed


@pytest.mark.parametrize(
    ("header", "cores", "guessed"),
    [
        (("; MaxNodes: 4",), 16.0, True),  # two jobs of 8 at once
        (("; MaxNodes: 15",), 15.0, False),  # ends are logged late, too
        (("; MaxNodes: 64",), 64.0, False),
        (("; MaxProcs: 4",), 4.0, False),
        (("; MaxNodes: 2", "; MaxProcs: 12"), 12.0, False),
    ],
)
def test_nodes_of_several_processors_are_no_capacity(tmp_path, header, cores, guessed):
    log = written(tmp_path, "log.swf", *header, JOB, changed(f1="8"), changed(f1="9", f2="5000", f8="2"))
    archive = Archive(import_log("swf", [log], tmp_path / "a").archive)
    assert archive.nodes()["cpu_cores"].to_pylist() == [cores]
    warnings = [
        line for line in check_archive(archive.path).warnings if "the capacity of pool is a guess" in line
    ]
    assert len(warnings) == guessed
    given = import_log("swf", [log], tmp_path / "b", capacity={"pool": 32.0}).archive
    assert Archive(given).nodes()["cpu_cores"].to_pylist() == [32.0]
    assert "guessed_capacities" not in Archive(given).facts


def test_jobs_of_which_only_parts_are_told_are_named_at_the_import(tmp_path):
    parts = (changed(f11="2"), changed(f11="3", f3="-1"))
    log = written(
        tmp_path, "log.swf", "; MaxProcs: 100", JOB, *parts, changed(f1="8", f11="2"), changed(f1="9")
    )
    report = import_log("swf", [log], tmp_path / "a")
    assert report.quarantined["requests"] == {"partial_execution": 3}
    warnings = check_archive(report.archive).warnings
    assert [line[:6] for line in warnings if "parts alone" in line] == ["1 jobs"]
    assert any("--origin" in line for line in warnings)


def test_jobs_with_a_line_of_the_whole_are_not_named(tmp_path):
    path = written(tmp_path, "log.swf", "; MaxProcs: 100", JOB, changed(f11="2"), changed(f11="4"))
    assert "lost_jobs" not in swf.facts([path])


@pytest.mark.parametrize(
    ("words", "told"), [("1 (360 fat nodes)", "360 fat nodes"), ("1 - thin (of 16)", "thin (of 16)")]
)
def test_brackets_around_what_a_partition_is_called(tmp_path, words, told):
    jobs = (changed(f16="1"), changed(f1="8", f16="2"))
    path = written(tmp_path, "log.swf", "; MaxProcs: 100", f"; Partition: {words}", *jobs)
    assert any(f"partition-1 8 ({told})," in note for note in swf.facts([path])["notes"])
    assert len(collect(swf, [path]).rows["nodes"]) == 2
