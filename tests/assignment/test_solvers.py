"""Solvers: optima by trial on tiny rounds, and bound <= optimum <= search <= insertion on any."""

import sys
import time

import numpy as np
import pytest
from hypothesis import example, given, settings

from logs_schema.errors import ConfigError
from offline_rl.assignment import local_search
from offline_rl.assignment.bounds import lower_bound_s
from offline_rl.assignment.capped import capped_insertions
from offline_rl.assignment.edge_bounds import edge_bound_s
from offline_rl.assignment.exact import exact
from offline_rl.assignment.insertion import insertion, largest_first
from offline_rl.assignment.local_search import LocalSearchConfig, improve, insertion_local_search
from offline_rl.assignment.rounding import lp_rounding
from offline_rl.assignment.search_state import SearchState
from offline_rl.assignment.simple import best_of_random, local, predicted
from offline_rl.assignment.terms import ended_s, held_by, terms_of
from tests.assignment.making import drawn, optimum_by_trial, plain_costs, small_costs
from twin.assignment.objective import completion_s, makespan_s

LPT = [[5.0], [5.0], [4.0], [4.0], [3.0], [3.0], [3.0]]
"""Three machines: largest first gives 11, the optimum is 9 (Graham, 1969)."""


def test_largest_first_on_identical_machines_is_grahams():
    costs = plain_costs(np.repeat(LPT, 3, axis=1))
    assert makespan_s(costs, insertion(costs)) == 11.0
    assert makespan_s(costs, insertion_local_search(costs)) == 9.0
    assert exact(costs).makespan_s == 9.0
    assert lower_bound_s(costs, 9.0) == pytest.approx(9.0, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(costs=small_costs())
@example(costs=plain_costs([[1.0]]))
@example(costs=plain_costs([[0.0, 0.0], [0.0, 0.0]]))
def test_bound_optimum_search_and_insertion_stand_in_order(costs):
    optimum_s = optimum_by_trial(costs)
    inserted = insertion(costs)
    inserted_s, searched_s = makespan_s(costs, inserted), makespan_s(costs, improve(costs, inserted))
    solved = exact(costs)
    bound_s = lower_bound_s(costs, inserted_s)
    assert bound_s <= edge_bound_s(costs, inserted_s, bound_s) <= optimum_s * (1 + 1e-8)
    assert solved.makespan_s == pytest.approx(optimum_s, rel=1e-3, abs=1e-6)
    assert solved.bound_s <= optimum_s * (1 + 1e-3) + 1e-6
    assert optimum_s * (1 - 1e-9) <= searched_s <= inserted_s
    assert optimum_s * (1 - 1e-9) <= makespan_s(costs, lp_rounding(costs)) <= inserted_s


@settings(max_examples=40, deadline=None)
@given(costs=small_costs())
def test_rules_send_nothing_where_it_is_not_hosted(costs):
    rng = np.random.default_rng(0)
    asked = np.full(len(costs.source), -1)
    for edge in (
        local(costs),
        predicted(costs, asked),
        best_of_random(rng, costs, 5),
        insertion(costs),
        insertion_local_search(costs, LocalSearchConfig(time_s=0.01, restarts=True), rng),
        exact(costs).edge,
    ):
        assert np.isfinite(costs.work_s[np.arange(len(edge)), edge]).all()


def test_simple_rules_by_hand():
    costs = plain_costs([[1.0, 2.0, 3.0], [np.inf, 2.0, 1.0], [3.0, 2.0, 1.0]], source=[1, 0, -1])
    # The second is not hosted where it came, the third came from outside
    assert local(costs).tolist() == [
        1,
        2,
        2,
    ]
    assert predicted(costs, np.array([2, 0, 1])).tolist() == [2, 2, 1]
    assert largest_first(plain_costs([[3.0, 1.0], [9.0, 2.0], [2.0, 2.0]])).tolist() == [1, 2, 0]


def test_more_random_samples_are_never_worse():
    costs = drawn(0, 4, 20).costs
    few, many = (
        makespan_s(costs, best_of_random(np.random.default_rng(0), costs, count)) for count in (10, 500)
    )
    assert many <= few


@settings(max_examples=30, deadline=None)
@given(costs=small_costs())
def test_the_books_know_what_every_move_and_swap_makes(costs):
    state = SearchState(costs, insertion(costs))
    requests, num_edges = np.arange(len(state.edge)), len(costs.local_s)
    state.send((0, int(np.flatnonzero(np.isfinite(costs.work_s[0]))[-1])))
    assert state.end_s == pytest.approx(completion_s(costs, state.edge))
    inserted, exchanged = state.inserted_end_s(requests), state.exchanged_end_s(requests, requests)
    for request in requests:
        for edge in range(num_edges):
            moved = np.where(requests == request, edge, state.edge)
            if edge != state.edge[request]:
                assert inserted[request, edge] == pytest.approx(completion_s(costs, moved)[edge])
        for other in requests[state.edge != state.edge[request]]:
            swapped = state.edge.copy()
            swapped[[request, other]] = swapped[[other, request]]
            there = state.edge[other]
            assert exchanged[request, other] == pytest.approx(completion_s(costs, swapped)[there])


def test_a_chain_is_found_where_no_move_or_swap_helps():
    work_s = [[3.0, 1.0, 9.0], [9.0, 2.0, 1.0], [9.0, 9.0, 1.0]]
    costs = plain_costs(work_s)
    assert makespan_s(costs, np.array([0, 1, 2])) == 3.0
    assert improve(costs, np.array([0, 1, 2])).tolist() in ([1, 2, 2], [1, 1, 2], [1, 2, 2])
    assert makespan_s(costs, improve(costs, np.array([0, 1, 2]))) == optimum_by_trial(costs)


def test_a_descent_ends_in_single_precision_too():
    costs = drawn(7, 2, 20).costs
    single = type(costs)(*(leaf if leaf is costs.source else leaf.astype(np.float32) for leaf in costs))
    search = LocalSearchConfig(time_s=120.0, restarts=True, max_restarts=20)
    begun_s = time.monotonic()
    improve(single, np.zeros(20, int), search, np.random.default_rng(0))
    assert time.monotonic() - begun_s < 60.0


def test_a_search_keeps_to_its_time_and_never_makes_worse():
    costs = drawn(1, 5, 100).costs
    start = local(costs)
    stopped = improve(costs, start, LocalSearchConfig(time_s=0.0))
    assert stopped.tolist() == start.tolist()
    once = makespan_s(costs, insertion_local_search(costs))
    more = insertion_local_search(
        costs, LocalSearchConfig(time_s=0.1, restarts=True), np.random.default_rng(0)
    )
    assert makespan_s(costs, more) <= once


@pytest.mark.parametrize("seed", range(3))
def test_on_the_papers_scale_the_search_is_near_the_optimum(seed):
    costs = drawn(seed, 5, 50).costs
    solved = exact(costs, 5.0)
    searched_s = makespan_s(costs, insertion_local_search(costs))
    bound_s = lower_bound_s(costs, searched_s)
    assert bound_s <= solved.makespan_s * (1 + 1e-9) <= searched_s * (1 + 1e-9)
    assert searched_s <= 1.1 * bound_s


def test_a_few_rounds_show_that_all_work_takes_all_edges():
    """Related machines: nothing ends before all work over all speeds."""
    costs = drawn(0, 50, 750, backlogs=(0, 0)).costs
    speeds = costs.work_s[0, 0] / costs.work_s[0]
    shared_s = costs.work_s[:, 0].sum() / speeds.sum()
    found_s = float(makespan_s(costs, insertion(costs)))
    assert lower_bound_s(costs, found_s, num_rounds=3) >= 0.998 * shared_s


def test_the_bound_by_edges_knows_ways_back():
    ways = np.full((4, 2), 3.0)
    costs = plain_costs(np.ones((4, 2)), result_s=ways)  # two requests each, and one way back: 5 s
    assert lower_bound_s(costs, 5.0) <= 4.0 + 1e-6
    assert edge_bound_s(costs, 5.0, 4.0) == pytest.approx(5.0, rel=0.01)


@settings(max_examples=30, deadline=None)
@given(costs=small_costs())
def test_many_insertions_and_variants_are_assignments_and_repeat(costs):
    search = LocalSearchConfig(restarts=True, max_restarts=4)
    found, again = (improve(costs, insertion(costs), search, np.random.default_rng(3)) for _ in range(2))
    assert found.tolist() == again.tolist()
    assert np.isfinite(costs.work_s[np.arange(len(found)), found]).all()
    assert (
        optimum_by_trial(costs) * (1 - 1e-9)
        <= makespan_s(costs, found)
        <= makespan_s(costs, insertion(costs))
    )
    terms, nowhere = terms_of(costs), np.full(len(found), len(costs.local_s))
    assert ended_s(held_by(terms, found[None]))[0] == pytest.approx(completion_s(costs, found))
    assert held_by(terms, nowhere[None])[0] == pytest.approx(terms.base)


@settings(max_examples=60, deadline=None)
@given(costs=small_costs())
@example(costs=plain_costs([[0.0, 0.0], [0.0, 0.0]]))
def test_insertions_under_a_cap_lie_between_optimum_and_start_and_repeat(costs):
    start = local(costs)
    found = capped_insertions(costs, start)
    assert found.tolist() == capped_insertions(costs, start).tolist()
    assert optimum_by_trial(costs) * (1 - 1e-9) <= makespan_s(costs, found) <= makespan_s(costs, start)
    assert capped_insertions(costs, start, until_s=time.monotonic()).tolist() == start.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_without_backlogs_a_search_too_short_for_its_books_still_gains(seed, monkeypatch):
    costs = drawn(seed, 50, 750, backlogs=(0, 0)).costs
    monkeypatch.setattr(local_search, "_S_PER_PAIR", np.inf)
    inserted = insertion(costs)
    found = improve(costs, inserted, LocalSearchConfig(restarts=True), np.random.default_rng(0))
    assert makespan_s(costs, found) <= 0.97 * makespan_s(costs, inserted)


def test_without_scipy_the_exact_solver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ConfigError, match=r"(?s)SciPy.*train"):
        exact(drawn().costs)
