"""Products: folders with a manifest, written aside and renamed into place.

Every product of the project (an archive, a twin, a policy, a bundle, a report) is a folder holding files
and one `manifest.json`, which records what it was made from, with which configuration and seed, and the hash of
every file. A folder under its final name is therefore complete, or not there at all; that alone makes jobs
resumable.
"""

import json
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from logs_schema.atomic_folders import discard, into_place, locked_folder, sweep, sync, unlock
from logs_schema.disk import room_for
from logs_schema.errors import ConfigError, ProductError, first
from logs_schema.hashing import as_json, file_hash, json_hash

MANIFEST = "manifest.json"
SIGNATURE = ".signature"
"""After the name of a product: its detached signature, which lies beside it."""
MAX_MANIFEST_BYTES = 64 * 1024**2
SCHEMA_VERSION = 1
"""Version of the manifest itself; what the files mean is the business of each kind."""
_NOT_IN_PLACE: dict[Path, list[Path]] = {}
"""Folder that `writing` has yielded in this process -> folders to remove once the product is in its place."""


@dataclass(frozen=True)
class Manifest:
    """What a product is and what it was made from.

    Attributes:
        kind: what sort of product, such as `archive` or `bundle`.
        schema_version: version of the manifest.
        made_from: name -> content hash of each input (or a version, for code).
        config: configuration it was made with, plain JSON.
        seed: seed of its randomness; None if it has none.
        files: relative path -> sha256 of each file.
        extra: free facts, plain JSON.
        content_hash: hash over all of the above; equal content, equal hash.
        created: when, ISO 8601 in UTC; not hashed.
    """

    kind: str
    schema_version: int = SCHEMA_VERSION
    made_from: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    files: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    content_hash: str = ""
    created: str = ""

    @property
    def fingerprint(self) -> str:
        """The `fingerprint` of what this product was made from."""
        return fingerprint(self.kind, self.made_from, self.config, self.seed)

    def hashed(self) -> str:
        """The content hash these facts should carry."""
        facts = asdict(self)
        return json_hash({key: facts[key] for key in facts if key not in ("content_hash", "created")})


def fingerprint(kind: str, made_from: Mapping[str, str], config: Any, seed: int | None) -> str:
    """Hash of everything a product depends on: unchanged means it need not be made again.

    Args:
        kind: kind of the product.
        made_from: name -> content hash of each input.
        config: configuration, JSON or dataclasses.
        seed: seed, or None.

    Returns:
        64 hexadecimal digits.
    """
    parts = {"kind": kind, "made_from": dict(made_from), "config": config, "seed": seed}
    return json_hash(parts | {"schema_version": SCHEMA_VERSION})


@contextmanager
def writing(
    path: Path | str,
    kind: str,
    *,
    made_from: Mapping[str, str] | None = None,
    config: Any = None,
    seed: int | None = None,
    extra: dict[str, Any] | None = None,
    replace: bool = False,
) -> Iterator[Path]:
    """Write a product: yields a temporary folder that becomes `path` when the block ends without error.

    After an exception or a kill nothing of this attempt is under `path`, and an older product is untouched.

    Args:
        path: where the product shall be.
        kind: kind of the product.
        made_from: name -> content hash of each input.
        config: configuration, JSON or dataclasses.
        seed: seed, or None.
        extra: free facts; read when the block ends, so it may be filled inside the block.
        replace: whether an older product (or empty folder) under `path` may be replaced.

    Raises:
        ProductError: `path` is taken or inside another product, what was written cannot be a product, or there is no
            room for it on the disk.
    """
    path = Path(path).absolute()
    sweep(path)
    refuse_place(path, replace)
    temporary, lock = locked_folder(path)
    _NOT_IN_PLACE[temporary] = []
    try:
        with room_for(path, temporary):
            yield temporary
            manifest = Manifest(
                kind=kind,
                made_from=dict(made_from or {}),
                config=as_json({} if config is None else config, "config"),
                seed=seed,
                files={name: _hash_inside(file) for name, file in _plain_files(temporary).items()},
                extra=as_json(extra or {}, "extra"),
            )
            _write_manifest(temporary, manifest)
            sync(temporary)
            _refuse_taken(path, replace)
            into_place(temporary, path)
        for folder in _NOT_IN_PLACE[temporary]:
            discard(folder, path)
    finally:
        del _NOT_IN_PLACE[temporary]
        unlock(temporary, lock)


