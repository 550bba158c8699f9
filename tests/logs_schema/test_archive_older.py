"""An archive that an older version wrote, before some columns were there, is read as if they were null."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logs_schema.archive import Archive
from logs_schema.columns import TableSpec
from logs_schema.errors import ArchiveError
from logs_schema.tables import DEPLOYMENT_SAMPLES, TABLES
from tests.logs_schema.samples import sample_rows
from tests.logs_schema.test_archive import plainly_sorted, write

NEW = ("ready_replicas", "response_p95_s", "response_p99_s")
NAME = DEPLOYMENT_SAMPLES.name


def without(spec: TableSpec, names: tuple[str, ...]) -> TableSpec:
    return replace(spec, columns=tuple(column for column in spec.columns if column.name not in names))


def older(
    out: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...] = NEW
) -> Archive:
    """An archive as it was written when the table lacked some columns."""
    tables = tuple(without(spec, names) if spec.name == NAME else spec for spec in TABLES)
    with monkeypatch.context() as patch:
        patch.setattr("logs_schema.archive_writer.TABLES", tables)
        archive = write(out, [rows.drop_columns(list(names))], NAME)
    archive.verify()
    return archive


@pytest.fixture
def rows() -> pa.Table:
    return sample_rows(DEPLOYMENT_SAMPLES, 40, np.random.default_rng(0), num_days=2)


def test_columns_that_came_later_are_null(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = older(tmp_path / "a", rows, monkeypatch)
    found = archive.read(NAME)
    assert found.schema.equals(rows.schema)
    assert [found[name].null_count for name in NEW] == [40] * 3
    old = plainly_sorted(DEPLOYMENT_SAMPLES, rows.drop_columns(list(NEW)))
    assert found.drop_columns(list(NEW)).to_pylist() == old
    assert pa.Table.from_batches(archive.scan(NAME)).to_pylist() == found.to_pylist()
    mixed = ["deployment", "ready_replicas"]
    groups = [group.read(mixed) for group in archive.row_groups(NAME)]
    assert pa.concat_tables(groups).to_pylist() == found.select(mixed).to_pylist()
    alone = archive.read(NAME, columns=["ready_replicas"])
    assert alone.num_rows == alone["ready_replicas"].null_count == 40


def test_rows_are_added_to_a_day_of_an_older_version(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = np.array([instant.date() == date(1970, 1, 2) for instant in rows["time"].to_pylist()])
    mine = np.arange(40) % 2 == 0
    older(tmp_path / "a", rows.filter(pa.array(mine)), monkeypatch)
    longer = write(tmp_path / "a", [rows.filter(pa.array(~mine & second))], NAME, append=True)
    longer.verify()
    found = longer.read(NAME)
    given = rows.filter(pa.array(~mine & second))["ready_replicas"]
    assert found.num_rows == 20 + len(given)
    assert sorted(found["ready_replicas"].drop_null().to_pylist()) == sorted(given.drop_null().to_pylist())


def test_a_file_without_a_column_that_must_hold_values_is_damaged(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = older(tmp_path / "a", rows, monkeypatch, (*NEW, "interval_s"))
    with pytest.raises(ArchiveError, match=r"no column interval_s[\s\S]*part-0.parquet"):
        archive.read(NAME)
