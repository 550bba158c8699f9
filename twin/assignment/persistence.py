"""The twin of the assignment problem in a folder: `edges.json`."""

import json
from pathlib import Path

from logs_schema.records import from_plain, to_plain
from twin.assignment.from_logs import EdgesFromLog

EDGES = "edges.json"


def save_edges(folder: Path, edges: EdgesFromLog) -> None:
    """Writes `edges.json`."""
    (folder / EDGES).write_text(json.dumps(to_plain(edges), indent=1, allow_nan=False) + "\n")


def load_edges(folder: Path) -> EdgesFromLog:
    """Reads what `save_edges` wrote; SchemaError where it is of another version."""
    return from_plain(EdgesFromLog, json.loads((folder / EDGES).read_text()))
