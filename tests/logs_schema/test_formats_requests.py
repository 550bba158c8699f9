"""Logs of any system by a mapping: against hand counts, dedicated importers, and what may not be guessed."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import evaluation
from logs_schema import Archive, FormatError, check_archive
from logs_schema.broken_rules import rule_in_words
from logs_schema.formats import lumos, requests_csv
from logs_schema.formats.reading import BadRow
from logs_schema.formats.request_values import InstantReading, clock_s, hostlist, quantity
from logs_schema.importing import ImportReport, import_log
from tests.logs_schema.collecting import at, collect, written
from tests.logs_schema.test_formats_accounting import HOSTILE, physical_lines, proved
from tests.logs_schema.test_formats_csv import LUMOS_HEADER, LUMOS_JOB, swapped

EXAMPLES = Path(evaluation.__file__).parent / "examples" / "requests"
ARRIVAL = '[columns.arrival]\nsource = "t"\n'
NODES = ("node_id,site,tier,cpu_cores", "n1,cluster,pool,8")
SACCT = (
    "JobID|User|Account|Partition|State|Submit|Start|End|Timelimit|ReqCPUS|ReqMem|ReqTRES|ReqNodes|NodeList",
    "7|ann|p|b|COMPLETED|2024-03-30T22:00:00|2024-03-30T22:10:00|2024-03-31T04:10:00|1-00:00:00|8|4000Mc|gres/gpu:v100=2|1|n01",
    "7.batch||||COMPLETED|2024-03-30T22:10:00|2024-03-30T22:10:00|2024-03-31T04:10:00||8|||1|n01",
    "8_3|bob|p|b|CANCELLED by 9|2024-03-30T22:00:00|Unknown|2024-03-30T23:00:00|UNLIMITED|16|16G|cpu=1|2|None assigned",
    "9|bob|p|g|TIMEOUT|2024-10-27T02:50:00|2024-10-27T02:10:00|2024-10-27T02:40:00|30:00|32|64Gn|gres/gpu=4,node=2|2|n[02-03]",
    "10|bob|p|g|PENDING|2024-10-27T12:50:00|Unknown|Unknown|2-00|32|64Gn|gres/gpu=4,node=2|2|None assigned",
    "11|bob|p|g|FAILED|2024-10-27T12:50:00|2024-10-27T12:50:00|2024-10-27T12:49:00|02:00:00|32|64Gn|gres/gpu=4,node=2|2|n02",
)


def imported(
    folder: Path, mapping: str, *lines: str, **given: Any
) -> tuple[ImportReport, dict[str, dict[str, Any]]]:
    """The report of an import, and the archive's requests by their ids."""
    written(folder, "map.toml", mapping)
    report = import_log(
        "requests_csv", [written(folder, "log.csv", *lines), folder / "map.toml"], folder / "a", **given
    )
    return report, requests_in(folder / "a")


def requests_in(archive: Path) -> dict[str, dict[str, Any]]:
    rows = [row for batch in Archive(archive).scan("requests") for row in batch.to_pylist()]
    return {
        row["request_id"]: {key: value for key, value in row.items() if value is not None} for row in rows
    }


def test_sacct_with_steps_cancelled_jobs_and_two_changes_of_the_clock(tmp_path: Path) -> None:
    slurm = (EXAMPLES / "slurm.toml").read_text().replace('time_zone = "UTC"', 'time_zone = "Europe/Berlin"')
    report, rows = imported(tmp_path, slurm, *SACCT)
    assert report.quarantined["requests"] == {"other_row:JobID": 1, "finish_before_start": 1}
    assert (report.lines.read, set(rows)) == (7, {"7", "8_3", "9", "10"})
    run = rows["7"]
    assert run["arrival"] == datetime(2024, 3, 30, 21, tzinfo=UTC)
    assert (run["finish"] - run["start"]).total_seconds() == 5 * 3600  # the night has an hour less
    assert (run["requested_run_s"], run["memory_gib"], run["cpu_cores"]) == (86400.0, 8 * 4000 / 1024, 8.0)
    assert (run["offered_node"], run["status"], "ran_nodes" in run) == ("n01", "completed", False)
    assert {name: row["gpus"] for name, row in rows.items()} == {"7": 2.0, "8_3": 0.0, "9": 4.0, "10": 4.0}
    cancelled = rows["8_3"]
    assert cancelled["finish"] == datetime(2024, 3, 30, 22, tzinfo=UTC)
    assert not {"start", "ran_node", "requested_run_s"} & set(cancelled)
    assert (cancelled["status"], cancelled["memory_gib"]) == ("killed", 16.0)
    twice = rows["9"]  # 02:50 in summer time, 02:10 and 02:40 in winter time
    assert (twice["start"] - twice["arrival"]).total_seconds() == 20 * 60
    assert (twice["finish"] - twice["start"]).total_seconds() == 30 * 60
    assert (twice["ran_nodes"], twice["memory_gib"], twice["requested_run_s"]) == (
        ["n02", "n03"],
        128.0,
        1800.0,
    )
    assert (rows["10"]["requested_run_s"], rows["10"]["status"]) == (2 * 86400.0, "waiting")


