"""Ends that a log lacks or has too late: told from long services and shared nodes, and amended."""

import heapq
import json

import numpy as np
import pyarrow as pa
import pytest

from twin.placement import reported_ends
from twin.placement.encoding import _plain
from twin.placement.reported_ends import OVERFULL, amended, fit_reported_ends, reported_ends_of

NUM_ROWS, CORES, BEGIN_S = 4_000, 3, 1.7e9
UNTIL_S = BEGIN_S + 4 * 86_400.0
NODES = pa.table({"node_id": ["one", "two", "far"], "cpu_cores": [float(CORES), float(CORES), None]})


def queued(seed: int, *, shared: bool = False, unlike: float = 0.0) -> dict[str, np.ndarray]:
    """Requests at two nodes of three cores each, first come first served or all at once, and at one without bounds; of
    two services, so `unlike` one another (logarithm) on the first two."""
    random = np.random.default_rng(seed)
    arrival_s = BEGIN_S + np.cumsum(random.exponential(6.0, NUM_ROWS))
    node = random.choice(3, NUM_ROWS, p=[0.45, 0.35, 0.2])
    stated_s = random.uniform(10.0, 60.0, NUM_ROWS)
    run_s = stated_s * np.array([1.1, 0.8, 1.0])[node] * np.exp(0.3 * random.standard_normal(NUM_ROWS))
    service = np.arange(NUM_ROWS) % 2
    run_s *= np.exp(unlike * np.array([1.0, -1.0, 0.0])[node] * np.where(service, 1.0, -1.0))
    start_s = arrival_s + 0.05
    free_s = [[0.0] * CORES for _ in range(2)]
    for row in np.flatnonzero(node < 2) if not shared else ():
        start_s[row] = max(start_s[row], heapq.heappop(free_s[node[row]]))
        heapq.heappush(free_s[node[row]], start_s[row] + run_s[row])
    return {
        "arrival": arrival_s,
        "node": node,
        "service": service,
        "stated": stated_s,
        "start": start_s,
        "finish": start_s + run_s,
    }


def table_of(log: dict[str, np.ndarray], finish_s: np.ndarray, status: list[str] | None = None) -> pa.Table:
    def instants(values: np.ndarray) -> pa.Array:
        micros = pa.array(
            np.where(np.isfinite(values), values * 1e6, 0.0).astype(np.int64), mask=~np.isfinite(values)
        )
        return micros.cast(pa.timestamp("us", tz="UTC"))

    states = status or ["completed" if end else "unknown" for end in np.isfinite(finish_s)]
    return pa.table({
        "arrival": instants(log["arrival"]), "start": instants(log["start"]), "finish": instants(finish_s),
        "service": np.array(["job", "task"])[log["service"]],
        "offered_node": np.array(["one", "two", "far"])[log["node"]],
        "ran_node": pa.nulls(NUM_ROWS, pa.string()), "num_nodes": pa.nulls(NUM_ROWS, pa.int32()),
        "cpu_cores": np.ones(NUM_ROWS), "requested_run_s": log["stated"],
        "status": pa.array(states).dictionary_encode(),
    })  # fmt: skip


def finish_of(rows: pa.Table) -> np.ndarray:
    micros = rows["finish"].cast(pa.int64()).to_numpy(zero_copy_only=False).astype(float)
    return np.where(rows["finish"].is_null().to_numpy(zero_copy_only=False), np.nan, micros / 1e6)


def wrongly(log: dict[str, np.ndarray], finish_s: np.ndarray) -> float:
    """Share of runs whose time is more than a factor of two off."""
    found = np.log((finish_s - log["start"]) / (log["finish"] - log["start"]))
    return float(np.mean(~(np.abs(found) < np.log(2.0))))


def reported(log: dict[str, np.ndarray], seed: int, *, lost: float, late: float) -> np.ndarray:
    random = np.random.default_rng(seed)
    delay_s = np.where(random.uniform(size=NUM_ROWS) < late, random.exponential(180.0, NUM_ROWS), 0.0)
    return np.where(random.uniform(size=NUM_ROWS) < lost, np.nan, log["finish"] + delay_s)


