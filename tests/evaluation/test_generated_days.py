"""What a generated day looks back at: the last requests, and whatever may still hold a node."""

import datetime as dt

import pyarrow as pa
import pytest

from evaluation.problems.placement import generated_log
from evaluation.problems.placement.generated_log import _that_matter

MIDNIGHT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
INSTANT = pa.timestamp("us", tz="UTC")


def instant(second: float | None) -> dt.datetime | None:
    return None if second is None else MIDNIGHT + dt.timedelta(seconds=second)


def settled(*rows: tuple[str, float, float | None, str]) -> pa.Table:
    name, arrival, finish, status = zip(*rows, strict=True)
    return pa.table(
        {
            "request_id": name,
            "arrival": pa.array(map(instant, arrival), INSTANT),
            "finish": pa.array(map(instant, finish), INSTANT),
            "status": pa.array(status).dictionary_encode(),
        }
    )


def test_a_piece_of_a_generated_day_looks_back_at_so_many_requests_and_all_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = settled(
        ("ended", 0, 9, "completed"),
        ("runs on", 1, 50, "completed"),
        ("refused", 2, None, "rejected"),
        ("lost", 3, None, "unknown"),
        ("ends now", 4, 20, "failed"),
        ("new, ended", 5, 6, "completed"),
        ("new", 6, 30, "completed"),
    )
    begins = pa.scalar(instant(20), INSTANT)
    assert _that_matter(before, begins) is before  # few enough: all that happened is looked up
    monkeypatch.setattr(generated_log, "MOST_BEFORE", 2)
    kept = _that_matter(before, begins)["request_id"].to_pylist()
    assert kept == ["runs on", "lost", "ends now", "new, ended", "new"]
    assert _that_matter(before.slice(5), begins).num_rows == 2
