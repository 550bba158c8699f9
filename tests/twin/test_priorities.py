"""Queues that go before others: read off a log, in the bookkeeping, and what they do to those that they drive out."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.recipes.config import TrainingConfig, episodes_of
from tests.twin.made import made_cluster, made_encoding, made_rows
from tests.twin.test_against_loop import log_agrees_with_the_loop
from twin.placement.bookkeeping import empty_table
from twin.placement.driving_out import may_be_driven_out, moved_fates
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.model import PlacementTwin
from twin.placement.priorities import Priorities, QueuedRuns, fit_priorities
from twin.placement.types import Cluster, PlacementState, Requests
from twin.placement.windows import without_waiting


def ranked_cluster(preempts: bool = True) -> Cluster:
    """The made cluster with three queues, the first going before all others."""
    return replace(
        made_cluster(), queues=("unknown", "second", "third"), priorities=Priorities((0, 1, 2), preempts)
    )


@pytest.mark.slow
@pytest.mark.parametrize("preempts", [True, False])
def test_the_array_code_agrees_with_the_loop(preempts: bool) -> None:
    log_agrees_with_the_loop(made_encoding(ranked_cluster(preempts), reward="response"))


def served(rng: np.random.Generator, order: str, count: int = 3000) -> QueuedRuns:
    """A node of one core and three queues, of requests served in order of arrival, by rank, or by rank at once."""
    queue = rng.integers(0, 3, count)
    arrival_s = np.cumsum(rng.exponential(10.0, count))
    run_s = rng.exponential(8.0, count)
    start_s, finish_s, left = np.zeros(count), np.zeros(count), list(range(count))
    waiting: list[int] = []
    clock_s, running = 0.0, -1
    while left or waiting or running >= 0:
        next_s = arrival_s[left[0]] if left else np.inf
        if running >= 0 and finish_s[running] <= next_s:
            clock_s, running = finish_s[running], -1
        elif left:
            clock_s = next_s
            waiting.append(left.pop(0))
            if order == "preempts" and running >= 0 and queue[waiting[-1]] < queue[running]:
                waiting.append(running)
                running = -1
        if running < 0 and waiting:
            first = min(waiting, key=lambda one: (0 if order == "arrival" else queue[one], arrival_s[one]))
            waiting.remove(first)
            running = first
            start_s[first], finish_s[first] = clock_s, clock_s + run_s[first]
    zero = np.zeros(count, int)
    return QueuedRuns(queue, zero, arrival_s, start_s, finish_s, np.ones(count), zero)


@pytest.mark.parametrize(
    ("order", "found"),
    [("arrival", None), ("rank", Priorities((0, 1, 2), False)), ("preempts", Priorities((0, 1, 2), True))],
)
def test_ranks_are_read_off_who_overtakes_whom(order: str, found: Priorities | None) -> None:
    held = served(np.random.default_rng(5), order)
    assert fit_priorities(held, np.ones(1), 3) == found


def test_an_encoding_keeps_them_and_says_nothing_without_them() -> None:
    encoding = made_encoding(ranked_cluster())
    assert Encoding.from_json(encoding.to_json()).cluster.priorities == encoding.cluster.priorities
    assert "priorities" not in made_encoding(made_cluster()).to_json()


def state_of(cluster: Cluster, begun: list[tuple[float, float, int, float]], rank: int) -> PlacementState:
    """One stream at 10 s: (start, finish, rank, cores) in the slots of the first node, a request of 2 cores in hand."""
    table = empty_table(cluster.num_nodes, 8, (1,), np.int32)
    start_s, finish_s, ranks, cores = (jnp.asarray(column) for column in zip(*begun, strict=True))
    here = (0, slice(len(begun)), 0)
    table = table._replace(
        decision=table.decision.at[here].set(0),
        start_s=table.start_s.at[here].set(start_s),
        finish_s=table.finish_s.at[here].set(finish_s),
        rank=table.rank.at[here].set(ranks),
        demand=table.demand.at[0, 0, slice(len(begun)), 0].set(cores),
    )
    request = Requests(*(jnp.zeros((1, 1), jnp.int32) for _ in Requests._fields))
    request = request._replace(
        queue=jnp.full((1, 1), rank, jnp.int32), demand=jnp.zeros((3, 1, 1)).at[0].set(2.0)
    )
    return PlacementState(
        clock_s=jnp.full(1, 10.0),
        request=request,
        active=jnp.ones((1, 1), bool),
        available=jnp.ones((cluster.num_nodes, 1), bool),
        in_flight=table,
        recent_wait_s=jnp.zeros((4, 1)),
        recent_starts=jnp.zeros((4, 1)),
        num_overflow=jnp.zeros(1, jnp.int32),
    )


@pytest.mark.parametrize(
    ("rank", "starts", "finishes"),
    [
        # All four cores are taken and two needed: both of the lowest rank go, and come again as the two are free
        (0, [0.0, 12.0, 12.0, 5.0], [40.0, 41.0, 32.0, 14.0]),
        # Nothing is of a lower rank
        (2, [0.0, 1.0, 5.0, 5.0], [40.0, 30.0, 25.0, 14.0]),
    ],
)
def test_what_is_driven_out_begins_again_and_runs_in_full(
    rank: int, starts: list[float], finishes: list[float]
) -> None:
    cluster = ranked_cluster()
    assert cluster.capacity[0, 0] == 4.0
    begun = [(0.0, 40.0, 1, 1.0), (1.0, 30.0, 2, 1.0), (5.0, 25.0, 2, 1.0), (5.0, 14.0, 1, 1.0)]
    state = state_of(cluster, begun, rank)
    table = state.in_flight
    slot = jnp.asarray([[len(begun)]])  # the first node's next
    start_s = table.start_s.at[0, len(begun), 0].set(10.0)
    finish_s = table.finish_s.at[0, len(begun), 0].set(12.0)
    state = state._replace(in_flight=table)
    moved = jax.jit(lambda *fates: moved_fates(cluster, state, jnp.zeros((1, 1), jnp.int32), slot, *fates))
    start_s, finish_s = moved(start_s, finish_s)
    assert start_s[0, : len(begun), 0].tolist() == starts
    assert finish_s[0, : len(begun), 0].tolist() == finishes


def test_equals_begin_as_they_came_to_a_fraction_of_a_second_and_whoever_is_driven_out_has_come_last() -> (
    None
):
    """Beside a rank, times of a key of float32 would be whole seconds; and a slot remembers who held it before."""
    cluster, node = ranked_cluster(), jnp.zeros((1, 1), jnp.int32)
    begun = [(0.0, 12.0, 0, 4.0), (16.0, 20.0, 1, 4.0), (12.0, 16.0, 1, 4.0), (15.0, 18.0, 0, 4.0)]
    came_s = jnp.array([0.0, 9.4, 9.2, 9.8])

    state = state_of(cluster, begun, 1)
    table = state.in_flight
    table = table._replace(arrival_s=table.arrival_s.at[0, : len(begun), 0].set(came_s))
    state = state._replace(in_flight=table)
    drawn = (table.start_s.at[0, len(begun), 0].set(12.0), table.finish_s.at[0, len(begun), 0].set(19.0))
    start_s, finish_s = jax.jit(
        lambda *fates: moved_fates(cluster, state, node, jnp.asarray([[len(begun)]]), *fates)
    )(*drawn)
    # In hand is one of two cores, from 12 s on; at 15 s the first of rank 0 drives it out, and then all equals begin
    assert start_s[0, : len(begun) + 1, 0].tolist() == [0.0, 22.0, 18.0, 15.0, 26.0]
    assert finish_s[0, : len(begun) + 1, 0].tolist() == [12.0, 26.0, 22.0, 18.0, 33.0]


def test_who_may_have_been_driven_out() -> None:
    ranks = Priorities((0, 1), True)
    queue, node = np.array([1, 0, 1, 1]), np.array([0, 0, 0, 1])
    arrival_s, start_s = np.array([0.0, 5.0, 6.0, 6.0]), np.array([7.0, 5.0, 9.0, 6.0])
    assert may_be_driven_out(ranks, queue, node, arrival_s, start_s).tolist() == [True, False, False, False]
    kept = replace(ranks, preempts=False)
    assert not may_be_driven_out(kept, queue, node, arrival_s, start_s).any()


def test_episodes_begin_without_what_the_scheduler_of_the_log_left_waiting() -> None:
    encoding = made_encoding(ranked_cluster())
    rows = made_rows(np.random.default_rng(3), encoding.cluster, 96)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=24)
    before, after = windows.carried, without_waiting(windows).carried
    waits = (before.node >= 0) & np.isinf(before.request.start_s)
    runs = (before.node >= 0) & ~waits
    assert waits.any()
    assert runs.any()
    assert (after.node[runs] == before.node[runs]).all()
    assert (after.node[waits] == -1).all()
    twin = PlacementTwin(encoding, None, None, windows, None)  # type: ignore[arg-type]
    episodes = episodes_of(twin, TrainingConfig(episode_requests=24))
    assert not ((episodes.carried.node >= 0) & np.isinf(episodes.carried.request.start_s)).any()
    others = PlacementTwin(encoding, None, None, windows._replace(driven_out=None), None)  # type: ignore[arg-type]
    episodes = episodes_of(others, TrainingConfig(episode_requests=24))
    assert ((episodes.carried.node >= 0) & np.isinf(episodes.carried.request.start_s)).any()