def test_digits_joined_by_an_underscore_are_no_number(tmp_path: Path) -> None:
    mapping = ARRIVAL + '[columns.cpu_cores]\nsource = "c"\n'
    report, rows = imported(tmp_path, mapping, "t,c", "1709251200,1_2", "20240301_12,1")
    assert report.quarantined["requests"] == {"not_a_number:cpu_cores": 1}
    assert [row["arrival"] for row in rows.values()] == [datetime(2024, 3, 1, 12, tzinfo=UTC)]


def test_steps_left_out_on_purpose_do_not_make_a_log_unusable(tmp_path: Path) -> None:
    steps = [SACCT[2].replace("7.batch", f"7.{step}") for step in range(4)]
    report, _ = imported(tmp_path, (EXAMPLES / "slurm.toml").read_text(), *SACCT[:2], *steps)
    assert report.quarantined["requests"] == {"other_row:JobID": 4}
    found = check_archive(tmp_path / "a")
    assert found.usable
    assert any("4 rows in quarantine: other_row:JobID (4)" in line for line in found.warnings)


def test_pods_of_kubernetes_as_json_lines(tmp_path: Path) -> None:
    containers = [
        {"resources": {"requests": {"cpu": "250m", "memory": "512Mi"}}},
        {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
        {"resources": {}},
    ]
    pod = {
        "metadata": {
            "uid": "u",
            "namespace": "shop",
            "creationTimestamp": "2024-03-01T12:00:00Z",
            "labels": {"app": "web"},
        },
        "spec": {"nodeName": "n1", "containers": containers},
        "status": {"phase": "Running", "startTime": "2024-03-01T12:00:02Z"},
    }
    written(tmp_path, "nodes.csv", *NODES)
    written(tmp_path, "pods.jsonl", json.dumps(pod), "[]", "{", "")
    written(tmp_path, "map.toml", (EXAMPLES / "kubernetes.toml").read_text())
    report = import_log("requests_csv", [tmp_path], tmp_path / "a")
    assert report.rows == {"nodes": 1, "requests": 1}
    assert report.quarantined == {"requests": {"not_json": 2}}
    row = requests_in(tmp_path / "a")["u"]
    assert (row["cpu_cores"], row["memory_gib"], row["ran_node"], row["service"]) == (1.25, 1.5, "n1", "web")
    assert (row["start"] - row["arrival"]).total_seconds() == 2.0
    assert row["status"] == "running"


def test_pods_that_have_ended_leave_no_doubt_and_half_letters_stop_no_import(tmp_path: Path) -> None:
    ended = [{"state": {"waiting": {}}}, {"state": {"terminated": {"finishedAt": "2024-03-01T12:01:00Z"}}}]
    created = {"creationTimestamp": "2024-03-01T12:00:00Z"}
    pods = [
        {
            "metadata": {"uid": "u", **created},
            "status": {"phase": "Succeeded", "startTime": "2024-03-01T12:00:01Z", "containerStatuses": ended},
        },
        {"metadata": {"uid": "v", **created, "labels": {"app": "web \ud83d"}}},  # an emoji, cut
    ]
    written(tmp_path, "nodes.csv", *NODES)
    written(tmp_path, "pods.jsonl", *map(json.dumps, pods))
    written(tmp_path, "map.toml", (EXAMPLES / "kubernetes.toml").read_text())
    report = import_log("requests_csv", [tmp_path], tmp_path / "a")
    assert not [notice for notice in report.notices if "finish" in notice]
    rows = requests_in(tmp_path / "a")
    assert rows["u"]["finish"].isoformat() == "2024-03-01T12:01:00+00:00"
    assert rows["v"]["service"] == r"web \ud83d"


LISTS_MAPPING = """
[columns.request_id]
source = "id"
[columns.arrival]
source = "submitted"
[columns.cpu_cores]
source = "resources.cores"
[columns.candidates]
source = "resources.allowed"
[columns.ran_node]
source = "hosts"
[columns.ran_nodes]
source = "hosts"
unit = "hostlist"
"""


def test_lists_of_json_name_all_nodes_and_add_up(tmp_path: Path) -> None:
    jobs = [
        {"id": "wide", "submitted": 10, "hosts": ["n2", "n[03-04]"],
         "resources": {"cores": [4, 4, 2], "allowed": ["n2", "n03", "n04"]}},
        {"id": "one", "submitted": 20, "hosts": ["n2"], "resources": {"cores": [1], "allowed": [["n2"], "n03"]}},
        {"id": "idle", "submitted": 30, "hosts": [], "resources": {"cores": [], "allowed": [{"name": "n2"}]}},
    ]  # fmt: skip
    written(tmp_path, "nodes.csv", NODES[0], *(f"{name}{NODES[1][2:]}" for name in ("n2", "n03", "n04")))
    written(tmp_path, "jobs.jsonl", *map(json.dumps, jobs))
    written(tmp_path, "map.toml", LISTS_MAPPING)
    import_log("requests_csv", [tmp_path], tmp_path / "a")
    rows = requests_in(tmp_path / "a")
    wide, one, idle = rows["wide"], rows["one"], rows["idle"]
    assert (wide["cpu_cores"], wide["ran_node"], wide["ran_nodes"]) == (10.0, "n2", ["n2", "n03", "n04"])
    assert (wide["candidates"], one["candidates"]) == (["n2", "n03", "n04"], ["n2", "n03"])
    assert (one["ran_node"], one["cpu_cores"], "ran_nodes" in one) == ("n2", 1.0, False)
    assert not {"ran_node", "ran_nodes", "candidates", "cpu_cores"} & set(idle)


def test_amounts_that_the_pattern_does_not_match_as_a_whole_are_told_apart(tmp_path: Path) -> None:
    mapping = ARRIVAL + '[columns.num_nodes]\nsource = "asked"\npattern = "R=([^,]+),.*"\n'
    lines = ("t,asked", '1,"R=3,W=9"', "2,4", "3,R=3", '4,"R=many,W=9"')
    report, _ = imported(tmp_path, mapping, *lines, capacity={"pool": 8.0})
    assert report.rows["requests"] == 2
    assert report.quarantined["requests"] == {"no_match:num_nodes": 1, "not_a_number:num_nodes": 1}
    assert "matches as a whole" in rule_in_words("requests", "no_match:num_nodes")


LUMOS_MAPPING = """
[columns.request_id]
source = "job"
[columns.agent]
source = "user"
pattern = "([0-9]+)(?:[.]0)?"
[columns.scenario]
source = "project"
pattern = "([0-9]+)(?:[.]0)?"
values = {0 = ""}
[columns.cpu_cores]
source = "cpu_num"
[columns.gpus]
source = "gpu_num"
[columns.num_nodes]
source = "node_num"
[columns.arrival]
source = "submit_time"
[columns.wait_s]
source = "wait_time"
[columns.run_s]
source = "run_time"
[columns.requested_run_s]
source = "wall_time"
[columns.status]
source = "new_status"
values = {Pass = "completed", Killed = "killed", Failed = "failed"}
other = "unknown"
"""


def test_a_mapping_of_a_known_format_reads_what_its_importer_reads(tmp_path: Path) -> None:
    """The lumos importer shares neither the mapping nor the derivation of start and finish."""
    jobs = [swapped(LUMOS_JOB, f1=str(n), f9=str(1e9 + 7.5 * n), f10=str(3 * n)) for n in range(20)]
    log = written(tmp_path, "log.csv", LUMOS_HEADER, *jobs)
    mapping = written(tmp_path, "map.toml", LUMOS_MAPPING)
    theirs = collect(lumos, [log]).rows["requests"]
    ours = collect(requests_csv, [log, mapping]).rows["requests"]
    assert len(ours) == 20
    for mine, other in zip(ours, theirs, strict=True):
        # a pool has a name of its own only where its size was given
        assert {key: value for key, value in mine.items() if value is not None} == {
            key: value for key, value in other.items() if value is not None and key != "ran_node"
        }


@pytest.mark.parametrize(
    ("unit", "text"),
    [("s", "1700000000.5"), ("ms", "1700000000500"), ("us", "1700000000500000"), ("", "2023-11-14T22:13:20.5Z"),
     ("", "2023-11-14 22:13:20.500 UTC"), ("", "2023-11-14T23:13:20.500000+01:00")],
)  # fmt: skip
def test_one_instant_in_every_writing(tmp_path: Path, unit: str, text: str) -> None:
    mapping = ARRIVAL + (f'unit = "{unit}"\n' if unit else "")
    _, rows = imported(tmp_path, mapping, "t,x", f"{text},1")
    assert rows == {
        "log.csv:2": {
            "request_id": "log.csv:2",
            "arrival": at(1700000000.5),
            "site": "cluster",
            "status": "unknown",
        }
    }


def test_milliseconds_taken_for_seconds_are_refused_line_by_line(tmp_path: Path) -> None:
    report, rows = imported(tmp_path, ARRIVAL, "t", "1700000000500", "1700000000")
    assert (report.quarantined["requests"], len(rows)) == ({"out_of_range:arrival": 1}, 1)


@pytest.mark.parametrize(
    ("unit", "text", "words"),
    [
        ("s", "1700000000500", 'is unit = "ms" meant'),
        ("us", "1700000000500", 'is unit = "ms" meant'),
        ("ms", "1700000000", 'is unit = "s" meant'),
        ("s", "14/11/2023 22:13", "time_format"),
    ],
)
def test_an_instant_that_is_likely_written_otherwise_is_told_with_what_to_change(
    tmp_path: Path, unit: str, text: str, words: str
) -> None:
    report, _ = imported(tmp_path, ARRIVAL + f'unit = "{unit}"\n', "t", text, capacity={"pool": 8.0})
    (notice,) = report.notices
    assert words in notice
    assert text in notice


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        ("", "2023-11-14T22:13:20"), ('unit = "ms"\n', "2023-11-14T22:13:20Z"), ('unit = "ms"\n', "1700000000500"),
        ('pattern = "at (.+)"\n', "at 2023-11-14"), ("", "1700000000"),
    ],
)  # fmt: skip
def test_an_instant_as_its_mapping_says_is_no_doubt(tmp_path: Path, mapping: str, text: str) -> None:
    report, rows = imported(tmp_path, ARRIVAL + mapping, "t", text, capacity={"pool": 8.0})
    assert (report.notices, len(rows)) == ((), 1)


