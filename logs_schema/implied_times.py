"""Starts and finishes that follow from a request's other times."""

import pyarrow as pa
import pyarrow.compute as pc

ROUNDING_US = 1_000_000
"""An implied start that is no further before the arrival is that: clocks of logs count in whole seconds."""


def with_implied_times(rows: pa.Table) -> pa.Table:
    """The rows, with the start that finish and `run_s` imply where it is null, or the finish that start and `run_s` do.

    Where the start would lie before the arrival, or nothing ran, it stays unknown; so does the finish of what still
    runs or waits.

    Args:
        rows: Of `requests`, with arrival, start, finish and status; without `run_s` nothing follows.
    """
    if "run_s" not in rows.column_names or rows["run_s"].null_count == rows.num_rows:
        return rows
    arrival, start, finish = (pc.cast(rows[name], pa.int64()) for name in ("arrival", "start", "finish"))
    run = pc.cast(pc.round(pc.multiply(rows["run_s"], 1e6)), pa.int64(), safe=False)
    begun = pc.subtract(finish, run)
    can_be = pc.and_(pc.greater(run, 0), pc.greater_equal(begun, pc.subtract(arrival, ROUNDING_US)))
    implied = pc.max_element_wise(pc.if_else(can_be, begun, None), arrival, skip_nulls=False)
    is_open = pc.is_in(pc.cast(rows["status"], pa.string()), value_set=pa.array(["running", "waiting"]))
    ended = pc.if_else(is_open, None, pc.add(start, run))
    for name, instants in (("start", pc.coalesce(start, implied)), ("finish", pc.coalesce(finish, ended))):
        place = rows.schema.get_field_index(name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pc.cast(instants, field.type))
    return rows
