"""Metrics of monitoring systems as deployment samples: Prometheus' answers and CSV, with a mapping."""

import json
from pathlib import Path

import numpy as np
import pytest

from logs_schema import Archive
from logs_schema.broken_rules import rule_in_words
from logs_schema.errors import FormatError
from logs_schema.formats.mapping import read_mapping
from logs_schema.formats.metric_series import placed
from logs_schema.importing import import_log

STEP_S, BEGIN_S = 30, 1_700_000_010  # on the grid

MAPPING = """
deployment_label = "app"
[metrics.cpu_cores_used]
source = "cpu"
unit = "millicores"
[metrics.memory_gib_used]
source = "memory"
unit = "bytes"
[metrics.num_failures]
source = "errors"
counter = true
[metrics."response_s.gateway"]
source = "latency"
unit = "ms"
of_gateway = true
"""


def series(values, app=None, step_s=STEP_S):
    return {
        "metric": {"app": app} if app else {},
        "values": [[BEGIN_S + step_s * index, str(value)] for index, value in enumerate(values)],
    }


def answer(*found):
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(found)}})


def write(folder, mapping=MAPPING, **answers):
    usual = {
        "cpu": answer(series([250, 500, 125], "web"), series([1000, 1000, "NaN"], "cart")),
        "memory": answer(series([2**30, 2**29, 2**30], "web")),
        "errors": answer(series([10, 13, 4], "web")),
        "latency": answer(series([20, 40, 80])),
    }
    folder.mkdir()
    (folder / "mapping.toml").write_text(mapping)
    for name, text in (usual | answers).items():
        (folder / f"{name}.json").write_text(text)
    return folder


def imported(tmp_path, folder, form="prometheus"):
    report = import_log(form, [folder], tmp_path / "archive")
    table = Archive(tmp_path / "archive").read("deployment_samples").to_pylist()
    return report, {(row["time"].timestamp(), row["deployment"]): row for row in table}


def test_answers_become_samples_in_the_units_of_the_columns(tmp_path):
    report, rows = imported(tmp_path, write(tmp_path / "metrics"))
    web = [rows[BEGIN_S + STEP_S * index, "web"] for index in range(3)]
    assert [row["cpu_cores_used"] for row in web] == [0.25, 0.5, 0.125]
    assert [row["memory_gib_used"] for row in web] == [1.0, 0.5, 1.0]
    assert [row["num_failures"] for row in web] == [3, 4, None]  # the counter was reset: 4 have come since
    assert (BEGIN_S + 2 * STEP_S, "cart") not in rows  # NaN was all there was
    assert rows[BEGIN_S, "gateway"]["response_s"] == pytest.approx(0.02)
    assert {row["interval_s"] for row in rows.values()} == {30.0}
    assert report.lines.derived == report.lines.kept == len(rows) == 8


def test_samples_off_the_grid_and_no_numbers_are_quarantined(tmp_path):
    odd = series([250, 500, 125, 250], "web")
    odd["values"][1] = [BEGIN_S + 40, "1"]
    odd["values"][2][1] = "many"
    report, rows = imported(tmp_path, write(tmp_path / "metrics", cpu=answer(odd)))
    assert report.quarantined["deployment_samples"] == {"not_a_number": 1, "off_the_grid_of_intervals": 1}
    assert report.lines.read == 2
    assert rows[BEGIN_S + STEP_S, "web"]["cpu_cores_used"] is None
    assert "`consecutive = true`" in rule_in_words("deployment_samples", "off_the_grid_of_intervals")
    assert str(report.lines).endswith("comments, headers and lines of such rows")


