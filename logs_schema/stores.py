"""Archives in object stores, by pyarrow's file systems: `s3://BUCKET/NAME`, `gs://BUCKET/NAME`, `file:///FOLDER`.

An archive in a store has the files, the names and the content hash that it has on a disk. It is read through a mirror:
a folder in the user's cache with the archive's manifest, and with every file that is needed, fetched when it is
first read and checked against the manifest. So nothing is fetched that is not read, and nothing twice; whoever reads
while days are added reads the archive as it was when it was opened.
An archive is published manifest last: until then readers see the old one. Only files that differ are sent.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.fs as pafs

from logs_schema.atomic_folders import remove_unread
from logs_schema.disk import FULL
from logs_schema.errors import ArchiveError, ConfigError, ProductError
from logs_schema.hashing import file_hash, json_hash
from logs_schema.product import MANIFEST, Manifest, read_manifest

SCHEMES = ("s3", "gs", "file")
MIRRORS = "archives"
SOURCE = ".store.json"
"""Hidden file of a mirror: where it is a mirror of."""
BEING_REPLACED = ".being-replaced"
"""Hidden file beside an archive in a store while its files are replaced: they may not be those of its manifest."""
UNUSED_S = 7 * 86_400.0
"""Older mirrors of an archive that has changed since go after this time."""
PATIENCE_S, _PATIENCE = 60, "retry_limit_seconds"
"""How long a store of Google is asked again; by itself for a quarter of an hour, in which no interrupt is heard."""
_ADDRESS = re.compile(rf"({'|'.join(SCHEMES)}):/+(.+)")


def address_of(path: Path | str) -> str | None:
    """The address of an archive in a store, also of one that a `Path` has lost a slash of; None for a plain path."""
    found = _ADDRESS.fullmatch(str(path))
    if found is None:
        return None
    scheme, rest = found.groups()
    return f"{scheme}:///{rest}" if scheme == "file" else f"{scheme}://{rest}"


def shown(folder: Path | str) -> str:
    """A folder's path as it was given: of a mirror the address that it is a mirror of."""
    source = Path(folder) / SOURCE
    return without_secret(json.loads(source.read_text())["address"]) if source.is_file() else str(folder)


def without_secret(address: str) -> str:
    """An address as it may be shown: without the user and password that may stand in it."""
    return re.sub(r"(?<=://)[^/?@]*:[^/?]*@", "", address)


