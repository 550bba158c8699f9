"""The archive: what goes in comes out, sorted, by day, lazily; bad rows are kept apart; damage is told."""

import json
from collections.abc import Sequence
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from logs_schema import layout
from logs_schema.archive import Archive
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.columns import TableSpec
from logs_schema.errors import ArchiveError, SchemaError
from logs_schema.runs import Runs
from logs_schema.tables import NODES, REQUESTS, TABLES
from tests.logs_schema.samples import sample_rows


def samples(spec: TableSpec, num_rows: int, seed: int = 0, num_days: int = 3) -> pa.Table:
    return sample_rows(spec, num_rows, np.random.default_rng(seed), num_days=num_days)


def write(out: Path, rows: Sequence[pa.Table], table: str = "requests", **options: Any) -> Archive:
    """An archive of chunks of one table, numbered from 1."""
    with ArchiveWriter(out, **options) as writer:
        first_row = 1
        for chunk in rows:
            writer.write(table, chunk, source="log", first_row=first_row)
            first_row += chunk.num_rows
    return Archive(out)


def requests(*rows: tuple[str, Any], **columns: Any) -> pa.Table:
    """Requests given as (request_id, arrival)."""
    ids, arrivals = zip(*rows, strict=True) if rows else ((), ())
    plain = {"request_id": pa.array(ids, pa.string()), "arrival": pa.array(arrivals)}
    return pa.table(plain | {"site": ["s"] * len(ids), "status": ["completed"] * len(ids)} | columns)


def quarantine(archive: Archive) -> list[tuple[str, str, int]]:
    """(rule, source, row) of every quarantined row."""
    return [
        (row["rule"], row["source"], row["row"])
        for batch in archive.quarantine()
        for row in batch.to_pylist()
    ]


def ids(archive: Archive, **options: Any) -> list[str]:
    found: list[str] = archive.read("requests", columns=["request_id"], **options)["request_id"].to_pylist()
    return found


def plainly_sorted(spec: TableSpec, rows: pa.Table) -> list[dict[str, Any]]:
    """The reference: rows as Python objects sorted by the declaration's columns."""
    return sorted(rows.to_pylist(), key=lambda row: tuple(row[name] for name in spec.sort))


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_every_table_comes_back_sorted_and_whole(tmp_path: Path, spec: TableSpec) -> None:
    rows = samples(spec, 60)
    archive = write(tmp_path / "a", [rows.slice(0, 25), rows.slice(25)], spec.name)
    found = archive.read(spec.name)
    assert found.to_pylist() == plainly_sorted(spec, rows)
    assert found.schema.equals(rows.schema)
    assert found.schema.metadata == rows.schema.metadata
    assert [field.metadata for field in found.schema] == [field.metadata for field in rows.schema]
    assert archive.tables == (spec.name,)
    assert archive.num_rows(spec.name) == 60
    assert archive.quarantined(spec.name) == {}
    if spec.time:
        days = sorted({row[spec.time].date() for row in rows.to_pylist()})
        assert archive.days(spec.name) == days
        assert sum(archive.num_rows(spec.name, day) for day in days) == 60
    archive.verify()


