"""Archives in object stores: the same content hash, fetched as far as they are read, published manifest last."""

import errno
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from logs_schema.archive import Archive
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.check import check_archive
from logs_schema.errors import ArchiveError, ConfigError
from logs_schema.hashing import file_hash
from logs_schema.product import Manifest
from logs_schema.stores import Store, address_of, mirror_of, publish, without_secret, working_copy
from logs_schema.tables import REQUESTS
from tests.logs_schema.samples import sample_rows


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def rows(seed: int, num_days: int = 3) -> pa.Table:
    return sample_rows(REQUESTS, 60, np.random.default_rng(seed), num_days=num_days)


def write(out: Path, chunk: pa.Table, *, append: bool = False, source: str = "log") -> Archive:
    with ArchiveWriter(out, append=append) as writer:
        writer.write("requests", chunk, source=source)
    return Archive(out)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("s3://bucket/log", "s3://bucket/log"),
        (Path("s3://bucket/log"), "s3://bucket/log"),
        (Path("file:///tmp/log"), "file:///tmp/log"),
        ("gs://bucket/a/b", "gs://bucket/a/b"),
        ("folder/log", None),
        (Path("/s3/log"), None),
        ("ftp://host/log", None),
    ],
)
def test_addresses_are_told_from_paths(given: Path | str, address: str | None) -> None:
    assert address_of(given) == address


def check_store(address: str, tmp_path: Path) -> None:
    """What is published is read, is the same, grows, and is not replaced unasked."""
    local = write(tmp_path / "local", rows(0))
    with working_copy(address) as folder:
        write(folder, rows(0))
    stored = Archive(address)
    assert stored.content_hash == local.content_hash
    assert stored.read("requests").equals(local.read("requests"))
    stored.verify()
    with pytest.raises(ArchiveError, match="taken"), working_copy(address) as folder:
        write(folder, rows(1))
    more = rows(1).set_column(0, "request_id", pa.array([f"new-{n}" for n in range(60)]))
    write(tmp_path / "local", more, append=True, source="more")
    with working_copy(address, append=True) as folder:
        write(folder, more, append=True, source="more")
    grown = Archive(address)
    assert grown.content_hash == Archive(tmp_path / "local").content_hash != stored.content_hash
    assert stored.num_rows("requests") < grown.num_rows("requests")
    assert stored.read("requests").num_rows == stored.num_rows("requests")  # as it was when it was opened
    with pytest.raises(ArchiveError, match="changed by another process"):
        publish(tmp_path / "local", address, replace=True, expect=stored.content_hash)


def test_an_archive_in_a_folder_of_another_machine(tmp_path: Path) -> None:
    check_store(f"file://{tmp_path}/far/log", tmp_path)


def test_no_more_is_fetched_than_is_read(tmp_path: Path, cache: Path) -> None:
    address = f"file://{tmp_path}/far"
    publish(write(tmp_path / "local", rows(0)).path, address)
    stored = Archive(address)
    days = stored.days("requests")
    stored.read("requests", days=days[:1])
    assert [file.parent.name for file in cache.rglob("*.parquet")] == [f"date={days[0]}"]


