"""In which order nodes start what waits: read off a log, in the books, and what a placement does to the others."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.problems.placement.dependences import dependences_of
from tests.twin.made import made_cluster, made_encoding
from tests.twin.test_against_loop import log_agrees_with_the_loop
from twin.placement.availability import PendingFates, time_to_availability_s
from twin.placement.bookkeeping import empty_table
from twin.placement.disciplines import ARRIVAL, DEADLINE, LATEST, SHORTEST, Disciplines, fit_disciplines
from twin.placement.encoding import Encoding
from twin.placement.learned import held_up
from twin.placement.outcome_model import DrawnAnswers
from twin.placement.priorities import QueuedRuns
from twin.placement.ranks import rank_in_hand
from twin.placement.replanning import moved_fates, overtaken
from twin.placement.types import Cluster, PlacementState, Requests

CORES = 4


class Log:
    """Requests of one core on a node of `CORES`; leaves [rows]."""

    def __init__(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        self.arrival_s = np.cumsum(rng.exponential(2.0, count))
        self.run_s = rng.lognormal(1.6, 0.9, count)
        self.expected_s = self.run_s * rng.lognormal(0.0, 0.2, count)
        self.deadline_s = rng.uniform(5.0, 80.0, count)
        self.chance = rng.random(count)

    def keys(self, order: int) -> np.ndarray:
        """Whose is lowest begins first."""
        deadline_s = self.arrival_s + self.deadline_s
        return np.stack([self.arrival_s, self.expected_s, deadline_s, -self.arrival_s, self.chance])[order]

    def starts_s(self, order: int) -> np.ndarray:
        """When each begins where nodes go by an order."""
        key, count = self.keys(order), len(self.run_s)
        start_s, free_s, waiting, row = np.full(count, np.inf), [0.0] * CORES, list[int](), 0
        while row < count or waiting:
            core = int(np.argmin(free_s))
            if row < count and (not waiting or self.arrival_s[row] <= free_s[core]):
                waiting.append(row)
                row += 1
                if self.arrival_s[row - 1] < free_s[core] or len(waiting) > 1:
                    continue
            first = min(waiting, key=lambda one: key[one])
            waiting.remove(first)
            start_s[first] = max(free_s[core], self.arrival_s[first])
            free_s[core] = start_s[first] + self.run_s[first]
        return start_s


def found_in(log: Log, order: int) -> tuple[Disciplines | None, int]:
    start_s, zero = log.starts_s(order), np.zeros(len(log.run_s), int)
    held = QueuedRuns(
        zero, zero, log.arrival_s, start_s, start_s + log.run_s, np.ones(len(zero)), zero
    )  # fmt: skip
    return fit_disciplines(held, np.ones((1, len(zero))), log.expected_s, log.deadline_s, 2)


@pytest.mark.parametrize("order", [SHORTEST, DEADLINE, LATEST])
def test_orders_are_read_off_who_starts_first(order: int) -> None:
    assert found_in(Log(1, 1500), order) == (Disciplines((order, ARRIVAL)), 0)


@pytest.mark.parametrize(("order", "unordered"), [(ARRIVAL, 0), pytest.param(4, 1, id="chance")])
def test_there_is_no_order_but_that_of_arrival_nor_in_chance(order: int, unordered: int) -> None:
    assert found_in(Log(1, 1500), order) == (None, unordered)


def ordered_cluster(order: int) -> Cluster:
    """The made cluster, whose first node starts requests in an order; it has `CORES`."""
    cluster = made_cluster()
    assert cluster.capacity[0, 0] == CORES
    return replace(cluster, disciplines=Disciplines((order, ARRIVAL, ARRIVAL, ARRIVAL)))


@pytest.mark.slow
@pytest.mark.parametrize("order", [SHORTEST, LATEST])
def test_the_array_code_agrees_with_the_loop(order: int) -> None:
    windows = log_agrees_with_the_loop(made_encoding(ordered_cluster(order), reward="response"))
    assert np.any(windows.driven_out)


def replanner(cluster: Cluster, depth: int) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """One placement on the first node: drawn to begin at once, it waits until there is room, and others wait for it."""
    node = jnp.zeros((1, 1), jnp.int32)

    def place(state: PlacementState, row: jax.Array, run_s: jax.Array) -> tuple[jax.Array, jax.Array]:
        table = state.in_flight
        no = jnp.zeros((1, 1), bool)
        pending = PendingFates(time_to_availability_s(cluster, state, node), *(no for _ in range(4)))
        drawn = DrawnAnswers(~no, no, no, jnp.zeros((1, 1)), run_s.reshape(1, 1))
        begin_s = state.clock_s + held_up(cluster, drawn, pending, node).wait_s[0]
        start_s = table.start_s.at[0, row].set(begin_s)
        finish_s = table.finish_s.at[0, row].set(begin_s + run_s)
        return moved_fates(cluster, state, node, row.reshape(1, 1), start_s, finish_s)

    return jax.jit(place)


@pytest.mark.parametrize("order", [SHORTEST, DEADLINE, LATEST])
def test_fates_are_those_of_the_loop(order: int) -> None:
    log, cluster, depth = Log(order, 60), ordered_cluster(order), 60
    place, ranked = replanner(cluster, depth), jnp.zeros((1, 1), jnp.int32)
    table = empty_table(cluster.num_nodes, depth, (1,), np.float32)
    zero = np.zeros((1, 1), np.int32)
    demand = np.array([1.0, 0.5, 0.0], np.float32) * np.array([1.0, 0.1, 0.0], np.float32)
    for row in range(depth):
        request = Requests(*(zero for _ in Requests._fields[:-3]))._replace(
            demand=demand[:, None, None],
            expected_run_s=np.full((1, 1), log.expected_s[row], np.float32),
            deadline_s=np.full((1, 1), log.deadline_s[row], np.float32),
        )
        clock_s = jnp.array([log.arrival_s[row]], jnp.float32)
        state = PlacementState(clock_s, request, zero, zero, table, zero, zero, zero)  # type: ignore[arg-type]
        start_s, finish_s = place(state, jnp.int32(row), jnp.float32(log.run_s[row]))
        table = table._replace(
            decision=table.decision.at[0, row].set(row),
            arrival_s=table.arrival_s.at[0, row].set(clock_s),
            start_s=start_s,
            finish_s=finish_s,
            rank=table.rank.at[0, row].set(rank_in_hand(cluster, state, ranked, jnp)[0]),
            demand=table.demand.at[:, 0, row, 0].set(demand),
        )
    wanted_s = log.starts_s(order)
    assert np.sum(wanted_s > log.arrival_s) > depth // 3
    np.testing.assert_allclose(table.start_s[0, :, 0], wanted_s, rtol=1e-3, atol=0.02)
    np.testing.assert_allclose(table.finish_s[0, :, 0], wanted_s + log.run_s, rtol=1e-3, atol=0.02)


def test_who_was_overtaken() -> None:
    request = Requests(*(np.zeros(4) for _ in Requests._fields))
    request = request._replace(expected_run_s=np.array([9.0, 5.0, 2.0, 1.0]))
    node, arrival_s = np.array([0, 0, 0, 1]), np.array([0.0, 5.0, 6.0, 6.5])
    start_s = np.array([7.0, 5.5, np.inf, 9.0])
    shortest = Disciplines((SHORTEST, ARRIVAL))
    assert overtaken(shortest, request, node, arrival_s, start_s).tolist() == [True, False, False, False]


def test_an_encoding_keeps_them_says_so_and_says_nothing_without_them() -> None:
    encoding = made_encoding(ordered_cluster(DEADLINE))
    assert Encoding.from_json(encoding.to_json()).cluster.disciplines == encoding.cluster.disciplines
    assert any("earliest deadline first on 1 node" in one for one in dependences_of(encoding.cluster))
    unordered = replace(encoding.cluster, unordered=2)
    assert any("2 nodes that mostly start others before" in one for one in dependences_of(unordered))
    plain = made_encoding(made_cluster()).to_json()
    assert not [name for name in ("disciplines", "unordered") if name in plain]
