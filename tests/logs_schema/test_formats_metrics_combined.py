"""Several series or lines of one deployment, of its pods say, are one number where the mapping says how."""

import json

import pytest

from logs_schema.errors import FormatError
from logs_schema.formats.mapping import read_mapping
from tests.logs_schema.test_formats_metrics import BEGIN_S, MAPPING, STEP_S, answer, imported, series, write

PODS = MAPPING.replace('"app"', '"pod"').replace(
    "[metrics.cpu_cores_used]", 'deployment_pattern = "(.+)-[0-9a-f]+-[0-9a-z]+"\n[metrics.cpu_cores_used]'
)
FIRST, SECOND = "web-5b67c48447-mv5hb", "web-5b67c48447-zzzzz"


def of_pod(values, pod):
    return series(values) | {"metric": {"pod": pod}}


def combining(how):
    return PODS.replace('source = "cpu"', f'source = "cpu"\ncombine = "{how}"').replace(
        "counter = true", 'counter = true\ncombine = "sum"'
    )


def column(rows, name, deployment="web", number=4):
    return [rows.get((BEGIN_S + STEP_S * at, deployment), {}).get(name) for at in range(number)]


@pytest.mark.parametrize(
    ("how", "cores"),
    [("sum", [0.5, 1.0, 0.25, 0.5]), ("mean", [0.25, 0.5, 0.25, 0.5]), ("max", [0.4, 0.5, 0.25, 0.5])],
)
def test_series_of_pods_are_combined_as_the_mapping_says(tmp_path, how, cores):
    cpu = answer(of_pod([100, 500, "NaN", 500], FIRST), of_pod([400, 500, 250], SECOND))
    memory = answer(of_pod([2**30], FIRST))
    errors = answer(of_pod([10, 13, 20, 21], FIRST), of_pod([9000, 9001, 9002], SECOND))
    folder = write(tmp_path / "metrics", combining(how), cpu=cpu, memory=memory, errors=errors)
    report, rows = imported(tmp_path, folder)
    assert column(rows, "cpu_cores_used") == pytest.approx(cores)
    # Increases of each: a pod that goes resets nothing
    assert column(rows, "num_failures") == [4, 8, 1, None]
    assert not report.quarantined


def test_a_series_that_is_there_twice_does_not_count_twice(tmp_path):
    later = of_pod([0, 500, 250], FIRST)
    later["values"] = later["values"][1:]
    cpu = answer(of_pod([100, 500], FIRST), later)
    empty = dict.fromkeys(("memory", "errors"), answer(of_pod([1], FIRST)))
    folder = write(tmp_path / "joined", combining("sum"), cpu=cpu, **empty)
    assert column(imported(tmp_path, folder)[1], "cpu_cores_used", number=3) == [0.1, 0.5, 0.25]


def test_several_series_that_nothing_combines_are_named_with_their_labels(tmp_path):
    cpu = answer(of_pod([100, 500], FIRST), of_pod([100, 500], SECOND))
    with pytest.raises(FormatError, match="two series give cpu_cores_used of 'web'") as refused:
        imported(tmp_path, write(tmp_path / "metrics", PODS, cpu=cpu))
    assert SECOND in refused.value.where
    assert 'combine = "sum"' in refused.value.advice
    (tmp_path / "mapping.toml").write_text(combining("median"))
    with pytest.raises(FormatError, match="combine is 'median'"):
        read_mapping(tmp_path / "mapping.toml")


def test_buckets_of_a_histogram_are_no_response_times(tmp_path):
    buckets = [series([1, 2, 3]) | {"metric": {"le": bound}} for bound in ("0.1", "+Inf")]
    with pytest.raises(FormatError, match="buckets of a histogram are no response_s") as refused:
        imported(tmp_path, write(tmp_path / "metrics", latency=answer(*buckets)))
    assert "histogram_quantile" in refused.value.advice


