"""Metrics in lines of JSON: paths, and lines that hold no sample; days of answers in folders of their own."""

import datetime as dt
import gzip
import json

import pytest

from logs_schema import Archive
from logs_schema.errors import FormatError
from logs_schema.importing import import_log
from tests.logs_schema.test_formats_metrics import answer, imported, series, write


def test_lines_of_json_are_read_at_paths_and_those_without_a_deployment_rejected(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(
        'time_column = "meta.at"\ndeployment_column = "meta.name"\ninterval_s = 30\n'
        '[metrics.num_replicas]\nsource = "n"\n'
    )
    lines = [{"meta": {"at": 60, "name": "web"}, "n": 2}, {"meta": {"at": 60}, "n": 3}]
    text = "\n".join([*map(json.dumps, lines), "[" * 100_000, '{"n": ' + "9" * 5_000 + "}"])
    (folder / "a.jsonl").write_text(text + "\n")
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert [row["num_replicas"] for (_, name), row in rows.items() if name == "web"] == [2]
    assert report.quarantined["deployment_samples"] == {"null:deployment": 1, "not_json": 2}


def test_what_stands_for_nothing_costs_its_field_and_no_line(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(
        'time_column = "at"\ndeployment = "web"\ninterval_s = 30\n'
        '[metrics.num_replicas]\nsource = "n"\n[metrics.cpu_cores_used]\nsource = "cpu"\nper = "n"\n'
    )
    (folder / "a.csv").write_text(
        "at,n,cpu\n60,2,N/A\n90,null,1\n120,-,-\n150,two,1\n180,inf,1\n210,1e400,1\n"
    )
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert report.quarantined["deployment_samples"] == {"not_a_number": 3}
    assert [(row["num_replicas"], row["cpu_cores_used"]) for row in rows.values()] == [(2, None)]


def test_a_line_that_names_no_deployment_is_of_none(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(
        'time_column = "at"\ndeployment_column = "name"\ninterval_s = 30\n[metrics.num_replicas]\nsource = "n"\n'
    )
    (folder / "a.csv").write_text("at,name,n\n60,web,2\n60,None,3\n90,,4\n90,N/A,\n")
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert list(rows) == [(60.0, "web")]
    assert report.quarantined["deployment_samples"] == {"null:deployment": 2}


def test_instants_without_a_zone_are_of_the_mappings(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    mapping = 'time_column = "at"\ndeployment = "web"\ninterval_s = 1800\ntime_zone = "{}"\n'
    mapping += '[metrics.num_replicas]\nsource = "n"\n'
    (folder / "mapping.toml").write_text(mapping.format("Europe/Berlin"))
    times = ["02:00", "02:30", "02:00", "02:30", "03:00"]  # the clocks go back at 3
    lines = [f"2024-10-27 {time}:00,{number}" for number, time in enumerate(times, 1)]
    (folder / "a.csv").write_text("\n".join(["at,n", *lines, "2024-10-27T02:30:00+00:00,6", ""]))
    _, rows = imported(tmp_path, folder, "metrics_csv")
    begin_s = dt.datetime(2024, 10, 27, tzinfo=dt.UTC).timestamp()
    found = {(time_s - begin_s) / 1800: row["num_replicas"] for (time_s, _), row in rows.items()}
    assert found == {0: 1, 1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
    (folder / "mapping.toml").write_text(mapping.format("Europe/Berlln"))
    with pytest.raises(FormatError, match="there is no time zone 'Europe/Berlln'"):
        imported(tmp_path, folder, "metrics_csv")


def test_instants_may_name_utc_and_where_none_can_be_read_the_quarantine_says_so(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    mapping = 'time_column = "at"\ndeployment = "web"\n[metrics.num_replicas]\nsource = "n"\n'
    (folder / "mapping.toml").write_text(mapping)
    (folder / "a.csv").write_text("at,n\n2024-03-01 00:00:00 UTC,1\n2024-03-01 00:00:30 GMT,2\n")
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert [row["num_replicas"] for row in rows.values()] == [1, 2]
    assert not report.quarantined
    (folder / "a.csv").write_text("at,n\n2024/03/01 00:00:00,1\n2024/03/01 00:00:30,2\n")
    report, _ = imported(tmp_path / "other", folder, "metrics_csv")
    assert report.quarantined["deployment_samples"] == {"not_an_instant:time": 2}


def test_keys_of_json_may_have_points(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(
        'time_column = "at"\ndeployment_column = "k8s.deployment.name"\ninterval_s = 30\n'
        '[metrics.cpu_cores_used]\nsource = "k8s.pod.cpu.usage"\n'
        '[metrics.num_replicas]\nsource = "replicas.*.k8s.ready"\n'
        '[metrics.memory_gib_used]\nsource = "k8s.pod.memory"\n'
    )
    line = {
        "at": 60,
        "k8s.deployment.name": "web",
        "k8s.pod.cpu.usage": 0.5,
        "replicas": {"web": {"k8s.ready": 2}},
    }
    (folder / "a.jsonl").write_text(json.dumps(line) + "\n")
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert any("anything at k8s.pod.memory: are" in notice for notice in report.notices)
    assert [(row["cpu_cores_used"], row["num_replicas"]) for row in rows.values()] == [(0.5, 2)]


@pytest.mark.parametrize(
    "names", [("cpu", "cpu"), ("cpu-1", "cpu-2"), ("cpu-2024-03-01", "cpu.2024-03-02T00:00Z")]
)
def test_parts_of_an_answer_are_joined_and_a_counter_goes_on_over_their_seam(tmp_path, names):
    first, second = write(tmp_path / "one"), write(tmp_path / "two")
    (second / "mapping.toml").unlink()
    used, counted = (series(values, "web") for values in ([250, 500, 125, 750, 1000], [1, 2, 4, 7, 11]))
    for folder, part, name in ((first, slice(0, 3), names[0]), (second, slice(2, 5), names[1])):
        (folder / "cpu.json").unlink()
        for file, whole in ((name, used), ("errors", counted)):
            (folder / f"{file}.json").write_text(answer(whole | {"values": whole["values"][part]}))
    report = import_log("prometheus", [first, second], tmp_path / "archive")
    rows = Archive(tmp_path / "archive").read("deployment_samples").to_pylist()
    web = [row for row in rows if row["deployment"] == "web"]
    assert [row["cpu_cores_used"] for row in web] == [0.25, 0.5, 0.125, 0.75, 1.0]
    assert [row["num_failures"] for row in web] == [1, 2, 3, 4, None]
    assert not report.quarantined


def test_answers_may_be_packed(tmp_path):
    plain, packed = (write(tmp_path / name) for name in ("plain", "packed"))
    for path in packed.glob("*.json"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    report, rows = imported(tmp_path / "a", plain)
    of_packed, same = imported(tmp_path / "b", packed)
    assert same == rows
    assert of_packed.notices == report.notices


def test_what_only_begins_as_a_metric_is_called_is_no_part_of_its_answer(tmp_path):
    folder = write(tmp_path / "metrics")
    (folder / "cpu-limits.json").write_text(answer(series([9000, 9000, 9000], "web")))
    _, rows = imported(tmp_path, folder)
    assert [row["cpu_cores_used"] for (_, name), row in sorted(rows.items()) if name == "web"] == [
        0.25,
        0.5,
        0.125,
    ]


def test_parts_that_disagree_are_refused_with_both_numbers(tmp_path):
    folder = write(tmp_path / "metrics")
    (folder / "cpu-2.json").write_text(answer(series([250, 501, 125], "web")))
    with pytest.raises(FormatError, match=r"parts of one series disagree: 50[01] and 50[01]") as refused:
        imported(tmp_path, folder)
    assert "cpu" in refused.value.where


def test_series_of_one_deployment_that_follow_each_other_are_joined(tmp_path):
    later = series([0, 0, 0, 750], "web")
    later["values"] = later["values"][3:]
    folder = write(tmp_path / "metrics", cpu=answer(series([250, 500, 125], "web"), later))
    _, rows = imported(tmp_path, folder)
    used = [row["cpu_cores_used"] for (_, name), row in sorted(rows.items()) if name == "web"]
    assert used == [0.25, 0.5, 0.125, 0.75]


def test_rows_filed_a_few_at_a_time_are_those_filed_at_once(tmp_path, monkeypatch):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(
        'time_column = "at"\ndeployment_column = "name"\ninterval_s = 30\n'
        '[metrics.num_replicas]\nsource = "n"\n[metrics.cpu_cores_used]\nsource = "cpu"\n'
        '[metrics."cpu_cores.gateway"]\nconstant = 2\nof_gateway = true\n'
    )
    lines = [
        f"{30 * step},{name},{1 + step},{'' if step == 2 else 0.5}" for step in (3, 1, 2) for name in "ba"
    ]
    (folder / "a.csv").write_text("\n".join(["at,name,n,cpu", *lines[:4], ""]))
    (folder / "b.csv").write_text("\n".join(["at,name,n,cpu", *lines[3:], ""]))
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert list(rows) == [(30.0 * step, name) for step in (1, 2, 3) for name in "ab"]
    assert [row["cpu_cores_used"] for row in rows.values()] == [0.5, 0.5, None, None, 0.5, 0.5]
    assert report.quarantined["deployment_samples"] == {"duplicate_key": 1}
    monkeypatch.setattr("logs_schema.formats.metric_series.CHUNK_ROWS", 4)
    assert imported(tmp_path / "again", folder, "metrics_csv")[1] == rows


def test_an_answer_that_is_an_error_is_told_in_prometheus_words(tmp_path):
    error = json.dumps({"status": "error", "error": "exceeded maximum resolution of 11,000 points"})
    with pytest.raises(FormatError, match="answered with an error: exceeded maximum resolution") as refused:
        imported(tmp_path, write(tmp_path / "metrics", memory=error))
    assert "in parts" in refused.value.advice
