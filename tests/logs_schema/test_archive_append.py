"""Adding days to an archive: what was there stays, days are merged, and a kill leaves the older archive."""

import os
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logs_schema import layout
from logs_schema.archive import Archive
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.errors import ArchiveError, SchemaError
from logs_schema.tables import NODE_SAMPLES, REQUESTS
from tests.logs_schema.samples import sample_rows
from tests.logs_schema.test_archive import ids, quarantine, requests, write

DAY_S = 86_400


def test_adding_equals_writing_at_once(tmp_path: Path) -> None:
    rows = sample_rows(REQUESTS, 60, np.random.default_rng(0), num_days=5)
    write(tmp_path / "parts", [rows.slice(0, 30)])
    parts = write(tmp_path / "parts", [rows.slice(30)], append=True)
    whole = write(tmp_path / "whole", [rows])
    assert parts.content_hash == whole.content_hash
    parts.verify()


def test_untouched_days_keep_their_files(tmp_path: Path) -> None:
    archive = write(tmp_path / "a", [requests(("a", 0), ("b", DAY_S))])
    files = [archive.path / layout.partition("requests", day) for day in archive.days("requests")]
    inodes = [file.stat().st_ino for file in files]
    longer = write(tmp_path / "a", [requests(("c", DAY_S + 1), ("d", 2 * DAY_S))], append=True)
    assert files[0].stat().st_ino == inodes[0]
    assert files[1].stat().st_ino != inodes[1]
    assert ids(longer) == ["a", "b", "c", "d"]
    assert longer.num_rows("requests", date(1970, 1, 2)) == 2
    assert longer.num_rows("requests") == 4


def test_keys_that_the_archive_has_are_duplicates(tmp_path: Path) -> None:
    write(tmp_path / "a", [requests(("a", 0), ("b", DAY_S), ("b", 3))])
    longer = write(tmp_path / "a", [requests(("new", 1), ("b", 9 * DAY_S), ("a", 1))], append=True)
    assert ids(longer) == ["a", "new", "b"]
    assert longer.quarantined("requests") == {"duplicate_key": 3}
    assert quarantine(longer) == [("duplicate_key", "log", row) for row in (3, 3, 2)]
    assert longer.days("requests") == [date(1970, 1, 1), date(1970, 1, 2)]


def test_the_end_of_an_unfinished_request_is_learned(tmp_path: Path) -> None:
    status = ["running", "completed", "waiting"]
    write(tmp_path / "a", [requests(("a", 0), ("b", 0), ("c", 0)).set_column(3, "status", [status])])
    later = requests(("a", 0), ("b", 0), finish=[60, 60])
    longer = write(tmp_path / "a", [later], append=True)
    rows = longer.read("requests", columns=["request_id", "status", "finish"]).to_pylist()
    assert [(row["request_id"], row["status"]) for row in rows] == [
        ("a", "completed"),
        ("b", "completed"),
        ("c", "waiting"),
    ]
    assert [row["finish"] is None for row in rows] == [False, True, True]
    assert quarantine(longer) == [("duplicate_key", "log", 2)]


def test_adding_the_same_rows_again_changes_no_row(tmp_path: Path) -> None:
    rows = sample_rows(NODE_SAMPLES, 30, np.random.default_rng(0))
    before = write(tmp_path / "a", [rows], "node_samples").read("node_samples")
    after = write(tmp_path / "a", [rows], "node_samples", append=True)
    assert after.read("node_samples").equals(before)
    assert after.quarantined("node_samples") == {"duplicate_key": 30}


def test_a_newer_inventory_replaces_what_it_names(tmp_path: Path) -> None:
    def nodes(**cores: int) -> pa.Table:
        columns = {"node_id": list(cores), "cpu_cores": list(cores.values())}
        return pa.table(columns | {"site": ["s"] * len(cores), "tier": ["pool"] * len(cores)})

    write(tmp_path / "a", [nodes(n1=4, n2=4)], "nodes")
    longer = write(tmp_path / "a", [nodes(n2=8, n3=8)], "nodes", append=True)
    found = longer.nodes()
    assert found["node_id"].to_pylist() == ["n1", "n2", "n3"]
    assert found["cpu_cores"].to_pylist() == [4.0, 8.0, 8.0]
    assert longer.quarantined("nodes") == {}


def test_tables_facts_and_sources_add_up(tmp_path: Path) -> None:
    node_samples = sample_rows(NODE_SAMPLES, 5, np.random.default_rng(0))
    write(tmp_path / "a", [node_samples], "node_samples", facts={"x": 1, "y": 1}, source={"f": "1"})
    longer = write(tmp_path / "a", [requests(("a", 0))], append=True, facts={"y": 2}, source={"g": "2"})
    assert longer.facts == {"x": 1, "y": 2}
    assert longer.made_from == {"f": "1", "g": "2"}
    assert longer.num_rows("node_samples") == 5
    assert ids(longer) == ["a"]


def test_adding_to_nothing_writes_a_new_archive(tmp_path: Path) -> None:
    assert ids(write(tmp_path / "a", [requests(("a", 0))], append=True)) == ["a"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").touch()
    with pytest.raises(ArchiveError, match="no archive here"):
        write(tmp_path / "b", [], append=True)


def test_two_who_add_at_once_do_not_lose_rows(tmp_path: Path) -> None:
    write(tmp_path / "a", [requests(("a", 0))])
    slow = ArchiveWriter(tmp_path / "a", append=True)
    slow.__enter__()
    write(tmp_path / "a", [requests(("b", 1))], append=True)
    slow.write("requests", requests(("c", 2)), source="log")
    with pytest.raises(ArchiveError, match="was changed"):
        slow.__exit__(None, None, None)
    assert ids(Archive(tmp_path / "a")) == ["a", "b"]


def test_an_error_leaves_the_older_archive(tmp_path: Path) -> None:
    write(tmp_path / "a", [requests(("a", 0))])
    with pytest.raises(SchemaError, match="unknown columns: cores"):
        write(tmp_path / "a", [requests(("b", 1)), requests(("c", 2), cores=[1])], append=True)
    assert ids(Archive(tmp_path / "a")) == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


KILLED = """
import os, signal, sys
import pyarrow as pa
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.table_builder import TableBuilder
finish = TableBuilder.finish
def die(self, root):
    finish(self, root)
    os.kill(os.getpid(), signal.SIGKILL)
TableBuilder.finish = die
rows = pa.table({"request_id": ["b"], "arrival": [1], "site": ["s"], "status": ["failed"]})
with ArchiveWriter(sys.argv[1], append=sys.argv[2] == "append") as writer:
    writer.write("requests", rows, source="log")
"""


@pytest.mark.parametrize("mode", ["new", "append"])
def test_a_killed_writer_leaves_nothing_or_the_older_archive(tmp_path: Path, mode: str) -> None:
    out = tmp_path / "a"
    if mode == "append":
        write(out, [requests(("a", 0))])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out), mode], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert any(path.name.endswith(".writing") for path in tmp_path.iterdir())
    if mode == "new":
        assert not out.exists()
    else:
        assert ids(Archive(out)) == ["a"]
        Archive(out).verify()
    again = write(out, [requests(("b", 1))], append=True)
    assert ids(again) == (["a", "b"] if mode == "append" else ["b"])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