@pytest.mark.parametrize(
    ("label", "names", "how", "refused"),
    [
        ("prometheus_replica", ("a", "b"), "sum", True),
        ("replica", ("prometheus-k8s-0", "prometheus-k8s-1"), "sum", True),
        ("replica", ("0", "1"), "sum", False),
        ("instance", ("prometheus-k8s-0", "prometheus-k8s-1"), "sum", False),
        ("prometheus_replica", ("a", "b"), "max", False),
        ("prometheus_replica", ("a", "a"), "sum", False),
    ],
)
def test_what_two_servers_tell_of_one_pod_is_not_added_up(tmp_path, label, names, how, refused):
    pods = (FIRST, FIRST) if names[0] != names[1] else (FIRST, SECOND)
    of_servers = [
        series([100, 500]) | {"metric": {"pod": pod, label: name}}
        for pod, name in zip(pods, names, strict=True)
    ]
    empty = dict.fromkeys(("memory", "errors"), answer(of_pod([1], FIRST)))
    folder = write(tmp_path / "metrics", combining(how), cpu=answer(*of_servers), **empty)
    if refused:
        with pytest.raises(FormatError, match="two servers") as told:
            imported(tmp_path, folder)
        assert f"max without ({label})" in told.value.advice
    else:
        assert column(imported(tmp_path, folder)[1], "cpu_cores_used", number=1) == [
            0.1 if how == "max" else 0.2
        ]


def test_a_label_that_is_missing_is_told_with_those_there_are(tmp_path):
    cpu = answer(of_pod([100, 500], FIRST))
    with pytest.raises(FormatError, match="no label 'app'") as refused:
        imported(tmp_path, write(tmp_path / "metrics", cpu=cpu))
    assert FIRST in refused.value.where
    assert "deployment_pattern" in refused.value.advice


LINES = """
interval_s = 30
time_column = "at"
deployment_column = "name"
{series}
[metrics.cpu_cores_used]
source = "cpu"
combine = "mean"
[metrics.request_rate_per_s]
source = "rate"
combine = "sum"
"""


def lines(tmp_path, names, mapping, more=()):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(mapping)
    rows = [
        f"{BEGIN_S + STEP_S * at + place},{name},pod-{place},{cpu},{rate}"
        for at in range(2)
        for place, (name, cpu, rate) in enumerate(names)
    ]
    (folder / "log.csv").write_text("\n".join(["at,name,pod,cpu,rate", *rows, *more]) + "\n")
    return imported(tmp_path, folder, "metrics_csv")


NAMED = 'deployment_pattern = "(.+)-[a-z]"'


@pytest.mark.parametrize(
    ("names", "apart"), [(("web-a", "web-b"), NAMED), (("web", "web"), 'series_column = "pod"')]
)
def test_lines_of_pods_are_combined(tmp_path, names, apart):
    pods = [(names[0], 0.1, 3), (names[1], 0.3, 5), ("cart-c" if apart == NAMED else "cart", "", 1)]
    again = f"{BEGIN_S},{names[0]},pod-0,0.1,3"  # an export that overlaps
    report, rows = lines(tmp_path, pods, LINES.format(series=apart), [again])
    assert column(rows, "cpu_cores_used", number=2) == pytest.approx([0.2, 0.2])
    assert column(rows, "request_rate_per_s", number=2) == [8, 8]
    assert column(rows, "cpu_cores_used", "cart", number=2) == [None, None]
    assert report.quarantined["deployment_samples"] == {"duplicate_key": 1}


def test_two_lines_of_one_series_in_an_interval_are_refused(tmp_path):
    with pytest.raises(
        FormatError, match="two lines give cpu_cores_used of 'web' in one interval"
    ) as refused:
        lines(tmp_path, [("web", 0.1, 3), ("web", 0.3, 5)], LINES.format(series=""))
    assert "log.csv, line 3" in refused.value.where
    assert "series_column" in refused.value.advice


def test_json_lines_of_pods_are_combined(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    (folder / "mapping.toml").write_text(
        'interval_s = 30\ntime_column = "at"\ndeployment_pattern = "(.+)-[0-9]"\n'
        '[metrics.request_rate_per_s]\nsource = "pods.*.rate"\ncombine = "sum"\n'
    )
    line = {"at": BEGIN_S, "pods": {"web-1": {"rate": 3}, "web-2": {"rate": 5}, "cart-1": {"rate": 1}}}
    (folder / "log.jsonl").write_text(json.dumps(line) + "\n")
    _, rows = imported(tmp_path, folder, "metrics_csv")
    assert [rows[BEGIN_S, name]["request_rate_per_s"] for name in ("web", "cart")] == [8, 1]
