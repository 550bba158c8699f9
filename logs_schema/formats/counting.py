"""Instants that count from an origin: numbers of seconds are moved to it, dates stay as they are."""

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.casting import NUMBER
from logs_schema.columns import INSTANT
from logs_schema.errors import FormatError
from logs_schema.formats.instant_units import LOOKS_LIKE_EPOCH_S
from logs_schema.formats.reading import Chunk
from logs_schema.tables import TABLES

_INSTANTS = {spec.name: [column.name for column in spec.columns if column.type == INSTANT] for spec in TABLES}


class Origin:
    """Moves the instants of chunks that are written as numbers.

    Args:
        origin: Date of the log's time zero, with its time zone.

    Attributes:
        num_moved: Instants moved so far.
    """

    def __init__(self, origin: datetime) -> None:
        self._origin_s = origin.timestamp()
        self.num_moved = 0

    def moved(self, chunk: Chunk) -> Chunk:
        """The chunk with its instants in seconds since 1970; FormatError if they are so already."""
        rows = chunk.rows
        for name in (name for name in _INSTANTS[chunk.table] if name in rows.column_names):
            column = self._moved(rows[name].combine_chunks(), f"{chunk.source}, column {name}")
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return chunk._replace(rows=rows)

    def refuse_unused(self, where: str) -> None:
        """FormatError if no instant was a number: the origin would have been given for nothing."""
        if not self.num_moved:
            raise FormatError(
                "an origin was given, but no instant counts from one: all are dates",
                where=where,
                allowed="an origin for instants in seconds",
                advice="leave the origin out",
            )

    def _moved(self, values: pa.Array, where: str) -> pa.Array:
        if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
            return self._add(values.cast(pa.float64(), safe=False), where)
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return values
        try:
            return self._add(values.cast(pa.float64()), where)
        except pa.ArrowInvalid:
            texts = values.to_pylist()
        numbers = [
            float(text) if text is not None and NUMBER.fullmatch(text.strip()) else None for text in texts
        ]
        moved = self._add(pa.array(numbers, pa.float64()), where).to_pylist()
        return pa.array([text if s is None else repr(s) for text, s in zip(texts, moved, strict=True)])

    def _add(self, seconds: pa.Array, where: str) -> pa.Array:
        known = seconds.drop_null()
        if len(known) and not self.num_moved and known[0].as_py() > LOOKS_LIKE_EPOCH_S:
            raise FormatError(
                f"an origin was given, but the instants are seconds since 1970 already: {known[0].as_py():.15g}",
                where=where,
                allowed=f"seconds from the origin; the first of them at most {LOOKS_LIKE_EPOCH_S:.0f}",
                advice="leave the origin out",
            )
        self.num_moved += len(known)
        return pc.add(seconds, self._origin_s)
