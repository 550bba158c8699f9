"""The native format: the same rows as CSV, Parquet, folder or archive give the same archive."""

import csv
import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logs_schema.archive import Archive
from logs_schema.check import check_archive
from logs_schema.errors import FormatError
from logs_schema.formats import native
from logs_schema.formats.reading import Chunk
from logs_schema.importing import import_log, source_files
from logs_schema.tables import NODES, REQUESTS, TABLES
from tests.logs_schema.collecting import collect, written
from tests.logs_schema.samples import sample_rows

HEADER = "request_id,arrival,site,status"


def as_text(value: Any) -> str:
    """A value as the CSV writes it."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "|".join(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def write_csv(file: Path, rows: pa.Table) -> Path:
    with open(file, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(rows.column_names)
        writer.writerows([as_text(value) for value in row.values()] for row in rows.to_pylist())
    return file


def writable(rows: pa.Table) -> pa.Table:
    """The rows as far as CSV can write them: no empty text, no empty list, no '|' in an entry."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_list(field.type):
            lists = [["a", "ü"] if value else None for value in rows[index].to_pylist()]
            rows = rows.set_column(index, field, pa.array(lists, field.type))
        elif pa.types.is_dictionary(field.type):
            texts = [value or "-" if value is not None else None for value in rows[index].to_pylist()]
            rows = rows.set_column(index, field, pa.array(texts).dictionary_encode())
    return rows


@pytest.fixture
def tables() -> dict[str, pa.Table]:
    return {spec.name: writable(sample_rows(spec, 30, np.random.default_rng(3))) for spec in TABLES}


def contents(path: Path) -> dict[str, list[dict[str, Any]]]:
    archive = Archive(path)
    assert archive.quarantined("requests") == {}
    return {spec.name: archive.read(spec.name).to_pylist() for spec in TABLES}


def test_another_separator_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="unknown columns: node_id;site") as refused:
        native.check_columns(NODES, ["node_id;site;tier;cpu_cores"], tmp_path / "nodes.csv")
    assert "commas" in refused.value.advice


def test_csv_parquet_and_archive_say_the_same(tmp_path: Path, tables: dict[str, pa.Table]) -> None:
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
    for name, rows in tables.items():
        write_csv(tmp_path / "csv" / f"{name}.csv", rows)
        pq.write_table(rows, tmp_path / "parquet" / f"{name}.parquet", row_group_size=7)
    import_log("native", [tmp_path / "csv"], tmp_path / "a")
    import_log("native", [tmp_path / "parquet"], tmp_path / "b")
    import_log("native", [tmp_path / "b"], tmp_path / "c")
    found = contents(tmp_path / "a")
    assert {name: len(rows) for name, rows in found.items()} == dict.fromkeys(tables, 30)
    assert contents(tmp_path / "b") == found
    assert contents(tmp_path / "c") == found


def test_every_row_keeps_its_line(tmp_path: Path) -> None:
    text = [
        "\ufeff" + HEADER + ",agent",
        '1,2020-01-01T00:00:00Z,s,completed,"two, words"',
        "",
        "2,1577836800,s,completed,",
        "3,0,s",
        '4,0,s,"com"pleted,x',
        "5,0,s,completed,x",
    ]
    found = collect(native, [written(tmp_path, "requests.csv", *text)])
    assert [row["request_id"] for row in found.rows["requests"]] == ["1", "2", "5"]
    assert found.lines["requests"] == [2, 4, 7]
    assert found.rejects == [("field_count", 5), ("not_csv", 6)]
    assert [row["agent"] for row in found.rows["requests"]] == ["two, words", None, "x"]


def test_rows_out_of_order_are_counted_whatever_their_instants_are_written_as(tmp_path: Path) -> None:
    lines = [
        HEADER,
        "a,2020-01-02,s,completed",
        "b,86400,s,completed",
        "c,2020-01-01,s,completed",
        "d,2021-01-01,s,x",
    ]
    import_log("native", [written(tmp_path, "requests.csv", *lines)], tmp_path / "a")
    assert Archive(tmp_path / "a").facts["num_out_of_order"] == 2


