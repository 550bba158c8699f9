"""Finding and opening the files of a log, and reading them by numbered lines of bounded length.

Only regular files with names in UTF-8 are read: a log is read more than once, and its name goes into manifests.
"""

import codecs
import gzip
import os
import stat
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from logs_schema.errors import FormatError, first
from logs_schema.product import MANIFEST

MAX_LINE_LETTERS = 1 << 20
"""A longer line is quarantined: no row of any format comes near."""
_BLOCK_LETTERS = 1 << 20
_AROUND = 12
"""So many bytes before and after are shown of what is no UTF-8."""
_GZIP = b"\x1f\x8b"
_HEAD_LETTERS = 1 << 17
_TAR, _TAR_BYTES = b"ustar", 262
_PACKED = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z",
}
"""How files begin that are compressed in other ways."""
PACKED_ENDINGS = (".bz2", ".xz", ".zip", ".zst", ".7z", ".z", ".lz4", ".lzma", ".rar", ".tar", ".tgz")
"""How their names end."""
MOST_LOOKED_AT = 10_000
"""Of what lies in a folder that is not read."""


def find_files(paths: Sequence[Path], suffixes: Sequence[str]) -> list[Path]:
    """The files that `paths` name: files as they are, folders by their entries that end in one of `suffixes`.

    Args:
        paths: Files or folders.
        suffixes: Endings looked for in folders, such as `.swf`; each may be followed by `.gz`.

    Returns:
        Files in the order given, each once, a folder's sorted by name, without hidden ones.

    Raises:
        FormatError: A path does not exist or is no file to read, or a folder holds no such file.
    """
    endings = tuple(suffixes) + tuple(f"{suffix}.gz" for suffix in suffixes)
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FormatError("there is no such file or folder", where=str(path), advice="check the path")
        if not path.is_dir():
            refuse_special(path)
            found.append(path)
            continue
        inside = sorted(
            entry
            for entry in path.iterdir()
            if entry.is_file() and entry.name.endswith(endings) and not is_hidden(entry, path)
        )
        if not inside:
            below = sorted(
                entry.name for entry in path.iterdir() if entry.is_dir() and not is_hidden(entry, path)
            )
            advice = f"folders in it are not read; name them: {first(below)}" if below else ""
            raise FormatError(
                "the folder holds no log of this format",
                where=str(path),
                allowed=f"files ending in {', '.join(endings)}",
                advice=advice or "name the log file itself",
            )
        found.extend(inside)
    _refuse_packed_copies(found)
    return each_once(found)


def each_once(files: Sequence[Path]) -> list[Path]:
    """The files without those that are named again, by another path or beside their folder."""
    found: dict[Path, Path] = {}
    for path in files:
        found.setdefault(path.resolve(), path)
    return list(found.values())


def is_hidden(path: Path, folder: Path) -> bool:
    """Whether a file's name, or that of a folder on the way to it from `folder`, begins with a dot: no log, but left by
    a file manager or an editor."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _refuse_packed_copies(files: Sequence[Path]) -> None:
    """FormatError where a file stands beside its packed copy: their rows would count twice."""
    named = {path.absolute() for path in files}
    for path in files:
        if path.suffix == ".gz" and path.absolute().with_suffix("") in named:
            raise FormatError(
                f"{path.name} and {path.stem} stand side by side: one may be a copy of the other",
                where=str(path.parent),
                allowed="one of the two",
                advice="move one away, or give it another name where their rows differ",
            )


def paths_below_shared(files: Sequence[Path]) -> list[str]:
    """Path of each file below the folder that all share."""
    absolute = [path.absolute() for path in files]
    shared = os.path.commonpath([path.parent for path in absolute]) if absolute else "."
    return [path.relative_to(shared).as_posix() for path in absolute]


def names_apart(files: Sequence[Path]) -> list[str]:
    """Name of each file; where several files have one name, the path of each below the folder that all files share."""
    times = Counter(path.name for path in files)
    below = zip(files, paths_below_shared(files), strict=True)
    return [path.name if times[path.name] == 1 else name for path, name in below]


def left_in_folders(paths: Sequence[Path], read: Sequence[Path]) -> list[str]:
    """Names of what lies in these folders, may be part of the log, and is not read.

    That is files that are packed otherwise than by gzip, or end in large letters as those do that are read, and folders
    of such as are read, unless they are products.

    Args:
        paths: Files or folders, as they were named.
        read: The files that are read.
    """
    inside = {one for path in read for one in (path.absolute(), *path.absolute().parents)}
    kinds = {_kind(path) for path in read} - {"", ".toml"}

    def is_left(entry: Path, folder: Path) -> bool:
        if is_hidden(entry, folder) or entry.absolute() in inside:
            return False
        if entry.is_file():
            kind = _kind(entry)
            is_large = kind not in kinds and kind.lower() in kinds
            return is_large or entry.name.lower().endswith(PACKED_ENDINGS)
        within = entry.rglob("*") if entry.is_dir() and not (entry / MANIFEST).is_file() else ()
        return any(
            _kind(one) in kinds and not is_hidden(one, folder) for one in islice(within, MOST_LOOKED_AT)
        )

    folders = [path for path in map(Path, paths) if path.is_dir()]
    return [
        entry.name + "/" * entry.is_dir()
        for folder in folders
        for entry in sorted(folder.iterdir())
        if is_left(entry, folder)
    ]


def _kind(path: Path) -> str:
    """How a file's name ends, without what says that it is packed."""
    return Path(path.name.removesuffix(".gz")).suffix


def equal_names_apart(files: Sequence[Path]) -> dict[Path, str]:
    """What those files are called that share their names with others (`names_apart`), by their absolute paths."""
    named = zip(files, names_apart(files), strict=True)
    return {path.absolute(): name for path, name in named if name != path.name}


