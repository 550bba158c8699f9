"""Compaction: fewer files with the same content, beside readers and writers, killed at any moment."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from logs_schema.archive import Archive
from logs_schema.compacting import CompactConfig, compact
from logs_schema.errors import ArchiveError, ConfigError, ProductError
from logs_schema.packs import content_hash_of
from logs_schema.product import read_manifest
from logs_schema.stores import working_copy
from logs_schema.tables import NODE_SAMPLES, REQUESTS
from tests.logs_schema.samples import sample_rows
from tests.logs_schema.test_archive import quarantine, requests, write

DAY_S = 86_400
ALL = CompactConfig(newest_days=0)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests and samples of twelve days, added in three parts, each with a duplicate."""
    rows, out = sample_rows(REQUESTS, 90, np.random.default_rng(0), num_days=12), tmp_path_factory.mktemp("a")
    for part in range(3):
        mine = rows.take(np.append(np.arange(part, 90, 3), part))
        write(out / "log", [mine], append=True, source={f"log-{part}": str(part)})
    samples = sample_rows(NODE_SAMPLES, 60, np.random.default_rng(1), num_days=12)
    return write(out / "log", [samples], NODE_SAMPLES.name, append=True).path


def grown(out: Path, original: Path) -> Archive:
    """The same archive in a place of its own."""
    return Archive(shutil.copytree(original, out, dirs_exist_ok=True))


def content(archive: Archive) -> tuple:
    """All that a reader sees, in order."""
    tables = {table: archive.read(table).to_pylist() for table in archive.tables}
    by_day = {day: archive.read("requests", days=[day]).num_rows for day in archive.days("requests")}
    hashes = archive.content_hash, archive.days_hash("requests", archive.days("requests")[2:5])
    return tables, by_day, hashes, quarantine(archive), archive.facts, archive.made_from


def num_files(archive: Archive) -> int:
    return len(list(archive.path.rglob("*.parquet")))


def test_what_readers_see_stays(tmp_path: Path, original: Path) -> None:
    archive = grown(tmp_path / "a", original)
    before = content(archive)
    done = compact(archive.path, ALL)
    packed = Archive(archive.path)
    packed.verify()
    assert content(packed) == before
    num_days = sum(len(archive.days(table)) for table in archive.tables)
    num_parts = len(archive.quarantine_names())
    assert num_parts > 1
    assert (done.num_files_before, done.num_files, num_files(packed)) == (num_days + num_parts, 3, 3)
    assert [batch.num_rows for batch in packed.scan("requests")] == [
        batch.num_rows for batch in archive.scan("requests")
    ]
    groups = packed.row_groups("requests", days=packed.days("requests")[3:5])
    assert [group.day for group in groups] == packed.days("requests")[3:5]
    found = pa.concat_tables([group.read(["request_id"]) for group in groups])
    assert found.equals(packed.read("requests", days=packed.days("requests")[3:5], columns=["request_id"]))
    manifest = (archive.path / "manifest.json").read_bytes()
    assert compact(archive.path, ALL).num_files == 3
    assert (archive.path / "manifest.json").read_bytes() == manifest  # nothing was left to do
    del archive, packed
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_its_hash_as_an_input_stays(tmp_path: Path, original: Path) -> None:
    archive = grown(tmp_path / "a", original)
    before = content_hash_of(archive.path)
    compact(archive.path, ALL)
    assert content_hash_of(archive.path, "archive") == before == archive.content_hash
    assert read_manifest(archive.path).content_hash != before
    with pytest.raises(ProductError, match="archive"):
        content_hash_of(archive.path, "twin")


def test_rows_are_added_to_a_packed_archive_as_to_another(tmp_path: Path, original: Path) -> None:
    plain, packed = grown(tmp_path / "plain", original), grown(tmp_path / "packed", original)
    compact(packed.path, ALL)
    for instant in (3.5 * DAY_S, 40 * DAY_S):  # into a day that is packed, and into a new one
        more = requests((f"new-{instant}", instant))
        plain, packed = (write(one.path, [more], append=True) for one in (plain, packed))
        packed.verify()
        assert content(packed) == content(plain)
    compact(packed.path, ALL)
    packed = Archive(packed.path)
    packed.verify()
    assert content(packed) == content(plain)


def test_large_and_new_days_stay_alone(tmp_path: Path, original: Path) -> None:
    archive = grown(tmp_path / "a", original)
    sizes = sorted(file.stat().st_size for file in archive.path.glob("table=requests/*/*"))
    compact(archive.path, CompactConfig(small_bytes=1, newest_days=0))
    assert num_files(archive) > 20
    compact(archive.path, CompactConfig(newest_days=10))
    names = {file.parent.name for file in archive.path.glob("table=node_samples/*/*")}
    days = archive.days("node_samples")
    old = days[: len(days) - 10]
    assert names == {f"dates={old[0]}--{old[-1]}", *(f"date={day}" for day in days[-10:])}
    compact(archive.path, CompactConfig(newest_days=0, pack_bytes=2 * sizes[-1]))
    sizes = [file.stat().st_size for file in archive.path.glob("table=requests/*/*")]
    assert 3 <= len(sizes) <= 8
    with pytest.raises(ConfigError, match="impossible"):
        CompactConfig(newest_days=-1)


def test_who_opened_it_before_reads_it_as_it_was(tmp_path: Path, original: Path) -> None:
    early = grown(tmp_path / "a", original)
    before = content(early)
    compact(early.path, ALL)
    write(early.path, [requests(("late", 2 * DAY_S))], append=True)
    assert content(early) == before
    early.verify()
    assert Archive(early.path).num_rows("requests") == early.num_rows("requests") + 1


