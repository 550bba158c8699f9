"""Nodes that share their cores among so many requests at most: read off logs, and in the fates of those that wait."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import gamma

from evaluation.problems.placement.dependences import dependences_of
from tests.twin.made import made_cluster, made_encoding
from tests.twin.test_availability import state_of
from twin.placement.availability import PendingFates, time_to_availability_s
from twin.placement.bookkeeping import empty_table
from twin.placement.encoding import Encoding
from twin.placement.features import observe
from twin.placement.learned import USUAL_RUN, cut_off, held_up
from twin.placement.outcome_model import DrawnAnswers
from twin.placement.pace import Pace
from twin.placement.paced_fates import moved_fates
from twin.placement.places import _of_product, fit_places
from twin.placement.priorities import QueuedRuns
from twin.placement.run_filter import NodeLevel
from twin.placement.types import Cluster, PlacementState, Requests, RunLevels

CORES, PRESSURE = 2.0, 0.1


def served(
    arrival_s: np.ndarray, work_s: np.ndarray, places: float, patience_s: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """[rows] starts and ends on a node with `CORES` and so many places, event by event: those that run share its cores
    and slow each other, those that wait are given up after their patience and then never start."""
    start_s, finish_s = np.full((2, len(work_s)), np.inf)
    left_s, running, waiting = work_s.copy(), list[int](), list[int]()
    clock_s, coming = 0.0, 0
    while coming < len(work_s) or running:
        slowdown = max(len(running) / CORES, 1.0) * (1.0 + PRESSURE * max(len(running) - 1, 0))
        end_s = clock_s + slowdown * min((left_s[one] for one in running), default=np.inf)
        leave_s = min((arrival_s[one] + patience_s for one in waiting), default=np.inf)
        next_s = min(arrival_s[coming] if coming < len(work_s) else np.inf, end_s, leave_s)
        for one in running:
            left_s[one] -= (next_s - clock_s) / slowdown
        clock_s = next_s
        if next_s == end_s:
            ended = min(running, key=left_s.__getitem__)
            running.remove(ended)
            finish_s[ended] = clock_s
        elif next_s == leave_s:
            finish_s[waiting.pop(0)] = clock_s
        else:
            waiting.append(coming)
            coming += 1
        while waiting and len(running) < places:
            running.append(waiting.pop(0))
            start_s[running[-1]] = clock_s
    return start_s, finish_s


def logged(
    places: tuple[float, ...], seed: int, back_s: float, gap_s: tuple[float, ...], count: int = 600
) -> tuple[QueuedRuns, np.ndarray]:
    """What nodes with so many places log, the ends when outputs are back; and what each request asks for."""
    rng, parts = np.random.default_rng(seed), []
    for node, (most, gap) in enumerate(zip(places, gap_s, strict=True)):
        arrival_s = np.cumsum(rng.exponential(gap, count))
        start_s, finish_s = served(arrival_s, rng.exponential(1.0, count), most)
        finish_s = finish_s + back_s * rng.uniform(0.5, 1.0, count)
        parts.append((np.full(count, node), arrival_s, start_s, finish_s))
    node, *times_s = (np.concatenate(each) for each in zip(*parts, strict=True))
    order, zero = np.argsort(times_s[0]), np.zeros(len(node), int)
    held = QueuedRuns(zero, node[order], *(leaf[order] for leaf in times_s), zero + 1.0, zero)
    return held, np.stack([zero + 1.0, rng.choice([0.25, 0.5], len(zero)), zero])


CAPACITY = np.array([[2.0, 2.0, 4.0], [6.0, 6.0, 12.0], [0.0, 0.0, 0.0]])
"""Of three nodes: cores, memory, no GPUs."""


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("back_s", [0.0, 0.02])
def test_places_are_read_off_a_log_that_seldom_meets_them(seed: int, back_s: float) -> None:
    """Two nodes of unlike load have three places; one with twice the memory is told to have six though never full."""
    held, demand = logged((3, 3, 6), seed, back_s, gap_s=(1.4, 1.7, 3.0))
    assert fit_places(held, demand, CAPACITY) == (3, 3, 6)


@pytest.mark.parametrize("seed", range(4))
def test_no_limit_is_found_where_there_is_none(seed: int) -> None:
    held, demand = logged((np.inf,) * 3, seed, 0.02, gap_s=(0.9, 1.4, 2.0))
    assert fit_places(held, demand, CAPACITY) == ()
    full, demand = logged((3, 3, 6), seed, 0.02, gap_s=(1.4, 1.7, 3.0))
    for number in (0, 20):
        few = QueuedRuns(*(leaf[:number] for leaf in full))
        assert fit_places(few, demand[:, :number], CAPACITY) == ()
    # All that wait lack memory: three requests of 2 GiB are all that there is room for
    demand[1] = 2.0
    assert fit_places(full, demand, CAPACITY) == ()


@pytest.mark.parametrize("number", [1, 2, 7, 300])
def test_chances_without_meaning_are_combined_as_a_gamma_distribution_has_it(number: int) -> None:
    for evidence in (0.5 * number, 1.5 * number, 2.0 * number + 20.0):
        np.testing.assert_allclose(
            _of_product(number, evidence), -gamma.logsf(evidence, number), rtol=1e-6, atol=1e-9
        )


def test_nodes_with_limits_of_their_own_have_these() -> None:
    """One has two places, one four, of the same size; the third shows no limit."""
    held, demand = logged((2, 4, np.inf), 0, 0.0, gap_s=(1.5, 1.2, 1.0), count=1200)
    assert fit_places(held, demand, np.array([[2.0] * 3, [6.0] * 3, [0.0] * 3])) == (2, 4, 0)


def limited_cluster(places: int) -> Cluster:
    plain = made_cluster()
    capacity = plain.capacity.copy()
    capacity[:2, 0] = CORES, 1_000.0
    pace = Pace(np.full(len(plain.services), PRESSURE), True)
    return replace(plain, capacity=capacity, pace=pace, drops_late=True, places=(places, 0, 0, 0))


@pytest.mark.parametrize("places", [1, 3])
def test_fates_are_those_of_the_loop(places: int) -> None:
    """Requests drawn to begin at once wait for a place, in order of arrival, or are given up at their deadline; who has
    begun shares the cores with others."""
    rng, count, patience_s = np.random.default_rng(places), 60, 3.0
    cluster, depth = limited_cluster(places), 60
    arrival_s, work_s = np.cumsum(rng.exponential(0.4, count)), rng.exponential(1.0, count)
    wanted_start_s, wanted_finish_s = served(arrival_s, work_s, places, patience_s)
    assert 5 < np.isinf(wanted_start_s).sum() < count - 20
    table, node = empty_table(cluster.num_nodes, depth, (1,)), jnp.zeros((1, 1), jnp.int32)
    move = jax.jit(lambda state, slots, *fates: moved_fates(cluster, state, node, slots, *fates))
    room = jax.jit(lambda state: time_to_availability_s(cluster, state, node))
    start_s, finish_s = np.full((2, cluster.num_nodes, depth, 1), np.inf, np.float32)
    zero, none = np.zeros((1, 1), np.int32), np.zeros((1, 1), bool)
    request = Requests(*(zero for _ in Requests._fields[:-3]))._replace(
        demand=np.array([1.0, 0.5, 0.0], np.float32)[:, None, None],
        deadline_s=np.full((1, 1), patience_s, np.float32),
    )
    for row in range(count):
        clock_s = jnp.array([arrival_s[row]], jnp.float32)
        fated = table._replace(start_s=jnp.asarray(start_s), finish_s=jnp.asarray(finish_s))
        state = PlacementState(clock_s, request, zero, zero, fated, zero, zero, zero)  # type: ignore[arg-type]
        pending = PendingFates(room(state), *(zero for _ in range(4)))
        drawn = DrawnAnswers(~none, none, none, zero + 0.0, np.full((1, 1), work_s[row], np.float32))
        drawn = cut_off(cluster, request, held_up(cluster, drawn, pending, node))
        assert bool(drawn.dropped[0, 0]) == np.isinf(wanted_start_s[row])
        begin_s = clock_s + drawn.wait_s[0]
        if drawn.dropped[0, 0]:
            finish_s[0, row] = begin_s
        else:
            start_s[0, row], finish_s[0, row] = begin_s, begin_s + drawn.run_s[0]
            slots = jnp.array([[row]], jnp.int32)
            state = state._replace(in_flight=table)
            start_s, finish_s = map(np.array, move(state, slots, jnp.asarray(start_s), jnp.asarray(finish_s)))
        table = table._replace(
            decision=table.decision.at[0, row].set(row),
            arrival_s=table.arrival_s.at[0, row].set(clock_s),
            demand=table.demand.at[:, 0, row, 0].set(request.demand[:, 0, 0]),
        )
    np.testing.assert_allclose(start_s[0, :, 0], wanted_start_s, rtol=1e-3, atol=0.01)
    np.testing.assert_allclose(finish_s[0, :, 0], wanted_finish_s, rtol=1e-3, atol=0.01)


@pytest.mark.slow
def test_answers_count_works_from_the_tables_and_policies_run_times_from_what_was_seen() -> None:
    """Runs on the first node have taken e times as long as by the tables."""
    cluster, state = limited_cluster(1), state_of(jax.tree.map(np.array, empty_table(4, 8, ())), 5.0)
    pair, node = np.zeros((len(cluster.services), 4)), np.zeros((2, 4))
    level = NodeLevel(node + np.array([[1.0, 0.0, 0.0, 0.0], [0.0] * 4]), node)
    levels, empty = RunLevels(pair, pair, level, np.zeros(())), np.zeros(4, np.float32)
    state = state._replace(
        levels=levels, recent_wait_s=empty, recent_starts=empty, available=np.ones(4, bool)
    )

    def usual_units(cluster: Cluster, *, for_answers: bool) -> np.ndarray:
        seen = observe(cluster, state, 1.0, in_full=True, for_answers=for_answers)
        return np.expm1(np.asarray(seen.node[USUAL_RUN, :, 0]))

    followed = usual_units(cluster, for_answers=False)
    queueing = replace(cluster, pace=Pace(np.zeros(len(cluster.services)), False), places=())
    np.testing.assert_allclose(usual_units(queueing, for_answers=True), followed)
    np.testing.assert_allclose(followed / usual_units(cluster, for_answers=True), [np.e, 1, 1, 1], rtol=1e-5)


def test_nodes_without_places_hold_nobody_up() -> None:
    cluster = replace(limited_cluster(1), places=())
    drawn = DrawnAnswers(*(np.zeros((1, 1)) for _ in DrawnAnswers._fields))
    pending, node = PendingFates(*(np.ones((1, 1)) for _ in range(5))), jnp.zeros((1, 1), jnp.int32)
    assert held_up(cluster, drawn, pending, node) is drawn
    assert held_up(limited_cluster(1), drawn, pending, node).wait_s == 1.0


def test_an_encoding_keeps_them_says_so_and_says_nothing_without_them() -> None:
    encoding = made_encoding(limited_cluster(3))
    assert Encoding.from_json(encoding.to_json()).cluster.places == (3, 0, 0, 0)
    assert any(
        "share their cores among so many requests at most: 3" in one
        for one in dependences_of(encoding.cluster)
    )
    plain = made_encoding(made_cluster())
    assert '"places"' not in plain.to_json()
    assert not any("share their cores among" in one for one in dependences_of(plain.cluster))
