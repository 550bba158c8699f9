"""Mappings of evaluation/examples/requests on logs as systems write them, joined by the commands that they name."""

import json
import os
import sqlite3
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from logs_schema import Archive, FormatError, check_archive
from logs_schema.importing import import_log
from tests.logs_schema.collecting import written
from tests.logs_schema.test_formats_requests import EXAMPLES, imported, requests_in


def told(name: str, begin: str, end: str) -> str:
    """The part of an example's comments from the line that ends in `begin` to the one before `end`."""
    comments = [line[2:] for line in (EXAMPLES / name).read_text().splitlines() if line.startswith("# ")]
    first = next(number for number, line in enumerate(comments) if begin in line)
    last = next(number for number, line in enumerate(comments) if number > first and end in line)
    return dedent("\n".join(comments[first:last]))


def test_accounting_of_pbs_by_the_program_that_its_mapping_names(tmp_path: Path) -> None:
    ended = (
        "user=ann group=p jobname=my run queue=q ctime=1709251200 qtime=1709251200 etime=1709251200 start=1709251260 "
        "exec_host=n01/0*8+n02/0*8 Resource_List.mem=64gb Resource_List.ncpus=16 Resource_List.nodect=2 "
        "Resource_List.walltime=01:30:00 session=7 end=1709252000 Exit_status={} resources_used.walltime=00:12:20"
    )
    written(
        tmp_path,
        "20240301",
        "03/01/2024 00:00:00;L;license;floating license hour:3",
        "03/01/2024 00:00:00;Q;12.s;queue=q",
        f"03/01/2024 00:01:00;S;12.s;{ended[:90]}",
        f"03/01/2024 00:13:20;E;12.s;{ended.format(0)}",
        f"03/01/2024 00:13:20;E;13[4].s;{ended.format(271)}",
        f"03/01/2024 00:13:20;E;13[].s;{ended.format(0)}",
        "03/01/2024 00:14:00;D;14.s;requestor=ann@n01",
        "cut off",
    )
    command = told("pbs.toml", "cat 2024*", "schedtwin import")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    report = import_log("requests_csv", [tmp_path / "pbs.jsonl", EXAMPLES / "pbs.toml"], tmp_path / "a")
    rows = requests_in(tmp_path / "a")
    assert ({name: row["status"] for name, row in rows.items()}, report.quarantined["requests"]) == (
        {"12.s": "completed", "13[4].s": "killed"},
        {"other_row:job": 1},
    )
    job = rows["12.s"]
    assert (
        (job["start"] - job["arrival"]).total_seconds(),
        (job["finish"] - job["start"]).total_seconds(),
    ) == (60, 740)
    assert (job["memory_gib"], job["cpu_cores"], job["requested_run_s"]) == (64.0, 16.0, 5400.0)
    assert (job["ran_nodes"], job["num_nodes"], job["agent"], job["queue"]) == (["n01", "n02"], 2, "ann", "q")


def test_jobs_of_htcondor_that_were_completed_removed_or_ended_by_a_signal(tmp_path: Path) -> None:
    job = {
        "ClusterId": 7, "Owner": "ann", "QDate": 1709251200, "JobCurrentStartDate": 1709251260, "JobStatus": 4,
        "EnteredCurrentStatus": 1709252000, "RequestCpus": 2, "RequestMemory": 2048, "LastRemoteHost": "slot1_3@n1.org",
    }  # fmt: skip
    others: tuple[dict, ...] = (
        {"ExitCode": 0},
        {"ExitCode": 1},
        {"ExitBySignal": True},
        {"JobStatus": 3, "JobCurrentStartDate": None, "LastRemoteHost": None, "RequestMemory": "/Expr(x)/"},
    )
    written(
        tmp_path, "condor.jsonl", *(json.dumps(job | {"ProcId": at} | one) for at, one in enumerate(others))
    )
    import_log("requests_csv", [tmp_path / "condor.jsonl", EXAMPLES / "htcondor.toml"], tmp_path / "a")
    rows = requests_in(tmp_path / "a")
    assert [rows[f"7/{at}"]["status"] for at in range(4)] == ["completed", "failed", "killed", "killed"]
    assert [rows[f"7/{at}"].get("memory_gib") for at in (0, 3)] == [2.0, None]
    assert [rows[f"7/{at}"].get("ran_node") for at in (0, 3)] == ["n1.org", None]
    assert "start" not in rows["7/3"]
    assert "finish" in rows["7/3"]


def test_events_of_google_joined_to_attempts_by_the_query_that_the_mapping_names(tmp_path: Path) -> None:
    us, never = 1_000_000, 2**63 - 1
    events = [  # time, job, task, machine, event
        (0, 1, 0, None, 0), (0, 1, 0, "m1", 1), (700 * us, 1, 0, "m1", 4),
        (600 * us, 2, 0, None, 0), (600 * us, 2, 0, "m2", 1), (900 * us, 2, 0, "m2", 2),
        (900 * us, 2, 0, None, 0), (950 * us, 2, 0, "m3", 1), (950 * us, 2, 0, "m3", 8),
        (700 * us, 3, 0, None, 0), (never, 3, 0, None, 5),
    ]  # fmt: skip
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE events (time, job, task, machine, event, user, class, cpu)")
    base.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, 'u', 2, .5)", events)
    found = base.execute(told("google.toml", "SELECT job", "Of the data of 2019"))
    lines = [",".join("" if one is None else str(one) for one in row) for row in found]
    written(tmp_path, "attempts.csv", ",".join(one[0] for one in found.description), *lines)
    report = import_log("requests_csv", [tmp_path / "attempts.csv", EXAMPLES / "google.toml"], tmp_path / "a")
    rows = {
        name: tuple(
            None if one not in row else row[one].timestamp() for one in ("arrival", "start", "finish")
        )
        for name, row in requests_in(tmp_path / "a").items()
    }
    assert rows == {"2/0/1": (600, 600, 900), "2/0/2": (900, 950, None), "3/0/1": (700, None, None)}
    assert report.quarantined["requests"] == {"null:arrival": 1}
    assert requests_in(tmp_path / "a")["2/0/1"]["status"] == "killed"


