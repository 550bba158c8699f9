import gzip
from datetime import UTC, datetime

import pytest

from logs_schema.errors import FormatError
from logs_schema.formats import alibaba2018, lumos, openb, philly
from logs_schema.importing import import_log
from tests.logs_schema.collecting import at, collect, written

LUMOS_HEADER = (
    ",job,user,project,state,gpu_num,cpu_num,node_num,submit_time,wait_time,run_time,wall_time,new_status"
)
LUMOS_JOB = "0,639487,998489.0,0.0,0,0,512.0,8.0,1672529301,71,3632.92,3600.0,Killed"
PHILLY_HEADER = "submit_local,submit_time,wait_time_SIMULATED_FIFO,run_time,num_gpus,vc"
PHILLY_JOB = "2017-09-08 06:01:21,1504864881,777,2091379,2,6214e9"
TASK = "M5_4,17,j_1661,6,Terminated,86207,86300,50,0.39"
PODS_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time"
)
POD = "pod-1,6000,12288,1,460,,LS,Succeeded,100,900,130"
LAST_POD = "pod-9,1000,1024,0,0,,BE,Failed,500,1000,500"
NODES_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
NODES = ("n-0,32000,262144,0,", "n-1,96000,393216,8,G2", "n-2,96000,393216,8,G2", "n-3,104000,524288,2,T4")


def swapped(line, **fields):
    """A line with some of its comma-separated fields replaced, named by position from 1."""
    values = line.split(",")
    for name, value in fields.items():
        values[int(name[1:]) - 1] = value
    return ",".join(values)


def test_a_lumos_job_becomes_this_row(tmp_path):
    found = collect(lumos, [written(tmp_path, "theta.csv", LUMOS_HEADER, LUMOS_JOB)])
    assert found.rows["requests"] == [
        {
            "request_id": "639487",
            "arrival": at(1672529301),
            "site": "cluster",
            "scenario": None,
            "agent": "998489",
            "cpu_cores": 512.0,
            "gpus": 0.0,
            "num_nodes": 8,
            "requested_run_s": 3600.0,
            "start": at(1672529372),
            "finish": at(1672533004.92),
            "status": "killed",
            "ran_node": "pool",
        }
    ]
    assert found.lines["requests"] == [2]


def test_the_lumos_pool_is_the_largest_use_at_once(tmp_path):
    jobs = (
        swapped(LUMOS_JOB, f2="1", f9="1000", f10="0", f11="100", f8="8", f7="512"),
        swapped(LUMOS_JOB, f2="2", f9="1050", f10="0", f11="100", f8="6", f7="384"),
        swapped(LUMOS_JOB, f2="3", f9="1000", f10="100", f11="10", f8="7", f7="448"),
    )
    found = collect(lumos, [written(tmp_path, "theta.csv", LUMOS_HEADER, *jobs)])
    assert found.rows["nodes"][0]["cpu_cores"] == 64 * 14


@pytest.mark.parametrize(
    ("status", "expected"), [("Pass", "completed"), ("Failed", "failed"), ("Odd", "unknown")]
)
def test_lumos_statuses(tmp_path, status, expected):
    found = collect(lumos, [written(tmp_path, "t.csv", LUMOS_HEADER, swapped(LUMOS_JOB, f13=status))])
    assert found.rows["requests"][0]["status"] == expected


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"f10": "-1"}, "negative:wait_time"),
        ({"f11": "-1"}, "negative:run_time"),
        ({"f12": "-1"}, "negative:wall_time"),
        ({"f8": "0", "f7": "0"}, "zero:node_num"),
        ({"f8": "1.5"}, "not_whole:node_num"),
        ({"f8": "1e12"}, "out_of_range:node_num"),
        ({"f9": ""}, "not_a_number:submit_time"),
        ({"f9": "inf"}, "not_finite:submit_time"),
        ({"f1": "0,0"}, "field_count"),
    ],
)
def test_bad_lumos_lines(tmp_path, fields, rule):
    lines = (LUMOS_HEADER, LUMOS_JOB, swapped(LUMOS_JOB, **fields))
    assert collect(lumos, [written(tmp_path, "t.csv", *lines)]).rejects == [(rule, 3)]


