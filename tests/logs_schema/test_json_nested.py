"""Logs whose rows lie in lists in objects of JSON: a list's entries as rows, and one or all of them by their paths."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logs_schema import Archive, FormatError
from logs_schema.formats import json_documents
from logs_schema.formats.json_paths import found_at, is_row, list_on_the_way, rows_within
from logs_schema.formats.request_mapping import read_request_mapping
from logs_schema.importing import import_log
from logs_schema.mapping import one_by_one
from tests.logs_schema.collecting import at, written
from tests.logs_schema.test_formats_requests import EXAMPLES, requests_in

T0 = 1_709_294_400
TRIES = """each = "tries"
[columns.arrival]
source = "tries.at"
[columns.request_id]
source = ["job", "tries.n"]
[columns.cpu_cores]
source = "cores"
"""
JOBS: list[dict[str, Any]] = [
    {"job": f"j{job}", "cores": job + 1, "tries": [{"n": n, "at": T0 + 10 * job + n} for n in range(job)]}
    for job in range(4)
]
CAPACITY = {"pool": 8.0}


def tried(folder: Path, name: str, *lines: str, mapping: str = TRIES) -> Path:
    written(folder, "map.toml", mapping)
    import_log(
        "requests_csv", [written(folder, name, *lines), folder / "map.toml"], folder / "a", capacity=CAPACITY
    )
    return folder / "a"


@pytest.mark.parametrize("kind", ["lines", "a list", "indented", "inside", "one line", "parquet"])
def test_every_entry_of_a_list_is_a_row_beside_what_is_around_it(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(json_documents, "_BLOCK_LETTERS", 7)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(JOBS), tmp_path / "log.parquet")
        written(tmp_path, "map.toml", TRIES)
        import_log(
            "requests_csv",
            [tmp_path / "log.parquet", tmp_path / "map.toml"],
            tmp_path / "a",
            capacity=CAPACITY,
        )
    else:
        lines = {
            "lines": [json.dumps(job) for job in JOBS],
            "a list": [json.dumps(JOBS)],
            "indented": [json.dumps(JOBS, indent=2)],
            "inside": [json.dumps({"records": JOBS, "n": 4}, indent=1)],
            "one line": [json.dumps({"n": "4", "records": JOBS})],
        }
        tried(tmp_path, "log.json", *lines[kind])
    rows = requests_in(tmp_path / "a")
    assert set(rows) == {"j1/0", "j2/0", "j2/1", "j3/0", "j3/1", "j3/2"}
    assert (rows["j3/2"]["cpu_cores"], rows["j3/2"]["arrival"]) == (4.0, at(T0 + 32))
    assert Archive(tmp_path / "a").quarantined("requests") == {"no_entry:tries": 1}


def test_what_has_no_list_of_objects_is_quarantined_and_other_lines_are_read(tmp_path):
    wrong = [{}, {"tries": None}, {"tries": 3}, {"tries": [[]]}, {"tries": [3]}, {"other": [{"at": T0}]}]
    lines = [*map(json.dumps, wrong), "{", "7", "", json.dumps(JOBS[2])[:-4], json.dumps(JOBS[1])]
    archive = Archive(tried(tmp_path, "log.jsonl", *lines))
    assert archive.num_rows("requests") == 1
    assert archive.quarantined("requests") == {"no_entry:tries": 6, "not_json": 3}


def test_an_object_in_place_of_a_list_is_its_one_entry(tmp_path):
    rows = requests_in(tried(tmp_path, "log.jsonl", json.dumps({"job": "j", "tries": {"n": 1, "at": T0}})))
    assert list(rows) == ["j/1"]


def test_nested_lists_and_lists_of_lists():
    found = list(rows_within({"a": [{"b": [[{"n": 1}], [{"n": 2}]], "c": 1}, {"c": 2}], "d": 3}, ("a", "b")))
    assert found == [
        {"a": {"b": {"n": 1}, "c": 1}, "d": 3},
        {"a": {"b": {"n": 2}, "c": 1}, "d": 3},
        {"a": {"c": 2}, "d": 3},
    ]
    assert [is_row(one, ("a", "b")) for one in found] == [True, True, False]


def test_a_document_of_which_nothing_beside_the_list_is_read_is_never_held(tmp_path, monkeypatch):
    monkeypatch.setattr(json_documents, "_BLOCK_LETTERS", 64)
    monkeypatch.setattr(json_documents, "MAX_NESTED_LETTERS", 256)
    inside = (
        TRIES.replace('"tries', '"jobs.tries')
        .replace('"job"', '"jobs.job"')
        .replace('"cores"', '"jobs.cores"')
    )
    content = json.dumps({"jobs": JOBS}, indent=1)
    rows = requests_in(tried(tmp_path, "log.json", content, mapping=inside))
    assert len(rows) == 6
    (beside := tmp_path / "beside").mkdir()
    with pytest.raises(FormatError, match="more than 256 letters"):
        tried(beside, "log.json", content, mapping=inside.replace('"jobs.cores"', '"cores"'))
    monkeypatch.setattr(json_documents, "MAX_NESTED_LETTERS", 1 << 20)
    (lines := tmp_path / "lines").mkdir()
    archive = Archive(
        tried(lines, "log.jsonl", json.dumps(JOBS[1]), json.dumps(JOBS[3] | {"x": "x" * (1 << 21)}))
    )
    assert (archive.num_rows("requests"), archive.quarantined("requests")) == (1, {"line_too_long": 1})


def test_files_with_lists_are_not_cut_into_pieces(tmp_path, monkeypatch):
    lines = [json.dumps(job | {"job": f"{job['job']}-{number}"}) for number in range(30) for job in JOBS]
    whole = Archive(tried(tmp_path, "log.jsonl", *lines))
    monkeypatch.setattr("logs_schema.formats.pieces.PIECE_BYTES", 256)
    log = [tmp_path / "log.jsonl", tmp_path / "map.toml"]
    import_log("requests_csv", log, tmp_path / "b", capacity=CAPACITY, run_tasks=one_by_one)
    assert Archive(tmp_path / "b").content_hash == whole.content_hash


ROW = {
    "l": [1, 2, 3], "o": [{"at": 1}, {"at": 2}], "which": "p2", "all": {"p1": {"n": 5}, "p2": {"n": 6}},
    "tags": [{"key": "a.b", "value": True}, {"key": "c", "value": {"s": "x"}}, {"key": "c", "value": {"s": "y"}}, 3],
    "mem[kb]": 7, "deep.list": [[1], [2]], "none": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("l[0]", 1), ("l[-1]", 3), ("l[3]", None), ("l[-4]", None), ("o[-1].at", 2), ("o[0].*", [1]),
        ("tags[key=a.b].value", True), ("tags[key=c].value.s", "x"), ("tags[key=z|c].value.s", "x"),
        ("tags[key=z].value", None), ("all[which].n", 6), ("all[absent].n", None), ("mem[kb]", 7),
        ("deep.list[1][0]", 2), ("l", [1, 2, 3]), ("none[0]", None), ("l[x]", None), ("all[k=v]", None),
    ],
)  # fmt: skip
def test_paths_with_brackets(path, found):
    assert found_at(ROW, path) == found


def test_amounts_that_are_numbers_of_entries(tmp_path):
    mapping = TRIES.replace('each = "tries"\n', "").replace(
        '"cores"', '"tries"\ncombine = "count"\nscale = 2'
    )
    mapping = mapping.replace("tries.at", "tries[-1].at").replace('["job", "tries.n"]', '"job"')
    rows = requests_in(tried(tmp_path, "log.jsonl", *map(json.dumps, JOBS)))
    assert rows["j1/0"]["cpu_cores"] == 2.0
    (counted := tmp_path / "counted").mkdir()
    rows = requests_in(tried(counted, "log.jsonl", *map(json.dumps, JOBS), mapping=mapping))
    assert {name: row["cpu_cores"] for name, row in rows.items()} == {"j1": 2.0, "j2": 4.0, "j3": 6.0}


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ('each = "a.*"', "without stars and brackets"),
        ('each = "a..b"', "without stars and brackets"),
        ('each = "a"\nline = "(?P<t>.*)"', "line stands beside each"),
        ("each = 3", "each is 3"),
        ('[columns.cpu_cores]\ncombine = "mean"', '"count" of one source'),
        ('[columns.cpu_cores]\ncombine = "count"\nunit = "percent"', '"count" of one source'),
        ('[columns.service]\ncombine = "count"', '"count" of one source'),
    ],
)
def test_mappings_that_ask_for_lists_wrongly(more, what, tmp_path):
    arrival = '\n[columns.arrival]\nsource = "t"\n'
    with pytest.raises(FormatError, match=re.escape(what)):
        read_request_mapping(written(tmp_path, "map.toml", more + arrival))


def test_a_file_that_is_no_json_has_no_lists(tmp_path):
    with pytest.raises(FormatError, match=r"reads each entry of tries[\s\S]*\.json"):
        tried(tmp_path, "log.csv", "tries,job,cores", "1,2,3")
    with pytest.raises(FormatError, match="one JSON document"):
        tried(tmp_path, "log", json.dumps(JOBS))


def test_a_path_that_ends_at_a_list_is_told_with_its_list(tmp_path):
    mapping = '[columns.arrival]\nsource = "tries.at"\n[columns.start]\nsource = "job"\n'
    written(tmp_path, "map.toml", mapping)
    log = [written(tmp_path, "log.jsonl", *map(json.dumps, JOBS)), tmp_path / "map.toml"]
    report = import_log("requests_csv", log, tmp_path / "a", capacity=CAPACITY)
    assert any("tries.at (tries is a list)" in notice and "(each)" in notice for notice in report.notices)
    assert list_on_the_way({"a": {"b": [{"c": 1}]}}, "a.b.c") == "a.b"
    assert list_on_the_way({"a": [1, 2]}, "a.b") == ""


def tag(key: str, value: object) -> dict[str, object]:
    return {"key": key, "type": "string", "value": value}


def test_traces_of_jaeger_by_its_example(tmp_path):
    def span(name: str, kind: str, process: str, *tags: dict[str, object]) -> dict[str, object]:
        return {
            "traceID": "t1", "spanID": name, "operationName": "GET /cart", "references": [], "processID": process,
            "startTime": T0 * 1_000_000 + 250, "duration": 1_500, "tags": [tag("span.kind", kind), *tags], "logs": [],
        }  # fmt: skip

    spans = [
        span("a", "server", "p1", tag("error", True), tag("peer.ipv4", "10.0.0.7")),
        span("b", "client", "p1"),
        span("c", "server", "p2"),
    ]
    processes = {
        "p1": {"serviceName": "cart", "tags": [tag("hostname", "cart-0"), tag("ip", "10.0.0.1")]},
        "p2": {"serviceName": "pay", "tags": [tag("ip", "10.0.0.2")]},
    }
    trace = {"traceID": "t1", "spans": spans, "processes": processes, "warnings": None}
    answer = {"data": [trace, trace | {"spans": []}], "total": 0, "limit": 0, "offset": 0, "errors": None}
    written(tmp_path, "traces.json", json.dumps(answer))
    report = import_log("requests_csv", [tmp_path / "traces.json", EXAMPLES / "jaeger.toml"], tmp_path / "a")
    assert report.quarantined["requests"] == {
        "no_entry:data.spans": 1,
        "other_row:data.spans.tags[key=span.kind].value": 1,
    }
    rows = requests_in(tmp_path / "a")
    shown = ("service", "scenario", "status", "ran_node", "agent")
    assert {name: tuple(row.get(one) for one in shown) for name, row in rows.items()} == {
        "t1/a": ("cart", "GET /cart", "failed", "cart-0", "10.0.0.7"),
        "t1/c": ("pay", "GET /cart", "completed", "10.0.0.2", None),
    }
    row = rows["t1/a"]
    assert row["arrival"] == row["start"] == at(T0 + 0.00025)
    assert (row["finish"] - row["start"]).total_seconds() == 0.0015


@pytest.mark.parametrize("layout", ["lines", "a document", "one long line"])
def test_traces_of_opentelemetry_by_its_example(layout, tmp_path):
    def attribute(key: str, value: str) -> dict[str, object]:
        return {"key": key, "value": {"stringValue": value}}

    def batch(service: str, pod: str, *spans: dict[str, object]) -> dict[str, object]:
        resource = {"attributes": [attribute("service.name", service), attribute("k8s.pod.name", pod)]}
        return {"resource": resource, "scopeSpans": [{"scope": {"name": "x"}, "spans": spans}, {"scope": {}}]}

    def span(name: str, kind: object, **more: object) -> dict[str, object]:
        begin = T0 * 1_000_000_000 + 123_456_000
        return {
            "traceId": "T", "spanId": name, "kind": kind, "name": "/pay", "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(begin + 2_000_000), "attributes": [], **more,
        }  # fmt: skip

    asked = [
        attribute("client.address", "10.1.1.1"),
        {"key": "http.response.status_code", "value": {"intValue": "500"}},
    ]
    batches = [
        batch("pay", "pay-0", span("a", 2, status={"code": 2}, attributes=asked), span("b", 3)),
        batch("cart", "cart-1", span("c", "SPAN_KIND_SERVER", status={"code": "STATUS_CODE_OK"})),
    ]
    if layout == "lines":
        lines = [json.dumps({"resourceSpans": [one]}) for one in batches]
    else:
        filled = [*batches, batch("idle", "i" * (1 << 18))] if layout == "one long line" else batches
        lines = [json.dumps({"resourceSpans": filled}, indent=None if layout == "one long line" else 2)]
    written(tmp_path, "traces.json", *lines)
    report = import_log("requests_csv", [tmp_path / "traces.json", EXAMPLES / "otlp.toml"], tmp_path / "a")
    each = "resourceSpans.scopeSpans.spans"
    num_without = 4 if layout == "one long line" else 2
    assert report.quarantined["requests"] == {f"no_entry:{each}": num_without, f"other_row:{each}.kind": 1}
    rows = requests_in(tmp_path / "a")
    shown = ("service", "scenario", "status", "ran_node", "agent")
    assert {name: tuple(row.get(one) for one in shown) for name, row in rows.items()} == {
        "T/a": ("pay", "/pay", "failed", "pay-0", "10.1.1.1"),
        "T/c": ("cart", "/pay", "completed", "cart-1", None),
    }
    assert rows["T/a"]["start"] == at(T0 + 0.123456)
    assert (rows["T/a"]["finish"] - rows["T/a"]["start"]).total_seconds() == 0.002


def test_jobs_that_bjobs_of_lsf_prints_as_json(tmp_path):
    job = {"JOBID": "7", "STAT": "DONE", "SUBMIT_TIME": "Mar  1 12:00 2024", "EXEC_HOST": "16*hostA:4*hostB"}
    document = {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [job]}
    mapping = """each = "RECORDS"
