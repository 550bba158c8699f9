"""One JSON document that holds a list of objects, as `kubectl get --output json` and `sacct --json` print, or several
documents one after another, read object by object: a file is never in memory as a whole. Where every entry of a list
in the objects is a row of its own (`Nesting`), it comes as an object, too."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from logs_schema.errors import FormatError
from logs_schema.formats.files import MAX_LINE_LETTERS, head, numbered_lines, opened
from logs_schema.formats.json_paths import held_at, is_row, rows_within

JSON_LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".ndjson", ".ndjson.gz")
"""Names of files of JSON, be they lines or documents."""
_LISTS = ("items", "jobs", "data", "result", "results", "records")
_HEAD = r'(?:"[^"]*"|\{[^{}\[\]]*\})'
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_BLOCK_LETTERS = 1 << 20
MAX_NESTED_LETTERS = 1 << 25
"""Length of the longest object that is held for the lists in it."""


class Nesting(NamedTuple):
    """Lists in objects, of which each entry is a row."""

    each: tuple[str, ...] = ()
    """The path to the innermost list; empty where the objects are the rows."""
    sources: tuple[str, ...] = ()
    """The paths that are read of a row."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is read that stands beside the outermost list: its entries need not be held together."""
        return bool(self.each) and all(source.startswith(f"{self.each[0]}.") for source in self.sources)

    @property
    def opened(self) -> tuple[str, ...]:
        """Names of lists that are opened at the beginning of a document: it may be larger than what can be held."""
        if not self.each:
            return _LISTS
        return (*(name for name in _LISTS if name != self.each[0]), *self.each[: self.is_all])

    def lines_of(self, found: Any) -> Iterator[str]:
        """The rows in an object as lines of JSON: of an entry of the lists what is read of it, by the paths to it."""
        if not self.each:
            yield json.dumps(found)
            return
        begin: dict[str, Any] = {".".join(self.each): {}}  # that there is an entry
        for row in rows_within(found, self.each):
            is_entry = is_row(row, self.each)
            yield json.dumps(begin | {one: held_at(row, one) for one in self.sources} if is_entry else row)


NOT_NESTED = Nesting()


def is_document(lines: list[str], nesting: Nesting = NOT_NESTED) -> bool:
    """Whether a file with these first lines holds documents of JSON, not an object a line."""
    filled = [line.strip() for line in lines if line.strip()]
    begin = filled[0] if filled else ""
    return begin == "{" or begin.startswith("[") or (len(filled) == 1 and _opens_list(begin, nesting))


def _opens_list(line: str, nesting: Nesting) -> bool:
    """Whether an object begins on a line that holds one of the lists that are opened, after texts and plain objects."""
    names = "|".join(map(re.escape, nesting.opened))
    return bool(re.match(rf'\{{\s*(?:"\w+"\s*:\s*{_HEAD}\s*,\s*)*"(?:{names})"\s*:\s*\[', line))


def holds_documents(path: Path, nesting: Nesting = NOT_NESTED) -> bool:
    """Whether a file is named as one of JSON and `is_document`; raises as `head`."""
    return path.name.endswith(JSON_LINES) and is_document(head(path), nesting)


def objects_of(path: Path, nesting: Nesting = NOT_NESTED) -> Iterator[str]:
    """The entries of a document's list, each as a line of JSON; a document without a list to open is itself an entry.

    Raises:
        FormatError: The file cannot be read, or is no JSON from some place on.
    """
    number = 0
    with opened(path) as file:
        text = _Text(file, MAX_NESTED_LETTERS if nesting.each else MAX_LINE_LETTERS)
        try:
            while text.peek():
                for entry in _entries(text, nesting):
                    for line in nesting.lines_of(entry):
                        number += 1
                        yield line
        except (ValueError, RecursionError) as error:
            raise FormatError(
                f"the JSON document is broken: {error}",
                where=f"{path}, after {number:,} objects",
                allowed="a list of objects, or an object that holds one under " + ", ".join(nesting.opened),
                advice="fetch it again, or write its objects as JSON lines, an object a line",
            ) from error


def nested_lines(lines: Iterator[str], nesting: Nesting) -> Iterator[str]:
    """The entries of the lists in lines of JSON, each as a line; what is no JSON, and blank lines, as they are."""
    for line in lines:
        try:
            found = json.loads(line) if len(line) <= MAX_NESTED_LETTERS else None
        except (ValueError, RecursionError):
            yield line[:MAX_LINE_LETTERS]
            continue
        yield from [line] if found is None else nesting.lines_of(found)  # what is too long is refused as such


def lines_with_lists(path: Path) -> Iterator[str]:
    """The lines of a text file as `numbered_lines` reads them, of the length of objects with lists in them."""
    return (line for _, line in numbered_lines(path, MAX_NESTED_LETTERS))


def _entries(text: "_Text", nesting: Nesting) -> Iterator[Any]:
    """Those of one document."""
    if text.take("["):
        yield from _rest_of_list(text)
        return
    if not text.take("{"):
        yield text.value()
        return
    members, has_list, opened_lists = {}, False, nesting.opened
    while not text.take("}"):
        name = text.value()
        text.expect(":")
        if name in opened_lists and text.take("["):
            has_list = True
            if name not in nesting.each[:1]:
                yield from _rest_of_list(text)
            elif text.take("]"):
                yield {name: []}
            else:
                yield from ({name: entry} for entry in _rest_of_list(text))
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

    def __init__(self, file: IO[str], most_letters: int) -> None:
        self._file, self._held, self._at = file, "", 0
        self._most_letters = most_letters

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
            except ValueError as error:
                if len(self._held) - self._at > self._most_letters:
                    raise ValueError(f"{error}, or more than {self._most_letters:,} letters") from error
                if not self._read_on():
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