@pytest.mark.parametrize(("lost", "late", "left"), [(0.08, 0.0, 0.01), (0.0, 0.2, 0.04), (0.08, 0.2, 0.05)])
def test_lost_and_late_ends_are_found_and_amended(lost: float, late: float, left: float) -> None:
    log = queued(0)
    logged_s = reported(log, 1, lost=lost, late=late)
    rows = table_of(log, logged_s)
    law = fit_reported_ends(rows, NODES, UNTIL_S)
    assert law is not None
    assert (law.loses, law.is_late) == (lost > 0.0, late > 0.0)
    law = reported_ends_of(json.loads(json.dumps(_plain(law))))
    better = amended(rows, law, UNTIL_S)
    assert better.schema == rows.schema
    assert better["finish"].null_count == 0
    assert set(better["status"].to_pylist()) == {"completed"}
    assert wrongly(log, finish_of(better)) < left < 0.6 * wrongly(log, logged_s)
    if not late:
        known = np.isfinite(logged_s)
        np.testing.assert_allclose(finish_of(better)[known], logged_s[known], atol=1e-6)
    unknown_yet = amended(rows, law, BEGIN_S + 3_600.0)
    later = log["start"] > BEGIN_S + 3_600.0
    assert np.array_equal(finish_of(unknown_yet)[later], finish_of(rows)[later], equal_nan=True)


def test_amended_ends_leave_services_as_unlike_between_nodes_as_they_are() -> None:
    """What a policy can gain is in these differences: they must not fade with the share of ends that are amended."""
    log = queued(5, unlike=0.5)
    rows = table_of(log, reported(log, 6, lost=0.08, late=0.2))
    found_s = finish_of(amended(rows, fit_reported_ends(rows, NODES, UNTIL_S), UNTIL_S)) - log["start"]
    true_s = log["finish"] - log["start"]

    def difference(run_s: np.ndarray, node: int) -> float:
        of_both = [
            np.log(run_s / log["stated"])[(log["node"] == node) & (log["service"] == each)].mean()
            for each in (0, 1)
        ]
        return of_both[1] - of_both[0]

    for node in (0, 1):
        assert abs(difference(true_s, node)) > 0.8
        assert difference(found_s, node) == pytest.approx(difference(true_s, node), rel=0.07)


def test_nothing_is_amiss_with_true_ends_services_that_go_on_and_nodes_that_are_shared() -> None:
    log, shared = queued(2), queued(2, shared=True)
    assert fit_reported_ends(table_of(log, log["finish"]), NODES, UNTIL_S) is None
    assert fit_reported_ends(table_of(shared, shared["finish"]), NODES, UNTIL_S) is None
    goes_on = np.where((log["node"] == 2) & (np.arange(NUM_ROWS) % 3 == 0), np.nan, log["finish"])
    assert fit_reported_ends(table_of(log, goes_on), NODES, UNTIL_S) is None
    lost_s = reported(log, 3, lost=0.08, late=0.0)
    running = ["completed" if end else "running" for end in np.isfinite(lost_s)]
    assert fit_reported_ends(table_of(log, lost_s, running), NODES, UNTIL_S) is None, "the log says so"
    spread = table_of(log, lost_s).set_column(6, "num_nodes", pa.array(np.full(NUM_ROWS, 2, np.int32)))
    assert fit_reported_ends(spread, NODES, UNTIL_S) is None
    rows = table_of(log, lost_s)
    assert amended(rows, None, UNTIL_S) is rows


def test_fewer_cores_in_the_table_of_nodes_than_there_are_make_no_end_late() -> None:
    log = queued(4)
    for cores in (1.0, 2.0):
        nodes = NODES.set_column(1, "cpu_cores", pa.array([cores, cores, None]))
        assert fit_reported_ends(table_of(log, log["finish"]), nodes, UNTIL_S) is None


def test_a_few_lost_ends_fill_their_nodes_and_show_no_other_as_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight ends are too few to say that the log loses ends; until they are imputed, their nodes are overfull."""
    seen = []
    monkeypatch.setattr(reported_ends, "_with_late_ends", lambda law, *found: seen.append(found) or law)
    log = queued(5)
    few_s = np.where(np.arange(NUM_ROWS) % 500 == 0, np.nan, log["finish"])
    assert fit_reported_ends(table_of(log, few_s), NODES, UNTIL_S) is None
    ((runs, finish_s),) = seen
    assert reported_ends._overfull(runs, runs.finish_s) > OVERFULL > reported_ends._overfull(runs, finish_s)
