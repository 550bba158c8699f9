"""Firmament's flow against all assignments and against the flow's own linear programme; GSP-SS by hand and by count."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from evaluation.baselines import FIRMAMENT, GSP_SS
from evaluation.baselines.firmament import WAITING, slot_costs, solve_flow
from evaluation.baselines.gsp_ss import rates, shadow_schedule, solve
from evaluation.simulator.conditions import conditions, world_draw
from evaluation.simulator.names import names_in
from evaluation.simulator.presets import preset
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import validate
from tests.evaluation.test_baselines import NAMES, cluster, often_chosen, seen_as
from twin.placement.types import Observation

SMALL = preset("small")


def seen_by_seats(num_nodes, num_seats, **features):
    """An observation of [nodes, seats] features by name, 0 where not named; no streams."""
    node = np.zeros((len(NAMES), num_nodes, num_seats), np.float32)
    for name, values in features.items():
        node[NAMES.index(name)] = values
    return Observation(jnp.asarray(node), jnp.zeros((1, num_seats)))


def slots_cost_of(nodes, slot_cost):
    """What a choice of nodes costs: newcomers at a node fill its slots from the cheapest."""
    counts = np.bincount(nodes, minlength=len(slot_cost))
    return sum(slot_cost[node, :count].sum() for node, count in enumerate(counts))


def least_flow_cost(slot_cost, legal):
    """The minimum-cost maximum flow as a linear programme over the arcs of the network."""
    num_nodes, num_slots = slot_cost.shape
    num_seats = legal.shape[1]
    task_arcs = [(node, seat) for node in range(num_nodes) for seat in range(num_seats) if legal[node, seat]]
    num_arcs = len(task_arcs) + num_nodes * num_slots
    balance, supply = np.zeros((num_seats + num_nodes, num_arcs)), np.zeros(num_seats + num_nodes)
    supply[:num_seats] = 1.0
    for arc, (node, seat) in enumerate(task_arcs):
        balance[seat, arc] = 1.0
        balance[num_seats + node, arc] = -1.0
    for node in range(num_nodes):
        first = len(task_arcs) + node * num_slots
        balance[num_seats + node, first : first + num_slots] = 1.0
    cost = np.concatenate([np.zeros(len(task_arcs)), slot_cost.ravel()])
    return linprog(cost, A_eq=balance, b_eq=supply, bounds=(0.0, 1.0)).fun


def random_case(random, num_nodes, num_seats):
    start, rise = random.integers(0, 5, num_nodes), random.integers(1, 4, (num_nodes, num_seats))
    slot_cost = (start[:, None] + np.cumsum(rise, axis=1)).astype(float)
    slot_cost += np.where(slot_cost > random.integers(4, 9, num_nodes)[:, None], WAITING, 0.0)
    legal = random.random((num_nodes, num_seats)) < 0.6
    legal[random.integers(0, num_nodes, num_seats), np.arange(num_seats)] = True
    return slot_cost, legal


@pytest.mark.parametrize("seed", range(12))
def test_the_flow_is_the_cheapest_of_all_legal_assignments(seed):
    slot_cost, legal = random_case(np.random.default_rng(seed), 4, 4)
    found = solve_flow(slot_cost, legal, np.zeros(legal.shape))
    assert legal[found, np.arange(4)].all()
    choices = [np.flatnonzero(legal[:, seat]) for seat in range(4)]
    best = min(slots_cost_of(nodes, slot_cost) for nodes in itertools.product(*choices))
    assert slots_cost_of(found, slot_cost) == pytest.approx(best)


def test_the_assignment_costs_what_the_maximum_flow_costs():
    random = np.random.default_rng(99)
    for _ in range(5):
        slot_cost, legal = random_case(random, 7, 10)
        found = solve_flow(slot_cost, legal, np.zeros(legal.shape))
        assert slots_cost_of(found, slot_cost) == pytest.approx(least_flow_cost(slot_cost, legal))


def test_a_request_without_a_legal_node_takes_nothing_from_the_others():
    legal = np.array([[False, True], [False, True]])
    for cheap, dear in ((0, 1), (1, 0)):
        slot_cost = np.zeros((2, 2))
        slot_cost[cheap], slot_cost[dear] = [1.0, 9.0], [1.5, 9.5]
        assert solve_flow(slot_cost, legal, np.zeros((2, 2))).tolist() == [0, cheap]


def test_one_request_takes_the_fewest_requests_where_there_is_room():
    """Node 0 has the most room but three requests, node 1 two, node 2 none but no room, node 3 one."""
    seen = seen_as(
        free_cpu_cores=[0.9, 0.5, 0.0, 0.25],
        num_running=np.log1p([3.0, 2.0, 0.0, 1.0]),
        needed_share=[0.25] * 4,
    )
    assert often_chosen(FIRMAMENT, seen) == {3}
    assert often_chosen(FIRMAMENT, seen, [True, True, True, False]) == {1}
    assert often_chosen(FIRMAMENT, seen, [False, False, True, False]) == {2}


def test_slots_cost_their_load_and_waiting_comes_last():
    """Two seats, one node with two requests and room for one more of a quarter: 2, then WAITING + 3 / 4."""
    seen = seen_by_seats(
        1, 2, free_cpu_cores=0.3, num_running=np.log1p(2.0), needed_share=0.25, same_site=[[1.0, 0.0]]
    )
    np.testing.assert_allclose(slot_costs(seen)[0], [2.0, WAITING + 0.75], rtol=1e-6)


def test_several_seats_spread_and_the_scheduler_knows_what_each_site_knows():
    """Each seat sees its own node rightly and the other as free: together they know both nodes' load."""
    own = np.eye(2)
    seen = seen_by_seats(
        2,
        2,
        same_site=own,
        free_cpu_cores=1.0,
        needed_share=0.1,
        num_running=np.where(own > 0, np.log1p([[1.0], [9.0]]), 0.0),
    )
    np.testing.assert_allclose(slot_costs(seen), [[1.0, 2.0], [9.0, 10.0]], rtol=1e-6)
    policy = jax.jit(FIRMAMENT.policy(cluster()))
    assert policy(jax.random.key(0), seen, jnp.ones((2, 2), bool)).tolist() == [0, 0]
    alike = seen_by_seats(2, 2, same_site=own, free_cpu_cores=1.0, needed_share=0.1)
    keys = jax.random.split(jax.random.key(1), 20)
    chosen = {tuple(policy(key, alike, jnp.ones((2, 2), bool)).tolist()) for key in keys}
    assert chosen == {(0, 1), (1, 0)}