def test_a_capacity_makes_the_log_one_pool(tmp_path: Path) -> None:
    mapping = ARRIVAL + '[columns.wait_s]\nsource = "w"\nunit = "min"\n[columns.run_s]\nsource = "r"\n'
    mapping += '[columns.cpu_cores]\nsource = "m"\nunit = "millicores"\n'
    lines, origin = ("t,w,r,m", "60,1,5,18708", "60,,5,1", "60,-1,5,1"), datetime(2024, 1, 1, tzinfo=UTC)
    report, rows = imported(tmp_path, mapping, *lines, origin=origin, capacity={"pool": 64})
    assert (report.rows["nodes"], report.quarantined["requests"]) == (1, {"negative:wait_s": 1})
    started, waits = rows["log.csv:2"], rows["log.csv:3"]
    assert started["cpu_cores"] == 18.708
    assert started["arrival"] == datetime(2024, 1, 1, 0, 1, tzinfo=UTC)
    assert (started["start"].minute, started["finish"].second, started["ran_node"]) == (2, 5, "pool")
    assert ("run_s" in started, waits["run_s"], "ran_node" in waits) == (False, 5.0, False)


@pytest.mark.parametrize(
    ("mapping", "what"),
    [
        ("", "when requests arrived"),
        (ARRIVAL + 'unti = "ms"', "unknown keys: unti"),
        (ARRIVAL + 'unit = "y"', "cannot be given in 'y'"),
        (ARRIVAL + '[columns.cores]\nsource = "c"', "no column 'cores'"),
        (ARRIVAL + '[columns.status]\nsource = "t"\nvalues = {A = "done"}', "status cannot be done"),
        ('time_zone = "Mars"\n' + ARRIVAL, "no time zone 'Mars'"),
        ('separator = "||"\n' + ARRIVAL, "not one character"),
        ('time_format = "%H:%H"\n' + ARRIVAL, "time_format '%H:%H' cannot be read"),
        ('time_format = "%s"\n' + ARRIVAL, "'s' is a bad directive"),
        ("header = 't'\n" + ARRIVAL, "wrong type(?s:.)*a list of texts in brackets"),
        ('[columns.arrival]\nsource = "when"', "no column when"),
        (ARRIVAL + "pattern = '('", "regular expression"),
        ("[columns.arrival]\nsource = []", "no source"),
        ("x", "cannot be read"),
    ],
)
def test_a_wrong_mapping_is_refused_before_anything_is_written(
    tmp_path: Path, mapping: str, what: str
) -> None:
    with pytest.raises(FormatError, match=what):
        imported(tmp_path, mapping, "t", "5")
    assert not (tmp_path / "a").exists()


