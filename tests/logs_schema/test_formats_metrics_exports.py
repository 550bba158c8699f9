"""Metrics as dashboards and command lines export them: a column a deployment, a file a panel, units in the fields,
lines of one number each, and labels that differ from metric to metric."""

from pathlib import Path

import pytest

import evaluation
from logs_schema.errors import FormatError
from tests.logs_schema.test_formats_metrics import BEGIN_S, answer, imported

EXAMPLES = Path(evaluation.__file__).parent / "examples" / "metrics"
TIMES = ("2024-03-01 00:00:00", "2024-03-01 00:00:30")


def folder_of(tmp_path, mapping, **files):
    folder = tmp_path / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mapping.toml").write_text(mapping)
    for name, lines in files.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def values(rows, column):
    """Deployment -> what the column holds, in order of time."""
    found: dict[str, list] = {}
    for (_, name), row in sorted(rows.items()):
        found.setdefault(name, []).append(row.get(column))
    return {name: each for name, each in found.items() if any(one is not None for one in each)}


def test_panels_of_a_dashboard_by_the_example(tmp_path):
    rates = [f'"{at}","{number} K req/s","{number}0 req/s"' for number, at in enumerate(TIMES, 1)]
    panels = {
        "requests": ["sep=,", '"Time","frontend","cart"', *rates],
        "latency-p95": [
            '"Time","frontend","cart"',
            f'"{TIMES[0]}","980 ms","12.5 ms"',
            f'"{TIMES[1]}","1.20 s",""',
        ],
        "replicas": ["Time,frontend,cart", f"{TIMES[0]},3,1", f"{TIMES[1]},4,1"],
        "cpu": ["Time,frontend,cart", f"{TIMES[0]},300m,0.5", f"{TIMES[1]},,1"],
        "memory": ["Time,frontend,cart", f"{TIMES[0]},512 MiB,1.50 GiB", f"{TIMES[1]},1 GB,0.5 GiB"],
        "notes": ["what is this"],
    }
    mapping = (EXAMPLES / "grafana.toml").read_text()
    report, rows = imported(tmp_path, folder_of(tmp_path, mapping, **panels), "metrics_csv")
    assert not report.quarantined
    rates, times = [1000.0, 2000.0], [0.98, 1.2]
    assert values(rows, "request_rate_per_s") == {"gateway": rates, "frontend": rates, "cart": [10.0, 20.0]}
    assert values(rows, "response_p95_s") == {"gateway": times, "frontend": times, "cart": [0.0125, None]}
    assert values(rows, "num_replicas") == {"frontend": [3, 4], "cart": [1, 1]}
    assert values(rows, "cpu_cores_used") == {"frontend": [0.3, None], "cart": [0.5, 1.0]}
    gb = pytest.approx(1e9 / 2**30)
    assert values(rows, "memory_gib_used") == {"frontend": [0.5, gb], "cart": [1.5, 0.5]}


def test_what_is_written_in_no_unit_of_its_column_is_rejected(tmp_path):
    mapping = 'time_column = "t"\ndeployment = "web"\n[metrics.response_s]\nsource = "r"\nunit = "quantity"\n'
    lines = ["t,r", f"{TIMES[0]},3 GiB", f"{TIMES[1]},2 ms"]
    report, rows = imported(tmp_path, folder_of(tmp_path, mapping, a=lines), "metrics_csv")
    assert report.quarantined["deployment_samples"] == {"not_a_number": 1}
    assert values(rows, "response_s") == {"web": [0.002]}


def test_lines_of_one_number_by_the_example_of_microservices(tmp_path):
    said = [
        ("providerRPC_MCR", 3),
        ("providerRPC_RT", 20),
        ("HTTP_MCR", 7),
        ("HTTP_RT", 40),
        ("consumerRPC_RT", 99),
    ]
    lines = [",timestamp,msname,msinstanceid,metrics,value"]
    lines += [
        f"{at},60000,a,pod{pod},{name},{n * pod}" for at, (name, n) in enumerate(said) for pod in (1, 2)
    ]
    use = ["timestamp,msname,msinstanceid,nodeid,cpu_utilization,memory_utilization"]
    use += ["60000,a,pod1,n,0.25,0.5", "60000,a,pod2,n,0.75,0.5"]
    folder = folder_of(
        tmp_path, (EXAMPLES / "microservices.toml").read_text(), MSRTQps_0=lines, MSResource_0=use
    )
    report, rows = imported(tmp_path, folder, "metrics_csv")
    assert not report.quarantined
    assert values(rows, "request_rate_per_s") == {"a": [9.0], "gateway": [21.0]}
    assert values(rows, "response_s") == {"a": [0.03], "gateway": [0.06]}
    assert values(rows, "cpu_cores_used") == {"a": [0.5]}
    assert values(rows, "num_replicas") == {"a": [2]}
    (folder / "mapping.toml").write_text((folder / "mapping.toml").read_text().replace("HTTP_RT", "HTTP_R"))
    with pytest.raises(FormatError, match="value has no number in lines with metrics = 'HTTP_R'"):
        imported(tmp_path / "again", folder, "metrics_csv")


