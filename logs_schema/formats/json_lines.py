"""JSON lines: the refusal of what is neither them nor CSV."""

import json
from pathlib import Path

from logs_schema.errors import FormatError
from logs_schema.formats.files import head
from logs_schema.formats.json_documents import JSON_LINES, is_document


def refuse_other_content(path: Path) -> None:
    """FormatError where a file is Parquet, one JSON document, JSON lines under another name, or CSV without a line."""
    lines = [line.strip() for line in head(path) if line.strip()]
    begin = lines[0] if lines else ""
    if not lines:
        if path.name.endswith(JSON_LINES):
            return  # an hour without jobs, in a file of its own
        raise FormatError(
            "the file is empty", where=str(path), allowed="CSV or JSON lines", advice="fetch it again"
        )
    if begin.startswith("PAR1"):
        raise FormatError(
            "the file is Parquet",
            where=str(path),
            allowed="CSV or JSON lines; of requests Parquet named .parquet",
            advice="name it so, or write it as CSV; or give its columns our names and units, and import it as native",
        )
    if not begin.startswith(("[", "{")):
        return
    if is_document(lines):
        raise FormatError(
            "the file is one JSON document",
            where=str(path),
            allowed="JSON lines, an object a line; of requests such a document, too, named .json",
            advice="name it so, or write its lines with jq --compact-output '.[]' FILE > log.jsonl",
        )
    try:
        is_lines = isinstance(json.loads(begin), dict)
    except (ValueError, RecursionError):
        is_lines = False
    if is_lines and not path.name.endswith(JSON_LINES):
        raise FormatError(
            "the file holds JSON lines, and is not named so",
            where=str(path),
            allowed=f"a name that ends in {' or '.join(JSON_LINES[:2])}",
            advice="rename the file",
        )
