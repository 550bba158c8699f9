"""Rows and windows: what was in flight is given back exactly, nothing after the cutoff reaches the arrays."""

import datetime as dt

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs_schema.calendar import MONDAY_S
from logs_schema.columns import arrow_schema
from logs_schema.errors import ConfigError
from logs_schema.tables import REQUESTS, SCHEMA_VERSION
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.contracts import Trajectory
from twin.placement.encode import EncodedRows, cut_windows, encode_rows
from twin.placement.encoding import Encoding, day_start_s
from twin.placement.features import NODE_FEATURES
from twin.placement.history import answers_of_history, replay_environment, replay_log
from twin.placement.replay import ReplayTable
from twin.placement.types import COMPLETED, DROPPED, REJECTED, UNKNOWN
from twin.placement.windows import Windows
from twin.rollout import follow

NAMES = [feature.name for feature in NODE_FEATURES]


def logged_counts(rows: EncodedRows, node: int, now: float, first: int) -> tuple[int, int]:
    """Requests running and waiting on a node as the log says, before row `first` is placed."""
    before = np.arange(rows.num_rows) < first
    here = before & (rows.node == node) & (rows.status != REJECTED) & (rows.finish_s > now)
    running = here & (rows.start_s <= now)
    return int(running.sum()), int((here & ~running).sum())


@pytest.mark.parametrize("seed", [0, 1])
def test_replay_gives_the_logged_occupancy_back(seed: int) -> None:
    """Ties, refusals, drops, carried requests: at every decision every node holds what the log says."""
    cluster = made_cluster()
    encoding = made_encoding(cluster, depth=40)
    rows = made_rows(np.random.default_rng(seed), cluster, 160, gap_s=4)
    known = rows.status != UNKNOWN
    rows = rows._replace(
        status=np.where(known, rows.status, COMPLETED),
        finish_s=np.where(known, rows.finish_s, rows.start_s + 5.0),
        request=rows.request._replace(
            demand=np.minimum(rows.request.demand, 0.1) * np.array([[1.0], [1.0], [0.0]], np.float32),
            rule=np.zeros(rows.num_rows, np.int32),
        ),
    )
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=40)
    assert (windows.carried.node >= 0).any()
    assert windows.num_overflow == 0
    history = replay_log(windows, encoding)
    assert not np.asarray(history.illegal).any()
    seen = np.asarray(history.global_observation.node)
    for window in range(windows.num_windows):
        for step in range(windows.length[window]):
            row = windows.row[step, window]
            for node in range(cluster.num_nodes):
                told = seen[step, [NAMES.index("num_running"), NAMES.index("num_waiting")], node, 0, window]
                wanted = logged_counts(rows, node, rows.arrival_s[row], row)
                np.testing.assert_allclose(np.expm1(told), wanted, atol=1e-4)


def table_of(rows: list[dict]) -> pa.Table:
    """A table of requests with every column of the schema, null where a row does not say."""
    schema = arrow_schema(REQUESTS, SCHEMA_VERSION)
    filled = [{name: row.get(name) for name in schema.names} for row in rows]
    return pa.Table.from_pylist(filled, schema=schema)