def refuse_place(path: Path, replace: bool, more: str = "") -> None:
    """ProductError where no product can be written: the path is taken, or inside another product; `more` is what else
    its writer can be advised to do where it is taken."""
    _refuse_inside(path)
    _refuse_taken(path, replace, more)


def remove_once_in_place(out: Path, folder: Path) -> None:
    """Remove a folder as soon as the product that is written into `out` is in its place, and not if that fails.

    Args:
        out: a folder that `writing` yielded in this process; of any other the folder is removed now.
        folder: the folder to remove, beside `out`.
    """
    if out in _NOT_IN_PLACE:
        _NOT_IN_PLACE[out].append(folder)
    else:
        discard(folder)


def read_manifest(path: Path | str, kind: str | None = None) -> Manifest:
    """Read a product's manifest and check it against its own hash (not the files: see `verify`).

    Args:
        path: the product's folder.
        kind: the kind it must have; None accepts any.

    Raises:
        ProductError: no product there, a damaged manifest, another version or another kind.
    """
    path = Path(path).absolute()
    if not path.exists():
        sweep(path)  # a writer that died while replacing left the older product aside
    file = path / MANIFEST
    if not file.is_file():
        what = f"there is no {kind or 'product'} here"
        raise ProductError(
            what, where=str(path), allowed=f"a folder holding {MANIFEST}", advice="check the path"
        )
    try:
        manifest = _parsed(file)
        hashed = manifest.hashed()
    except (OSError, ValueError, TypeError, RecursionError, ConfigError) as error:
        raise _damaged(file, f"the manifest cannot be read ({error})") from error
    if manifest.schema_version != SCHEMA_VERSION:
        what, where = "the product was written by another version", f"{file}: schema_version"
        found = f"version {SCHEMA_VERSION}, found {manifest.schema_version}"
        raise ProductError(what, where=where, allowed=found, advice="make it again with this version")
    if manifest.content_hash != hashed:
        raise _damaged(file, "the manifest does not agree with its own hash")
    if kind is not None and manifest.kind != kind:
        what, inside = f"this is a product of kind '{manifest.kind}'", _inside(path, kind)
        advice = f"give the folder of the {kind}" + ("" if inside is None else f", which is {inside}")
        raise ProductError(what, where=str(path), allowed=f"kind '{kind}'", advice=advice)
    return manifest


def _inside(path: Path, kind: str) -> Path | None:
    """The first product of a kind (any bundle is one) in a product's folder, as in that of a step of a job."""
    for file in sorted(path.glob(f"*/{MANIFEST}")):
        try:
            if f"-{_parsed(file).kind}".endswith(f"-{kind}"):
                return file.parent
        except (OSError, ValueError, TypeError, RecursionError, ConfigError):
            continue
    return None


def verify(
    path: Path | str,
    kind: str | None = None,
    *,
    expect: str | None = None,
    max_bytes: int | None = None,
    hidden_allowed: bool = True,
) -> Manifest:
    """Recompute the hash of every file of a product; what can be refused by name or size is refused before that.

    Args:
        path: the product's folder.
        kind: the kind it must have; None accepts any.
        expect: the content hash it must have; None accepts any.
        max_bytes: what all its files may take; None: no limit.
        hidden_allowed: whether hidden files may lie there that the manifest does not name.

    Beside a product that lies in this one its signature may lie: it is made once this one is written.

    Returns:
        The manifest, now known to match the files.

    Raises:
        ProductError: as `read_manifest`, it has another content hash, is too large, or files are missing, altered,
            foreign or no plain files; names them.
    """
    path = Path(path).absolute()
    manifest = read_manifest(path, kind)
    if expect is not None and manifest.content_hash != expect.lower():
        raise ProductError(
            f"this is not the {manifest.kind} that was expected",
            where=f"{path}: content hash {manifest.content_hash}",
            allowed=expect,
            advice="get the content hash from its maker; do not use this one",
        )
    files = _plain_files(path)
    known = {name: file for name, file in files.items() if name in manifest.files}
    strange = [name for name in files if name not in known and not is_signature(name, manifest)]
    foreign = [name for name in strange if not (hidden_allowed and _is_hidden(name))]
    _refuse_disagreement(path, missing=manifest.files.keys() - known.keys(), foreign=foreign)
    num_bytes = sum(file.stat().st_size for file in known.values())
    if max_bytes is not None and num_bytes > max_bytes:
        raise ProductError(
            f"the {manifest.kind} is too large",
            where=f"{path}: {num_bytes:,} bytes",
            allowed=f"{max_bytes:,} bytes",
        )
    altered = [name for name, file in known.items() if manifest.files[name] != _hash_inside(file)]
    _refuse_disagreement(path, altered=altered)
    return manifest