@hypothesis_settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 40), max_size=4), seed=st.integers(0, 1_000))
def test_neither_order_nor_chunks_change_a_byte(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("archives")
    rows = samples(REQUESTS, 40)
    shuffled = rows.take(np.random.default_rng(seed).permutation(40))
    bounds = [0, *sorted(cuts), 40]
    pieces = [shuffled.slice(first, last - first) for first, last in pairwise(bounds)]
    plain, cut = write(folder / "plain", [rows]), write(folder / "cut", pieces)
    assert plain.content_hash == cut.content_hash
    assert plain.read("requests").to_pylist() == cut.read("requests").to_pylist()


def test_content_hash_depends_on_rows_facts_and_source(tmp_path: Path) -> None:
    rows = samples(REQUESTS, 5)
    hashes = {
        write(tmp_path / "a", [rows]).content_hash,
        write(tmp_path / "b", [rows.slice(1)]).content_hash,
        write(tmp_path / "c", [rows], facts={"clock": "relative"}).content_hash,
        write(tmp_path / "d", [rows], source={"log.csv": "0" * 64}).content_hash,
    }
    assert len(hashes) == 4
    assert Archive(tmp_path / "c").facts == {"clock": "relative"}
    assert Archive(tmp_path / "d").made_from == {"log.csv": "0" * 64}


def test_days_and_columns_are_read_alone(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [requests(("b", 86_400), ("a", 0), ("c", 3 * 86_400))])
    middle = date(1970, 1, 2)
    for day in archive.days("requests"):
        if day != middle:
            (archive.path / layout.partition("requests", day)).unlink()
    reopened = Archive(archive.path)
    assert reopened.num_rows("requests") == 3
    assert ids(reopened, days=[middle, date(1970, 1, 3)]) == ["b"]
    assert [batch.num_rows for batch in reopened.scan("requests", days=[middle])] == [1]
    assert reopened.read("requests", days=[middle], columns=["status", "request_id"]).to_pylist() == [
        {"status": "completed", "request_id": "b"}
    ]
    with pytest.raises(ArchiveError, match=r"missing[\s\S]*date=1970-01-01"):
        reopened.read("requests")


def test_a_scan_holds_one_row_group_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logs_schema.table_builder.ROW_GROUP_ROWS", 8)
    archive = write(tmp_path / "a", [samples(REQUESTS, 30, num_days=1)])
    (day,) = archive.days("requests")
    parquet = pq.ParquetFile(archive.path / layout.partition("requests", day))
    assert [parquet.metadata.row_group(group).num_rows for group in range(4)] == [8, 8, 8, 6]
    batches = list(archive.scan("requests", columns=["agent", "arrival"], batch_rows=5))
    assert [batch.num_rows for batch in batches] == [5, 3, 5, 3, 5, 3, 5, 1]
    whole = archive.read("requests", columns=["agent", "arrival"])
    assert pa.Table.from_batches(batches).to_pylist() == whole.to_pylist()


def test_labels_of_other_days_do_not_leak_into_a_file(tmp_path: Path) -> None:
    agents = pa.array(["early", "late"]).dictionary_encode()
    archive = write(tmp_path / "a", [requests(("a", 0), ("b", 86_400), agent=agents)])
    rows = archive.read("requests", days=[date(1970, 1, 2)], columns=["agent"])
    assert rows["agent"].chunk(0).dictionary.to_pylist() == ["late"]


def test_bad_rows_are_told_by_rule_and_origin(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path / "a") as writer:
        writer.reject("requests", "field_count", "log.csv", 2, "a,b")
        chunk = requests(("r1", 0), ("r2", None), (None, 0), cpu_cores=["1", "2", "x"])
        writer.write("requests", chunk, source="log.csv", first_row=3, raw=["l3", "l4", "l5"])
        writer.write(
            "requests", requests(("r3", "1970-01-01"), ("r4", "soon")), source="log.csv", first_row=6
        )
    archive = Archive(tmp_path / "a")
    assert ids(archive) == ["r1", "r3"]
    rows = [row for batch in archive.quarantine() for row in batch.to_pylist()]
    assert [(row["rule"], row["row"]) for row in rows] == [
        ("field_count", 2),
        ("null:arrival", 4),
        ("null:request_id", 5),
        ("not_an_instant:arrival", 7),
    ]
    assert [row["raw"] for row in rows[:3]] == ["a,b", "l4", "l5"]
    assert json.loads(rows[3]["raw"])["arrival"] == "soon"
    assert archive.quarantined("requests") == {
        "field_count": 1,
        "not_an_instant:arrival": 1,
        "null:arrival": 1,
        "null:request_id": 1,
    }


def test_the_first_of_equal_keys_stays_whatever_its_day_or_chunk(tmp_path: Path) -> None:
    chunks = [requests(("x", 9 * 86_400), ("y", 0), ("x", 5)), requests(("y", 0), ("z", 1), ("x", 7))]
    archive = write(tmp_path / "a", chunks)
    assert ids(archive) == ["y", "z", "x"]
    assert archive.days("requests") == [date(1970, 1, 1), date(1970, 1, 10)]
    assert sorted(quarantine(archive)) == [("duplicate_key", "log", row) for row in (3, 4, 6)]


def test_a_bad_row_does_not_take_the_key_of_a_good_one(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [requests(("x", 1), ("x", 2), cpu_cores=[-1.0, 1.0])])
    assert ids(archive) == ["x"]
    assert quarantine(archive) == [("below:cpu_cores", "log", 1)]


def test_an_empty_log(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [])
    assert archive.tables == ()
    assert archive.days("requests") == []
    assert archive.read("requests").schema.names == list(REQUESTS.names)
    assert archive.read("requests", columns=["arrival"]).num_rows == 0
    assert list(archive.scan("requests")) == []
    assert archive.nodes().num_rows == 0
    archive.verify()
    assert write(tmp_path / "b", [requests()]).tables == ()


def test_a_log_of_bad_rows_only(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [requests(*(("r", None) for _ in range(50)))])
    assert archive.num_rows("requests") == 0
    assert archive.quarantined("requests") == {"null:arrival": 50}
    assert [row for _, _, row in quarantine(archive)] == list(range(1, 51))
    assert archive.read("requests").num_rows == 0
    archive.verify()


def test_rows_years_apart_and_before_1970(tmp_path: Path) -> None:
    arrivals = ["0001-01-01", "1969-12-31T23:59:59.999999", "1970-01-01", "2024-02-29", "9999-12-31T23:59:59"]
    archive = write(tmp_path / "a", [requests(*((arrival, arrival) for arrival in reversed(arrivals)))])
    assert ids(archive) == arrivals
    assert [day.isoformat() for day in archive.days("requests")] == [arrival[:10] for arrival in arrivals]


def test_unicode_and_lone_surrogates(tmp_path: Path) -> None:
    agents = ["größe", "名前", "👩‍🚀"]
    rows = requests(("ü", 0), ("名", 1), ("\x00", 2), agent=agents)
    with ArchiveWriter(tmp_path / "ä b") as writer:
        writer.write("requests", rows, source="ö.csv", first_row=1)
        writer.reject("requests", "field_count", "ö.csv", 4, "bad \udcff byte")
    archive = Archive(tmp_path / "ä b")
    assert archive.read("requests")["agent"].to_pylist() == agents
    assert [row["raw"] for batch in archive.quarantine() for row in batch.to_pylist()] == ["bad \\udcff byte"]


def test_many_rows_at_one_instant_over_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logs_schema.runs.BATCH_ROWS", 16)
    monkeypatch.setattr("logs_schema.table_builder.Runs", partial(Runs, run_bytes=1))
    names = [f"r{number:03}" for number in np.random.default_rng(0).permutation(200)]
    chunks = [requests(*((name, 7) for name in names[first : first + 50])) for first in range(0, 200, 50)]
    assert ids(write(tmp_path / "a", chunks)) == sorted(names)


def test_a_day_ends_at_midnight_utc(tmp_path: Path) -> None:
    last_us = np.datetime64("2020-01-01T23:59:59.999999", "us")
    arrivals = pa.array([last_us, last_us + np.timedelta64(1, "us")], pa.timestamp("us"))
    archive = write(tmp_path / "a", [requests(("last", 0), ("next", 0)).set_column(1, "arrival", arrivals)])
    assert ids(archive, days=[date(2020, 1, 1)]) == ["last"]
    assert ids(archive, days=[date(2020, 1, 2)]) == ["next"]


def test_errors_say_what_where_allowed(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [requests(("a", 0))])
    with pytest.raises(ArchiveError, match=r"no table 'jobs'[\s\S]*requests"):
        archive.read("jobs")
    with pytest.raises(ArchiveError, match=r"no column cores[\s\S]*cpu_cores"):
        list(archive.scan("requests", columns=["cores"]))
    with pytest.raises(ArchiveError, match="no archive here"):
        Archive(tmp_path / "nothing")
    with pytest.raises(ArchiveError, match="path is taken"):
        write(tmp_path / "a", [requests(("a", 0))])
    with pytest.raises(ArchiveError, match="no table 'jobs'"):
        write(tmp_path / "b", [requests(("a", 0))], "jobs")
    with pytest.raises(SchemaError, match=r"cores[\s\S]*log, table requests, from row 1"):
        write(tmp_path / "b", [requests(("a", 0), cores=[1])])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_another_schema_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logs_schema.packs.SCHEMA_VERSION", 99)
    with pytest.raises(ArchiveError, match=r"schema version 99[\s\S]*manifest.json[\s\S]*version 2"):
        write(tmp_path / "a", [requests(("a", 0))])


def test_damage_is_told(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [requests(("a", 0)), requests(("b", 86_400))])
    file = archive.path / layout.partition("requests", date(1970, 1, 2))
    file.write_bytes(file.read_bytes()[:-20])
    assert ids(archive, days=[date(1970, 1, 1)]) == ["a"]
    with pytest.raises(ArchiveError, match=r"cannot be read[\s\S]*1970-01-02"):
        archive.read("requests")
    with pytest.raises(ArchiveError, match=r"do not agree[\s\S]*altered: .*1970-01-02"):
        archive.verify()


def test_replacing_an_archive(tmp_path: Path) -> None:
    write(tmp_path / "a", [requests(("old", 0))])
    assert ids(write(tmp_path / "a", [requests(("new", 0))], replace=True)) == ["new"]


def test_units_are_in_the_files(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [samples(NODES, 3)], "nodes")
    schema = pq.read_schema(archive.path / layout.partition("nodes", None))
    assert schema.field("memory_gib").metadata[b"unit"] == b"GiB"
    assert schema.metadata[b"schema_version"] == b"1"


def test_what_is_no_path_is_told_so():
    for wrong in (None, 5, ["log"]):
        with pytest.raises(ArchiveError, match="an archive is not opened by a"):
            Archive(wrong)


def test_an_archive_of_some_days_is_as_if_it_held_no_others(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [samples(REQUESTS, 60)])
    days = archive.days("requests")
    part = archive.on_days([*days[1:], date(1999, 1, 1)])
    assert part.days("requests") == days[1:]
    assert part.num_rows("requests") == archive.num_rows_on("requests", days[1:])
    assert ids(part) == ids(archive, days=days[1:])
    assert [batch.num_rows for batch in part.scan("requests")] == [
        archive.num_rows("requests", day) for day in days[1:]
    ]
    assert archive.days("requests") == days
    assert ids(archive.on_days([])) == []
