"""Runs that slow each other: found in a log, their works, and fates that move as requests are placed."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.contracts import Array
from twin.placement.bookkeeping import empty_table
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.history import answered_environment
from twin.placement.learned import with_moved_fates
from twin.placement.pace import HeldRuns, Pace, _begin_without_cores, fit_pace, works_s
from twin.placement.paced_fates import moved_fates
from twin.placement.replay import with_logged_luck
from twin.placement.responses import Answers
from twin.placement.types import Cluster, Fate, PlacementState, Requests
from twin.rollout import follow

CORES = 4.0
"""Of the node that the loop plays."""


class PlayedLoop(NamedTuple):
    """What a plain loop makes of requests on one node; leaves [rows]."""

    arrival_s: np.ndarray
    service: np.ndarray
    work_s: np.ndarray
    start_s: np.ndarray
    finish_s: np.ndarray


def pace_of_kind(kind: str) -> Pace:
    pressure = {"contention": [0.0, 0.5, 0.1], "sharing": [0.0] * 3, "alone": [0.0] * 3}[kind]
    return Pace(np.array(pressure), kind == "sharing")


def played(
    kind: str, num_rows: int, seed: int = 0, gap_s: float = 20.0, spread: float = 0.3, slow: float = 1.0
) -> PlayedLoop:
    """Requests of one core each that come to a node: under "sharing" all run at once, else as many as it has cores, in
    order of arrival. Every second half an hour works take `slow` times as long."""
    rng, pace = np.random.default_rng(seed), pace_of_kind(kind)
    arrival_s = np.cumsum(rng.exponential(gap_s, num_rows))
    service = rng.integers(1, 3, num_rows)
    work_s = rng.lognormal(np.log([1.0, 30.0, 40.0])[service], spread)
    work_s *= np.where(arrival_s // 1_800.0 % 2.0 == 1.0, slow, 1.0)
    start_s, finish_s, left_s = np.full(num_rows, np.inf), np.full(num_rows, np.inf), work_s.copy()
    running, waiting, clock_s, coming = list[int](), list[int](), 0.0, 0
    while coming < num_rows or running:
        crowd = len(running) / CORES if pace.shares else 0.0
        slowdown = [
            (1.0 + sum(pace.pressure[service[other]] for other in running if other != one)) * max(crowd, 1.0)
            for one in running
        ]
        ends_s = [clock_s + left_s[one] * slow for one, slow in zip(running, slowdown, strict=True)]
        next_s = arrival_s[coming] if coming < num_rows else np.inf
        until_s = min([next_s, *ends_s])
        for one, slow in zip(running, slowdown, strict=True):
            left_s[one] -= (until_s - clock_s) / slow
        clock_s = until_s
        if ends_s and min(ends_s) <= next_s:
            ended = running.pop(int(np.argmin(ends_s)))
            finish_s[ended] = clock_s
        else:
            waiting.append(coming)
            coming += 1
        while waiting and (pace.shares or len(running) < CORES):
            running.append(waiting.pop(0))
            start_s[running[-1]] = clock_s
    return PlayedLoop(arrival_s, service, work_s, start_s, finish_s)


def held(loop: PlayedLoop) -> tuple[HeldRuns, np.ndarray]:
    one = np.zeros(len(loop.work_s), int)
    return HeldRuns(one, loop.service, one + 1.0, loop.start_s, loop.finish_s), np.array([CORES])


@pytest.mark.parametrize("kind", ["contention", "sharing", "alone"])
def test_works_are_those_of_the_loop(kind: str) -> None:
    loop = played(kind, 300)
    np.testing.assert_allclose(works_s(pace_of_kind(kind), *held(loop)), loop.work_s, rtol=1e-9)


def test_the_pace_of_a_log_is_found_and_none_where_there_is_none() -> None:
    usual_s = np.full(4000, 35.0)
    sharing = fit_pace(held(played("sharing", 4000, gap_s=10.5))[0], usual_s, np.array([CORES]), 3)
    assert sharing is not None
    assert sharing.shares
    contention = fit_pace(held(played("contention", 4000))[0], usual_s, np.array([CORES]), 3)
    assert contention is not None
    assert not contention.shares
    assert 0.1 < contention.pressure.mean() < 0.5
    assert fit_pace(held(played("alone", 4000))[0], usual_s, np.array([CORES]), 3) is None


def test_a_pace_is_found_among_works_that_scatter_and_none_in_slow_periods() -> None:
    """A run beside long ones is slowed by them, though it is not like them. Where the node is slow for half an hour,
    more runs are beside one another, and all are long."""
    usual_s, cores = np.full(8000, 35.0), np.array([CORES])
    heavy = fit_pace(held(played("contention", 8000, gap_s=25.0, spread=0.8))[0], usual_s, cores, 3)
    assert heavy is not None
    np.testing.assert_allclose(heavy.pressure[1:], [0.5, 0.1], atol=0.05)
    slow = held(played("alone", 8000, gap_s=25.0, slow=2.0))[0]
    assert fit_pace(slow, usual_s, cores, 3) is None


@pytest.mark.parametrize("kind", ["contention", "sharing", "alone"])
def test_runs_that_begin_beyond_the_cores_wait_for_none(kind: str) -> None:
    assert _begin_without_cores(*held(played(kind, 2000, gap_s=10.5))) == (kind == "sharing")


def one_node(kind: str) -> Cluster:
    cluster = made_cluster()
    capacity = cluster.capacity.copy()
    capacity[0, 0] = CORES
    return replace(cluster, capacity=capacity, pace=pace_of_kind(kind))


@pytest.mark.parametrize("kind", ["contention", "sharing"])
def test_fates_move_to_those_of_the_loop(kind: str) -> None:
    """Requests are placed one after another, each with its work alone; in the end all ended as in the loop."""
    loop, cluster, depth = played(kind, 40, seed=1, gap_s=9.0), one_node(kind), 40
    table = empty_table(cluster.num_nodes, depth, (1,))
    node = jnp.zeros((1, 1), jnp.int32)
    move = jax.jit(lambda state, slots, *fates: moved_fates(cluster, state, node, slots, *fates))
    start_s, finish_s = np.full((2, cluster.num_nodes, depth, 1), np.inf, np.float32)
    zero, demand = np.zeros((1, 1), np.int32), np.array([1.0, 0.0, 0.0], np.float32)[:, None, None]
    for row in range(len(loop.work_s)):
        request = Requests(*(zero for _ in Requests._fields[:-3]))._replace(
            service=np.full((1, 1), loop.service[row], np.int32), demand=demand
        )
        clock_s = jnp.array([loop.arrival_s[row]], jnp.float32)
        state = PlacementState(clock_s, request, zero, zero, table, zero, zero, zero)  # type: ignore[arg-type]
        # Who has to wait is drawn to begin too soon, and put off until there is room
        wait_s = 0.01 if loop.start_s[row] > loop.arrival_s[row] else 0.0
        start_s[0, row], finish_s[0, row] = clock_s + wait_s, clock_s + wait_s + loop.work_s[row]
        slots = jnp.array([[row]], jnp.int32)
        start_s, finish_s = map(np.array, move(state, slots, jnp.asarray(start_s), jnp.asarray(finish_s)))
        table = table._replace(
            decision=table.decision.at[0, row].set(row),
            service=table.service.at[0, row].set(loop.service[row]),
            arrival_s=table.arrival_s.at[0, row].set(clock_s),
            demand=table.demand.at[0, 0, row].set(1.0),
        )
    np.testing.assert_allclose(finish_s[0, :, 0], loop.finish_s, rtol=1e-3, atol=0.05)
    np.testing.assert_allclose(start_s[0, :, 0], loop.start_s, rtol=1e-3, atol=0.05)
    assert np.isinf(start_s[1:]).all()


@pytest.mark.slow
def test_logged_decisions_and_works_are_the_log_again() -> None:
    """Windows carry what is left of the works of what runs as they begin; played with the logged works, every run that
    ends within them ends as it did."""
    loop, cluster, steps = played("sharing", 96, seed=2, gap_s=10.0), one_node("sharing"), 32
    encoding = made_encoding(cluster, depth=32)
    rows, zero = made_rows(np.random.default_rng(0), cluster, len(loop.work_s)), np.zeros(96, np.int32)
    request = rows.request._replace(
        service=loop.service.astype(np.int32),
        rule=zero,
        agent=zero - 1,
        demand=np.stack([zero + 1.0, zero, zero]).astype(np.float32),
    )
    rows = rows._replace(
        arrival_s=loop.arrival_s,
        start_s=loop.start_s,
        finish_s=loop.finish_s,
        status=zero,
        node=zero,
        request=request,
    )
    windows = cut_windows(rows, np.ones(96, bool), encoding, num_steps=steps)
    assert windows.work_s is not None
    np.testing.assert_allclose(windows.work_s, loop.work_s[windows.row], rtol=1e-5)

    def at_once(_key: Array, memory: None, state: PlacementState, node: Array, _: None) -> tuple[None, Fate]:
        start_s = jnp.broadcast_to(state.clock_s[None], node.shape)
        return memory, Fate(node >= 0, start_s, start_s, node * 0)

    answers = with_moved_fates(cluster, Answers(lambda _key, _streams: None, at_once))
    system = answered_environment(windows, encoding, with_logged_luck(answers, windows))
    nodes = jnp.asarray(windows.node)[:, None]
    found = jax.jit(lambda key: follow(key, system, nodes, (windows.num_windows,)))(jax.random.key(0))
    seen = windows.fate.finish_s <= windows.arrival_s[-1]
    assert seen.sum() > 48
    assert np.asarray(found.settled[:, 0])[seen].all()
    assert (windows.carried.node >= 0).any()
    np.testing.assert_allclose(
        np.asarray(found.outcome.finish_s[:, 0])[seen], windows.fate.finish_s[seen], rtol=1e-4, atol=0.05
    )


def test_an_encoding_keeps_the_pace_and_says_nothing_without_one() -> None:
    encoding = made_encoding(one_node("contention"))
    found = Encoding.from_json(encoding.to_json()).cluster.pace
    assert found is not None
    np.testing.assert_array_equal(found.pressure, pace_of_kind("contention").pressure)
    assert "pace" not in made_encoding(made_cluster()).to_json()