READER = """
import sys, time
from logs_schema.archive import Archive
path, rows = sys.argv[1], 0
print("ready", flush=True)
while True:
    archive = Archive(path)
    ids = archive.read("requests", columns=["request_id"])["request_id"].to_pylist()
    batches = sum(batch.num_rows for batch in archive.scan("requests", columns=["site"]))
    halves = [day for day in archive.days("requests") if archive.num_rows("requests", day) % 2]
    assert len(ids) == len(set(ids)) == batches == archive.num_rows("requests") >= rows, (len(ids), batches, rows)
    assert not halves, halves
    rows = len(ids)
    if "end" in ids:
        break
print(rows)
"""


@pytest.mark.slow
def test_readers_see_whole_days_and_no_error_while_days_are_added_and_packed(tmp_path: Path) -> None:
    out = tmp_path / "a"
    write(out, [requests(("a", 0), ("b", 1))])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    call = [sys.executable, "-c", READER, str(out)]
    with (
        subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, text=True) as reader,
        subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, text=True) as other,
    ):
        assert reader.stdout is not None
        assert other.stdout is not None
        assert reader.stdout.readline() == other.stdout.readline() == "ready\n"
        for day in range(1, 6):
            two = requests((f"{day}-a", day * DAY_S), (f"{day}-b", day * DAY_S + 1))
            write(out, [two], append=True)
            compact(out, ALL)
            two = requests((f"{day}-c", day * DAY_S), (f"{day}-d", day * DAY_S + 1))
            write(out, [two], append=True)  # into a day that is packed
        write(out, [requests(("end", 9 * DAY_S), ("ends", 9 * DAY_S))], append=True)
        assert reader.stdout.read() == other.stdout.read() == "24\n"
        assert reader.wait() == other.wait() == 0
    compact(out, ALL)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


ADDER = """
import sys
from tests.logs_schema.test_archive import requests, write
for day in range(400, 404):
    write(sys.argv[1], [requests((f"x{day}", day * 86400))], append=True)
"""


@pytest.mark.slow
def test_no_row_is_lost_where_one_adds_and_one_packs(tmp_path: Path, original: Path) -> None:
    archive = grown(tmp_path / "a", original)
    rows, days = archive.num_rows("requests"), set(archive.days("requests"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    call = [sys.executable, "-c", ADDER, str(archive.path)]
    with subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True) as adder:
        turn = 0
        while adder.poll() is None:
            compact(archive.path, CompactConfig(newest_days=turn % 2))
            turn += 1
        assert adder.stderr is not None
        told = adder.stderr.read()
    assert adder.returncode == 0 or "was changed by another process" in told
    now = Archive(archive.path)
    added = set(now.days("requests")) - days
    assert now.num_rows("requests") == rows + len(added)
    assert len(added) == 4 or adder.returncode
    now.verify()


KILLED = """
import os, signal, sys
import logs_schema.compacting as compacting
name, calls = sys.argv[2], int(sys.argv[3])
inner, left = getattr(compacting, name), [calls]
def die(*arguments, **named):
    result = inner(*arguments, **named)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(compacting, name, die)
compacting.compact(sys.argv[1], compacting.CompactConfig(newest_days=0))
"""


@pytest.mark.parametrize(("name", "calls"), [("copy_groups", 2), ("link", 2)])
def test_killed_it_leaves_the_archive_and_goes_on(
    tmp_path: Path, original: Path, name: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = grown(tmp_path / "a", original)
    before = content(archive)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    call = [sys.executable, "-c", KILLED, str(archive.path), name, str(calls)]
    assert subprocess.run(call, env=environment, check=False).returncode == -signal.SIGKILL
    assert content(Archive(archive.path)) == before
    made = []
    copy = compact.__globals__["copy_groups"]
    monkeypatch.setitem(compact.__globals__, "copy_groups", lambda *given: made.append(given) or copy(*given))
    compact(archive.path, ALL)
    assert len(made) == (2 if name == "copy_groups" else 0)  # of three packs, the finished ones are taken up
    assert content(Archive(archive.path)) == before
    del archive
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("kept", [0, 100])
def test_a_pack_that_lost_power_before_it_was_on_the_disk_is_made_again(
    tmp_path: Path, original: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    archive = grown(tmp_path / "a", original)
    before = content(archive)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as early:
        early.setattr("logs_schema.compacting.writing", stopped)
        with pytest.raises(KeyboardInterrupt):
            compact(archive.path, ALL)
    packs = list(tmp_path.glob(".unfinished-*/*.parquet"))
    for pack in packs:
        pack.write_bytes(pack.read_bytes()[:kept])
    assert packs
    compact(archive.path, ALL)
    assert content(Archive(archive.path)) == before


def test_an_archive_in_a_store_is_packed(
    tmp_path: Path, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    address = f"file://{tmp_path}/far/log"
    with pytest.raises(ArchiveError, match="no archive here"):
        compact(address, ALL)
    with working_copy(address) as folder:
        grown(folder, original)
    before = content(Archive(address))
    assert compact(address, ALL).num_files == 3
    assert content(Archive(address)) == before
    Archive(address).verify()
    assert len(list((tmp_path / "far").rglob("*.parquet"))) == 3


def test_a_version_that_knows_no_packs_refuses_them(tmp_path: Path, original: Path) -> None:
    archive = grown(tmp_path / "a", original)
    assert archive.manifest.extra["schema_version"] == 1
    compact(archive.path, ALL)
    assert Archive(archive.path).manifest.extra["schema_version"] == 2
