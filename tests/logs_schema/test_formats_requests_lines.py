"""Logs that are neither CSV nor JSON by a mapping: Parquet, text; and amounts as much of Europe writes them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logs_schema import Archive, FormatError
from logs_schema.broken_rules import first_broken
from logs_schema.importing import ImportReport, import_log
from tests.logs_schema.collecting import written
from tests.logs_schema.test_formats_requests import ARRIVAL, EXAMPLES, NODES, imported, requests_in

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
NESTED = """
time_zone = "Europe/Berlin"
[columns.request_id]
source = "id"
[columns.arrival]
source = "submitted"
[columns.start]
[columns.run_s]
source = "took"
[columns.agent]
source = "labels.team"
[columns.cpu_cores]
source = "asked.containers.*.cpu"
[columns.memory_gib]
source = "asked.memory"
unit = "bytes"
[columns.ran_node]
source = "hosts"
[columns.ran_nodes]
source = "hosts"
[columns.status]
source = "ok"
values = { true = "completed", false = "failed" }
"""


def nested_jobs() -> pa.Table:
    """Three jobs in columns of many types; the second one's arrival lies beyond every calendar."""
    far = 2**62
    noon_ns = int(NOON.timestamp()) * 10**9
    containers = pa.struct(
        [("containers", pa.list_(pa.struct([("cpu", pa.float32())]))), ("memory", pa.int64())]
    )
    return pa.table({
        "id": pa.array(["a", "b", "c"]).dictionary_encode(),
        "submitted": pa.array([noon_ns // 1000 + 1, far, noon_ns // 1000], pa.timestamp("us", "America/New_York")),
        "start": pa.array([noon_ns + 3600 * 10**9 + 2_000_789] * 2 + [None], pa.timestamp("ns")),
        "took": pa.array([1_500_000_001, 0, None], pa.duration("ns")),
        "labels": pa.array([[("team", "x")], None, []], pa.map_(pa.string(), pa.string())),
        "asked": pa.array([
            {"containers": [{"cpu": 0.5}, {"cpu": 1.5}], "memory": 2**31}, None, {"containers": [], "memory": None}
        ], containers),
        "hosts": pa.array([["n1", "n2"], ["n1"], None], pa.large_list(pa.string())),
        "ok": pa.array([True, False, None]),
    })  # fmt: skip


def parquet_imported(
    folder: Path, table: pa.Table, mapping: str
) -> tuple[ImportReport, dict[str, dict[str, Any]]]:
    pq.write_table(table, folder / "jobs.parquet", row_group_size=2)
    written(folder, "map.toml", mapping)
    report = import_log("requests_csv", [folder / "jobs.parquet", folder / "map.toml"], folder / "a")
    return report, requests_in(folder / "a")


def test_nested_columns_zones_and_units_of_parquet(tmp_path: Path) -> None:
    report, rows = parquet_imported(tmp_path, nested_jobs(), NESTED)
    assert (report.lines.read, set(rows)) == (3, {"a", "c"})
    job = rows["a"]
    assert job["arrival"] == NOON + timedelta(microseconds=1)
    # Without a zone: of Berlin, of which it is 13 o'clock
    assert job["start"] == NOON + timedelta(microseconds=2000)
    assert job["finish"] - job["start"] == timedelta(seconds=1.5)
    assert (job["cpu_cores"], job["memory_gib"], job["agent"]) == (2.0, 2.0, "x")
    assert (job["ran_node"], job["ran_nodes"], job["status"]) == ("n1", ["n1", "n2"], "completed")
    assert rows["c"] == {"request_id": "c", "arrival": NOON, "site": "cluster", "status": "unknown"}
    (told,) = first_broken(Archive(tmp_path / "a"), report.quarantined)
    assert "not_an_instant:arrival, first in jobs.parquet, row 2" in told


def test_the_same_requests_come_from_csv_and_from_parquet(tmp_path: Path) -> None:
    mapping = f'{ARRIVAL}[columns.request_id]\nsource = "id"\n[columns.cpu_cores]\nsource = "c"\n'
    (tmp_path / "csv").mkdir()
    _, by_csv = imported(
        tmp_path / "csv", mapping, "id,t,c", "1,1709294400,2", "2,1709294401.5,", "3,1709294402,.1"
    )
    table = pa.table(
        {"id": [1, 2, 3], "t": [1709294400.0, 1709294401.5, 1709294402.0], "c": [2.0, float("nan"), 0.1]}
    )
    _, rows = parquet_imported(tmp_path, table, mapping)
    assert rows == by_csv


def test_a_column_that_a_parquet_file_has_not_is_named_with_those_that_it_has(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no column when") as error:
        parquet_imported(tmp_path, nested_jobs(), '[columns.arrival]\nsource = "when"\n')
    assert "submitted" in str(error.value)


NGINX = (
    '9.9.9.9 - - [01/Mar/2024:13:00:02 +0100] "GET /cart/7?a=b HTTP/1.1" 200 10 "-" "curl/7" rt=1.500 '
    "upstream=10.0.0.1:80 msec=1709294401.500",
    '9.9.9.9 - ann [01/Mar/2024:13:00:02 +0100] "POST / HTTP/2.0" 502 0 "-" "x" rt=0.250 '
    "upstream=10.0.0.1:80, 10.0.0.2:80 msec=1709294402.250",
    '9.9.9.9 - - [01/Mar/2024:13:00:03 +0100] "" 400 0 "-" "-" rt=0.000 upstream=- msec=1709294403.000',
    '9.9.9.9 - - [01/Mar/2024:13:00:03 +0100] "GET /cart HTTP/1.1" 499 0 "-" "x" rt=2.000 '
    "upstream=a : 10.0.0.3:80 msec=1709294404.000",
    '9.9.9.9 - - [01/Mar/2024:13:00:03 +0100] "GET /cut off',
)


def test_access_log_of_nginx_with_servers_tried_in_turn(tmp_path: Path) -> None:
    log = written(tmp_path, "access.log", *NGINX)
    report = import_log("requests_csv", [log, EXAMPLES / "nginx.toml"], tmp_path / "a")
    assert report.quarantined["requests"] == {"no_match:line": 1}
    rows = requests_in(tmp_path / "a")
    found = {
        name.removeprefix("access.log:"): (
            row["arrival"].timestamp() - NOON.timestamp(),
            *(row.get(key) for key in ("service", "status", "ran_node")),
        )
        for name, row in rows.items()
    }
    assert found == {
        "1": (0.0, "cart", "completed", "10.0.0.1:80"),
        "2": (2.0, None, "failed", "10.0.0.2:80"),
        "3": (3.0, None, "completed", None),
        "4": (2.0, "cart", "dropped", "10.0.0.3:80"),
    }
    (told,) = first_broken(Archive(tmp_path / "a"), report.quarantined)
    assert "access.log, row 5" in told
    assert "regular expression" in told


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ("line = '(?P<when>.*)'", r"no group t[\s\S]*when[\s\S]*\(\?P<t>"),
        ("line = '(.*)'", r"no group t[\s\S]*named groups"),
        ("line = '(?P<t>.*'", "cannot be read"),
        ("line = '(?P<t>.*)'\nseparator = ';'", "beside separator"),
        ('decimal = ";"', r"decimal is ';'[\s\S]*allowed"),
        ('thousands = "."', "thousands is '.'"),
    ],
)
def test_what_is_wrong_with_lines_and_signs_is_told(tmp_path: Path, keys: str, what: str) -> None:
    with pytest.raises(FormatError, match=what):
        imported(tmp_path, f"{keys}\n{ARRIVAL}", "t", "2024-03-01T12:00:00Z")


@pytest.mark.parametrize(
    ("signs", "text", "meant"),
    [
        ((",", "."), "1.234,5", 1234.5),
        ((",", "."), "1.234", 1234.0),
        ((",", "."), "1.23", None),
        ((",", ""), "1.234", None),
        ((",", ""), "+,5", 0.5),
        ((",", ""), "1,5e3", 1500.0),
        ((".", ","), "1,234,567.5", 1234567.5),
        ((".", ","), "1,5", None),
        ((".", "'"), "1'000", 1000.0),
        ((".", ""), "1,5", None),
        ((",", ""), "64", 64.0),
        ((",", ""), "many", 3.5),
    ],
)
def test_signs_in_amounts_are_those_that_the_mapping_names(tmp_path, signs, text, meant):
    mapping = (
        f'separator = ";"\ndecimal = "{signs[0]}"\nthousands = "{signs[1]}"\n{ARRIVAL}'
        '[columns.cpu_cores]\nsource = "c"\nvalues = { many = "3.5" }\n[columns.gpus]\nconstant = 0.5\n'
    )
    report, rows = imported(tmp_path, mapping, "t;c", f"2024-03-01T12:00:00Z;{text}")
    if meant is None:
        assert report.quarantined["requests"] == {"not_a_number:cpu_cores": 1}
        (told,) = first_broken(Archive(tmp_path / "a"), report.quarantined)
        assert "thousands" in told
    else:
        (row,) = rows.values()
        assert (row["cpu_cores"], row["gpus"]) == (meant, 0.5)


@pytest.mark.parametrize("text", [r"\N", "(null)", "<unknown>", "<NA>", "NULL", "None assigned"])
def test_what_databases_and_programs_print_for_nothing_is_nothing(tmp_path: Path, text: str) -> None:
    others = "[columns.finish]\n[columns.ran_node]\nunit = 'hostlist'\n[columns.cpu_cores]\n[columns.agent]\n"
    line = ",".join(["2024-03-01T12:00:00Z", *[text] * 4])
    report, rows = imported(tmp_path, ARRIVAL + others, "t,finish,ran_node,cpu_cores,agent", line)
    (row,) = rows.values()
    assert not report.quarantined
    assert not {"finish", "ran_node", "cpu_cores", "agent"} & set(row)


@pytest.mark.parametrize(
    "text",
    ["0001-01-01T00:00:00Z", "0001-01-01 00:00:00 +0000 UTC", "0000-00-00 00:00:00", "0001-01-01T00:00:00"],
)
def test_the_zero_of_a_clock_is_no_instant_of_the_year_one(tmp_path: Path, text: str) -> None:
    """As Go, and so Docker and what runs in Kubernetes, MySQL and .NET write that something has not ended."""
    report, rows = imported(
        tmp_path, f"{ARRIVAL}[columns.finish]\n", "t,finish", f"2024-03-01T12:00:00Z,{text}"
    )
    assert not report.quarantined
    assert ["finish" in row for row in rows.values()] == [False]


@pytest.mark.parametrize(("text", "status"), [("3", "completed"), ("3.0", "completed"), ("3.1", "unknown")])
def test_whole_numbers_that_pandas_wrote_with_a_point_mean_what_they_mean(
    tmp_path: Path, text: str, status: str
) -> None:
    """A column of whole numbers with one missing is one of numbers with decimals there."""
    mapping = f'{ARRIVAL}[columns.status]\nvalues = {{ 3 = "completed" }}\nother = "unknown"\n'
    _, rows = imported(tmp_path, mapping, "t,status", f"2024-03-01T12:00:00Z,{text}")
    assert [row["status"] for row in rows.values()] == [status]


def test_memory_in_quantities_with_a_decimal_comma(tmp_path: Path) -> None:
    mapping = (
        f'separator = ";"\ndecimal = ","\n{ARRIVAL}[columns.memory_gib]\nsource = "m"\nunit = "quantity"\n'
    )
    _, rows = imported(tmp_path, mapping, "t;m", "2024-03-01T12:00:00Z;1,5Gi", "2024-03-01T12:00:01Z;512 Mi")
    assert [row["memory_gib"] for row in rows.values()] == [1.5, 0.5]


def test_a_list_of_machines_is_known_by_its_name_and_one_of_another_name_is_told_so(tmp_path: Path) -> None:
    mapping, log = (
        written(tmp_path, "map.toml", ARRIVAL),
        written(tmp_path, "log.csv", "t", "2024-03-01T12:00:00Z"),
    )
    machines = written(tmp_path, "nodes-2024.csv", *NODES)
    assert import_log("requests_csv", [log, mapping, machines], tmp_path / "a").rows == {
        "nodes": 1,
        "requests": 1,
    }
    others = machines.rename(tmp_path / "inventory.csv")
    with pytest.raises(FormatError, match=r"is to be named nodes\.csv"):
        import_log("requests_csv", [log, mapping, others], tmp_path / "b")