@pytest.mark.parametrize("fields", [{}, {"f7": "0", "f6": "4"}])
def test_no_nodes_of_a_job_with_cores_or_gpus_are_unknown(tmp_path, fields):
    job = swapped(LUMOS_JOB, f8="0", f1="1", **fields)
    (_, row) = collect(lumos, [written(tmp_path, "t.csv", LUMOS_HEADER, LUMOS_JOB, job)]).rows["requests"]
    assert (row["num_nodes"], row["cpu_cores"] or row["gpus"]) == (None, 4.0 if fields else 512.0)


def test_philly_waits_are_refused_and_run_times_kept(tmp_path):
    path = written(tmp_path, "philly.csv", PHILLY_HEADER, PHILLY_JOB)
    found = collect(philly, [path])
    assert found.rows["requests"] == [
        {
            "request_id": "2",
            "arrival": at(1504864881),
            "site": "philly",
            "queue": "6214e9",
            "gpus": 2.0,
            "run_s": 2091379.0,
            "status": "unknown",
        }
    ]
    assert philly.facts([path])["limits"]["true_waits"].startswith("refused")


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"f2": "soon"}, "not_a_number:submit_time"),
        ({"f4": "-3"}, "negative:run_time"),
        ({"f5": "0"}, "zero:num_gpus"),
        ({"f6": ""}, "empty:vc"),
        ({"f6": "a,b"}, "field_count"),
    ],
)
def test_bad_philly_lines(tmp_path, fields, rule):
    lines = (PHILLY_HEADER, swapped(PHILLY_JOB, **fields), PHILLY_JOB)
    found = collect(philly, [written(tmp_path, "p.csv", *lines)])
    assert (found.rejects, found.lines["requests"]) == ([(rule, 2)], [3])


@pytest.mark.parametrize("line", [TASK, TASK + ",", TASK + ",390", TASK + ",\r"])
def test_an_alibaba_task_becomes_this_row_whatever_its_tenth_field(tmp_path, line):
    found = collect(alibaba2018, [written(tmp_path, "Task_1.csv", line)])
    assert found.rows["requests"] == [
        {
            "request_id": "j_1661/M5_4",
            "arrival": at(86207),
            "site": "cluster",
            "service": "6",
            "cpu_cores": 0.5,
            "memory_share": pytest.approx(0.0039),
            "deadline_s": 93.0,
            "run_s": 93.0,
            "status": "completed",
        }
    ]


def test_alibaba_tasks_are_known_by_times_with_decimals(tmp_path):
    task = swapped(TASK, f6="86207.0", f7="86300.0")  # as they are written where others have none
    report = import_log("alibaba2018", [written(tmp_path, "t.csv", task)], tmp_path / "a")
    assert report.rows["requests"] == 1


def test_alibaba_days_count_from_the_origin(tmp_path):
    path = written(tmp_path, "Task_1.csv", TASK)
    found = collect(alibaba2018, [path], datetime(2018, 1, 1, tzinfo=UTC))
    assert found.rows["requests"][0]["arrival"] == datetime(2018, 1, 1, 23, 56, 47, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"f7": "0", "f5": "Running"}, {"deadline_s": None, "run_s": None, "status": "running"}),
        ({"f5": "Running"}, {"deadline_s": None, "run_s": None, "status": "running"}),
        ({"f7": ""}, {"deadline_s": None, "run_s": None, "status": "completed"}),
        ({"f7": "86207"}, {"deadline_s": 0.0}),
        ({"f5": "Failed"}, {"deadline_s": 93.0, "status": "failed"}),
        ({"f8": "", "f9": ""}, {"cpu_cores": None, "memory_share": None}),
    ],
)
def test_alibaba_special_values(tmp_path, fields, expected):
    row = collect(alibaba2018, [written(tmp_path, "t.csv", swapped(TASK, **fields))]).rows["requests"][0]
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"f1": ""}, "empty:task_name"),
        ({"f3": ""}, "empty:job_name"),
        ({"f6": "0"}, "zero:start"),
        ({"f6": "x"}, "not_a_number:start"),
        ({"f7": "86206"}, "end_before_start"),
        ({"f8": "-50"}, "negative:plan_cpu"),
        ({"f9": "0.39,1,2"}, "field_count"),
        ({"f9": ""}, None),
    ],
)
def test_bad_alibaba_lines(tmp_path, fields, rule):
    rejects = collect(alibaba2018, [written(tmp_path, "t.csv", TASK, swapped(TASK, **fields))]).rejects
    assert rejects == ([(rule, 2)] if rule else [])


def openb_found(folder, *pods):
    written(folder, "openb_node_list_all_node.csv", NODES_HEADER, *NODES)
    return collect(openb, [written(folder, "openb_pod_list_default.csv", PODS_HEADER, *pods)])