def test_the_events_of_google_of_2019_are_those_of_2011_by_the_view_that_the_mapping_names() -> None:
    base = sqlite3.connect(":memory:")
    base.execute(
        "CREATE TABLE instance_events (time, collection_id, instance_index, machine_id, type, scheduling_class, cpus)"
    )
    types = [0, 1, 2, 9, 3, 10, 4, 0, 1, 2, 3, 6]  # evicted, submitted again, finished
    base.executemany(
        "INSERT INTO instance_events VALUES (?, 7, 0, ?, ?, 2, .5)",
        [(at, "m" if one in (3, 4, 6) else None, one) for at, one in enumerate(types, 600)],
    )
    view = told("google.toml", "CREATE VIEW", "and then").replace("resource_request.cpus", "cpus")
    base.execute(view)
    found = base.execute(told("google.toml", "SELECT job", "Of the data of 2019"))
    names = [one[0] for one in found.description]
    attempts = [dict(zip(names, row, strict=True)) for row in found]
    assert [
        [row[name] for name in ("submit", "start", "finish", "outcome", "machine")] for row in attempts
    ] == [
        [600, 604, 606, 2, "m"],
        [607, 610, 611, 4, "m"],
    ]


@pytest.mark.parametrize(
    ("example", "program", "answer"),
    [
        ("slurm.toml", "sinfo", "n1,cluster,pool,64\nn2,cluster,pool,8\nn1,cluster,pool,64"),
        ("kubernetes.toml", "kubectl", "n1     64\nn2     8"),
    ],
)
def test_nodes_by_the_command_that_a_mapping_names(tmp_path: Path, example, program, answer) -> None:
    fake = written(tmp_path, program, "#!/bin/sh", f"cat <<'E'\n{answer}\nE")
    fake.chmod(0o755)
    command = told(example, "(echo node_id", "schedtwin import")
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, env=environment)
    log = written(tmp_path, "log.csv", "t", "2024-03-01T12:00:00Z")
    mapping = written(tmp_path, "map.toml", '[columns.arrival]\nsource = "t"')
    import_log("requests_csv", [log, mapping, tmp_path / "nodes.csv"], tmp_path / "a")
    nodes = [row for batch in Archive(tmp_path / "a").scan("nodes") for row in batch.to_pylist()]
    assert {row["node_id"]: (row["site"], row["cpu_cores"]) for row in nodes} == {
        "n1": ("cluster", 64.0),
        "n2": ("cluster", 8.0),
    }


def test_arrivals_follow_from_ends_run_times_and_waits_where_the_log_has_no_others(tmp_path: Path) -> None:
    ends = '[columns.finish]\nsource = "end"\n[columns.run_s]\nsource = "run"\n'
    lines = ("end,run,wait", "1709251210,4,3", "1709251210,0,1", "1709251210,,1")
    never = ends + "[columns.wait_s]\nconstant = 0\n"
    report, rows = imported(tmp_path, never, *lines)
    begins = [(row["arrival"].timestamp(), row["finish"].timestamp()) for row in rows.values()]
    assert begins == [(1709251206.0, 1709251210.0), (1709251210.0, 1709251210.0)]
    # What never waits began, of no run time, too
    assert ["start" in row for row in rows.values()] == [True, True]
    assert report.quarantined["requests"] == {"null:arrival": 1}
    (after := tmp_path / "after").mkdir()
    _, rows = imported(after, ends + '[columns.wait_s]\nsource = "wait"\n', *lines[:3])
    assert [row["arrival"].timestamp() for row in rows.values()] == [1709251203.0, 1709251209.0]
    assert ["start" in row for row in rows.values()] == [True, False]  # nor said to be completed
    with pytest.raises(FormatError, match=r"when requests arrived[\s\S]*wait_s"):
        imported(after, ends, *lines)


@pytest.mark.parametrize(
    ("columns", "answer"),
    [
        ('[columns.start]\nsource = "begin"\n[columns.arrival]\nsource = "t"', "yes"),
        ('[columns.start]\nsource = "begin"\n[columns.arrival]\nsource = "begin"', "no"),
        ('[columns.start]\nsource = "begin"\n[columns.wait_s]\nconstant = 0', "no"),
        ('[columns.arrival]\nsource = "t"\n[columns.wait_s]\nconstant = 5', "no"),
        ('[columns.arrival]\nsource = "t"\n[columns.wait_s]\nsource = "wait"', "yes"),
    ],
)
def test_waits_that_the_mapping_says_are_not_those_of_the_log(
    tmp_path: Path, columns: str, answer: str
) -> None:
    imported(tmp_path, columns + "\n", "t,begin,wait", "1709251200,1709251260,60")
    waits = next(one for one in check_archive(tmp_path / "a").capabilities if one.name == "true_waits")
    assert waits.answer == answer
