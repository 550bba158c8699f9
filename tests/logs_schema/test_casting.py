"""Casting: what text and loose types mean, which values cannot be read, which types cannot mean a column."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from logs_schema.casting import cast_rows, complete
from logs_schema.checks import check_rows
from logs_schema.columns import TableSpec
from logs_schema.errors import SchemaError
from logs_schema.quarantine import rows_as_json
from logs_schema.tables import REQUESTS, SCHEMA_VERSION, TABLES
from tests.logs_schema.samples import sample_rows

NOON = datetime(2020, 2, 29, 12, tzinfo=UTC)
NOON_S = 1_582_977_600


def requests(**columns: Any) -> pa.Table:
    """Valid requests with the given columns, which may be loose or wrong."""
    num_rows = len(next(iter(columns.values())))
    plain = {
        "request_id": [f"r{row}" for row in range(num_rows)],
        "arrival": pa.array([0] * num_rows),
        "site": ["s"] * num_rows,
        "status": ["completed"] * num_rows,
    }
    return pa.table(plain | columns)


@pytest.mark.parametrize(
    "instants",
    [
        pa.array(["2020-02-29T12:00:00Z", "2020-02-29T13:00:00+01:00"]),
        pa.array(["2020-02-29 12:00:00", "2020-02-29T12:00:00.000"]),
        pa.array(["1582977600", "1582977600.0"]),
        pa.array(["1582977600", "2020-02-29T12:00"]),
        pa.array([NOON_S, NOON_S], pa.int64()),
        pa.array([NOON_S, NOON_S], pa.int32()),
        pa.array([NOON_S, NOON_S], pa.uint32()),
        pa.array([NOON_S, NOON_S], pa.float64()),
        pa.array([NOON_S * 10**9] * 2, pa.int64()).cast(pa.timestamp("ns")),
        pa.array([NOON_S] * 2, pa.int64()).cast(pa.timestamp("s", tz="Europe/Prague")),
        pa.array(["2020-02-29T12:00:00Z"] * 2).dictionary_encode(),
        pa.array(["2020-02-29T12:00:00Z"] * 2, pa.large_string()),
    ],
    ids=[
        "zones",
        "no-zone",
        "seconds-text",
        "mixed",
        "int",
        "int32",
        "uint32",
        "float",
        "ns",
        "prague",
        "dictionary",
        "large",
    ],
)
def test_instants_in_every_spelling(instants: pa.Array) -> None:
    cast = cast_rows(REQUESTS, requests(arrival=instants))
    assert cast.faults == {}
    assert cast.rows["arrival"].to_pylist() == [NOON, NOON]


def test_instants_in_single_precision_are_refused_where_it_holds_no_seconds() -> None:
    with pytest.raises(SchemaError, match="column of type float cannot be read as timestamp") as caught:
        cast_rows(REQUESTS, requests(arrival=pa.array(np.float32([NOON_S, NOON_S + 1]))))
    assert "single precision" in caught.value.allowed
    cast = cast_rows(REQUESTS, requests(arrival=pa.array([1.5, 4e4], pa.float32())))
    assert [instant.timestamp() for instant in cast.rows["arrival"].to_pylist()] == [1.5, 4e4]


def test_a_date_is_its_midnight() -> None:
    cast = cast_rows(REQUESTS, requests(arrival=pa.array([date(2020, 2, 29)])))
    assert cast.rows["arrival"].to_pylist() == [datetime(2020, 2, 29, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("name", "values", "read", "rule"),
    [
        ("cpu_cores", ["1.5", "x", None, " 2 "], [1.5, None, None, 2.0], "not_a_number:cpu_cores"),
        ("cpu_cores", ["1", "1_000"], [1.0, None], "not_a_number:cpu_cores"),
        ("num_nodes", ["3", "2.5"], [3, None], "not_whole:num_nodes"),
        ("num_nodes", [1.0, 3e9], [1, None], "out_of_range:num_nodes"),
        ("num_nodes", [1.0, float("inf")], [1, None], "not_finite:num_nodes"),
        ("accepted", ["true", "FALSE", "1", "no"], [True, False, True, None], "not_a_boolean:accepted"),
        ("accepted", [1, 0, 2], [True, False, None], "not_a_boolean:accepted"),
        ("start", ["2020-02-30", "2020-02-29T12:00:00Z"], [None, NOON], "not_an_instant:start"),
        ("start", [float("nan"), NOON_S], [None, NOON], "not_finite:start"),
        ("start", [10**15, NOON_S], [None, NOON], "out_of_range:start"),
    ],
)
def test_one_unreadable_value_costs_one_row(name: str, values: list[Any], read: list[Any], rule: str) -> None:
    checked = check_rows(REQUESTS, requests(**{name: values}))
    assert checked.rows[name].to_pylist() == read
    assert checked.rules == (rule,)
    bad = [row for row, value in enumerate(values) if value is not None and read[row] is None]
    assert checked.bad_rows.tolist() == bad


def test_lists_and_labels() -> None:
    rows = requests(
        candidates=["a | b", None], agent=[17, None], service=pa.array(["x", "x"], pa.large_string())
    )
    cast = cast_rows(REQUESTS, rows).rows
    assert cast["candidates"].to_pylist() == [["a", "b"], None]
    assert cast["agent"].to_pylist() == ["17", None]
    assert cast["service"].chunk(0).dictionary.to_pylist() == ["x"]


def test_views_are_read_as_what_they_show() -> None:
    names = pa.array(["x", "", None], pa.string_view())
    lists = [["a", "b"], [], None]
    not_utf8 = pa.array([b"n", b"\xff", None], pa.binary_view())
    rows = requests(
        agent=names,
        service=pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), names),
        offered_node=pa.Array.from_buffers(pa.string_view(), 3, not_utf8.buffers()),
        candidates=pa.array(lists, pa.list_(pa.string_view())),
        ran_nodes=pa.array(lists, pa.large_list(pa.string_view())),
    )
    cast = cast_rows(REQUESTS, rows)
    for name in ("agent", "service"):
        assert cast.rows[name].to_pylist() == ["x", None, None]
    for name in ("candidates", "ran_nodes"):
        assert cast.rows[name].to_pylist() == lists
    assert cast.rows["offered_node"].to_pylist() == ["n", None, None]
    assert {name: mask.tolist() for name, mask in cast.faults.items()} == {
        "not_utf8:offered_node": [False, True, False]
    }
    assert '"offered_node": "\\\\xff"' in rows_as_json(rows, np.array([1]))[0]


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_casting_typed_rows_changes_nothing(spec: TableSpec) -> None:
    rows = sample_rows(spec, 20, np.random.default_rng(1))
    cast = cast_rows(spec, rows)
    assert cast.faults == {}
    assert complete(spec, cast.rows).equals(rows)


def test_completed_rows_carry_units_and_version() -> None:
    rows = complete(REQUESTS, cast_rows(REQUESTS, requests(cpu_cores=[1])).rows)
    assert tuple(rows.column_names) == REQUESTS.names
    assert rows["finish"].null_count == 1
    assert rows.schema.field("memory_gib").metadata[b"unit"] == b"GiB"
    assert rows.schema.metadata[b"schema_version"] == str(SCHEMA_VERSION).encode()


def test_a_type_that_cannot_mean_the_column() -> None:
    with pytest.raises(SchemaError) as caught:
        cast_rows(REQUESTS, requests(cpu_cores=[[1.0]]), "log.parquet")
    for part in ("list<item: double>", "double", "log.parquet", "cpu_cores", "text that writes numbers"):
        assert part in str(caught.value)
    with pytest.raises(SchemaError, match="of type double cannot be read as dictionary"):
        cast_rows(REQUESTS, requests(agent=[1.5]))


def test_columns_that_are_unknown_missing_or_repeated() -> None:
    with pytest.raises(SchemaError, match="unknown columns: cores"):
        cast_rows(REQUESTS, requests(cores=[1]))
    with pytest.raises(SchemaError, match="missing columns: site"):
        cast_rows(REQUESTS, requests(cpu_cores=[1]).drop_columns(["site"]))
    with pytest.raises(SchemaError, match="repeated columns: site"):
        cast_rows(REQUESTS, requests(cpu_cores=[1]).append_column("site", [["s"]]))


def test_seconds_that_no_calendar_holds_break_their_row_alone():
    cast = cast_rows(REQUESTS, requests(arrival=["2020-02-29T12:00Z", "1e18", "-1e300"]))
    assert cast.faults["out_of_range:arrival"].tolist() == [False, True, True]


@pytest.mark.parametrize("beside", [None, "rubbish", "2024-03-01", "1700000000"])
def test_an_instant_beyond_the_calendar_is_told_so_whatever_stands_beside_it(beside: str | None) -> None:
    texts = pa.array(["1709294460123", beside], pa.string())
    rows = pa.table(
        {"request_id": ["1", "2"], "arrival": texts, "site": ["s"] * 2, "status": ["running"] * 2}
    )
    faults = cast_rows(REQUESTS, rows).faults
    assert [name for name, mask in faults.items() if mask[0]] == ["out_of_range:arrival"]
