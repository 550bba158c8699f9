"""The checks that decide between archive and quarantine, derived from a table's declaration.

Every row gets the *first* rule it breaks, column by column in declared order and then the orders between
instants; good rows and a reason for each bad one, never an error on row one. Rules are named for what they
named: `not_a_number:x` (and the other faults of `logs_schema.casting`), `null:x`, `line_break:x`, `empty_name:x`,
`not_finite:x`, `too_large:x`, `below:x`, `above:x`, `not_allowed:x`, `out_of_range:x`, `start_before_arrival`.
`duplicate_key` needs all rows and is found by the archive.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.casting import EARLIEST_S, LATEST_S, cast_rows
from logs_schema.columns import INSTANT, LABEL, LABELS, Column, TableSpec

DUPLICATE_KEY = "duplicate_key"
GOOD = -1
LARGEST = 1e15
"""No number of a log is larger: twins reckon in single precision, where squares of such numbers overflow."""


@dataclass(frozen=True)
class Checked:
    """Candidate rows in the declared types, and the first rule that each breaks.

    Attributes:
        rows: All candidate rows, good and bad, cast; absent columns stay absent.
        rules: Names of the rules broken somewhere.
        broken: Index into `rules` per row `[rows]`, `GOOD` (-1) where a row breaks none.
    """

    rows: pa.Table
    rules: tuple[str, ...]
    broken: np.ndarray

    @property
    def good(self) -> np.ndarray:
        """Mask of the good rows, bool `[rows]`."""
        return self.broken == GOOD

    @property
    def bad_rows(self) -> np.ndarray:
        """Indices of the bad rows, ascending."""
        return np.flatnonzero(self.broken != GOOD)

    def rule(self, row: int) -> str | None:
        """The first rule that a row breaks, None for a good row."""
        index = int(self.broken[row])
        return None if index == GOOD else self.rules[index]


def check_rows(spec: TableSpec, rows: pa.Table, where: str = "") -> Checked:
    """Casts candidate rows and finds the first rule that each of them breaks.

    Args:
        spec: The table's declaration.
        rows: Candidate rows; nullable columns may be absent.
        where: File or other origin, for errors.

    Raises:
        SchemaError: The columns themselves are wrong: see `logs_schema.casting.cast_rows`.
    """
    cast = cast_rows(spec, rows, where)
    broken = np.full(rows.num_rows, GOOD, np.int16)
    rules: list[str] = []
    for rule, mask in _masks(spec, cast.rows, cast.faults):
        newly = mask & (broken == GOOD)
        if newly.any():
            broken[newly] = len(rules)
            rules.append(rule)
    return Checked(cast.rows, tuple(rules), broken)


def _masks(
    spec: TableSpec, rows: pa.Table, faults: dict[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    for name in rows.column_names:
        yield from ((rule, mask) for rule, mask in faults.items() if rule.endswith(f":{name}"))
        column = spec.column(name)
        for rule, mask in _column_masks(column, rows[name].combine_chunks()):
            yield f"{rule}:{name}", mask
    for order in spec.orders:
        if order.earlier in rows.column_names and order.later in rows.column_names:
            yield order.name, _mask(pc.less(rows[order.later], rows[order.earlier]))


def _column_masks(column: Column, values: pa.Array) -> Iterator[tuple[str, np.ndarray]]:
    if not column.nullable and values.null_count:
        yield "null", _mask(pc.is_null(values))
    if values.null_count == len(values):
        return
    if column.type == INSTANT:
        micros = values.cast(pa.int64())
        early, late = pc.less(micros, EARLIEST_S * 10**6), pc.greater(micros, LATEST_S * 10**6 + 999_999)
        yield "out_of_range", _mask(early) | _mask(late)
    if _holds_names(column):
        yield "line_break", _breaks_line(values)
    if column.type == LABELS:
        yield "empty_name", _has_empty_name(values)
    if column.type == pa.float64():
        yield "not_finite", _mask(pc.invert(pc.is_finite(values)))
        yield "too_large", _mask(pc.greater(pc.abs(values), LARGEST))
    if column.lower is not None:
        yield "below", _mask(pc.less(values, column.lower))
    if column.upper is not None:
        yield "above", _mask(pc.greater(values, column.upper))
    if column.allowed:
        yield "not_allowed", _not_allowed(column, values)


def _holds_names(column: Column) -> bool:
    """Whether a column holds labels or ids of an open vocabulary: a row of them is one line wherever it is written."""
    return column.type in (LABEL, LABELS, pa.string()) and not column.allowed


def _breaks_line(values: pa.Array) -> np.ndarray:
    """[rows] bool: a name has a line break in it."""
    if pa.types.is_dictionary(values.type):
        return _mask(_text_breaks(values.dictionary).take(values.indices))
    if not pa.types.is_list(values.type):
        return _mask(_text_breaks(values))
    return _holding(values, _text_breaks(values.flatten()))


def _has_empty_name(values: pa.Array) -> np.ndarray:
    """[rows] bool: a list of names has an empty one, or a null, in it."""
    return _holding(values, pc.fill_null(pc.equal(values.flatten(), ""), True))


def _holding(lists: pa.Array, chosen: pa.Array) -> np.ndarray:
    """[rows] bool: a list holds one of the chosen; `chosen` flags the entries of all lists, one after another."""
    mask = np.zeros(len(lists), bool)
    mask[np.asarray(pc.list_parent_indices(lists))[_mask(chosen)]] = True
    return mask


def _text_breaks(texts: pa.Array) -> pa.Array:
    return pc.or_(pc.match_substring(texts, "\n"), pc.match_substring(texts, "\r"))


def _not_allowed(column: Column, values: pa.Array) -> np.ndarray:
    allowed = pa.array(column.allowed, pa.string())
    if column.type != LABEL:
        return _mask(pc.and_(pc.is_valid(values), pc.invert(pc.is_in(values, value_set=allowed))))
    refused = pc.invert(pc.is_in(values.dictionary, value_set=allowed))
    return _mask(refused.take(values.indices))


def _mask(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """A boolean array as NumPy, null counting as False."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), bool)
