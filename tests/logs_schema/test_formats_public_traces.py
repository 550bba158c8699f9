"""What public traces write otherwise than the logs at hand: zeros for the unknown, amounts for each of several, ways of
writing durations and lists."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logs_schema import Archive, FormatError
from logs_schema.broken_rules import rule_in_words
from logs_schema.formats import lumos
from logs_schema.formats.reading import BadRow
from logs_schema.formats.request_values import hostlist, quantity, written_list
from logs_schema.importing import import_log
from tests.logs_schema.collecting import collect, written
from tests.logs_schema.test_formats_csv import LUMOS_HEADER, LUMOS_JOB, swapped
from tests.logs_schema.test_formats_requests import ARRIVAL, EXAMPLES, imported, requests_in

SLURM_DATABASE = (
    "id_job,id_user,nodes_alloc,nodelist,cpus_req,state,timelimit,time_submit,time_start,time_end,tres_req,mem_req,partition",
    "1,7,2,\"['r1-n2', 'r1-n3']\",80,3,1440,1600000000,1600000060,1600003660,\"1=80,2=1,1001=4\",4096,normal",
    '2,7,0,,8,4,4294967295,1600000000,0,1600000100,"1=8,2=1",9223372036854784008,normal',
    '3,8,0,,8,0,4294967294,1600000000,0,0,"1=8,2=1",8200,normal',
)
NO_CORES = {"f6": "2.0", "f7": "0", "f12": "0.0"}


def test_jobs_of_gpu_clusters_in_lumos_have_no_cores_limits_or_nodes(tmp_path):
    jobs = (
        swapped(LUMOS_JOB, **NO_CORES),
        swapped(LUMOS_JOB, f2="2", f6="16", f7="", f8="", f12=""),
        swapped(LUMOS_JOB, f2="3", f9="1000"),
    )
    found = collect(lumos, [written(tmp_path, "t.csv", LUMOS_HEADER, *jobs)])
    asked = ("cpu_cores", "gpus", "num_nodes", "requested_run_s")
    assert [tuple(row[name] for name in asked) for row in found.rows["requests"]] == [
        (None, 2.0, 8, None),
        (None, 16.0, None, None),
        (512.0, 0.0, 8, 3600.0),
    ]
    assert found.rejects == []
    # Eight nodes, of 64 cores by the third job
    assert [row["cpu_cores"] for row in found.rows["nodes"]] == [512.0]


def test_a_lumos_log_without_cores_is_a_pool_without_a_size_but_for_one_that_is_given(tmp_path):
    log = written(tmp_path, "t.csv", LUMOS_HEADER, swapped(LUMOS_JOB, **NO_CORES))
    report = import_log("lumos", [log], tmp_path / "a")
    assert any("no node has any cores" in notice for notice in report.notices)
    assert not any("is a guess" in notice for notice in report.notices)
    given = import_log("lumos", [log], tmp_path / "b", capacity={"pool": 192.0}).archive
    assert Archive(given).nodes()["cpu_cores"].to_pylist() == [192.0]
    nowhere = written(tmp_path, "u.csv", LUMOS_HEADER, swapped(LUMOS_JOB, f7="", f8=""))
    report = import_log("lumos", [nowhere], tmp_path / "c")
    assert "nodes" not in report.rows
    assert "ran_node" not in requests_in(report.archive)["639487"]


def test_an_import_says_that_a_pool_is_guessed(tmp_path):
    report = import_log("lumos", [written(tmp_path, "t.csv", LUMOS_HEADER, LUMOS_JOB)], tmp_path / "a")
    assert [notice[:41] for notice in report.notices] == ["the capacity of pool is a guess: 512 core"]


def test_the_database_of_slurm_by_its_example(tmp_path):
    report, rows = imported(tmp_path, (EXAMPLES / "slurm_database.toml").read_text(), *SLURM_DATABASE)
    assert not report.quarantined
    ran, cancelled, waiting = (rows[name] for name in "123")
    assert (ran["memory_gib"], ran["gpus"], ran["requested_run_s"]) == (8.0, 4.0, 86400.0)
    assert (ran["ran_node"], ran["ran_nodes"], ran["num_nodes"]) == ("r1-n2", ["r1-n2", "r1-n3"], 2)
    assert (ran["finish"] - ran["start"]).total_seconds() == 3600
    assert (cancelled["status"], waiting["status"]) == ("killed", "waiting")
    assert not {"start", "memory_gib", "requested_run_s", "ran_node", "num_nodes"} & set(cancelled)
    assert "finish" in cancelled
    assert not {"start", "finish"} & set(waiting)
    assert "stands for none" in rule_in_words("requests", "out_of_range:requested_run_s")


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=8,gres/gpu:a100=2,gres/gpu:v100=1,gres/gpu=3,mem=1G", 3.0),
        ("cpu=8,gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1", 3.0),
        ("cpu=8,gres/gpu:a100=2", 2.0),
        ("cpu=8,mem=1G", 0.0),
    ],
)
def test_gpus_of_slurm_are_all_of_them_in_any_order(tmp_path, tres, gpus):
    header = "JobID|User|Account|Partition|State|Submit|Start|End|Timelimit|ReqCPUS|ReqMem|ReqTRES|ReqNodes|NodeList"
    line = f"1|a|b|c|PENDING|2024-03-30T22:00:00|Unknown|Unknown|1-00|8|1G|{tres}|1|None assigned"
    _, rows = imported(tmp_path, (EXAMPLES / "slurm.toml").read_text(), header, line)
    assert rows["1"]["gpus"] == gpus


def test_what_is_asked_for_each_of_several_instances_is_multiplied(tmp_path):
    mapping = ARRIVAL + '[columns.cpu_cores]\nsource = "cpu"\nunit = "percent"\ntimes = "inst"\n'
    mapping += '[columns.num_nodes]\nsource = "inst"\n[columns.memory_gib]\nsource = "mem"\ntimes = "inst"\n'
    lines = (
        "t,cpu,inst,mem",
        "1709251200,600.0,4.0,29.25",
        "1709251200,600.0,,1",
        "1709251200,,2,",
        "1709251200,1,x,1",
    )
    report, rows = imported(tmp_path, mapping, *lines)
    found = [(row.get("cpu_cores"), row.get("num_nodes"), row.get("memory_gib")) for row in rows.values()]
    assert found == [(24.0, 4, 117.0), (None, None, None), (None, 2, None)]
    assert sum(report.quarantined["requests"].values()) == 1
    with pytest.raises(FormatError, match="is no amount, and has times"):
        imported(tmp_path, ARRIVAL + 'times = "inst"', *lines)


def test_instants_of_a_hidden_zero_may_be_in_days(tmp_path):
    mapping = (
        ARRIVAL + 'unit = "d"\n[columns.wait_s]\nconstant = 0\n[columns.finish]\nsource = "e"\nunit = "d"\n'
    )
    report, rows = imported(tmp_path, mapping, "t,e", "-1.5,0.25", "2.5,")
    first, second = rows.values()
    assert (first["arrival"].timestamp(), first["finish"].timestamp()) == (-129600.0, 21600.0)
    assert (second["arrival"].timestamp(), "finish" in second) == (216000.0, False)
    assert any("--origin DATE" in notice for notice in report.notices)


def test_a_clock_is_known_as_relative_however_late_the_first_arrival_stands(tmp_path):
    lines = ("t", *[""] * 3, *['""'] * 2000, "2057225.0")
    report, rows = imported(tmp_path, ARRIVAL, *lines, origin=datetime(2024, 1, 1, tzinfo=UTC))
    assert [row["arrival"].day for row in rows.values()] == [24]
    assert report.quarantined["requests"] == {"null:arrival": 2000}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120 ms", 0.12), ("1h30m", 5400.0), ("2 days", 172800.0), ("1.5", 1.5), ("90 SEC", 90.0), ("2m0.5s", 120.5),
     ("3 \u00b5s", 3e-6)],
)  # fmt: skip
def test_durations_with_their_units(text, seconds):
    assert quantity(text, "run_s", "s", is_binary=False) == (pytest.approx(seconds), "")


@pytest.mark.parametrize("text", ["", "fast", "1 parsec", "1h, 30m", "-"])
def test_no_durations(text):
    with pytest.raises(BadRow, match="not_a_quantity:run_s"):
        quantity(text, "run_s", "s", is_binary=False)


@pytest.mark.parametrize("text", ["n[]", "n[1,,3]", "n[1,]", "n1 n2", "n[1-2] n3"])
def test_what_is_no_list_of_hosts_names_no_node_that_there_is_not(text):
    assert hostlist("n1, n[2, 4-5] ,login-1", "ran_nodes") == ["n1", "n2", "n4", "n5", "login-1"]
    with pytest.raises(BadRow, match="not_a_hostlist:ran_nodes"):
        hostlist(text, "ran_nodes")


@pytest.mark.parametrize("text", ["n1", "{'a': 1}", "[1.5]", "[" * 10_000])
def test_no_lists(text):
    assert written_list("['n1', \"n2\", 3]", "ran_nodes") == ["n1", "n2", "3"]
    with pytest.raises(BadRow, match="not_a_list:ran_nodes"):
        written_list(text, "ran_nodes")


def test_a_pattern_or_meanings_that_fit_nothing_are_said(tmp_path):
    mapping = ARRIVAL + '[columns.ran_node]\nsource = "n"\npattern = " \\"(.+)\\""\n'
    mapping += '[columns.status]\nsource = "s"\nvalues = { COMPLETED = "completed" }\nother = "unknown"\n'
    report, rows = imported(tmp_path, mapping, "t,n,s", "1709251200,'n1',Completed", "1709251200,'n2',Failed")
    told = [notice for notice in report.notices if "first texts" in notice]
    assert told == [
        "ran_node, from n of log.csv: the pattern matches none of the first texts as a whole, and they stay as they "
        "are: 'n1', 'n2'",
        "status, from s of log.csv: all of the first texts mean 'unknown', for values has none of them: "
        "Completed, Failed",
    ]
    assert [row["ran_node"] for row in rows.values()] == ["'n1'", "'n2'"]
    (right := tmp_path / "right").mkdir()
    report, _ = imported(
        right, mapping.replace("Completed", "COMPLETED"), "t,n,s", '1709251200,"""x"" ""n""",COMPLETED'
    )
    assert not [notice for notice in report.notices if "mean 'unknown'" in notice]


def test_invocations_of_no_time_ran_unless_they_are_said_to_be_given_up(tmp_path: Path) -> None:
    mapping = '[columns.finish]\nsource = "end"\n[columns.run_s]\nsource = "duration"\n[columns.wait_s]\nconstant = 0\n'
    lines = ("app,end,duration,state", "a,100.5,0.0,ok", "a,101,0.25,ok", "a,102,0,rejected")
    _, rows = imported(tmp_path, mapping, *lines)
    assert ["start" in row for row in rows.values()] == [True, True, True]
    (said := tmp_path / "said").mkdir()
    status = '[columns.status]\nsource = "state"\nvalues = { ok = "completed", rejected = "rejected" }\n'
    _, rows = imported(said, mapping + status, *lines)
    assert ["start" in row for row in rows.values()] == [True, True, False]


def test_jobs_of_philly_that_were_tried_several_times_by_its_example(tmp_path):
    def attempt(start, end, *nodes):
        return {
            "start_time": start,
            "end_time": end,
            "detail": [{"ip": ip, "gpus": ["gpu0", "gpu1"]} for ip in nodes],
        }

    job = {"status": "Pass", "vc": "a", "user": "u", "submitted_time": "2017-10-07 01:00:00"}
    first = attempt("2017-10-07 01:01:00", "2017-10-07 01:02:00", "m1")
    jobs = [
        {
            "jobid": "1",
            "attempts": [first, attempt("2017-10-07 01:05:00", "2017-10-07 02:05:00", "m2", "m3")],
        },
        {"jobid": "2", "attempts": [attempt("2017-10-07 01:05:00", "None", "m2")], "status": "Killed"},
        {"jobid": "3", "attempts": []},
    ]
    (tmp_path / "philly.json").write_text(json.dumps([job | one for one in jobs], indent=4))
    import_log("requests_csv", [tmp_path / "philly.json", EXAMPLES / "philly.toml"], tmp_path / "a")
    rows = requests_in(tmp_path / "a")
    asked = ("cpu_cores", "ran_node", "ran_nodes", "status")
    assert [tuple(rows[name].get(one) for one in asked) for name in "123"] == [
        (4.0, "m2", ["m2", "m3"], "completed"),
        (2.0, "m2", None, "killed"),
        (None, None, None, "completed"),
    ]
    assert rows["1"]["arrival"] == datetime(2017, 10, 7, 8, tzinfo=UTC)
    assert [(rows["1"][one] - rows["1"]["arrival"]).total_seconds() for one in ("start", "finish")] == [
        300,
        3900,
    ]
    assert ["finish" in rows[name] for name in "23"] == [False, False]
