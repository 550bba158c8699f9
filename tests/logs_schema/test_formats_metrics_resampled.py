"""Metrics that are measured more often than intervals pass: one number an interval, where the mapping says so."""

import numpy as np
import pytest

from logs_schema.errors import FormatError
from logs_schema.formats.mapping import read_mapping
from logs_schema.formats.metric_series import MetricSeries
from logs_schema.formats.resampling import resampled
from tests.logs_schema.test_formats_metrics import BEGIN_S, MAPPING, answer, imported, series, write

FINE = f"interval_s = 30\nresample = true\n{MAPPING}"


def column(rows, name, deployment="web", number=3):
    return [rows.get((BEGIN_S + 30 * at, deployment), {}).get(name) for at in range(number)]


def test_samples_of_an_interval_are_their_mean_and_of_a_counter_the_first(tmp_path):
    answers = {
        "cpu": answer(series([100, 300, 500, "NaN", 700], "web", step_s=15)),
        "memory": answer(series([2**30], "web")),
        "errors": answer(series([10, 11, 13, 14, 2, 3, 9], "web", step_s=15)),
        "latency": answer(series([20, 40, 80])),
    }
    report, rows = imported(tmp_path, write(tmp_path / "metrics", FINE, **answers))
    assert not report.quarantined
    assert column(rows, "cpu_cores_used") == pytest.approx([0.2, 0.5, 0.7])
    assert column(rows, "num_failures") == [3, 2, 7]  # 10, 13, then reset to 2, 9
    assert column(rows, "response_s", "gateway") == pytest.approx([0.02, 0.04, 0.08])
    with pytest.raises(FormatError, match="several samples in one interval") as refused:
        imported(tmp_path / "other", write(tmp_path / "strict", f"interval_s = 60\n{MAPPING}", **answers))
    assert "resample = true" in refused.value.advice


def test_resampling_is_the_mean_of_what_lies_between_two_instants():
    random = np.random.default_rng(3)
    times_s, numbers = np.sort(random.uniform(0.0, 600.0, 200)), random.normal(size=200)
    mixed = random.permutation(200)
    for column_name, merge in (("cpu_cores_used", np.mean), ("num_failures", np.sum)):
        begins, found, first = resampled(
            MetricSeries(column_name), "web", times_s[mixed], numbers[mixed], 60.0
        )
        held = [(times_s >= begin) & (times_s < begin + 60.0) for begin in begins]
        np.testing.assert_allclose(found, [merge(numbers[one]) for one in held])
        np.testing.assert_array_equal(times_s[mixed][first], [times_s[one].min() for one in held])


LINES = """
interval_s = 60
resample = true
time_column = "at"
deployment_column = "name"
[metrics.cpu_cores_used]
source = "cpu"
[metrics.num_failures]
source = "failed"
"""


def lines(tmp_path, rows, mapping=LINES):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(mapping)
    (folder / "log.csv").write_text("\n".join(["at,name,pod,cpu,failed", *rows]) + "\n")
    return imported(tmp_path, folder, "metrics_csv")


def test_lines_of_an_interval_are_one_whatever_their_instants(tmp_path):
    rows = ["60,web,a,0.1,1", "78,web,a,0.3,2", "119,web,a,,4", "120,web,a,0.5,0", "61,cart,a,0.7,"]
    _, found = lines(tmp_path, rows)
    seen = {key: (row["cpu_cores_used"], row["num_failures"]) for key, row in found.items()}
    assert seen == {(60.0, "web"): (0.2, 7), (120.0, "web"): (0.5, 0), (60.0, "cart"): (0.7, None)}


def test_pods_are_averaged_in_time_before_they_are_combined(tmp_path):
    mapping = (
        LINES.replace("[metrics.cpu", 'series_column = "pod"\n[metrics.cpu')
        .replace('source = "cpu"', 'source = "cpu"\ncombine = "sum"')
        .replace('source = "failed"', 'source = "failed"\ncombine = "sum"')
    )
    rows = ["60,web,a,0.1,1", "75,web,a,0.3,1", "90,web,a,0.2,1", "60,web,b,1,0"]  # b has fewer samples
    _, found = lines(tmp_path, rows, mapping)
    assert found[60.0, "web"]["cpu_cores_used"] == pytest.approx(1.2)
    assert found[60.0, "web"]["num_failures"] == 3


def test_two_pods_under_one_name_are_no_two_samples(tmp_path):
    with pytest.raises(FormatError, match="two numbers of cpu_cores_used at one instant") as refused:
        lines(tmp_path, ["60,web,a,0.1,1", "60,web,b,0.3,1"])
    assert "series_column" in refused.value.advice


@pytest.mark.parametrize("change", [("interval_s = 30\n", ""), ("resample", "consecutive = true\nresample")])
def test_resampling_needs_the_length_of_an_interval_and_real_instants(tmp_path, change):
    (tmp_path / "mapping.toml").write_text(FINE.replace(*change))
    with pytest.raises(FormatError, match="resample needs the length of an interval"):
        read_mapping(tmp_path / "mapping.toml")
