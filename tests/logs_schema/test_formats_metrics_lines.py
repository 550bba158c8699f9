"""Metrics in lines of JSON: paths, and lines that hold no sample."""

import json

from tests.logs_schema.test_formats_metrics import imported


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
    assert report.quarantined["deployment_samples"] == {"not_a_number": 3}