def test_an_openb_pod_becomes_this_row(tmp_path):
    assert openb_found(tmp_path, POD, LAST_POD).rows["requests"][0] == {
        "request_id": "pod-1",
        "arrival": at(100),
        "site": "openb",
        "scenario": "LS",
        "queue": "LS",
        "cpu_cores": 6.0,
        "memory_gib": 12.0,
        "gpus": 0.46,
        "candidates": None,
        "start": at(130),
        "finish": at(900),
        "status": "completed",
    }


def test_openb_nodes_of_equal_machines_share_a_class(tmp_path):
    nodes = openb_found(tmp_path, POD).rows["nodes"]
    assert [node["node_class"] for node in nodes] == [
        "32c-256g",
        "96c-384g-8xG2",
        "96c-384g-8xG2",
        "104c-512g-2xT4",
    ]
    assert [(node["gpus"], node["gpu_model"]) for node in nodes[:2]] == [(0.0, None), (8.0, "G2")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"f8": "Failed"}, {"status": "failed", "finish": at(900)}),
        ({"f8": "Running"}, {"status": "unknown", "finish": at(900)}),
        ({"f8": "Running", "f10": "1000"}, {"status": "running", "finish": None}),
        ({"f8": "Pending", "f11": ""}, {"status": "unknown", "start": None, "finish": at(900)}),
        ({"f8": "Pending", "f11": "", "f10": ""}, {"status": "waiting", "start": None, "finish": None}),
        ({"f4": "4", "f5": "1000"}, {"gpus": 4.0}),
        ({"f6": "G2|V100M16"}, {"candidates": ["96c-384g-8xG2"]}),
        ({"f6": "T4|G2"}, {"candidates": ["104c-512g-2xT4", "96c-384g-8xG2"]}),
        ({"f6": "A10"}, {"candidates": []}),
    ],
)
def test_openb_phases_times_and_specifications(tmp_path, fields, expected):
    row = openb_found(tmp_path, swapped(POD, **fields), LAST_POD).rows["requests"][0]
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"f1": ""}, "empty:name"),
        ({"f2": "many"}, "not_a_number:cpu_milli"),
        ({"f3": "-1"}, "negative:memory_mib"),
        ({"f9": ""}, "empty:creation_time"),
        ({"f9": "-4"}, "negative:creation_time"),
        ({"f7": "LS,x"}, "field_count"),
    ],
)
def test_bad_openb_lines(tmp_path, fields, rule):
    assert openb_found(tmp_path, POD, swapped(POD, **fields)).rejects == [(rule, 3)]


def test_the_list_of_gpu_nodes_is_refused(tmp_path):
    pods = written(tmp_path, "openb_pod_list_default.csv", PODS_HEADER, POD)
    nodes = written(tmp_path, "openb_node_list_gpu_node.csv", NODES_HEADER, *NODES)
    with pytest.raises(FormatError, match="reuses ids"):
        collect(openb, [pods, nodes])
    with pytest.raises(FormatError, match="openb_node_list_all_node"):
        collect(openb, [pods])


def test_the_list_of_nodes_may_be_packed(tmp_path):
    written(tmp_path, "openb_pod_list_default.csv", PODS_HEADER, POD)
    text = "\n".join([NODES_HEADER, *NODES, ""])
    (tmp_path / "openb_node_list_all_node.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert openb.node_file([tmp_path]).name == "openb_node_list_all_node.csv.gz"


def test_of_several_pod_lists_in_a_folder_the_default_one_counts(tmp_path):
    written(tmp_path, "openb_pod_list_gpuspec33.csv", PODS_HEADER, POD, LAST_POD)
    written(tmp_path, "openb_pod_list_default.csv", PODS_HEADER, POD)
    assert [path.name for path in openb.data_files([tmp_path])] == ["openb_pod_list_default.csv"]


@pytest.mark.parametrize(
    ("module", "name"), [(lumos, "a.csv"), (philly, "a.csv"), (openb, "openb_pod_list_default.csv")]
)
def test_a_header_that_lacks_columns_is_an_error_that_names_them(tmp_path, module, name):
    written(tmp_path, "openb_node_list_all_node.csv", NODES_HEADER, *NODES)
    with pytest.raises(FormatError, match=r"(?s)the header lacks .*line 1") as caught:
        collect(module, [written(tmp_path, name, "a,b,c", "1,2,3")])
    assert "a header with" in caught.value.allowed
