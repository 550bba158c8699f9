"""Metrics as much of Europe writes them: decimal commas, signs between thousands, per cent."""

from pathlib import Path
from typing import Any

import pytest

from logs_schema import Archive, FormatError
from logs_schema.importing import ImportReport, import_log

MAPPING = """
separator = ";"
time_column = "Zeit"
time_zone = "Europe/Berlin"
time_format = "%d.%m.%Y %H:%M:%S"
interval_s = 60
deployment = "cart"
[metrics.num_replicas]
source = "Replikate"
[metrics.cpu_cores_used]
source = "CPU"
unit = "quantity"
[metrics.request_rate_per_s]
source = "Last"
times = "Faktor"
[metrics.response_s]
source = "Antwort"
unit = "quantity"
"""


def read(folder: Path, marks: str, *lines: str) -> tuple[ImportReport, list[dict[str, Any]]]:
    (folder / "map.toml").write_text(marks + MAPPING)
    text = "\r\n".join(["\ufeffZeit;Replikate;CPU;Last;Faktor;Antwort", *lines, ""])
    (folder / "werte.csv").write_bytes(text.encode())
    report = import_log("metrics_csv", [folder / "werte.csv", folder / "map.toml"], folder / "a")
    return report, Archive(folder / "a").read("deployment_samples").to_pylist()


def test_decimal_commas_and_signs_between_thousands(tmp_path: Path) -> None:
    report, (row, other) = read(
        tmp_path, 'decimal = ","\nthousands = "."\n',
        "01.03.2024 13:00:00;2;0,25;1.234,5;2,0;26,5 ms", "01.03.2024 13:01:00;2;45,5 %;7;1;1,2s",
    )  # fmt: skip
    assert not report.quarantined
    assert row["time"].hour == 12
    assert (row["cpu_cores_used"], row["request_rate_per_s"], row["response_s"]) == (0.25, 2469.0, 0.0265)
    assert (other["cpu_cores_used"], other["request_rate_per_s"], other["response_s"]) == (0.455, 7.0, 1.2)


def test_a_comma_that_the_mapping_does_not_name_costs_its_line(tmp_path: Path) -> None:
    report, rows = read(tmp_path, "", "01.03.2024 13:00:00;2;0,25;5;1;1s", "01.03.2024 13:01:00;2;0.5;7;1;1s")
    assert report.quarantined["deployment_samples"] == {"not_a_number": 1}
    assert len(rows) == 1


def test_signs_that_nobody_writes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="decimal is ';'"):
        read(tmp_path, 'decimal = ";"\n', "01.03.2024 13:00:00;2;0,25;5;1;1s")
