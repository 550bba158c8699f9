"""Row groups: the smallest parts of an archive's table that are read alone, and what is known of them unread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema.atomic_folders import ReadFolder
from logs_schema.columns import TableSpec
from logs_schema.layout import completed, label_names, open_parquet, there


@dataclass(frozen=True)
class RowGroup:
    """Some consecutive rows of a table, in the order of its declaration.

    Attributes:
        file: Where they are, in the archive.
        day: Their day; None in a table without days.
        number: Which row group of the file.
        num_rows: How many they are.
        latest: Column of instants -> the latest of them, where there is one and the file's statistics have it.
        spec: Of the table.
        held: The archive's folder.
    """

    file: str
    day: date | None
    number: int
    num_rows: int
    latest: Mapping[str, datetime]
    spec: TableSpec
    held: ReadFolder = field(compare=False, repr=False)

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Its rows."""
        parquet = open_parquet(self.held.path / self.file, label_names(self.spec))
        rows = parquet.read_row_group(self.number, columns=there(parquet, columns))
        return completed(rows, self.spec, columns)


def row_groups(
    held: ReadFolder, file: str, groups: range | None, day: date | None, spec: TableSpec
) -> list[RowGroup]:
    """Row groups (None: all) of a file of an archive in order; reads its footer alone."""
    metadata = open_parquet(held.path / file).metadata
    return [
        RowGroup(file, day, number, group.num_rows, _latest(group), spec, held)
        for number in groups or range(metadata.num_row_groups)
        for group in [metadata.row_group(number)]
    ]


def _latest(group: pq.RowGroupMetaData) -> dict[str, datetime]:
    columns = (group.column(index) for index in range(group.num_columns))
    known = {
        column.path_in_schema: column.statistics.max
        for column in columns
        if column.statistics is not None and column.statistics.has_min_max
    }
    return {name: last for name, last in known.items() if isinstance(last, datetime)}
