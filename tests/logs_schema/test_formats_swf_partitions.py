"""Partitions of SWF logs: when field 16 names machines, how large they are, and queues by partition."""

import json
import re

import numpy as np
import pytest

from evaluation.commands import cli
from logs_schema import Archive, FormatError, check_archive, import_log
from logs_schema.formats import swf
from logs_schema.formats.reading import ReadingOptions
from logs_schema.formats.swf_partitions import partitions_of
from tests.logs_schema.collecting import collect, written
from twin.ordering.jobs import read_jobs
from twin.ordering.pools import pool_sizes

SIZES = {"1": 64, "2": 16, "10": 4}
HEADER = (
    "; UnixStartTime: 1000000000",
    "; MaxProcs: 84",
    "; Partition: 1 thin nodes",
    "; Partition: 2 fat, 16 cores",
)


def line(job, submit, wait, run, processors, partition, status=1):
    asked = max(run, 60)
    return f"{job} {submit} {wait} {run} {processors} -1 -1 {processors} {asked} -1 {status} 1 1 -1 1 {partition} -1 -1"


def machines(num_jobs=300):
    """Jobs that fill three machines one after another, each by itself, and 9 of the largest at once."""
    rng = np.random.default_rng(0)
    lines = []
    for partition, size in SIZES.items():
        for number in range(num_jobs):
            width = max(1, size // 4)
            lines.append((400 * number + int(rng.integers(0, 9)), partition, width, 1500))
    jobs = sorted(lines)
    return [
        line(job, submit, 5, run, width, partition)
        for job, (submit, partition, width, run) in enumerate(jobs)
    ]


def found(folder, *lines, header=HEADER, given=None):
    path = written(folder, "log.swf", *header, *lines)
    read = swf.read_header(path)
    return partitions_of(path, read, swf.pool_capacity(read), given or {})


def test_every_partition_is_a_pool_with_the_size_of_the_header_or_its_peak(tmp_path):
    partitions = found(tmp_path, *machines())
    # In order of numbers
    assert list(partitions.processors) == ["partition-1", "partition-2", "partition-10"]
    assert partitions.processors == {"partition-1": 64.0, "partition-2": 16.0, "partition-10": 4.0}
    assert partitions.guessed == ("partition-1", "partition-10")
    notes = swf.facts([tmp_path / "log.swf"])["notes"]
    assert any("partition-2 16 (fat, 16 cores)" in note for note in notes)
    assert any("partition-1, partition-10 is: a guess" in note for note in notes)


@pytest.mark.parametrize(
    "size", ["; Partition: 1 thin, 6_4 cores", "; Partition: 1 MaxProcs 6_4", "; MaxProcs: 84 (1: 6_4)"]
)
def test_a_size_whose_digits_an_underscore_joins_is_none_and_the_peak_is_the_guess(tmp_path, size):
    header = (HEADER[0], *([HEADER[1]] if "84" not in size else []), size, HEADER[3])
    assert found(tmp_path, *machines(), header=header).guessed[0] == "partition-1"


def test_jobs_that_the_log_names_twice_are_in_use_once(tmp_path):
    once, twice = (found(tmp_path, *lines) for lines in (machines(), machines() * 2))
    assert twice == once
    assert twice.guessed == ("partition-1", "partition-10")


def test_sizes_in_brackets_count_and_given_ones_come_first(tmp_path):
    header = (HEADER[0], "; MaxProcs: 1,088 (1: 1,024, 2: 60, 10: 3)")
    partitions = found(tmp_path, *machines(), header=header, given={"partition-2": 48.0})
    assert partitions.processors == {"partition-1": 1024.0, "partition-2": 48.0, "partition-10": 4.0}
    assert partitions.guessed == ("partition-10",)  # 3 of something that is no processor
    path = tmp_path / "log.swf"
    chunk = next(swf.read([path], ReadingOptions(capacity={"partition-2": 48.0})))
    assert chunk.rows["cpu_cores"].to_pylist() == [1024.0, 48.0, 4.0]


@pytest.mark.parametrize(
    ("header", "change", "told"),
    [
        pytest.param(HEADER, lambda number: "-1", "", id="unknown"),
        pytest.param(HEADER, lambda number: "3", "", id="one number"),
        pytest.param(
            HEADER, lambda number: str(number % 40), "40 are more than the 32", id="too many numbers"
        ),
        pytest.param(
            HEADER,
            lambda number: "-1" if number % 20 == 0 else str(number % 2),
            r"of 2 partitions, they name that of \d+ of the \d+ jobs",
            id="unknown for one job in twenty",
        ),
        pytest.param(
            ("; MaxProcs: 70",), None, "and the header has 70", id="partitions that share processors"
        ),
    ],
)
def test_a_field_that_names_no_machines_leaves_one_pool_and_a_note_says_why(tmp_path, header, change, told):
    lines = machines()
    if change is not None:
        rows = [one.split() for one in lines]
        lines = [" ".join([*row[:15], change(number), *row[16:]]) for number, row in enumerate(rows)]
    assert found(tmp_path, *lines, header=header).processors == {}
    notes = [note for note in swf.facts([tmp_path / "log.swf"])["notes"] if "field 16" in note]
    assert len(notes) == bool(told)
    assert not told or re.search(told, notes[0])
    collected = collect(swf, [tmp_path / "log.swf"])
    assert [node["node_id"] for node in collected.rows["nodes"]] == ["pool"]
    assert set(collected.rows["requests"][0]) & {"offered_node"} == set()


def test_partitions_of_jobs_that_do_not_say_when_they_ran_are_told_of(tmp_path):
    lines = [" ".join([*one.split()[:2], "-1", *one.split()[3:]]) for one in machines()]
    assert "name that of 0 of the 0 jobs" in found(tmp_path, *lines).left_out


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines")
    cancelled = line(9000, 100, 50, 0, 4, 2, status=5)
    path = written(folder, "log.swf", *HEADER, *machines(), cancelled, "x")
    import_log("swf", [path], folder / "archive")
    return folder / "archive"


def test_queues_of_partitions_are_played_apart(archive, capsys):
    assert pool_sizes(Archive(archive)) == {"partition-1": 64.0, "partition-10": 4.0, "partition-2": 16.0}
    assert cli.main(["replay", str(archive), "--easy", "--json", "--no-progress"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert {name: part["num_jobs"] for name, part in plain["pools"].items()} == dict.fromkeys(
        ("partition-1", "partition-2", "partition-10"), 300
    )
    assert plain["counts"]["no_pool"] == 0
    assert (
        cli.main(["replay", str(archive), "--pool", "partition-2", "--withdraw", "--json", "--no-progress"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["counts"]["withdrawn"] == 1
    jobs = read_jobs(Archive(archive), pool="partition-2", withdraw=True)
    assert len(jobs.run_s) == 301


def test_a_twin_asks_for_the_pool_and_nothing_says_one_machine(archive, tmp_path, capsys):
    assert cli.main(["fit", str(archive), "--out", str(tmp_path / "twin"), "--no-progress"]) == 2
    assert "the archive has 3 pools" in capsys.readouterr().err
    assert cli.main(["check", str(archive)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 pools of unnamed machines" in shown
    assert "one pool" not in shown


def test_a_job_takes_the_order_of_queues_and_asks_which(archive, tmp_path, capsys):
    (tmp_path / "job.toml").write_text(
        f'[log]\nformat = "swf"\npaths = ["{archive.parent / "log.swf"}"]\n[days]\nnum_days = 1\n'
    )
    assert (
        cli.main(["run", str(tmp_path / "job.toml"), "--out", str(tmp_path / "work"), "--no-progress"]) == 2
    )
    refused = capsys.readouterr().err
    assert "--pool partition-1 of fit" in refused
    assert 'pool = "partition-1" in [order]' in refused


def test_guessed_partitions_are_warnings_of_the_check(tmp_path):
    path = written(tmp_path, "log.swf", *HEADER, *machines(20))
    import_log("swf", [path], tmp_path / "a", capacity={"partition-10": 8.0})
    report = check_archive(tmp_path / "a")
    (warning,) = [text for text in report.warnings if "guess" in text]
    assert warning.startswith("the capacity of partition-1 is a guess: 64 cores")
    assert report.capacities[0].num_guessed == 1
    with pytest.raises(
        FormatError, match=r"'pool', which is no pool[\s\S]*partition-1, partition-2, partition-10"
    ):
        import_log("swf", [path], tmp_path / "b", capacity={"pool": 8.0})