def test_every_field_of_sacct_may_hold_anything(tmp_path: Path) -> None:
    """Each row with each field replaced by each hostile text: all lines are accounted for, none ends the import."""
    lines = list(SACCT)
    for row in SACCT[1:]:
        fields = row.split("|")
        for place in range(len(fields)):
            lines += ["|".join([*fields[:place], text, *fields[place + 1 :]]) for text in HOSTILE]
    report, _ = imported(tmp_path, (EXAMPLES / "slurm.toml").read_text(), *lines, "", ";")
    proved(report, {"log.csv": physical_lines(tmp_path / "log.csv")}, by_line=True)
    check_archive(report.archive)


def test_durations_amounts_and_lists_of_hosts() -> None:
    times = {
        "4": 4,
        "03:04": 184,
        "02:03:04": 7384,
        "1-02:03:04": 93784,
        "1-02:03": 93780,
        "2-00": 172800,
        "0:00.5": 0.5,
    }
    assert {text: clock_s(text, "x") for text in times} == times
    amounts = {"500m": 0.5, "2": 2.0, "1e3": 1000.0, "1k": 1000.0, "1500000000n": 1.5, "250u": 2.5e-4}
    assert {text: quantity(text, "x", "cores", is_binary=False)[0] for text in amounts} == amounts
    assert quantity("2Gi", "x", "GiB", is_binary=False) == (2.0, "")
    assert quantity("2G", "x", "GiB", is_binary=False) == (2e9 / 2**30, "")
    assert quantity("1Ei", "x", "GiB", is_binary=False) == (2.0**30, "")
    assert quantity("4000n", "x", "MiB", is_binary=True) == (4000.0 / 2**20, "n")
    assert quantity("2Gc", "x", "GiB", is_binary=True) == (2.0, "c")
    assert quantity("1048576", "x", "MiB", is_binary=False) == (1.0, "")
    assert hostlist("n[08-10,12],login1", "x") == ["n08", "n09", "n10", "n12", "login1"]
    assert hostlist("r[1-2]c[0-1]", "x") == ["r1c0", "r1c1", "r2c0", "r2c1"]
    hostlists = "n[1", "n[1-9999999]", ",", "n[3-1],ok", "n" + "[1]" * 3000
    for read, text in ((clock_s, "1:x"), *((hostlist, one) for one in hostlists)):
        with pytest.raises(BadRow):
            read(text, "x")
    with pytest.raises(BadRow):
        InstantReading().read("soon", "x", "s")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("jobs.txt", '[\n  {"at": 1}\n]\n', "one JSON document"),
        ("jobs.txt", '{"at": 1}\n{"at": 2}\n', "is not named so"),
        ("jobs.pq", "PAR1\x15\x04", "is Parquet"),
    ],
)
@pytest.mark.parametrize("log_format", ["requests_csv", "metrics_csv"])
def test_what_is_neither_csv_nor_json_lines_is_told_before_it_is_read(tmp_path, log_format, name, text, what):
    (tmp_path / name).write_text(text)
    mapping = {
        "requests_csv": '[columns.arrival]\nsource = "at"',
        "metrics_csv": 'deployment = "a"\ntime_column = "at"\n[metrics.num_replicas]\nsource = "n"',
    }
    written(tmp_path, "map.toml", mapping[log_format])
    with pytest.raises(FormatError, match=what):
        import_log(log_format, [tmp_path / name, tmp_path / "map.toml"], tmp_path / "archive")
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize(
    ("number", "unit", "num_notices"), [(3_600_000, "ms", 0), (1_709_294_460_000, "ms", 1)]
)
def test_an_instant_that_is_taken_for_a_duration_is_told(tmp_path, number, unit, num_notices):
    mapping = f'{ARRIVAL}\n[columns.deadline_s]\nsource = "until"\nunit = "{unit}"'
    report, _ = imported(
        tmp_path, mapping, "t,until", f"2024-03-01T12:00:00Z,{number}", capacity={"pool": 8.0}
    )
    assert len(report.notices) == num_notices
    assert all("deadline_s" in notice and "54 years" in notice for notice in report.notices)