def test_instants_beside_the_grid_are_all_taken_to_it(tmp_path):
    late = answer(
        {"metric": {"app": "web"}, "values": [[BEGIN_S + 12.3 + 30 * index, "500"] for index in range(9)]}
    )
    folder = write(tmp_path / "metrics", cpu=late, memory=late, errors=late, latency=late)
    report, rows = imported(tmp_path, folder)
    assert not report.quarantined
    assert sorted(at for at, name in rows if name == "web") == [BEGIN_S + 30 * index for index in range(9)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mapping": MAPPING.replace("millicores", "MHz")}, "cannot be given in 'MHz'"),
        ({"mapping": MAPPING.replace("metrics.memory_gib_used", "metrics.memory")}, "no column 'memory'"),
        ({"mapping": MAPPING.replace("unit", "units")}, "unknown keys: units"),
        ({"mapping": MAPPING.replace('"latency"', '"p99"')}, "not here: p99"),
        ({"mapping": ""}, "maps nothing"),
        ({"mapping": "= 1"}, "cannot be read"),
        (
            {"cpu": answer(series([1, 2], "web"), series([1, 3], "web"))},
            "parts of one series disagree: 2 and 3",
        ),
        ({"cpu": answer(series([1, 2]))}, "no label 'app'"),
        (
            {"cpu": '{"status": "success", "data": {"resultType": "vector", "result": []}}'},
            "no answer to a range",
        ),
        ({"cpu": "[1, 2]"}, "no prometheus log"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_guessed(tmp_path, change, words):
    with pytest.raises(FormatError, match=words):
        imported(tmp_path, write(tmp_path / "metrics", **change))
    assert not (tmp_path / "archive").exists()


CSV_MAPPING = """
interval_s = 30
time_column = "when"
consecutive = true
[metrics.cpu_cores]
source = "grants"
spread = true
[metrics."request_rate_per_s.gateway"]
source = "each"
times = "replicas"
scale = 2.0
of_gateway = true
"""
CSV = """when,grants,each,replicas
2024-01-01T00:00:01,"{'web': 0.5, 'cart': 2}",10,3
2024-01-01T00:00:32,"{'web': 1.5}",20,1

never,"{'web': 1}",1,1
2024-01-01T00:01:05,"{'web': 1.0}",,1
"""


def test_lines_of_csv_are_spread_over_deployments(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(CSV_MAPPING)
    (folder / "log.csv").write_text(CSV)
    report, rows = imported(tmp_path, folder, "metrics_csv")
    first_s = min(at for at, _ in rows)
    assert first_s % 30 == 0
    cores = [rows[first_s + 30 * index, "web"]["cpu_cores"] for index in range(3)]
    assert cores == [0.5, 1.5, 1.0]
    rate = [rows[first_s + 30 * index, "gateway"]["request_rate_per_s"] for index in range(2)]
    assert rate == [60.0, 40.0]
    assert (first_s + 60, "gateway") not in rows
    assert report.quarantined["deployment_samples"] == {"not_an_instant:time": 1}
    lines = report.lines
    assert lines.read + lines.derived == lines.kept + lines.quarantined + lines.blank + lines.comments
    assert (lines.read, lines.blank, lines.quarantined) == (6, 1, 1)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"replicas"', '"pods"', "no column pods"),
        ("spread = true", "", "names no deployment"),
        ("scale = 2.0", "counter = true", "is a counter"),
        ('source = "grants"', 'source = "each"', "each holds '10'"),
    ],
)
def test_a_mapping_that_does_not_fit_the_file_is_refused(tmp_path, old, new, words):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(CSV_MAPPING.replace(old, new))
    (folder / "log.csv").write_text(CSV)
    with pytest.raises(FormatError, match=words):
        imported(tmp_path, folder, "metrics_csv")


def test_a_folder_without_a_mapping_is_refused(tmp_path):
    (tmp_path / "log.csv").write_text(CSV)
    with pytest.raises(FormatError, match="there is no mapping"):
        imported(tmp_path, tmp_path, "metrics_csv")


JSON_MAPPING = """
interval_s = 30
time_column = "at"
consecutive = true
[metrics.num_replicas]
source = "services.*.replicas"
[metrics.cpu_cores_used]
source = "services.*.cpu"
per = "services.*.replicas"
scale = 0.01
[metrics."response_p95_s.gateway"]
source = "services.*.p95"
unit = "ms"
only = "front"
of_gateway = true
[metrics.cpu_cores]
constant = 500
unit = "millicores"
"""


def json_line(at, **services):
    return json.dumps({"at": at, "services": services})


def front(replicas=2, cpu=50.0, p95=80.0):
    return {"replicas": replicas, "cpu": cpu, "p95": p95}


def test_json_lines_of_several_runs_become_samples(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(JSON_MAPPING)
    run = [json_line(f"2024-01-01T00:00:{at:02d}.5", front=front(), cart=front(replicas=0)) for at in (2, 33)]
    (folder / "a.jsonl").write_text("\n".join(run) + "\n[1]\n")
    later = json_line("2024-01-01T01:00:07", front=front(p95=None))  # an hour later, at any instant
    (folder / "b.jsonl").write_text(later + "\n")
    report, rows = imported(tmp_path, folder, "metrics_csv")
    begin_s = min(at for at, _ in rows)
    assert begin_s % 30 == 0
    assert sorted({at - begin_s for at, _ in rows}) == [0, 30, 3600]
    assert rows[begin_s, "front"]["cpu_cores_used"] == 0.25
    assert rows[begin_s, "front"]["cpu_cores"] == rows[begin_s, "cart"]["cpu_cores"] == 0.5
    assert rows[begin_s, "cart"]["cpu_cores_used"] is None  # of no replica
    assert rows[begin_s, "gateway"]["response_p95_s"] == pytest.approx(0.08)
    assert rows[begin_s, "gateway"]["cpu_cores"] is None
    assert (begin_s + 3600, "gateway") not in rows
    assert report.quarantined["deployment_samples"] == {"not_json": 1}


def test_instants_that_follow_each_other_keep_their_gaps():
    # a sweep takes some seconds, intervals last 31 s, one is missing, and a run begins later
    times_s = np.array([0.0, 2.0, 31.0, 33.0, 93.0, 124.0, 1000.0])
    found = placed(times_s, 30.0, sweep_s=15.0)
    assert [found[at] / 30.0 for at in times_s] == [0, 0, 1, 1, 3, 4, 33]
    assert placed(np.array([]), 30.0) == {}
    late = placed(np.array([0.0, 30.0, 60.0, 102.0, 114.0, 120.0]), 30.0)  # late, and caught up
    assert [at / 30.0 for at in late.values()] == [0, 1, 2, 3, 4, 5]


POD_MAPPING = """
interval_s = 60
time_column = "Time"
deployment_column = "Pod"
deployment_pattern = "(.+)-[0-9a-f]+-[0-9a-z]+"
consecutive = true
[metrics.cpu_cores_used]
source = "Cpu(m)"
unit = "millicores"
"""
GO = "2022-08-22 03:{minute:02d}:19.799087274 +0000 UTC m=+{minute}.3"


def pods(tmp_path, *lines):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(POD_MAPPING)
    (folder / "pods.csv").write_text("\n".join(["Time,Pod,Cpu(m)", *lines]) + "\n")
    return folder


def test_pods_are_filed_under_their_deployments_at_instants_as_go_prints_them(tmp_path):
    lines = [f"{GO.format(minute=minute)},ts-order-5b67c48447-mv5hb,{100 * minute}" for minute in (1, 2)]
    _, rows = imported(tmp_path, pods(tmp_path, *lines), "metrics_csv")
    found = sorted((at, name, row["cpu_cores_used"]) for (at, name), row in rows.items())
    assert [(name, cores) for _, name, cores in found] == [("ts-order", 0.1), ("ts-order", 0.2)]
    assert found[1][0] - found[0][0] == 60.0
    assert found[0][0] == 1661137260.0  # 2022-08-22 03:01 UTC


def test_two_pods_of_one_deployment_are_refused_with_their_line(tmp_path):
    lines = [f"{GO.format(minute=1)},ts-order-5b67c48447-{pod},100" for pod in ("mv5hb", "zzzzz")]
    with pytest.raises(FormatError, match="two series give cpu_cores_used of 'ts-order'") as error:
        imported(tmp_path, pods(tmp_path, *lines), "metrics_csv")
    assert "pods.csv, line 3" in str(error.value)
    assert all(word in str(error.value) for word in ("2022-08-22 03:01:00 UTC", "avg by"))


def test_series_of_one_deployment_and_constants_come_from_prometheus_too(tmp_path):
    mapping = MAPPING.replace('source = "latency"', 'source = "latency"\nonly = "web"')
    mapping = 'deployment_pattern = "(.+)-[0-9]+"\n' + mapping + "\n[metrics.num_replicas]\nconstant = 3\n"
    latency = answer(series([20], "web-1"), series([50], "cart-2"))
    cpu = answer(series([250], "web-7"))
    _, rows = imported(tmp_path, write(tmp_path / "metrics", mapping, latency=latency, cpu=cpu))
    assert rows[BEGIN_S, "gateway"]["response_s"] == pytest.approx(0.02)
    assert rows[BEGIN_S, "web"]["num_replicas"] == 3
    assert rows[BEGIN_S, "gateway"]["num_replicas"] is None


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (JSON_MAPPING.replace("constant = 500", 'constant = 500\nsource = "x"'), "beside a source"),
        (JSON_MAPPING.replace("constant = 500", 'constant = "many"'), "constant is .many."),
        ('deployment_pattern = "(.+"\n' + JSON_MAPPING, "cannot be read"),
        ('deployment_pattern = ".+"\n' + JSON_MAPPING, "has 0 groups"),
    ],
)
def test_a_mapping_with_a_wrong_constant_or_pattern_is_refused(tmp_path, mapping, words):
    (tmp_path / "mapping.toml").write_text(mapping)
    with pytest.raises(FormatError, match=words):
        read_mapping(tmp_path / "mapping.toml")