def test_of_an_archive_that_grew_only_what_is_new_is_fetched_and_old_mirrors_go(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, download, fetched = f"file://{tmp_path}/far", Store.download, list[str]()

    def counted(store: Store, name: str, file: Path) -> None:
        fetched.append(name)
        download(store, name, file)

    write(tmp_path / "local", rows(0, 6))
    publish(tmp_path / "local", address)
    monkeypatch.setattr(Store, "download", counted)
    first = Archive(address)
    first.verify()
    num_files = len(first.manifest.files)
    assert len(fetched) == num_files
    later = rows(1, 1).slice(0, 5).set_column(0, "request_id", pa.array([f"new-{n}" for n in range(5)]))
    write(tmp_path / "local", later, append=True, source="more")
    publish(tmp_path / "local", address, replace=True)
    for mirror in (cache / "schedtwin" / "archives").iterdir():
        os.utime(mirror / "manifest.json", (0, 0))  # not asked for since
    grown = Archive(address)
    assert grown.read("requests").num_rows == first.num_rows("requests") + 5
    assert 0 < len(fetched) - num_files < num_files
    assert first.read("requests").num_rows == first.num_rows("requests")  # who still reads it keeps it
    publish(write(tmp_path / "other", rows(2)).path, address, replace=True)
    os.utime(first.path / "manifest.json", (0, 0))
    gone = first.path
    del first
    Archive(address)
    assert not gone.exists()
    assert grown.path.exists()


def test_a_file_that_is_not_the_manifests_is_refused(tmp_path: Path) -> None:
    publish(write(tmp_path / "local", rows(0)).path, f"file://{tmp_path}/far")
    stored = Archive(f"file://{tmp_path}/far")
    (file, *_) = sorted((tmp_path / "far").rglob("*.parquet"))
    file.write_bytes(b"other")
    with pytest.raises(ArchiveError, match="changed while it was read"):
        stored.read("requests")
    file.unlink()
    with pytest.raises(ArchiveError, match="missing"):
        stored.read("requests")


def test_a_manifest_that_names_files_outside_of_the_archive_is_refused(tmp_path: Path, cache: Path) -> None:
    publish(write(tmp_path / "local", rows(0)).path, f"file://{tmp_path}/far/log")
    (tmp_path / "far" / "planted").write_text("evil")
    facts = json.loads((tmp_path / "far" / "log" / "manifest.json").read_text())
    for name in ("../planted", "a/../../planted", "/planted"):
        facts["files"] |= {name: file_hash(tmp_path / "far" / "planted")}
        facts["content_hash"] = Manifest(**facts).hashed()
        (tmp_path / "far" / "log" / "manifest.json").write_text(json.dumps(facts))
        with pytest.raises(ArchiveError, match="not inside the product"):
            Archive(f"file://{tmp_path}/far/log").verify()
        assert not [*cache.rglob("planted")]
        del facts["files"][name]


def test_what_a_killed_publication_left_is_not_taken_for_what_the_manifest_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, upload = f"file://{tmp_path}/far", Store.upload
    one, two = write(tmp_path / "one", rows(0)), write(tmp_path / "two", rows(1))
    publish(one.path, address)

    def killed_before_the_manifest(store: Store, file: Path, name: str) -> None:
        if name == "manifest.json":
            raise KeyboardInterrupt
        upload(store, file, name)

    monkeypatch.setattr(Store, "upload", killed_before_the_manifest)
    with pytest.raises(KeyboardInterrupt):
        publish(two.path, address, replace=True)
    monkeypatch.setattr(Store, "upload", upload)
    with pytest.raises(ArchiveError, match="write it anew"):
        Archive(address).read("requests")
    publish(one.path, address, replace=True)
    Archive(address).verify()
    assert sorted(path.name for path in (tmp_path / "far").iterdir()) == ["manifest.json", "table=requests"]


def test_of_two_programs_that_begin_an_archive_at_once_the_second_is_told(tmp_path: Path) -> None:
    address, second = f"file://{tmp_path}/far", ExitStack()
    write(second.enter_context(working_copy(address, append=True)), rows(1))
    publish(write(tmp_path / "local", rows(0)).path, address)
    with pytest.raises(ArchiveError, match="changed by another process"):
        second.close()
    assert Archive(address).content_hash == Archive(tmp_path / "local").content_hash


def test_a_report_names_the_address_and_not_its_mirror(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/far"
    publish(write(tmp_path / "local", rows(0)).path, address)
    assert check_archive(mirror_of(address)).archive == check_archive(address).archive == address
    assert check_archive(tmp_path / "local").archive == str(tmp_path / "local")


def test_bad_addresses_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="no archive here"):
        Archive(f"file://{tmp_path}/nothing")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ArchiveError, match="manifest cannot be read"):
        Archive(f"file://{tmp_path}")
    with pytest.raises((ArchiveError, ConfigError)):
        Archive("s3://bucket/log?endpoint_override=127.0.0.1:9&scheme=http&no_such_option=1")


def test_a_disk_that_is_full_is_not_taken_for_a_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(write(tmp_path / "local", rows(0)).path, f"file://{tmp_path}/far")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("logs_schema.stores.shutil.copyfileobj", full)
    with pytest.raises(ArchiveError, match="the disk is full") as told:
        Archive(f"file://{tmp_path}/far").read("requests")
    assert "XDG_CACHE_HOME" in str(told.value)