time_format = "%b %d %H:%M %Y"
[columns.request_id]
source = "RECORDS.JOBID"
[columns.arrival]
source = "RECORDS.SUBMIT_TIME"
[columns.ran_node]
source = "RECORDS.EXEC_HOST"
pattern = "(?:[0-9]+\\\\*)?([^:*]+).*"
"""
    written(tmp_path, "map.toml", mapping)
    written(tmp_path, "jobs.json", json.dumps(document, indent=2))
    import_log("requests_csv", [tmp_path / "jobs.json", tmp_path / "map.toml"], tmp_path / "a")
    row = requests_in(tmp_path / "a")["7"]
    assert (row["arrival"], row["ran_node"]) == (at(T0), "hostA")


def test_jobs_that_aws_batch_describes_with_amounts_in_a_list_by_type(tmp_path):
    asked = [
        {"value": "4", "type": "VCPU"},
        {"value": "8192", "type": "MEMORY"},
        {"value": "1", "type": "GPU"},
    ]
    tries = [{"startedAt": T0 * 1000 + 9}, {"startedAt": T0 * 1000 + 60_000}]
    container = {
        "resourceRequirements": asked,
        "containerInstanceArn": "arn:aws:ecs:eu:1:container-instance/c/i1",
    }
    job = {
        "jobId": "7",
        "createdAt": T0 * 1000,
        "attempts": tries,
        "container": container,
        "status": "SUCCEEDED",
    }
    mapping = """[columns.request_id]
source = "jobId"
[columns.arrival]
source = "createdAt"
unit = "ms"
[columns.start]
source = "attempts[0].startedAt"
unit = "ms"
[columns.cpu_cores]
source = "container.resourceRequirements[type=VCPU].value"
[columns.memory_gib]
source = "container.resourceRequirements[type=MEMORY].value"
unit = "MiB"
[columns.gpus]
source = "container.resourceRequirements[type=GPU].value"
[columns.num_nodes]
source = "attempts"
combine = "count"
[columns.ran_node]
source = "container.containerInstanceArn"
pattern = ".*/([^/]+)"
"""
    written(tmp_path, "map.toml", mapping)
    written(tmp_path, "jobs.json", json.dumps({"jobs": [job]}, indent=4))
    import_log("requests_csv", [tmp_path / "jobs.json", tmp_path / "map.toml"], tmp_path / "a")
    row = requests_in(tmp_path / "a")["7"]
    amounts = [row[name] for name in ("cpu_cores", "memory_gib", "gpus", "num_nodes")]
    assert (amounts, row["ran_node"], row["start"]) == ([4.0, 8.0, 1.0, 2], "i1", at(T0 + 0.009))