def at(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


START_S = day_start_s(dt.date(2024, 1, 3))  # a Wednesday


def logged(request_id: str, arrival_s: float, **fields: object) -> dict:
    times = {name: at(START_S + fields.pop(name)) for name in ("start", "finish") if name in fields}
    return {"request_id": request_id, "arrival": at(START_S + arrival_s), **times, **fields}


@pytest.fixture(scope="module")
def encoding() -> Encoding:
    return made_encoding(made_cluster())


def test_nothing_after_the_cutoff_reaches_the_arrays(encoding: Encoding) -> None:
    common = {"offered_node": "edge-0", "status": "completed"}
    early = [
        logged("a", 0.0, start=1.0, finish=5.0, **common),
        logged("b", 1.0, start=2.0, finish=90.0, **common),
        logged("c", 2.0, start=70.0, finish=80.0, **common),
    ]
    late = [dict(row) for row in early]
    late[1] |= {"finish": at(START_S + 5000.0), "status": "failed"}
    late[2] |= {"start": at(START_S + 61.0), "finish": at(START_S + 62.0), "status": "failed"}
    cutoff_s = START_S + 60.0
    one, other = (encode_rows(table_of(rows), encoding, cutoff_s) for rows in (early, late))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.status.tolist() == [COMPLETED, UNKNOWN, UNKNOWN]
    assert np.isfinite(one.start_s).tolist() == [True, True, False]
    assert np.isfinite(one.finish_s).tolist() == [True, False, False]


def test_what_was_dropped_at_an_unknown_instant_was_dropped(encoding: Encoding) -> None:
    common = {"offered_node": "edge-0", "status": "dropped"}
    rows = [logged("a", 0.0, **common), logged("b", 1.0, finish=7.0, **common), logged("c", 80.0, **common)]
    # When its node is free is not known
    rows.append(logged("d", 2.0, offered_node="edge-0", status="failed"))
    found = encode_rows(table_of(rows), encoding, START_S + 60.0)
    assert found.status.tolist() == [DROPPED, DROPPED, UNKNOWN, UNKNOWN]
    np.testing.assert_array_equal(found.finish_s - START_S, [0.0, 7.0, np.inf, np.inf])
    assert not np.isfinite(found.start_s).any()


def test_unknown_labels_and_missing_values(encoding: Encoding) -> None:
    rows = [
        logged(
            "a", 0.0, service="service-2", offered_node="edge-1", status="completed", start=0.0, finish=1.0
        ),
        logged("b", 0.0, service="never seen", offered_node="no such node"),
        logged("c", 0.0, ran_node="cloud", accepted=False, cpu_cores=3.0, deadline_s=7.0),
    ]
    told = encode_rows(table_of(rows), encoding, np.inf)
    assert told.request.service.tolist() == [2, 0, 0]
    assert told.node.tolist() == [1, -1, 3]
    assert told.status.tolist() == [COMPLETED, UNKNOWN, REJECTED]
    assert told.request.demand[0].tolist() == [1.0, 1.0, 3.0]
    assert told.request.deadline_s.tolist() == [np.inf, np.inf, 7.0]
    assert told.request.expected_run_s.tolist() == [20.0, 20.0, 20.0]
    assert told.silent.tolist() == [False, True, False]  # a refusal is an answer


def test_candidate_sets_unseen_in_training_fall_back_to_a_set_around_them(encoding: Encoding) -> None:
    rows = [
        logged("a", 0.0, candidates=None),
        logged("b", 0.0, candidates=["edge-1", "edge-2", "cloud"]),
        logged("c", 0.0, candidates=["edge-1"]),
        logged("d", 0.0, candidates=["edge-0"]),
    ]
    told = encode_rows(table_of(rows), encoding, np.inf)
    assert told.request.rule.tolist() == [0, 1, 1, 0]


def test_time_of_day_and_week(encoding: Encoding) -> None:
    told = encode_rows(table_of([logged("a", 6 * 3600.0)]), encoding, np.inf)
    assert told.request.day_fraction[0] == pytest.approx(0.25)
    assert told.request.week_fraction[0] == pytest.approx((2 + 0.25) / 7)  # a Wednesday, counted from Monday
    assert dt.datetime.fromtimestamp(MONDAY_S, dt.UTC).weekday() == 0


def test_no_known_decision_is_an_error(encoding: Encoding) -> None:
    rows = made_rows(np.random.default_rng(0), encoding.cluster, 5)._replace(node=np.full(5, -1, np.int32))
    with pytest.raises(ConfigError, match="known decision"):
        cut_windows(rows, np.ones(5, bool), encoding, num_steps=4)


def test_windows_overlap_by_stride_and_pad_the_last(encoding: Encoding) -> None:
    rows = made_rows(np.random.default_rng(0), encoding.cluster, 10)
    apart = cut_windows(rows, np.ones(10, bool), encoding, num_steps=4)
    assert apart.length.tolist() == [4, 4, 2]
    assert apart.row[:, 2].tolist() == [8, 9, -1, -1]
    sliding = cut_windows(rows, np.ones(10, bool), encoding, num_steps=4, stride=3)
    assert sliding.row[0].tolist() == [0, 3, 6]
    assert sliding.length.tolist() == [4, 4, 4]


def test_dropped_requests_carried_in_never_start(encoding: Encoding) -> None:
    rows = made_rows(np.random.default_rng(0), encoding.cluster, 6)
    status = np.full(6, COMPLETED, np.int32)
    status[0] = DROPPED
    start_s, finish_s = rows.arrival_s + 1.0, rows.arrival_s + 200.0
    start_s[0] = np.inf
    rows = rows._replace(status=status, start_s=start_s, finish_s=finish_s)
    windows = cut_windows(rows, np.arange(6) >= 4, encoding, num_steps=2)
    held = np.nonzero(windows.carried.node[:, 0] >= 0)
    assert len(held[0]) == 4
    dropped = windows.carried.fate.status[..., 0][held] == DROPPED
    assert dropped.sum() == 1
    assert np.isinf(windows.carried.fate.start_s[..., 0][held][dropped]).all()


@pytest.mark.parametrize("told", [True, False])
def test_requests_that_wait_when_the_log_ends_do_not_all_start_at_once(
    encoding: Encoding, told: bool
) -> None:
    """A log without any start does not tell who waits: there they run."""
    rows = made_rows(np.random.default_rng(0), encoding.cluster, 6)
    waits = np.arange(6) < 3
    start_s = np.where(waits | (not told), np.inf, rows.arrival_s + 1.0)
    finish_s = np.where(waits, np.inf, rows.arrival_s + 200.0)
    status = np.where(waits, UNKNOWN, COMPLETED).astype(np.int32)
    rows = rows._replace(status=status, start_s=start_s, finish_s=finish_s)
    windows = cut_windows(rows, np.arange(6) >= 3, encoding, num_steps=3)
    held = np.nonzero(windows.carried.node[:, 0] >= 0)
    start_s, finish_s = (leaf[..., 0][held] for leaf in windows.carried.fate[1:3])
    begin, last = rows.arrival_s[[3, 5]] - windows.origin_s[0]
    assert start_s.tolist() == pytest.approx([last if told else begin] * 3, abs=1e-3)
    assert (finish_s > start_s).all()


DEPTH, STEPS = 4, 12
CROWDED = made_encoding(made_cluster(), depth=DEPTH)


@jax.jit
def replayed(windows: Windows, table: ReplayTable) -> Trajectory:
    system = replay_environment(windows, CROWDED, table)
    return follow(jax.random.key(0), system, jnp.maximum(windows.node, 0)[:, None], (2,))


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), gap_s=st.integers(0, 4), run_s=st.integers(1, 60))
def test_every_decision_is_accounted_for(seed: int, gap_s: int, run_s: int) -> None:
    """Whatever the log: a decision is settled unless its end is unknown or its node was full; none is lost or twice."""
    rows = made_rows(np.random.default_rng(seed), CROWDED.cluster, 2 * STEPS, gap_s=gap_s, run_s=run_s)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), CROWDED, num_steps=STEPS)
    table = answers_of_history(windows, CROWDED)
    history = jax.tree.map(np.asarray, replayed(windows, table))
    view = dict(zip(NAMES, np.moveaxis(history.global_observation.node, 1, 0), strict=True))
    held = np.expm1(view["num_running"]) + np.expm1(view["num_waiting"])  # [T + 1, nodes, 1, W]
    assert held.max() < DEPTH + 0.01
    assert view["free_cpu_cores"].max() < 1.0 + 1e-5
    node = history.action[:, 0]

    def of_choice(leaf: np.ndarray) -> np.ndarray:
        """[T, W] the value of the chosen node in [nodes, T, W]."""
        return np.take_along_axis(leaf, node[None], axis=0)[0]

    full = of_choice(np.moveaxis(held[:-1, :, 0], 1, 0)) > DEPTH - 0.01
    fate = jax.tree.map(of_choice, table.fate)
    wanted = ~fate.accepted | (~full & np.isfinite(fate.finish_s))
    np.testing.assert_array_equal(history.settled[:, 0], wanted)
    finished = wanted & fate.accepted
    np.testing.assert_array_equal(history.outcome.finish_s[:, 0][finished], fate.finish_s[finished])
    np.testing.assert_array_equal(history.outcome.status[:, 0][wanted], fate.status[wanted])