def test_stray_quotes_cost_their_own_lines(tmp_path: Path) -> None:
    rows = [f"{number},{number},s,completed,a" for number in range(1000)]
    for number in (3, 900):
        rows[number] = f'{number},{number},s,completed,"a'
    report = import_log(
        "native", [written(tmp_path, "requests.csv", f"{HEADER},agent", *rows)], tmp_path / "a"
    )
    assert report.rows == {"requests": 998}
    assert report.quarantined == {"requests": {"not_csv": 2}}
    bad = [row for batch in Archive(tmp_path / "a").quarantine() for row in batch.to_pylist()]
    assert [(row["row"], row["raw"]) for row in bad] == [(5, rows[3]), (902, rows[900])]


def test_line_breaks_in_names_are_refused_wherever_they_come_from(tmp_path: Path) -> None:
    rows = sample_rows(REQUESTS, 3, np.random.default_rng(0))
    ids = pa.array(["a", "b\nc", "d"])
    pq.write_table(rows.set_column(0, "request_id", ids), tmp_path / "requests.parquet")
    report = import_log("native", [tmp_path / "requests.parquet"], tmp_path / "a")
    assert report.quarantined == {"requests": {"line_break:request_id": 1}}


@pytest.mark.parametrize(
    "text", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_empty_text_in_parquet_is_null_as_in_csv(tmp_path: Path, text: pa.DataType) -> None:
    columns = {
        "request_id": ["1", "2", "3", ""],
        "arrival": ["2024-03-01"] * 4,
        "site": ["s", "s", "", "s"],
        "status": ["completed"] * 4,
        "cpu_cores": ["", "1", "1", "1"],
        "offered_node": ["", "a", "a", "a"],
        "candidates": ["", "a|b", "a", "a"],
    }
    rows = pa.table({name: pa.array(values, pa.string()).cast(text) for name, values in columns.items()})
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
    write_csv(tmp_path / "csv" / "requests.csv", rows)
    pq.write_table(rows, tmp_path / "parquet" / "requests.parquet")
    for kind in ("csv", "parquet"):
        report = import_log("native", [tmp_path / kind], tmp_path / f"of-{kind}")
        assert report.quarantined == {"requests": {"null:site": 1, "null:request_id": 1}}
        kept = Archive(tmp_path / f"of-{kind}").read("requests").to_pylist()
        found = [(row["offered_node"], row["candidates"], row["cpu_cores"]) for row in kept]
        assert found == [(None, None, None), ("a", ["a", "b"], 1.0)]


def test_bad_rows_with_views_of_text_are_quarantined_as_others_are(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "request_id": pa.array(["1", "1", "2"], pa.string_view()),
            "arrival": pa.array([0, 1, 2]),
            "site": pa.array(["s", "s", None], pa.string_view()),
            "status": ["completed"] * 3,
            "candidates": pa.array([["a"], ["b", "c"], None], pa.list_(pa.string_view())),
        }
    )
    pq.write_table(rows, tmp_path / "requests.parquet")
    report = import_log("native", [tmp_path / "requests.parquet"], tmp_path / "a")
    assert report.quarantined == {"requests": {"duplicate_key": 1, "null:site": 1}}
    bad = [row for batch in Archive(tmp_path / "a").quarantine() for row in batch.to_pylist()]
    assert json.loads(bad[0]["raw"]) == {"request_id": "2", "arrival": 2, "status": "completed"}
    assert json.loads(bad[1]["raw"])["candidates"] == ["b", "c"]


def test_lists_with_empty_names_in_them_are_refused(tmp_path: Path) -> None:
    header = "request_id,arrival,site,status,candidates,ran_nodes"
    bad = "1,2024-03-01,s,completed,a||b,", "2,2024-03-01,s,completed,a,a|"
    log = written(tmp_path, "requests.csv", header, *bad, "3,2024-03-01,s,completed,a|b,a|b")
    report = import_log("native", [log], tmp_path / "a")
    assert report.quarantined == {"requests": {"empty_name:candidates": 1, "empty_name:ran_nodes": 1}}
    assert check_archive(tmp_path / "a").tables["requests"].rows == 1


