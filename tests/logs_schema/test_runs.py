"""The external sort: nothing lost, ascending, disjoint, and no window larger than its bound."""

from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs_schema import runs as runs_module
from logs_schema.columns import INSTANT
from logs_schema.ordering import times_us
from logs_schema.runs import Runs
from logs_schema.tables import REPLICAS


def replicas(times: list[int]) -> pa.Table:
    return pa.table(
        {
            "time": pa.array(times, pa.int64()).cast(INSTANT),
            "service": pa.array([f"s{time}" for time in times], pa.string()).dictionary_encode(),
        }
    )


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_module, "BATCH_ROWS", 4)


@given(
    chunks=st.lists(st.lists(st.integers(-5, 30), max_size=9), max_size=8),
    run_bytes=st.sampled_from([1, 200, 10_000]),
    window_rows=st.sampled_from([1, 7, 1_000]),
)
def test_windows_are_the_rows_sorted(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[list[int]], run_bytes: int, window_rows: int
) -> None:
    runs = Runs(tmp_path_factory.mktemp("runs"), REPLICAS, run_bytes)
    for chunk in chunks:
        runs.add(replicas(chunk))
    windows = list(runs.windows(window_rows))
    times = [times_us(REPLICAS, window) for window in windows]
    for before, after in pairwise(times):
        assert before.max() < after.min()
    assert all(len(window) >= window_rows for window in windows[:-1])
    labels = sorted((label for window in windows for label in window["service"].to_pylist()), key=_number)
    assert labels == [f"s{time}" for time in sorted(chain.from_iterable(chunks))]
    assert list(runs.folder.iterdir()) == []


def _number(label: str) -> int:
    return int(label[1:])


def test_windows_stay_small_when_all_runs_overlap(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    runs = Runs(tmp_path, REPLICAS, run_bytes=1)
    for _ in range(10):
        runs.add(replicas(generator.permutation(1_000).tolist()))
    largest = max(len(window) for window in runs.windows(50))
    # ten runs, each up to one batch of 4 ahead, and ten equal times
    assert 50 <= largest <= 50 + 10 * 4 + 10


def test_columns_may_come_and_go(tmp_path: Path) -> None:
    runs = Runs(tmp_path, REPLICAS, run_bytes=1)
    runs.add(replicas([3, 1]))
    runs.add(replicas([2]).drop_columns(["service"]))
    rows = pa.concat_tables(runs.windows())
    order = np.argsort(times_us(REPLICAS, rows))
    assert rows.take(order)["service"].to_pylist() == ["s1", None, "s3"]
