"""What a format says about a log, all at once: rows per table with their line numbers, and rejects."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from logs_schema.formats.reading import Chunk, ReadingOptions, Reject


class Collected(NamedTuple):
    """Rows per table as mappings, their line numbers, and (rule, line number) of rejects."""

    rows: dict[str, list[dict[str, Any]]]
    lines: dict[str, list[int]]
    rejects: list[tuple[str, int]]


def collect(module: ModuleType, paths: Sequence[Path], origin: datetime | None = None) -> Collected:
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    lines: dict[str, list[int]] = defaultdict(list)
    rejects = []
    for item in module.read(paths, ReadingOptions(origin)):
        if isinstance(item, Chunk):
            rows[item.table] += item.rows.to_pylist()
            follow = np.arange(item.rows.num_rows) + item.first_row
            lines[item.table] += (follow if isinstance(item.first_row, int) else item.first_row).tolist()
            assert item.raw is None or len(item.raw) == item.rows.num_rows
        elif isinstance(item, Reject):
            rejects.append((item.rule, item.row))
    return Collected(dict(rows), dict(lines), rejects)


def at(seconds: float) -> datetime:
    """The instant `seconds` after 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def written(folder: Path, name: str, *lines: str) -> Path:
    """A text file of these lines."""
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