def test_bad_values_cost_their_row_only(tmp_path: Path) -> None:
    lines = [f"{HEADER},cpu_cores", "a,2020-01-01,s,completed,1", "b,x,s,completed,2", "c,0,s,completed,-3"]
    report = import_log("native", [written(tmp_path, "requests.csv", *lines)], tmp_path / "a")
    assert report.rows == {"requests": 1}
    archive = Archive(tmp_path / "a")
    assert archive.read("requests")["arrival"].to_pylist() == [datetime(2020, 1, 1, tzinfo=UTC)]
    bad = [row for batch in archive.quarantine() for row in batch.to_pylist()]
    assert [(row["rule"], row["source"], row["row"], row["raw"]) for row in bad] == [
        ("not_an_instant:arrival", "requests.csv", 3, lines[2]),
        ("below:cpu_cores", "requests.csv", 4, lines[3]),
    ]


@pytest.mark.parametrize("unclosed", ['"', '"' + "x" * 200_000])
def test_an_unclosed_quote_is_a_reject(tmp_path: Path, unclosed: str) -> None:
    found = collect(
        native, [written(tmp_path, "requests.csv", HEADER, "a,0,s,completed", f"b,0,s,{unclosed}")]
    )
    assert [row["request_id"] for row in found.rows["requests"]] == ["a"]
    assert found.rejects == [("not_csv", 3)]


def test_the_table_is_identified_by_file_folder_or_columns(tmp_path: Path) -> None:
    for name, table in {
        "requests.csv": "requests",
        "nodes-2.csv.gz": "nodes",
        "replicas/x.csv": "replicas",
        "table=nodes/part-0.parquet": "nodes",
    }.items():
        assert native.table_of(tmp_path / name, ()).name == table
    assert native.table_of(tmp_path / "log.csv", HEADER.split(",")) is REQUESTS
    with pytest.raises(FormatError, match=r"which table[\s\S]*nodes.csv"):
        native.table_of(tmp_path / "log.csv", ["time"])


