"""The tables of an archive as Markdown, derived from their declarations.

    python -m logs_schema.documentation [logs_schema/README.md]

rewrites what stands between the two markers of a file, so that the documentation cannot drift from the code.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from logs_schema.columns import INSTANT, LABEL, LABELS, Column, TableSpec
from logs_schema.errors import ConfigError
from logs_schema.tables import TABLES

START = "<!-- tables:start -->"
END = "<!-- tables:end -->"
_TYPES = {
    INSTANT: "instant",
    LABEL: "label",
    LABELS: "list of labels",
    pa.string(): "text",
    pa.float64(): "number",
    pa.int32(): "count",
    pa.bool_(): "true/false",
}


def tables_markdown() -> str:
    """One Markdown table for each declared table: columns, types, units, what is allowed, descriptions."""
    return "\n\n".join(_table_markdown(spec) for spec in TABLES)


def with_tables(text: str, where: str = "text") -> str:
    """The same text with the tables between its markers brought up to date.

    Args:
        text: Markdown with both markers, in their order.
        where: Name of the file, for errors.

    Raises:
        ConfigError: A marker is missing.
    """
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ConfigError(
            "there is no place for the tables",
            where=where,
            allowed=f"a line {START} and, below it, a line {END}",
            advice="add both markers where the tables should stand",
        )
    return f"{before}{START}\n\n{tables_markdown()}\n\n{END}{after}"


def _table_markdown(spec: TableSpec) -> str:
    by_day = f"One file a day of `{spec.time}`." if spec.time else "One file."
    lines = [
        f"**`{spec.name}`** {spec.description} Key: {', '.join(f'`{name}`' for name in spec.key)}. {by_day}",
        "",
        "| column | type | unit | allowed | meaning |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{column.name}` | {_TYPES[column.type]} | {column.unit} | {allowed_text(column)} "
        f"| {column.description} |"
        for column in spec.columns
    ]
    orders = ", ".join(f"`{order.earlier}` <= `{order.later}`" for order in spec.orders)
    return "\n".join([*lines, "", f"Wherever both are known: {orders}."] if orders else lines)


def allowed_text(column: Column) -> str:
    """What a column may hold: whether it is required, its vocabulary, its bounds; empty where anything goes."""
    parts = [] if column.nullable else ["required"]
    if column.allowed:
        parts.append(", ".join(column.allowed))
    if column.lower is not None and column.upper is not None:
        parts.append(f"{column.lower:g} to {column.upper:g}")
    elif column.lower is not None:
        parts.append(f"at least {column.lower:g}")
    elif column.upper is not None:
        parts.append(f"at most {column.upper:g}")
    return "; ".join(parts)


def main(arguments: Sequence[str]) -> None:
    """Brings the tables in a Markdown file (this package's README.md if none is named) up to date."""
    file = Path(arguments[0]) if arguments else Path(__file__).with_name("README.md")
    file.write_text(with_tables(file.read_text(encoding="utf-8"), str(file)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
