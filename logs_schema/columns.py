"""A column of a scheduling log, declared once.

Everything that must agree about a column is derived from its declaration: the Arrow field with its unit
(`arrow_field`), the checks that decide between archive and quarantine (`logs_schema.checks`), the
documentation table (`logs_schema.documentation`) and, in tests, random valid samples.

Instants are `timestamp[us, UTC]`; durations are float64 seconds with the suffix `_s`. A null means *the log
does not say*. It is never replaced by a guess.
"""

from dataclasses import dataclass, field

import pyarrow as pa

INSTANT = pa.timestamp("us", tz="UTC")
LABEL = pa.dictionary(pa.int32(), pa.string())
LABELS = pa.list_(pa.string())


@dataclass(frozen=True)
class Column:
    """One declared column: name, type, unit, nullability, bounds, description.

    Attributes:
        name: Column name; a unit appears as its suffix where one applies.
        type: Arrow type (`INSTANT`, `LABEL`, `LABELS`, float64, int32, int64, bool or string).
        description: One sentence for the documentation table.
        unit: SI-like unit, or an empty string for labels and counts.
        nullable: Whether a log may leave the value unspecified.
        lower: Smallest allowed value (inclusive), None for no bound.
        upper: Largest allowed value (inclusive), None for no bound.
        allowed: For labels of a closed vocabulary, the allowed values; empty for an open one.
    """

    name: str
    type: pa.DataType
    description: str
    unit: str = ""
    nullable: bool = True
    lower: float | None = None
    upper: float | None = None
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    """A rule between two instants of one row: `earlier <= later` wherever both are known."""

    earlier: str
    later: str

    @property
    def name(self) -> str:
        """The rule's name in the quarantine: `start_before_arrival` breaks `Order(arrival, start)`."""
        return f"{self.later}_before_{self.earlier}"


@dataclass(frozen=True)
class TableSpec:
    """One table of the archive.

    Attributes:
        name: Table name; the folder is `table=<name>`.
        description: One sentence.
        columns: The declared columns, in file order.
        key: Columns that identify a row; a second row with the same key is a duplicate.
        time: The instant that decides a row's day partition, None for tables without days (`nodes`).
        sort: Columns a partition is sorted by.
        orders: Rules between instants of one row.
    """

    name: str
    description: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    time: str | None
    sort: tuple[str, ...]
    orders: tuple[Order, ...] = field(default=())

    def column(self, name: str) -> Column:
        """The declaration of the column called `name`; KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The column names in file order."""
        return tuple(column.name for column in self.columns)


def arrow_field(column: Column) -> pa.Field:
    """The Arrow field of a column, its unit and description in the field's metadata."""
    metadata = {"unit": column.unit, "description": column.description}
    return pa.field(column.name, column.type, nullable=column.nullable, metadata=metadata)


def arrow_schema(table: TableSpec, schema_version: int) -> pa.Schema:
    """The Arrow schema of a table with the schema version in its metadata."""
    metadata = {"table": table.name, "schema_version": str(schema_version)}
    return pa.schema([arrow_field(column) for column in table.columns], metadata=metadata)
