"""A run time implies the start of a request that ended, and the end of one that started; nothing else is filled in."""

import datetime as dt

import pyarrow as pa
import pytest

from logs_schema.capabilities import COLUMNS, Coverage
from logs_schema.columns import arrow_schema
from logs_schema.implied_times import with_implied_times
from logs_schema.tables import REQUESTS, SCHEMA_VERSION

BEGIN = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
NAMES = ("arrival", "start", "finish", "run_s", "status")
SCHEMA = arrow_schema(REQUESTS, SCHEMA_VERSION)


def table_of(*rows: tuple[float | str | None, ...]) -> pa.Table:
    """Instants are seconds after `BEGIN`."""
    filled = []
    for number, row in enumerate(rows):
        one = dict.fromkeys(SCHEMA.names) | dict(zip(NAMES, row, strict=True))
        instants = {
            name: None if one[name] is None else BEGIN + dt.timedelta(seconds=one[name]) for name in NAMES[:3]
        }
        filled.append(one | instants | {"request_id": str(number), "site": "s"})
    return pa.Table.from_pylist(filled, schema=SCHEMA)


@pytest.mark.parametrize(
    ("row", "start", "finish"),
    [
        ((100.0, None, 110.0, 8.25, "completed"), 101.75, 110.0),
        ((100.0, 102.0, None, 8.25, "completed"), 102.0, 110.25),
        ((100.0, 102.0, 111.0, 8.25, "completed"), 102.0, 111.0),  # the log's own
        ((100.0, None, 110.0, 10.5, "completed"), 100.0, 110.0),  # in whole seconds
        ((100.0, None, 110.0, 12.0, "completed"), None, 110.0),  # no such run was possible
        ((100.0, None, 110.0, 0.0, "killed"), None, 110.0),  # it did not run
        ((100.0, None, 110.0, None, "dropped"), None, 110.0),  # given up
        ((100.0, 102.0, None, 8.25, "running"), 102.0, None),
        ((100.0, None, None, 8.25, "completed"), None, None),
    ],
)
def test_only_what_follows_is_filled_in(row, start, finish):
    given = table_of(row, (0.0, 1.0, 2.0, 1.0, "completed"))
    found = with_implied_times(given)
    assert found.schema == given.schema
    told = found.to_pylist()[0]
    instants = [None if at is None else BEGIN + dt.timedelta(seconds=at) for at in (start, finish)]
    assert [told["start"], told["finish"]] == instants
    coverage = Coverage()
    coverage.add(given.select(COLUMNS).to_batches()[0])
    assert coverage.num_known["true_waits"] == 1 + (row[1] is not None or bool(row[2] and row[3]))


def test_without_run_times_the_rows_are_the_same():
    rows = table_of((0.0, None, 2.0, None, "completed"))
    assert with_implied_times(rows) is rows
    bare = rows.select(["arrival", "finish"])
    assert with_implied_times(bare) is bare