def test_passwords_in_addresses_are_not_shown() -> None:
    for open_to_all in ("s3://bucket/a@b?region=x", "gs://anonymous@bucket/a:b"):
        assert without_secret(open_to_all) == open_to_all
    with pytest.raises(ConfigError) as told:
        Store("s3://KEY:SECRET@bucket/log?no_such_option=1")
    assert "SECRET" not in str(told.value)
    assert "s3://bucket/log" in str(told.value)


@pytest.mark.parametrize(
    ("options", "patience_s"), [("", 60), ("?scheme=http", 60), ("?retry_limit_seconds=5", 5)]
)
def test_a_store_that_does_not_answer_is_not_asked_for_long(options: str, patience_s: int) -> None:
    files = Store(f"gs://anonymous@bucket/log{options}").files
    (settings,) = files.__reduce__()[1]
    assert settings["retry_time_limit"].total_seconds() == patience_s


def test_who_reads_while_days_are_added_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"file://{tmp_path}/far/log"
    with working_copy(address) as folder:
        write(folder, rows(0))
    archive = Archive(address)
    day = archive.days("requests")[0]
    more = rows(1).set_column(0, "request_id", pa.array([f"new-{n}" for n in range(60)]))
    with monkeypatch.context() as other:
        other.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        with working_copy(address, append=True) as folder:
            write(folder, more, append=True, source="more")
    for read in (
        lambda: archive.read("requests", days=[day]),
        lambda: list(archive.scan("requests", days=[day])),
    ):
        with pytest.raises(ArchiveError, match="changed while it was read"):
            read()
    assert Archive(address).read("requests", days=[day]).num_rows > archive.num_rows("requests", day)


def older(folder: Path, day: date, *columns: str) -> None:
    """The day's file as a version wrote it that did not know some columns, and the manifest that goes with it."""
    name = f"table=requests/date={day}/part-0.parquet"
    pq.write_table(pq.read_table(folder / name, partitioning=None).drop_columns(list(columns)), folder / name)
    facts = json.loads((folder / "manifest.json").read_text())
    facts["files"][name] = file_hash(folder / name)
    facts["content_hash"] = Manifest(**facts).hashed()
    (folder / "manifest.json").write_text(json.dumps(facts))


def test_columns_that_older_files_lack_read_as_null(tmp_path: Path) -> None:
    archive = write(tmp_path / "log", rows(0))
    first, second = archive.days("requests")[:2]
    old = archive.read("requests", days=[first, second])
    older(tmp_path / "log", first, "scenario", "deadline_s")
    archive = Archive(tmp_path / "log")
    archive.verify()
    found = archive.read("requests", days=[first, second])
    count = archive.num_rows("requests", first)
    assert found.schema.names == old.schema.names
    for name in ("scenario", "deadline_s"):
        assert found[name][:count].null_count == count
        assert found[name][count:].to_pylist() == old[name][count:].to_pylist()
    assert found["arrival"].equals(old["arrival"])
    batch = next(archive.scan("requests", days=[first], columns=["deadline_s", "site"]))
    group = archive.row_groups("requests", days=[first])[0].read(["deadline_s", "site"])
    assert batch.column("deadline_s").null_count == group["deadline_s"].null_count == count
    write(tmp_path / "log", rows(1, 1).slice(0, 5), append=True, source="more")
    assert Archive(tmp_path / "log").num_rows("requests") >= archive.num_rows("requests")


def test_a_column_that_no_log_may_leave_out_is_missed(tmp_path: Path) -> None:
    archive = write(tmp_path / "log", rows(0))
    older(tmp_path / "log", archive.days("requests")[0], "arrival")
    with pytest.raises(ArchiveError, match="no column arrival"):
        Archive(tmp_path / "log").read("requests")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server on loopback: MOTO_SERVER names the program moto_server of the package moto[server]."""
    server = os.environ.get("MOTO_SERVER")
    if server is None:
        pytest.skip("MOTO_SERVER does not name a moto_server")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([server, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        files, _ = pafs.FileSystem.from_uri(f"s3://logs?{options}&allow_bucket_creation=true")
        files.create_dir("logs")
        yield f"s3://logs/cluster/log?{options}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_an_archive_in_s3(s3: str, tmp_path: Path) -> None:
    check_store(s3, tmp_path)
