"""Paths through objects of JSON, and lists in them of which each entry is a row of its own.

A path goes through keys that may have points in them, `metadata.labels.app.kubernetes.io/name`, and over a star through
every entry of a list or member of an object. What stands in brackets behind a list or an object picks of it:

* `attempts[0]`, `attempts[-1]`: the first entry, the last;
* `tags[key=http.method].value`: the first entry whose member `key` is this text; of several texts, `[key=a|b]`, the
  first that there is;
* `processes[span.process].name`: the member that is named as what the row holds at the path `span.process`.

A key that is spelt so itself, `mem[kb]`, is that key.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

STAR = "*"
ALTERNATIVES = "|"
_POINT = re.compile(r"\.(?![^\[]*\])")
"""A point that stands in no brackets."""
_PICKED = re.compile(r"(.+?)((?:\[[^\[\]]+\])+)")
_BRACKETS = re.compile(r"\[([^\[\]]+)\]")
Steps = tuple[str, ...]
_NUMBER = re.compile(r"-?\d{1,9}")


@functools.lru_cache(maxsize=4096)
def steps_of(path: str) -> tuple[str, ...]:
    """The parts of a path between its points."""
    return tuple(_POINT.split(path))


def text_of(found: Any) -> str:
    """A field as text without surrounding blanks, `true` and `false` as JSON writes them; empty where there is none."""
    if isinstance(found, bool):
        return "true" if found else "false"
    return "" if found is None else str(found).strip()


def below(found: Any, path: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """What an object holds where a path begins, and the rest of the path; None where it holds nothing.

    Keys may have points in them, such as the label `app.kubernetes.io/name`: the longest that fits counts.
    """
    for key, rest in _begins(tuple(path)) if isinstance(found, dict) else ():
        if key in found:
            return found[key], rest
    return None, ()


@functools.lru_cache(maxsize=4096)
def _begins(path: Steps) -> tuple[tuple[str, Steps], ...]:
    """Every key that a path may begin with, the longest first, and the rest of the path."""
    return tuple((".".join(path[:length]), path[length:]) for length in range(len(path), 0, -1))


@functools.lru_cache(maxsize=4096)
def _picks(path: Steps) -> tuple[tuple[str, tuple[str, ...], Steps], ...]:
    """Every key with brackets that a path may begin with, what stands in them, and the rest of the path."""
    parts = [(_PICKED.fullmatch(key), rest) for key, rest in _begins(path)]
    return tuple((found[1], tuple(_BRACKETS.findall(found[2])), rest) for found, rest in parts if found)


def found_at(fields: Mapping[str, Any], source: str) -> Any:
    """What a line holds in a column, or at a path of JSON; a list where it holds one, or over a star."""
    found = held_at(fields, source)
    if isinstance(found, list):
        return [part for part in _flat(found) if not isinstance(part, dict)]
    return None if isinstance(found, dict) else found


def entries_at(fields: Mapping[str, Any], source: str) -> list[Any]:
    """All that a line holds at a path, objects as well, of lists in lists their entries; empty for nothing."""
    found = held_at(fields, source)
    return [part for part in _flat(found if isinstance(found, list) else [found]) if part is not None]


def list_on_the_way(fields: Mapping[str, Any], source: str) -> str:
    """The path to the first list of objects that stands in the way of a path; empty where there is none."""
    steps = steps_of(source)
    for length in range(1, len(steps)):
        found = _at(fields, steps[:length], fields)
        if isinstance(found, list) and any(isinstance(entry, dict) for entry in found):
            return ".".join(steps[:length])
    return ""


def rows_within(found: Any, each: Sequence[str]) -> Iterator[Any]:
    """What is read, once for every entry of the lists on the path `each`, which stands there in place of the list.

    What holds no such list, or an empty one, comes as it is: `is_row` knows it.
    """
    held, rest = below(found, each)
    if held is None:
        yield found
        return
    name = ".".join(each[: len(each) - len(rest)])
    for entry in list(_flat(held)) or [held]:
        for row in rows_within(entry, rest):
            yield {**found, name: row}


def is_row(found: Any, each: Sequence[str]) -> bool:
    """Whether an object that `rows_within` gave holds an entry, an object too, at the path `each`."""
    while each:
        found, each = below(found, each)
    return isinstance(found, dict)


def held_at(fields: Mapping[str, Any], source: str) -> Any:
    """What a line holds in a column, or at a path of JSON, as it is."""
    return fields[source] if source in fields else _at(fields, steps_of(source), fields)


def _flat(found: Any) -> Iterator[Any]:
    """What a list of JSON holds, in lists to any depth."""
    if isinstance(found, list):
        for part in found:
            yield from _flat(part)
    else:
        yield found


def _at(found: Any, path: Sequence[str], row: Mapping[str, Any]) -> Any:
    while path:
        if path[0] == STAR:
            entries = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
            return [_at(entry, path[1:], row) for entry in entries]
        held, rest = below(found, path)
        found, path = _picked(found, path, row) if held is None and isinstance(found, dict) else (held, rest)
    return found


def _picked(
    found: Mapping[str, Any], path: Sequence[str], row: Mapping[str, Any]
) -> tuple[Any, Sequence[str]]:
    """What an object holds where a path begins with a key and brackets, and the rest of the path; None for nothing."""
    for key, choices, rest in _picks(tuple(path)):
        if key in found:
            held = found[key]
            for choice in choices:
                held = _chosen(held, choice, row)
            return held, rest
    return None, ()


def _chosen(held: Any, choice: str, row: Mapping[str, Any]) -> Any:
    name, is_equal, text = choice.partition("=")
    if is_equal:
        entries = [entry for entry in held if isinstance(entry, dict)] if isinstance(held, list) else []
        for one in text.split(ALTERNATIVES):
            for entry in entries:
                named = entry.get(name)
                if named == one or (not isinstance(named, str) and text_of(named) == one):
                    return entry
        return None
    if isinstance(held, list):
        place = int(choice) if _NUMBER.fullmatch(choice) else len(held)
        return held[place] if -len(held) <= place < len(held) else None
    return held.get(text_of(found_at(row, choice))) if isinstance(held, dict) else None
