"""Rows in the declared order, labels in a canonical spelling, so that equal content gives equal bytes."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.columns import INSTANT, LABEL, TableSpec

MICROS_PER_DAY = 86_400_000_000


def times_us(spec: TableSpec, rows: pa.Table) -> np.ndarray:
    """Microseconds since 1970 of the rows' deciding instants, int64 `[rows]`; zeros without days."""
    if spec.time is None:
        return np.zeros(rows.num_rows, np.int64)
    return np.asarray(pc.cast(rows[spec.time], pa.int64()).to_numpy())


def days_of(instants_us: np.ndarray) -> np.ndarray:
    """Days since 1970 (UTC) of instants in microseconds, int64 `[rows]`."""
    return np.floor_divide(instants_us, MICROS_PER_DAY)


def sorted_rows(spec: TableSpec, rows: pa.Table) -> pa.Table:
    """Rows in the order of the declaration's `sort` columns."""
    keys = {name: _sortable(rows[name]) for name in spec.sort}
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in spec.sort])
    return rows.take(order)


def compact_labels(rows: pa.Table) -> pa.Table:
    """The same rows as one chunk, dictionaries holding just the labels in use, in order of appearance."""
    rows = rows.unify_dictionaries().combine_chunks()
    arrays = [_compact(column) if column.type == LABEL else column for column in rows.columns]
    return pa.table(arrays, schema=rows.schema)


def _sortable(values: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if values.type == INSTANT:
        return values.cast(pa.int64())
    if values.type != LABEL:
        return values
    whole = values.unify_dictionaries().combine_chunks()
    ranks = pc.rank(whole.dictionary, tiebreaker="dense")
    return ranks.take(whole.indices)


def _compact(values: pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks()
    if whole.null_count == len(whole):
        return pa.nulls(len(whole), LABEL)
    valid = whole.indices.is_valid().to_numpy(zero_copy_only=False)
    codes = pc.fill_null(whole.indices, 0).to_numpy()
    num_labels = len(whole.dictionary)
    first_row = np.full(num_labels, len(codes), np.int64)
    np.minimum.at(first_row, codes[valid], np.flatnonzero(valid))
    used = np.argsort(first_row, kind="stable")[: int((first_row < len(codes)).sum())]
    new_code = np.zeros(num_labels, np.int32)
    new_code[used] = np.arange(len(used), dtype=np.int32)
    indices = pa.array(new_code[codes], pa.int32(), mask=~valid)
    return pa.DictionaryArray.from_arrays(indices, whole.dictionary.take(pa.array(used)))
