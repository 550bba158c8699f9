"""Worlds that cannot be, worlds that change, and the workload in them."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import LOCAL, WAN, conditions, peak_load, world_draw
from evaluation.simulator.parts import at_even_load, at_peak_load, even_load
from evaluation.simulator.presets import PRESETS, preset
from evaluation.simulator.world import Drift, Link, Scenario, WorldNode, WorldService
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import refused_by_name, simulated

SMALL = preset("small")
FIRST = SMALL.nodes[0]


def with_node(**change):
    return {"nodes": (replace(FIRST, **change), *SMALL.nodes[1:])}


def with_service(**change):
    return {"services": (replace(SMALL.services[0], **change), *SMALL.services[1:])}


@pytest.mark.parametrize(
    ("change", "offender"),
    [
        (with_node(site="nowhere"), "north-1: unknown site 'nowhere'"),
        (with_node(tier="fog"), "north-1: unknown tier 'fog'"),
        (with_node(tier="cloud"), "north-1: tier 'cloud' at site 'north'"),
        (with_node(cpu_cores=0), "north-1: cpu_cores is 0"),
        (with_node(speed=-1.0), "north-1: speed is -1"),
        (with_node(speed=float("nan")), "north-1: speed is nan"),
        (with_node(memory_gib=0.1), "north-1: 0.1 GiB of memory"),
        (with_node(name="north-2"), "two nodes of the same name: north-2"),
        ({"sites": (*SMALL.sites, "west")}, "sites without a node: west"),
        ({"nodes": ()}, "no node"),
        (with_service(work_s=0.0), "service-00: work_s is 0"),
        (with_service(deadline_s=-1.0), "service-00: deadline_s is -1"),
        ({"scenarios": (Scenario("odd", accepts_cloud=1.5),)}, "odd: accepts_cloud is 1.5"),
        ({"wan": Link(latency_s=-0.1)}, "wan: latency_s is -0.1"),
        ({"local": Link(bandwidth_mib_per_s=0.0)}, "local: bandwidth_mib_per_s is 0"),
        ({"day_s": 100_000.0}, "day_s is 100000"),
        ({"num_agents": 1}, "num_agents is 1"),
        ({"drift": Drift(slowing=0.5, slowing_node="ghost")}, "no node is called 'ghost'"),
    ],
)
def test_impossible_worlds_are_refused_by_name(change, offender):
    refused_by_name(replace(SMALL, **change), offender)


@pytest.mark.parametrize(("find", "name"), [(preset, "edge"), (behaviour, "fewest_per_core")])
def test_unknown_names_are_refused_with_those_there_are(find, name):
    with pytest.raises(ConfigError) as refusal:
        find("ghost")
    assert name in refusal.value.allowed
    assert find(name).name == name


@pytest.mark.parametrize("world", PRESETS, ids=lambda world: world.name)
def test_presets_are_loaded_but_not_beyond_what_an_assignment_can_bear(world):
    load = peak_load if world.name == "small" else even_load
    assert 0.799 < load(world) <= 0.95
    assert load(world, 30.0) <= 0.95


def test_loads_of_one_service_on_two_nodes_are_work_over_capacity():
    nodes = (WorldNode("a", "here", "edge", 2, 1.0, 1.0), WorldNode("b", "here", "edge", 1, 1.0, 3.0))
    world = replace(
        SMALL, sites=("here",), cloud_site="", nodes=nodes, services=(WorldService("only", 10.0, 0.0, 0.1, 1.0),),
        drift=Drift(), affinity_spread=0.0, requests_per_day=8_640.0, day_s=86_400.0, daily_amplitude=0.5,
    )  # fmt: skip
    assert peak_load(world) == pytest.approx(0.1 * 1.5 * 10.0 / (2 * 1.0 + 1 * 3.0))
    assert even_load(world) == pytest.approx(peak_load(world))


def test_an_even_load_counts_affinities_as_nobody_would_choose_them():
    """Every node's speed is halved by its affinity but one's: the best assignment gains from it, an even one hardly."""
    world = replace(SMALL, affinity_spread=0.3)
    blind = replace(SMALL, affinity_spread=0.0)
    assert even_load(world) > even_load(blind) > 0.97 * peak_load(blind)
    assert peak_load(world) < 0.9 * even_load(world)


@pytest.mark.parametrize("nothing", [{"work_s": 1e-320}, {"work_s": 5e-324, "share": 1e-300}])
def test_a_load_of_nothing_is_refused_not_divided_by(nothing):
    services = tuple(replace(service, **nothing) for service in SMALL.services)
    for at_load in (at_even_load, at_peak_load):
        with pytest.raises(ConfigError, match=r"no factor makes it 0\.5"):
            at_load(replace(SMALL, services=services), 0.5)


def test_drift_slows_its_node_and_turns_mix_and_affinities_and_nothing_else():
    before, after = conditions(SMALL, 0.0), conditions(SMALL, 30.0)
    slowed = [node.name == "north-2" for node in SMALL.nodes]
    np.testing.assert_allclose(after.speed / before.speed, np.where(slowed, 0.6, 1.0), rtol=1e-6)
    assert np.abs(after.service_cumulative - before.service_cumulative).max() > 0.02
    correlation = np.corrcoef(np.log(before.affinity).ravel(), np.log(after.affinity).ravel())[0, 1]
    assert 0.4 < correlation < 0.95
    same = ("work_s", "accepts", "agent_site", "link", "latency_s", "deadline_s", "rate_per_s")
    assert all(np.array_equal(getattr(before, name), getattr(after, name)) for name in same)


def test_without_drift_a_month_changes_nothing():
    still = replace(SMALL, drift=Drift())
    for before, after in zip(conditions(still, 0.0)[1:], conditions(still, 30.0)[1:], strict=True):
        np.testing.assert_array_equal(before, after)


def test_stubborn_agents_have_the_scenarios_mean_and_home_is_always_accepted():
    many = replace(SMALL, num_agents=30_000)
    population = world_draw(many)
    for index, scenario in enumerate(many.scenarios):
        accepts = population.accepts[WAN, population.scenario == index]
        assert accepts.mean() == pytest.approx(scenario.accepts_cloud, abs=0.015)
        assert np.all(population.accepts[LOCAL] == 1.0)
    assert population.accepts[WAN].std() > 0.3


@pytest.fixture(scope="module")
def random_days():
    return simulated(SMALL, "random", num_streams=16)


@pytest.mark.slow
def test_arrivals_follow_the_daily_cycle(random_days):
    edges = np.linspace(0.0, SMALL.day_s, 13)
    counts, _ = np.histogram(random_days.arrival_s[random_days.live], edges)
    turn = 2 * np.pi * edges / SMALL.day_s
    cumulative = edges / SMALL.day_s - SMALL.daily_amplitude * np.sin(turn) / (2 * np.pi)
    expected = 16 * SMALL.requests_per_day * np.diff(cumulative)
    assert np.sum((counts - expected) ** 2 / expected) < 32.9  # 0.1 % of chi-square with 12 degrees
    assert expected.max() > 1.8 * expected.min()


def test_offers_are_accepted_as_often_as_their_agents_would(random_days):
    today, live = conditions(SMALL, 0.0), random_days.live
    request = random_days.request
    agent, node = request.agent[live], random_days.node[live]
    probability = today.accepts[today.link[request.site[live], node], agent].astype(np.float64)
    surplus = random_days.fate.accepted[live] - probability
    assert abs(surplus.sum()) < 4 * np.sqrt(np.sum(probability * (1 - probability)))
    assert probability.min() < 0.1


def test_services_are_asked_for_as_the_scenarios_like_them(random_days):
    live, request = random_days.live, random_days.request
    mix = np.diff(conditions(SMALL, 0.0).service_cumulative, axis=0, prepend=0.0)
    for scenario in range(len(SMALL.scenarios)):
        asked = request.service[live & (request.scenario == scenario)]
        counts = np.bincount(asked, minlength=len(mix))
        expected = len(asked) * mix[:, scenario]
        assert np.sum((counts - expected) ** 2 / expected) < 20.5  # 0.1 % of chi-square with 5 degrees


@pytest.mark.slow
def test_propensities_are_those_of_the_choices_made():
    rows = simulated(SMALL, "mix", num_streams=4)
    propensity = rows.propensity[rows.live].astype(np.float64)
    assert np.all((propensity > 0.0) & (propensity <= 1.0))
    weights = 1.0 / propensity  # their mean is the number of nodes, whatever the policy, if they are right
    error = weights.std() / np.sqrt(len(weights))
    assert error < 0.1
    assert abs(weights.mean() - len(SMALL.nodes)) < 4 * error