def test_the_mappings_among_the_examples_can_be_read():
    folder = Path(__file__).parents[2] / "evaluation" / "examples" / "metrics"
    mappings = [read_mapping(path) for path in sorted(folder.glob("*.toml"))]
    assert len(mappings) == 7
    assert all("cpu_cores" in {one.metric.column for one in mapping.metrics} for mapping in mappings)


def test_instants_that_are_none_are_rejected_and_the_other_samples_stay(tmp_path):
    cpu = series([250, 500], "web")
    cpu["values"] += [[None, "1"], [1e30, "1"], ["soon", "1"], [f"1_{BEGIN_S}", "1"], [BEGIN_S + 90, "1_0"]]
    report, rows = imported(tmp_path, write(tmp_path / "metrics", cpu=answer(cpu)))
    assert report.quarantined["deployment_samples"] == {"not_a_number": 4, "out_of_range:time": 1}
    assert rows[BEGIN_S, "web"]["cpu_cores_used"] == 0.25


def test_a_mapping_that_is_named_and_lies_in_a_named_folder_is_one(tmp_path):
    folder = write(tmp_path / "metrics")
    report = import_log("prometheus", [folder / "mapping.toml", folder], tmp_path / "archive")
    assert report.rows["deployment_samples"] > 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('unit = "millicores"', 'unit = "millicores"\nscale = nan', "scale is nan"),
        ('unit = "millicores"', 'unit = "millicores"\nscale = "2"', "scale is '2'"),
        ("counter = true", 'counter = "no"', "counter is 'no'"),
        ("of_gateway = true", "of_gateway = 1", "of_gateway is 1"),
        ('source = "cpu"', "source = 3", "source is 3"),
        ('deployment_label = "app"', "deployment_label = 3", "deployment_label is 3"),
        ('deployment_label = "app"', "interval_s = inf", "interval_s is inf"),
        ('deployment_label = "app"', 'consecutive = "yes"', "consecutive is 'yes'"),
    ],
)
def test_a_value_of_the_wrong_type_in_a_mapping_is_refused(tmp_path, old, new, words):
    (tmp_path / "mapping.toml").write_text(MAPPING.replace(old, new))
    with pytest.raises(FormatError, match=words):
        read_mapping(tmp_path / "mapping.toml")


