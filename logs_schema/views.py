"""Columns of Arrow's views of text as plain ones: Arrow can neither filter views nor take rows of them."""

import pyarrow as pa


def without_views(rows: pa.Table) -> pa.Table:
    """The rows with plain text and bytes in place of views, inside lists and dictionaries too; bad text stays bad."""
    schema = pa.schema([field.with_type(_plain(field.type)) for field in rows.schema], rows.schema.metadata)
    return rows if schema.types == rows.schema.types else rows.cast(schema)


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
