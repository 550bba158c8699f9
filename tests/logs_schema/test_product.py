"""Products: complete under their name or not there, and honest about what is in them."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from logs_schema.errors import ConfigError, ProductError, SchemaError, first
from logs_schema.product import MANIFEST, fingerprint, read_manifest, verify, writing


def write(path, text="rows", **options):
    with writing(path, "table", **options) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "rows.txt").write_text(text)
    return read_manifest(path)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_written_product_is_read_back_and_verified(tmp_path):
    @dataclass(frozen=True)
    class Config:
        widths: tuple[int, ...] = (2, 3)

    manifest = write(tmp_path / "a", made_from={"log": "1f"}, config=Config(), seed=7, extra={"num_rows": 4})
    assert manifest == verify(tmp_path / "a", "table")
    assert (manifest.kind, manifest.seed, manifest.made_from) == ("table", 7, {"log": "1f"})
    assert manifest.config == {"widths": [2, 3]}
    assert manifest.extra == {"num_rows": 4}
    assert manifest.files == {"part/rows.txt": hashlib.sha256(b"rows").hexdigest()}
    assert names(tmp_path) == ["a"]


def test_content_hash_depends_on_content_and_on_nothing_else(tmp_path):
    same = [write(tmp_path / name, seed=1).content_hash for name in "ab"]
    others = [
        write(tmp_path / "c", text="ROWS", seed=1),
        write(tmp_path / "d", seed=2),
        write(tmp_path / "e", seed=1, config={"x": 1}),
        write(tmp_path / "f", seed=1, made_from={"x": "1"}),
        write(tmp_path / "g", seed=1, extra={"x": 1}),
    ]
    assert len(set(same)) == 1
    assert len({*same, *(other.content_hash for other in others)}) == 6


def test_fingerprint_is_known_before_the_product_and_ignores_files_and_key_order(tmp_path):
    config = {"b": 1, "a": (1.5, None)}
    expected = fingerprint("table", {"log": "1f"}, config, 3)
    assert write(tmp_path / "a", made_from={"log": "1f"}, config=config, seed=3).fingerprint == expected
    assert fingerprint("table", {"log": "1f"}, {"a": [1.5, None], "b": 1}, 3) == expected
    changes = [("x", {"log": "1f"}, config, 3), ("table", {}, config, 3), ("table", {"log": "1f"}, {}, 3)]
    assert expected not in [
        fingerprint(*change) for change in (*changes, ("table", {"log": "1f"}, config, 4))
    ]


def test_extra_may_be_filled_while_writing(tmp_path):
    extra = {}
    with writing(tmp_path / "a", "table", extra=extra):
        extra["num_rows"] = 12
    assert read_manifest(tmp_path / "a").extra == {"num_rows": 12}


def test_exception_leaves_nothing_and_keeps_the_older_product(tmp_path):
    def attempt(name, replace):
        with writing(tmp_path / name, "table", replace=replace) as folder:
            (folder / "half.txt").write_text("half")
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        attempt("a", replace=False)
    assert names(tmp_path) == []
    older = write(tmp_path / "a")
    with pytest.raises(RuntimeError, match="stopped"):
        attempt("a", replace=True)
    assert verify(tmp_path / "a") == older
    assert names(tmp_path) == ["a"]


def test_only_products_and_empty_folders_are_replaced_and_only_when_asked(tmp_path):
    write(tmp_path / "a", text="old")
    with pytest.raises(ProductError, match="taken"):
        write(tmp_path / "a", text="new")
    write(tmp_path / "a", text="new", replace=True)
    assert (tmp_path / "a" / "part" / "rows.txt").read_text() == "new"
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("dear")
    for content in (None, '{"name": "an extension"}'):
        if content:
            (home / MANIFEST).write_text(content)
        with pytest.raises(ProductError, match="this is none"):
            write(home, replace=True)
    assert (home / "letter.txt").read_text() == "dear"
    (tmp_path / "a" / MANIFEST).write_text('{"kind": "ta')
    verify_after = write(tmp_path / "a", replace=True)
    assert verify(tmp_path / "a") == verify_after


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda product: (product / "part" / "rows.txt").write_text("r0ws"), r"altered: part/rows\.txt"),
        (lambda product: (product / "part" / "rows.txt").unlink(), r"missing: part/rows\.txt"),
        (lambda product: (product / "more.txt").write_text("x"), r"foreign: more\.txt"),
        (lambda product: (product / MANIFEST).unlink(), "no table here"),
        (lambda product: (product / MANIFEST).write_text(""), "cannot be read"),
        (lambda product: (product / MANIFEST).write_text('{"colour": 1}'), "cannot be read"),
        (lambda product: (product / MANIFEST).write_text("[" * 100_000), "cannot be read"),
        (lambda product: _edit(product, files=["rows.txt"]), "cannot be read"),
        (lambda product: _edit(product, config={"deep": float("nan")}), "cannot be read"),
        (lambda product: os.mkfifo(product / "pipe"), "no pipes"),
        (lambda product: _edit(product, seed=8), "own hash"),
        (lambda product: _edit(product, schema_version=99), "another version"),
        (lambda product: _edit(product, created="yesterday"), None),
        (lambda product: (product / ".hidden").write_text("left by a file manager"), None),
    ],
)
def test_verify_names_the_damage(tmp_path, damage, message):
    write(tmp_path / "a", seed=7)
    damage(tmp_path / "a")
    if message is None:
        verify(tmp_path / "a", "table")
        return
    with pytest.raises(ProductError, match=message) as caught:
        verify(tmp_path / "a", "table")
    assert caught.value.advice
    assert str(tmp_path / "a") in caught.value.where


def _edit(product, **changes):
    facts = json.loads((product / MANIFEST).read_text())
    (product / MANIFEST).write_text(json.dumps(facts | changes))


def test_another_kind_is_refused(tmp_path):
    write(tmp_path / "a")
    with pytest.raises(ProductError, match="kind 'table'"):
        read_manifest(tmp_path / "a", "bundle")


def test_what_cannot_be_a_product_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no JSON form"):
        write(tmp_path / "a", config={"rate": float("nan")})
    with pytest.raises(ProductError, match="links"), writing(tmp_path / "a", "table") as folder:
        (folder / "link").symlink_to(tmp_path)
    with (
        pytest.raises(ProductError, match="written by the product itself"),
        writing(tmp_path / "a", "t") as folder,
    ):
        (folder / MANIFEST).write_text("{}")
    assert names(tmp_path) == []


KILLED_WRITER = """
import sys, time
from pathlib import Path
import logs_schema.product as product
from logs_schema import atomic_folders
path, moment = Path(sys.argv[1]), sys.argv[2]
def hang(*_):
    print("ready", flush=True)
    time.sleep(60)