def is_signature(name: str, manifest: Manifest) -> bool:
    """Whether a file in a product (its relative path) is the signature beside a product in it, by the manifest."""
    inside = name.removesuffix(SIGNATURE)
    return "/" not in name and inside != name and f"{inside}/{MANIFEST}" in manifest.files


def _refuse_disagreement(path: Path, **troubles: Collection[str]) -> None:
    if any(troubles.values()):
        where = "; ".join(
            f"{trouble}: {first(sorted(names))}" for trouble, names in troubles.items() if names
        )
        raise _damaged(path, "the files do not agree with the manifest", where)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts)


def _parsed(file: Path) -> Manifest:
    if file.stat().st_size > MAX_MANIFEST_BYTES:
        raise ValueError(f"more than {MAX_MANIFEST_BYTES:,} bytes")
    manifest = Manifest(**json.loads(file.read_text(encoding="utf-8")))
    for name in ("made_from", "config", "files", "extra"):
        if not isinstance(getattr(manifest, name), dict):
            raise TypeError(f"{name} is no mapping")
    texts = manifest.kind, manifest.content_hash, manifest.created, *manifest.files.values()
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("kind, date and hashes must be text")
    if outside := [name for name in manifest.files if name.startswith("/") or ".." in name.split("/")]:
        raise ValueError(f"{first(outside)}: not inside the product")
    return manifest


def _damaged(path: Path, what: str, where: str = "") -> ProductError:
    place = f"{path} ({where})" if where else str(path)
    return ProductError(
        what, where=place, allowed="files as they were written", advice="make the product again"
    )


def _refuse_inside(path: Path) -> None:
    """ProductError if a product would lie inside another one: its files would no longer agree with its manifest."""
    around = next(
        (folder for folder in path.resolve().parents if _looks_like_product(folder, or_damaged=False)), None
    )
    if around is not None:
        raise ProductError(
            "the path is inside another product, whose files must stay as they were written",
            where=str(path),
            allowed=f"a path outside {around}",
            advice="choose another path, such as one beside it",
        )


def _refuse_taken(path: Path, replace: bool, more: str = "") -> None:
    if not path.exists() and not path.is_symlink():
        return
    if path.is_dir() and not any(path.iterdir()):
        return
    if not replace:
        advice = "; ".join(filter(None, ["choose another path, or replace it (--replace)", more]))
        raise ProductError(
            "the path is taken", where=str(path), allowed="a path that does not exist", advice=advice
        )
    if path.is_symlink() or not _looks_like_product(path):
        what, allowed = "only a product can be replaced, and this is none", f"a folder holding our {MANIFEST}"
        raise ProductError(
            what, where=str(path), allowed=allowed, advice="choose another path, or remove it by hand"
        )


def _looks_like_product(path: Path, *, or_damaged: bool = True) -> bool:
    try:
        facts = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        return False
    except ValueError:
        return or_damaged  # a damaged manifest may be replaced
    return isinstance(facts, dict) and {"kind", "made_from", "files"} <= facts.keys()


def _plain_files(folder: Path) -> dict[str, Path]:
    """Name -> file of everything in a folder but the manifest; ProductError where something is no plain file."""
    files = {}
    for file in sorted(folder.rglob("*")):
        name, mode = file.relative_to(folder).as_posix(), file.lstat().st_mode
        if stat.S_ISLNK(mode):
            advice = "put a copy of the file there"
            raise ProductError(
                "a product holds no links", where=str(file), allowed="plain files", advice=advice
            )
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ProductError(
                "a product holds no pipes, sockets or devices",
                where=str(file),
                allowed="plain files",
                advice="remove it",
            )
        if stat.S_ISREG(mode) and name != MANIFEST:
            files[name] = file
    return files


def _hash_inside(file: Path) -> str:
    """A file's hash; of a manifest inside a product without its date, or equal products would not be equal."""
    if file.name == MANIFEST and _looks_like_product(file.parent):
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            return file_hash(file)
        return json_hash({key: facts[key] for key in facts if key != "created"})
    return file_hash(file)


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    if (folder / MANIFEST).exists():
        what = f"{MANIFEST} is written by the product itself"
        raise ProductError(what, where=str(folder), allowed="any other file name", advice="rename the file")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    facts = asdict(manifest) | {"content_hash": manifest.hashed(), "created": created}
    text = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