def cache_folder(kind: str) -> Path:
    """Where the user's things of a kind are kept that can be made anew, such as mirrors of archives."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "schedtwin" / kind


def mirror_of(address: str) -> Path:
    """The mirror of an archive as it is now; its files are fetched when they are read.

    Raises:
        ArchiveError: There is no archive, or the store does not answer.
        ConfigError: No such kind of store.
    """
    store = Store(address)
    text = store.read(MANIFEST)
    content_hash = str(_parsed(text, address).get("content_hash"))
    folder = cache_folder(MIRRORS) / json_hash([address, content_hash])[:16]
    is_new = not (folder / MANIFEST).exists()
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / SOURCE, json.dumps({"address": address}).encode())
    _write(folder / MANIFEST, text)
    if is_new:
        _take_over(folder, address)
    return folder


def _take_over(folder: Path, address: str) -> None:
    """Links into a new mirror the files that older ones of the archive hold as it wants them, and removes those of them
    that were not asked for in `UNUSED_S` and that nobody reads."""
    for older in folder.parent.iterdir():
        try:
            if older == folder or json.loads((older / SOURCE).read_text())["address"] != address:
                continue
            held, wanted = read_manifest(older).files, read_manifest(folder).files
            unused_s = time.time() - (older / MANIFEST).stat().st_mtime
        except (OSError, ValueError, ProductError):  # no mirror, or who reads it is told
            continue
        for name in (name for name in wanted if held.get(name) == wanted[name]):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # it was never read, or cannot be linked: it is fetched
                os.link(older / name, folder / name)
        if unused_s > UNUSED_S:
            remove_unread(older)


def fetch(file: Path, folder: Path) -> None:
    """Makes sure that a file of an archive is there, where the archive's folder is a mirror; else does nothing.

    Raises:
        ArchiveError: The store does not answer, or holds another file than the manifest names: the archive was changed.
    """
    source = folder / SOURCE
    if file.exists() or not source.is_file():
        return
    address, name = json.loads(source.read_text())["address"], file.relative_to(folder).as_posix()
    wanted, store = read_manifest(folder).files.get(name), Store(address)
    if wanted is None:
        return  # whoever reads it misses it
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        store.download(name, beside)
        if file_hash(beside) != wanted:
            raise _changed(store, name)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def _changed(store: "Store", name: str) -> ArchiveError:
    is_half = store.has(BEING_REPLACED)
    return ArchiveError(
        "the archive is being replaced, or who did so was ended before it was done"
        if is_half
        else "the archive was changed while it was read",
        where=f"{store.address}/{name}",
        allowed="files as the manifest names them",
        advice=f"open it again{'; where nobody writes it now, write it anew (--replace)' if is_half else ''}",
    )


def fetch_all(folder: Path) -> None:
    """All files of a mirror; ArchiveError as `fetch`."""
    if (folder / SOURCE).is_file():
        for name in read_manifest(folder).files:
            fetch(folder / name, folder)


def publish(folder: Path, address: str, *, replace: bool = False, expect: str | None = None) -> None:
    """Sends an archive to a store: the files that differ from those there, then the manifest, then old files go.

    Args:
        folder: Of the archive, complete.
        address: Where to, see `address_of`.
        replace: Whether another archive there may be replaced.
        expect: Content hash of the archive that is to be there still; empty: there was none; None: not looked at.

    Raises:
        ArchiveError: The address is taken, the archive there is another one by now, or the store does not answer.
    """
    store, new = Store(address), read_manifest(folder)
    there = _parsed(store.read(MANIFEST), address) if store.has(MANIFEST) else None
    if there is not None and not replace:
        raise _taken(address)
    if expect is not None and (there or {}).get("content_hash", "") != expect:
        raise ArchiveError(
            "the archive was changed by another process while rows were added to it",
            where=store.address,
            advice="add the rows again",
        )
    old: dict[str, str] = (there or {}).get("files", {})
    as_named = {} if there is None or store.has(BEING_REPLACED) else old
    if there is not None:
        store.upload(folder / MANIFEST, BEING_REPLACED)
    for name in sorted(new.files):
        if as_named.get(name) != new.files[name]:
            store.upload(folder / name, name)
    store.upload(folder / MANIFEST, MANIFEST)
    for name in sorted(old.keys() - new.files.keys()):
        store.remove(name)
    if there is not None:
        store.remove(BEING_REPLACED)


@contextmanager
def working_copy(address: str, *, append: bool = False, replace: bool = False) -> Iterator[Path]:
    """A folder to write an archive into, which is published when the block ends without error.

    Args:
        address: Where to, see `address_of`.
        append: Whether the archive there, if there is one, lies in the folder, for rows to be added to.
        replace: Whether another archive there may be replaced.

    Raises:
        ArchiveError: As `publish` and `mirror_of`.
    """
    cache_folder(MIRRORS).mkdir(parents=True, exist_ok=True)
    is_there = Store(address).has(MANIFEST)
    if is_there and not (append or replace):
        raise _taken(address)
    with TemporaryDirectory(prefix=".writing-", dir=cache_folder(MIRRORS)) as work:
        folder, expect = Path(work) / "archive", "" if append else None
        if append and is_there:
            mirror = mirror_of(address)
            fetch_all(mirror)
            expect = read_manifest(mirror).content_hash
            shutil.copytree(mirror, folder, copy_function=os.link, ignore=shutil.ignore_patterns(SOURCE))
        yield folder
        publish(folder, address, replace=append or replace, expect=expect)


def _taken(address: str) -> ArchiveError:
    return ArchiveError(
        "the address is taken",
        where=without_secret(address),
        allowed="an address where nothing is",
        advice="choose another, or replace it (--replace)",
    )


class Store:
    """A folder of an object store.

    Args:
        address: See `address_of`; what a store needs besides comes from the environment, as pyarrow reads it, or
            stands in the address (`s3://BUCKET/NAME?endpoint_override=HOST:PORT&scheme=http`).

    Raises:
        ConfigError: No such kind of store, or an address that cannot be read.
    """

    def __init__(self, address: str) -> None:
        self.address = without_secret(address)
        if address.startswith("gs:") and _PATIENCE not in address:
            address += f"{'&' if '?' in address else '?'}{_PATIENCE}={PATIENCE_S}"
        try:
            self.files, self.root = pafs.FileSystem.from_uri(address)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise ConfigError(
                f"the address cannot be used: {error}",
                where=self.address,
                allowed=", ".join(f"{scheme}://..." for scheme in SCHEMES),
            ) from error

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        with self._answering(name):
            return bool(self.files.get_file_info(self._path(name)).type == pafs.FileType.File)

    def read(self, name: str) -> bytes:
        """A small file."""
        with self._answering(name), self.files.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read())

    def download(self, name: str, file: Path) -> None:
        """A file of any size, to a disk."""
        path = self._path(name)
        with self._answering(name), self.files.open_input_stream(path) as stream, file.open("wb") as out:
            shutil.copyfileobj(stream, out, 2**20)

    def upload(self, file: Path, name: str) -> None:
        """A file of any size, from a disk; a reader gets the old file or the whole new one."""
        path = self._path(name)
        with self._answering(name), file.open("rb") as source:
            if isinstance(self.files, pafs.LocalFileSystem):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                _write(Path(path), source.read())
                return
            with self.files.open_output_stream(path) as out:
                shutil.copyfileobj(source, out, 2**20)

    def remove(self, name: str) -> None:
        """A file that is no longer named."""
        with self._answering(name):
            self.files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ArchiveError(
                "there is no archive here" if name == MANIFEST else "a file of the archive is missing",
                where=f"{self.address}/{name}",
                allowed="an archive that schedtwin wrote",
                advice="check the address",
            ) from error
        except OSError as error:
            if error.errno in FULL:  # here, where a mirror is, or in a store that is a folder
                raise ArchiveError(
                    f"{FULL[error.errno]}: not all could be written",
                    where=f"{self.address}/{name}, or its mirror in {cache_folder(MIRRORS)}",
                    advice="make room, or name another place for mirrors with XDG_CACHE_HOME, and run it again",
                ) from error
            raise ArchiveError(
                f"the store does not answer: {str(error).splitlines()[0][:300]}",
                where=f"{self.address}/{name}",
                allowed="a store that can be reached with credentials that may read and write there",
                advice="look at the address, the region and the credentials (AWS_ACCESS_KEY_ID, ~/.aws, ...)",
            ) from error


def _parsed(text: bytes, address: str) -> dict:
    try:
        found = json.loads(text)
        Manifest(**found)
    except (ValueError, TypeError) as error:
        raise ArchiveError(
            f"the manifest cannot be read ({error})",
            where=f"{without_secret(address)}/{MANIFEST}",
            allowed="files as they were written",
            advice="import the log again",
        ) from error
    return dict(found)


def _write(file: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(file)