if moment == "between renames":  # where two names cannot be exchanged at once
    atomic_folders._exchanged = lambda one, two: False
    rename = Path.rename
    Path.rename = lambda source, goal: hang() if source.name.endswith(".writing") else rename(source, goal)
with product.writing(path, "table", replace=True) as folder:
    (folder / "half.txt").write_text("half")
    if moment == "inside":
        hang()
"""


@pytest.mark.parametrize(
    ("moment", "older"), [("inside", False), ("inside", True), ("between renames", True)]
)
def test_killed_writer_leaves_no_product_and_loses_none(tmp_path, moment, older):
    before = write(tmp_path / "a") if older else None
    # a name that shares the prefix belongs to somebody else and must not be swept
    (tmp_path / ".a.b.01234567.writing").mkdir()
    command = [sys.executable, "-c", KILLED_WRITER, str(tmp_path / "a"), moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "ready\n"
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    if older:
        assert verify(tmp_path / "a") == before
    else:
        assert not (tmp_path / "a").exists()
    write(tmp_path / "a", text="later", replace=True)
    verify(tmp_path / "a")
    assert names(tmp_path) == [".a.b.01234567.writing", "a"]


def test_a_living_writer_is_not_swept(tmp_path):
    with writing(tmp_path / "a", "table") as slow:
        (slow / "rows.txt").write_text("slow")
        write(tmp_path / "a", text="quick")
        assert (slow / "rows.txt").exists()
        (tmp_path / "a").rename(tmp_path / "moved")
    assert (tmp_path / "a" / "rows.txt").read_text() == "slow"


def test_two_writers_of_one_path_the_later_is_refused(tmp_path):
    with pytest.raises(ProductError, match="taken"), writing(tmp_path / "a", "table"):
        write(tmp_path / "a", text="quick")
    assert (tmp_path / "a" / "part" / "rows.txt").read_text() == "quick"


def test_errors_say_what_where_allowed_and_what_to_do():
    error = SchemaError("bounds broken", where=first(range(9), num_shown=2), allowed="0..1", advice="mend it")
    assert str(error).splitlines() == [
        "bounds broken",
        "  where: 0, 1, ... (9 in all)",
        "  allowed: 0..1",
        "  what to do: mend it",
    ]
    assert (first([]), first([1]), first("ab", num_shown=2)) == ("none", "1", "a, b")


def test_a_product_inside_a_product_does_not_bring_its_date_along(tmp_path):
    hashes = []
    for name in ("first", "second"):
        with writing(tmp_path / name, "outer") as outer, writing(outer / "inner", "inner") as inner:
            (inner / "data.txt").write_text("equal")
        manifest = tmp_path / name / "inner" / "manifest.json"
        if name == "first":  # as if it had been made on another day
            facts = json.loads(manifest.read_text()) | {"created": "2001-01-01T00:00:00+00:00"}
            manifest.write_text(json.dumps(facts))
            verify(tmp_path / name)
        hashes.append(read_manifest(tmp_path / name).content_hash)
    assert hashes[0] == hashes[1]
    manifest.write_text(manifest.read_text().replace('"inner"', '"other"'))
    with pytest.raises(ProductError, match="do not agree"):
        verify(tmp_path / "second")


def test_a_full_disk_is_told_with_the_folder_and_what_is_needed(tmp_path):
    write(tmp_path / "a", text="old" * 2**20)

    def overfill():
        with writing(tmp_path / "a", "table", replace=True) as folder, open("/dev/full", "w") as full:
            (folder / "rows.txt").write_text("new" * 2**18)
            full.write("one byte more")

    with pytest.raises(ProductError, match="the disk is full: a could not be written") as caught:
        overfill()
    assert f"{tmp_path}: 0.8 MiB of it were written" in caught.value.where
    assert "more than 3.0 MiB" in caught.value.allowed  # as large as the one before, as far as anybody knows
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a" / "part" / "rows.txt").read_text()[:3] == "old"


def test_a_full_disk_is_told_of_a_product_in_the_making_of_another(tmp_path):
    with (
        pytest.raises(ProductError, match="the disk is full: a/b could") as caught,
        writing(tmp_path / "a", "t") as a,
        writing(a / "b", "t"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.where.startswith(f"{tmp_path}: ")


def test_a_full_disk_is_told_where_numpy_names_no_error_number(tmp_path):
    with (
        pytest.raises(ProductError, match="the disk is full: a could"),
        writing(tmp_path / "a", "table"),
        open("/dev/full", "wb") as full,
    ):
        np.save(full, np.zeros(100_000))


@pytest.mark.parametrize(("free", "is_told"), [({"a": 90, "b": 2}, True), ({"a": 2, "b": 90}, False)])
def test_a_full_disk_of_temporary_files_is_told(tmp_path, monkeypatch, free, is_told):
    """A step may keep its work there, and the error does not say which of the two was full."""
    aside = tmp_path / "b"
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(aside))
    monkeypatch.setattr(
        "shutil.disk_usage",
        lambda path: SimpleNamespace(free=free["b" if Path(path) == aside else "a"] * 2**20),
    )
    with (
        pytest.raises(ProductError, match="the disk is full: a could") as caught,
        writing(tmp_path / "a", "t"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    told = f"; 2.0 MiB for temporary files, in {aside} (TMPDIR names another)"
    assert caught.value.where.endswith(f"{free['a']}.0 MiB are free{told if is_told else ''}")


def test_other_troubles_with_files_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError), writing(tmp_path / "a", "table") as folder:
        (folder / "absent" / "rows.txt").write_text("rows")


def test_what_the_manifest_does_not_name_is_refused_before_anything_is_hashed(tmp_path, monkeypatch):
    known = write(tmp_path / "a").content_hash
    assert verify(tmp_path / "a", expect=known.upper(), max_bytes=100, hidden_allowed=False)
    monkeypatch.setattr("logs_schema.product._hash_inside", lambda file: pytest.fail(f"{file} was hashed"))
    with pytest.raises(ProductError, match="not the table that was expected"):
        verify(tmp_path / "a", expect="0" * 64)
    with pytest.raises(ProductError, match="too large"):
        verify(tmp_path / "a", max_bytes=1)
    (tmp_path / "a" / "part" / ".hidden").write_text("x")
    with pytest.raises(ProductError, match=r"foreign: part/\.hidden"):
        verify(tmp_path / "a", hidden_allowed=False)
    with (tmp_path / "a" / "stranger").open("wb") as stream:
        stream.truncate(3 * 1024**3)
    with pytest.raises(ProductError, match="foreign: stranger"):
        verify(tmp_path / "a")


def test_a_product_inside_a_finished_product_is_refused_and_neither_changes(tmp_path):
    write(tmp_path / "a")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / MANIFEST).write_text('{"name": "an application of the web"}')
    for inside in (tmp_path / "a" / "b", tmp_path / "a" / "deep" / "b"):
        with pytest.raises(ProductError, match="inside another product") as caught:
            write(inside)
        assert str(tmp_path / "a") in caught.value.allowed
    assert verify(tmp_path / "a", "table").files.keys() == {"part/rows.txt"}
    assert names(tmp_path / "a") == [MANIFEST, "part"]
    assert write(tmp_path / "foreign" / "b").kind == "table"