def test_shadow_schedule_by_hand():
    """Two nodes of one core, run times 1 s and 1/3 s: equally busy at shares 1/4 and 3/4."""
    run_s, cores, anywhere = np.array([[1.0, 1 / 3]]), np.ones(2), np.full((1, 1, 2), 0.5)
    np.testing.assert_allclose(
        solve(np.array([[0.4]]), run_s, cores, anywhere)[0, 0], [0.25, 0.75], atol=1e-6
    )
    overloaded = solve(np.array([[8.0]]), run_s, cores, anywhere)[0, 0]
    np.testing.assert_allclose(overloaded, [1 / 8, 3 / 8], atol=1e-6)
    only_second = solve(np.array([[0.4]]), run_s, cores, np.array([[[1.01, 1.0]]]))
    np.testing.assert_allclose(only_second[0, 0], [0.0, 1.0], atol=1e-6)
    assert not solve(np.array([[0.4]]), run_s, cores, np.full((1, 1, 2), np.inf)).any()


def test_the_picky_service_gets_the_node_that_only_it_needs():
    """Two alike nodes; service 0 is useful on node 0 alone and fills it, so service 1 leaves it."""
    time_ratio = np.array([[[0.9, 2.0], [0.1, 0.9]]])
    share = solve(np.array([[0.6, 0.6]]), np.ones((2, 2)), np.ones(2), time_ratio)[0]
    np.testing.assert_allclose(share, [[1.0, 0.0], [0.0, 1.0]], atol=1e-6)


def test_of_equally_even_schedules_the_quickest():
    """Two sites of one node each, alike: every request stays at home."""
    time_ratio = np.array([[[0.2, 0.3]], [[0.3, 0.2]]])
    share = solve(np.array([[0.5], [0.5]]), np.ones((1, 2)), np.ones(2), time_ratio)
    np.testing.assert_allclose(share[:, 0], np.eye(2), atol=1e-6)


def test_rates_are_those_of_the_worlds_own_law():
    today, population = conditions(SMALL, 0.0), world_draw(SMALL)
    rate = np.zeros((len(SMALL.sites), len(SMALL.services)))
    agent_share = np.diff(today.agent_cumulative, prepend=0.0)
    mix = np.diff(today.service_cumulative, axis=0, prepend=0.0)
    for agent, share in enumerate(agent_share):
        rate[today.agent_site[agent]] += share * mix[:, today.agent_scenario[agent]]
    np.testing.assert_allclose(rates(SMALL, population), rate * today.rate_per_s, rtol=1e-4, atol=1e-9)


def test_a_schedule_keeps_to_capacity_and_to_the_rules_of_hosting():
    world = validate(
        replace(SMALL, services=(replace(SMALL.services[0], never_on=("north-1",)), *SMALL.services[1:]))
    )
    schedule, today = shadow_schedule(world), conditions(world, 0.0)
    np.testing.assert_allclose(schedule.sum(axis=2), 1.0, rtol=1e-6)
    assert (schedule[:, 0, 0] == 0.0).all()
    rate = rates(world, world_draw(world))
    busy = np.einsum("bs,bsn,sn->n", rate, schedule, today.work_s[:, None] / today.speed[None])
    assert (busy <= today.core_exists.sum(axis=0)).all()


def test_gsp_ss_decides_as_scheduled_in_the_clusters_own_order_of_nodes():
    encoded = cluster_of(SMALL)
    turned = replace(encoded, node_names=encoded.node_names[::-1])
    names, num = names_in(SMALL, turned), 20_000
    request = SimpleNamespace(
        site=jnp.full((1, num), names.site[1]), service=jnp.full((1, num), names.service[2])
    )
    state = SimpleNamespace(request=request)
    node = GSP_SS.decide(jax.random.key(3), SMALL, names, conditions(SMALL, 0.0), state)
    assert node.shape == (1, num)
    assert node.dtype == jnp.int32
    found = np.bincount(np.asarray(node)[0], minlength=5)[::-1] / num
    wanted = shadow_schedule(SMALL)[1, 2]
    assert (found[wanted == 0.0] == 0.0).all()
    assert np.abs(found - wanted).max() < 5.0 * np.sqrt(0.25 / num)