def beside(paths: Sequence[Path], suffix: str) -> list[Path]:
    """The files ending in `suffix` that `paths` name or that lie in folders among them, each once."""
    folders = [sorted(path.iterdir()) if path.is_dir() else [path] for path in map(Path, paths)]
    named = [path for entries in folders for path in entries if path.suffix == suffix]
    return each_once(named)


def refuse_special(path: Path) -> None:
    """FormatError unless a path leads to a regular file, which can be read twice, with a name in UTF-8."""
    shown = str(path).encode("utf-8", "backslashreplace").decode()
    if shown != str(path):
        raise FormatError(
            "the file's name is not UTF-8", where=shown, allowed="names in UTF-8", advice="rename it"
        )
    if not stat.S_ISREG(path.stat().st_mode):
        raise FormatError(
            "this is no regular file (a pipe, a device or a folder)",
            where=shown,
            allowed="a file on disk: a log is read more than once",
            advice="write its content to a file first",
        )


def only_file(files: Sequence[Path], reason: str) -> Path:
    """The one file of `files`; FormatError that gives `reason` where there are several or none."""
    if len(files) == 1:
        return files[0]
    names = ", ".join(path.name for path in files) or "nothing"
    raise FormatError(
        f"expected one log file, found {len(files)}: {names}",
        allowed=f"one file, since {reason}",
        advice="import one at a time, each into an archive of its own",
    )


def numbered_lines(path: Path, most_letters: int = MAX_LINE_LETTERS) -> Iterator[tuple[int, str]]:
    """The lines of a text file, plain or gzip, with their numbers from 1; undecodable bytes appear escaped.

    Of a line longer than `most_letters` only the beginning is kept, which is longer than that, too.

    Raises:
        FormatError: The file cannot be opened, or its compressed data is broken.
    """
    with opened(path) as file:
        yield from lines_in(file, most_letters=most_letters)


def lines_in(
    file: IO[str], first: int = 1, most_letters: int = MAX_LINE_LETTERS
) -> Iterator[tuple[int, str]]:
    """The lines of an open file with their numbers from `first`, shortened as `numbered_lines` does it."""
    number, left = first, ""
    while block := file.read(_BLOCK_LETTERS):
        lines = (left + block).split("\n")
        left = lines.pop()[: most_letters + 1]
        yield from enumerate(lines, number)
        number += len(lines)
    if left:
        yield number, left


def head(path: Path) -> list[str]:
    """The first lines of a text file: enough to recognise a format by, little even of a binary file.

    Raises:
        FormatError: The file cannot be opened, or its compressed data is broken.
    """
    with opened(path) as file:
        text = file.read(_HEAD_LETTERS)
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _begins(path: Path) -> bytes:
    """The first bytes of a file; FormatError where they tell of UTF-16, a tar archive or a compression but gzip."""
    with path.open("rb") as file:
        begin = file.read(_TAR_BYTES)
    inside = begin
    if begin.startswith(_GZIP):
        with gzip.open(path) as unpacked:
            inside = unpacked.read(_TAR_BYTES)
    if inside[_TAR_BYTES - len(_TAR) :] == _TAR:
        raise FormatError(
            "the file is a tar archive", where=str(path), allowed="the files in it", advice="unpack it first"
        )
    if inside.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise FormatError(
            "the file is UTF-16",
            where=str(path),
            allowed="text in UTF-8",
            advice="convert it first, for example with iconv -f utf-16 -t utf-8",
        )
    for magic, name in _PACKED.items():
        if begin.startswith(magic):
            raise FormatError(
                f"the file is compressed by {name}",
                where=str(path),
                allowed="plain text or gzip",
                advice="unpack it first",
            )
    return begin


def other_than_utf8(path: Path) -> bytes:
    """The first bytes of a text file, plain or gzip, that are no UTF-8, with some of their line around them; empty
    where there are none."""
    try:
        with opened(path, errors="strict") as file:
            while file.read(_BLOCK_LETTERS):
                pass
    except UnicodeDecodeError as error:
        before, after = (
            error.object[: error.start].split(b"\n")[-1],
            error.object[error.start :].split(b"\n")[0],
        )
        return before[-_AROUND:] + after[:_AROUND]
    return b""


@contextmanager
def opened(path: Path, *, errors: str = "backslashreplace") -> Iterator[IO[str]]:
    """A text file for reading, plain or gzip by name or content; FormatError when it cannot be opened or is broken."""
    with read_errors(path):
        refuse_special(path)
        is_gzip = _begins(path).startswith(_GZIP) or path.name.endswith(".gz")
        open_text = gzip.open if is_gzip else open
        # a byte order mark would hide the first line, header or comment, from parsers
        with open_text(path, "rt", encoding="utf-8-sig", errors=errors) as file:
            yield cast(IO[str], file)


def is_plain_text(path: Path) -> bool:
    """Whether a file's bytes are its lines; raises as `opened`."""
    with read_errors(path):
        return not _begins(path).startswith(_GZIP) and not path.name.endswith((".gz", ".parquet"))


@contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """FormatError where a file cannot be read, or its compressed data is broken."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        what = f"the compressed data is broken: {error}"
        raise FormatError(what, where=str(path), advice="fetch it again") from error
    except OSError as error:
        what = f"the file cannot be read: {error.strerror or error}"
        raise FormatError(what, where=str(path), advice="check it") from error


def read_toml(path: Path, problem: str = "the mapping cannot be read", **details: str) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        FormatError: It cannot be read, or is no TOML; with this `problem` and `details`.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{problem} ({error})", where=str(path), **details) from error