def test_a_file_that_a_metric_names_has_to_be_there_and_to_have_its_columns(tmp_path):
    mapping = 'time_column = "t"\n[metrics.num_replicas]\nfile = "n*.csv"\nsource = "* n"\n'
    with pytest.raises(FormatError, match=r"names files that are not here: n\*\.csv"):
        imported(tmp_path, folder_of(tmp_path, mapping, a=["t,web n", f"{TIMES[0]},1"]), "metrics_csv")
    with pytest.raises(FormatError, match=r"has no column \* n"):
        imported(tmp_path, folder_of(tmp_path, mapping, n1=["t,web", f"{TIMES[0]},1"]), "metrics_csv")


def test_instants_of_another_form_and_fields_behind_semicolons(tmp_path):
    mapping = 'time_column = "t"\ntime_format = "%Y/%m/%d %H:%M:%S"\nseparator = ";"\ndeployment = "web"\n'
    mapping += '[metrics.num_replicas]\nsource = "n"\n'
    lines = ["t;n", "Label;x", "2024/03/01 00:00:00;2", "2024/03/01 00:00:30;3"]
    report, rows = imported(tmp_path, folder_of(tmp_path, mapping, a=lines), "metrics_csv")
    assert values(rows, "num_replicas") == {"web": [2, 3]}
    assert report.quarantined["deployment_samples"] == {"not_an_instant:time": 1}
    with pytest.raises(FormatError, match="cannot be read"):
        imported(tmp_path, folder_of(tmp_path, mapping.replace("%Y", "%Q"), a=lines), "metrics_csv")


def test_metrics_of_one_application_may_name_their_deployment_by_different_labels(tmp_path):
    mapping = 'interval_s = 30\ndeployment_label = ["workload", "deployment", "pod"]\n'
    mapping += 'deployment_pattern = "(.+)-[0-9a-f]+-[0-9a-z]+"\n[metrics.num_replicas]\nsource = "n"\n'
    mapping += '[metrics.request_rate_per_s]\nsource = "rps"\n[metrics.cpu_cores_used]\nsource = "cpu"\n'
    folder = folder_of(tmp_path, mapping)
    for name, labels in (
        ("n", {"deployment": "web"}),
        ("rps", {"workload": "web", "pod": "other"}),
        ("cpu", {"pod": "web-5b67-mv5hb"}),
    ):
        series = {"metric": labels, "values": [[BEGIN_S, "2"]]}
        (folder / f"{name}.json").write_text(answer(series))
    _, rows = imported(tmp_path, folder)
    ((_, name), row) = next(iter(rows.items()))
    assert (name, row["num_replicas"], row["request_rate_per_s"], row["cpu_cores_used"]) == (
        "web",
        2,
        2.0,
        2.0,
    )
    (folder / "mapping.toml").write_text(mapping + 'unit = "quantity"\n')
    with pytest.raises(FormatError, match="Prometheus answers in numbers"):
        imported(tmp_path / "again", folder)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("deployment_label = []", "deployment_label is"),
        ('separator = "::"', "separator is not one character"),
        ('[metrics.response_s]\nsource = "r"\nwhen = "x"', "when is 'x'"),
        ('[metrics.response_s]\nsource = "r"\nwhen = {a = 1}', "when is"),
    ],
)
def test_wrong_keys_are_refused(tmp_path, key, message):
    mapping = f'{key}\n[metrics.num_replicas]\nsource = "n"\n'
    with pytest.raises(FormatError, match=message):
        imported(tmp_path, folder_of(tmp_path, mapping, a=["time,n", f"{TIMES[0]},1"]), "metrics_csv")


def test_pods_that_are_seen_are_counted_as_replicas(tmp_path):
    mapping = (
        'time_column = "t"\ndeployment_column = "pod"\ndeployment_pattern = "(.+)-[0-9a-f]+-[0-9a-z]+"\n'
    )
    mapping += '[metrics.num_replicas]\nsource = "cpu"\ncombine = "count"\n'
    mapping += '[metrics.cpu_cores_used]\nsource = "cpu"\nunit = "quantity"\ncombine = "mean"\n'
    lines = ["t,pod,cpu", f"{TIMES[0]},web-5b67-aaaaa,300m", f"{TIMES[0]},web-5b67-bbbbb,0.5"]
    lines += [f"{TIMES[1]},web-5b67-aaaaa,250m", f"{TIMES[1]},web-5b67-bbbbb,<none>"]
    report, rows = imported(tmp_path, folder_of(tmp_path, mapping, a=lines), "metrics_csv")
    assert not report.quarantined
    assert values(rows, "num_replicas") == {"web": [2, 1]}
    assert values(rows, "cpu_cores_used") == {"web": [pytest.approx(0.4), 0.25]}
