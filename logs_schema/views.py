"""Columns of Arrow's views of text and lists as plain ones: Arrow can neither filter views nor take rows of them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def without_views(rows: pa.Table) -> pa.Table:
    """The rows with plain text, bytes and lists in place of views and lists of one size; bad text stays bad."""
    for place, field in enumerate(rows.schema):
        if _is_other_list(field.type):
            lists = pa.chunked_array(
                [_plain_lists(chunk) for chunk in rows[field.name].chunks],
                pa.large_list(field.type.value_type),
            )
            rows = rows.set_column(place, field.with_type(lists.type), lists)
    schema = pa.schema([field.with_type(_plain(field.type)) for field in rows.schema], rows.schema.metadata)
    return rows if schema.types == rows.schema.types else rows.cast(schema)


def _plain_lists(lists: pa.Array) -> pa.Array:
    """The same lists, one after the other and none where null; Arrow's cast mixes up views of a part of a column."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int64())
    return pa.LargeListArray.from_arrays(
        offsets, lists.flatten(), pa.large_list(lists.type.value_type), mask=lists.is_null()
    )


def _is_other_list(kind: pa.DataType) -> bool:
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return is_view or pa.types.is_fixed_size_list(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain(kind.value_type))
    return kind