def test_gzip_and_large_strings(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv.gz"
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.write("node_id,site,tier,cpu_cores\nn1,s,edge,4\n")
    assert collect(native, [file]).rows["nodes"][0]["tier"] == "edge"
    rows = sample_rows(NODES, 4, np.random.default_rng(0))
    large = rows.set_column(0, "node_id", rows["node_id"].cast(pa.string()).cast(pa.large_string()))
    pq.write_table(large, tmp_path / "nodes.parquet")
    import_log("native", [tmp_path / "nodes.parquet"], tmp_path / "a")
    assert sorted(Archive(tmp_path / "a").nodes()["node_id"].to_pylist()) == sorted(
        rows["node_id"].to_pylist()
    )


def test_a_reimported_archive_keeps_facts_and_origins(tmp_path: Path) -> None:
    lines = [HEADER, "a,0,s,completed", "b,86400,s,completed"]
    import_log("native", [written(tmp_path, "requests.csv", *lines)], tmp_path / "a")
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["extra"]["facts"]["clock"] == "absolute"
    sources = [item.source for item in native.read([tmp_path / "a"]) if isinstance(item, Chunk)]
    again = import_log("native", [tmp_path / "a"], tmp_path / "b").archive
    assert sorted(Archive(again).made_from) == [source.removeprefix("table=requests/") for source in sources]
    assert sources == [
        "table=requests/date=1970-01-01/part-0.parquet",
        "table=requests/date=1970-01-02/part-0.parquet",
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("requests.csv", f"{HEADER},cores\n", r"unknown columns: cores[\s\S]*requests.csv[\s\S]*cpu_cores"),
        ("requests.csv", "request_id,arrival\n", r"lacks columns: site, status"),
        ("requests.csv", f"{HEADER},site\n", r"repeated columns: site"),
        ("requests.parquet", "PAR1 nonsense", r"cannot be read as Parquet"),
        ("requests.txt", HEADER, r"no CSV or Parquet file"),
        ("requests.csv", "", r"no rows|lacks columns"),
    ],
)
def test_whole_file_troubles(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        import_log("native", [tmp_path / name], tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file"):
        native.data_files([tmp_path / "nothing.csv"])


def test_seconds_count_from_the_origin_given_and_dates_do_not(tmp_path: Path) -> None:
    lines = [
        f"{HEADER},start,finish",
        "a,5,s,completed,6.5,2020-01-01",
        "b,x,s,completed,,",
        "c,,s,completed,7,",
    ]
    origin = datetime(2018, 3, 1, 12)
    report = import_log("native", [written(tmp_path, "requests.csv", *lines)], tmp_path / "a", origin=origin)
    assert report.quarantined == {"requests": {"not_an_instant:arrival": 1, "null:arrival": 1}}
    (row,) = Archive(tmp_path / "a").read("requests").to_pylist()
    assert row["arrival"] == datetime(2018, 3, 1, 12, 0, 5, tzinfo=UTC)
    assert row["start"] == datetime(2018, 3, 1, 12, 0, 6, 500_000, tzinfo=UTC)
    assert row["finish"] == datetime(2020, 1, 1, tzinfo=UTC)
    assert Archive(tmp_path / "a").facts["clock"] == "relative"


def test_seconds_in_parquet_count_from_the_origin_too(tmp_path: Path) -> None:
    rows = pa.table(
        {"request_id": ["a"], "arrival": pa.array([86_400]), "site": ["s"], "status": ["unknown"]}
    )
    pq.write_table(rows, tmp_path / "requests.parquet")
    import_log("native", [tmp_path / "requests.parquet"], tmp_path / "a", origin=datetime(2018, 3, 1))
    assert Archive(tmp_path / "a").days("requests") == [date(2018, 3, 2)]


@pytest.mark.parametrize(
    ("arrival", "message"),
    [
        ("2020-01-01", r"no instant counts from one[\s\S]*requests.csv"),
        ("1577836800", "since 1970 already: 1577836800"),
    ],
)
def test_an_origin_that_would_change_nothing_is_refused(tmp_path: Path, arrival: str, message: str) -> None:
    path = written(tmp_path, "requests.csv", HEADER, f"a,{arrival},s,completed")
    with pytest.raises(FormatError, match=message):
        import_log("native", [path], tmp_path / "a", origin=datetime(2018, 3, 1))
    assert not (tmp_path / "a").exists()


def test_an_archive_inside_the_folder_of_the_log_is_no_part_of_it(tmp_path: Path) -> None:
    for status in ("completed", "failed"):
        written(tmp_path, "requests.csv", HEADER, f"a,2024-03-01T12:00:00Z,s,{status}")
        report = import_log("native", [tmp_path], tmp_path / "out" / "archive", replace=True)
        assert Archive(tmp_path / "out" / "archive").read("requests")["status"].to_pylist() == [status]
        assert not report.quarantined


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path: Path) -> None:
    written(tmp_path, "nodes.csv", "node_id,site,tier,cpu_cores", "n,s,pool,4")
    quiet = import_log("native", [tmp_path], tmp_path / "out" / "first")
    assert not any("not read" in said for said in quiet.notices)
    written(tmp_path, "jobs.jsonl", "{}")
    written(tmp_path, ".hidden", "{}")
    report = import_log("native", [tmp_path], tmp_path / "out" / "second")
    (said,) = (said for said in report.notices if "not read" in said)
    assert ": jobs.jsonl; unpack it, or name it" in said


@pytest.mark.parametrize("in_folder", [True, False])
def test_settings_of_slots_beside_the_tables_are_among_the_facts(tmp_path: Path, in_folder: bool) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    requests = folder / "requests.csv"
    requests.write_text(f"{HEADER}\n1,2024-03-01,a,completed\n")
    settings = folder / "slots.toml"
    settings.write_text("slot_s = 0.5\n[power]\nidle_w_per_node = 4.0\n")
    import_log("native", [folder] if in_folder else [settings, requests], tmp_path / "archive")
    facts = Archive(tmp_path / "archive").facts
    assert facts["slots"] == {"slot_s": 0.5, "power": {"idle_w_per_node": 4.0}}
    assert "not_read" not in facts
    assert settings in source_files(native, [folder])
    settings.write_text("slot_s = a half")
    with pytest.raises(FormatError, match=r"cannot be read as TOML"):
        import_log("native", [folder], tmp_path / "another")