LINES_MAPPING = """
interval_s = 30
deployment = "web"
[metrics.cpu_cores_used]
source = "cpu"
[metrics.num_replicas]
source = "replicas"
"""


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (f"{BEGIN_S + 30},low,1", "not_a_number"),
        (f"{BEGIN_S + 30},1_0,1", "not_a_number"),
        (f"{str(BEGIN_S)[:-1]}_0,1,1", "not_an_instant:time"),
        (f"{BEGIN_S},1,1", "duplicate_key"),  # exports that overlap
        (f"{BEGIN_S + 30},1,5,1", "field_count"),  # a decimal comma
        (f"{BEGIN_S + 30},{'1' * 200_000},1", "field_count"),  # longer than Python's reader of CSV takes
    ],
)
def test_a_line_that_holds_no_sample_is_rejected_and_the_others_stay(tmp_path, line, rule):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(LINES_MAPPING)
    text = f"time,cpu,replicas\n{BEGIN_S},1,1\n{line}\n{BEGIN_S + 60},2,1\n"
    (folder / "log.csv").write_text(text)
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert report.quarantined["deployment_samples"] == {rule: 1}
    assert [row["cpu_cores_used"] for row in rows.values()] == [1.0, 2.0]


def test_the_interval_is_that_of_each_series_though_one_clock_is_seconds_ahead(tmp_path):
    ahead = {"metric": {"app": "web"}, "values": [[BEGIN_S + 7 + 30 * place, "1"] for place in range(9)]}
    cpu = answer(series(range(9), "web"), series(range(9), "cart"))
    folder = write(tmp_path / "metrics", cpu=cpu, memory=answer(ahead))
    report, rows = imported(tmp_path, folder)
    assert not report.quarantined
    assert {row["interval_s"] for row in rows.values()} == {30.0}


def test_an_interval_that_holds_several_samples_of_a_series_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"series of 'web' has several samples in one interval of 300 s"):
        imported(tmp_path, write(tmp_path / "metrics", "interval_s = 300\n" + MAPPING))
