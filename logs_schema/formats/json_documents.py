"""One JSON document that holds a list of objects, as `kubectl get --output json` and `sacct --json` print, or several
documents one after another, read object by object: a file is never in memory as a whole."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from logs_schema.errors import FormatError
from logs_schema.formats.files import MAX_LINE_LETTERS, head, opened

JSON_LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz")
"""Names of files of JSON, be they lines or documents."""
_LISTS = ("items", "jobs", "data", "result", "results", "records")
_BEGIN = re.compile(rf'\{{\s*(?:"\w+"\s*:\s*"[^"]*"\s*,\s*)*"(?:{"|".join(_LISTS)})"\s*:\s*\[')
"""How an object with such a list begins where it stands on one line."""
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_BLOCK_LETTERS = 1 << 20


def is_document(lines: list[str]) -> bool:
    """Whether a file with these first lines holds documents of JSON, not an object a line."""
    filled = [line.strip() for line in lines if line.strip()]
    begin = filled[0] if filled else ""
    return begin == "{" or begin.startswith("[") or (len(filled) == 1 and bool(_BEGIN.match(begin)))


def holds_documents(path: Path) -> bool:
    """Whether a file is named as one of JSON and `is_document`; raises as `head`."""
    return path.name.endswith(JSON_LINES) and is_document(head(path))


def objects_of(path: Path) -> Iterator[str]:
    """The entries of a document's list, each as a line of JSON; a document without one of `_LISTS` is itself an entry.

    Raises:
        FormatError: The file cannot be read, or is no JSON from some place on.
    """
    number = 0
    with opened(path) as file:
        text = _Text(file)
        try:
            while text.peek():
                for entry in _entries(text):
                    number += 1
                    yield json.dumps(entry)
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"the JSON document is broken: {error}",
                where=f"{path}, after {number:,} objects",
                allowed="a list of objects, or an object that holds one under " + ", ".join(_LISTS),
                advice="fetch it again, or write its objects as JSON lines, an object a line",
            ) from error


def _entries(text: "_Text") -> Iterator[Any]:
    """Those of one document."""
    if text.take("["):
        yield from _rest_of_list(text)
        return
    if not text.take("{"):
        yield text.value()
        return
    members, has_list = {}, False
    while not text.take("}"):
        name = text.value()
        text.expect(":")
        if name in _LISTS and text.take("["):
            has_list = True
            yield from _rest_of_list(text)
        else:
            members[name] = text.value()
        if text.peek() != "}":
            text.expect(",")
    if not has_list:
        yield members


def _rest_of_list(text: "_Text") -> Iterator[Any]:
    while not text.take("]"):
        yield text.value()
        if text.peek() != "]":
            text.expect(",")


class _Text:
    """What is left of an open file, of which as much is held as the next value takes."""

    def __init__(self, file: IO[str]) -> None:
        self._file, self._held, self._at = file, "", 0

    def peek(self) -> str:
        """The next letter that is no space; empty at the end."""
        while True:
            found = _SPACE.match(self._held, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._read_on():
                return ""

    def take(self, letter: str) -> bool:
        """Goes past the next letter if it is this one."""
        is_there = self.peek() == letter
        self._at += is_there
        return is_there

    def expect(self, letter: str) -> None:
        """Goes past the next letter; ValueError if it is another."""
        if not self.take(letter):
            raise ValueError(f"expected {letter!r}, found {self.peek()!r}")

    def value(self) -> Any:
        """The next value; ValueError where there is none or it has no end within reach."""
        self.peek()
        while True:
            try:
                found, end = _DECODER.raw_decode(self._held, self._at)
            except ValueError:
                if len(self._held) - self._at > MAX_LINE_LETTERS or not self._read_on():
                    raise
                continue
            if end == len(self._held) and self._read_on():
                continue  # a number may go on
            self._at = end
            return found

    def _read_on(self) -> bool:
        """Reads as much as is held again, and a block at least; whether there was more."""
        self._held, self._at = self._held[self._at :], 0
        more = self._file.read(max(_BLOCK_LETTERS, len(self._held)))
        self._held += more
        return bool(more)
