"""Stations against closed forms, and a network of them against an independent event loop."""

from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.applications import fluid, graph, stations
from evaluation.simulator.applications.application import Application, Microservice, ServiceCall, UserType
from evaluation.simulator.applications.presets import APPLICATIONS, application
from tests.reference.application_loop import Loop
from twin.autoscaling.types import Grants, quantile_s


def erlang_number(rho, servers):
    """Mean number in M/M/c, by Erlang's C."""
    load = rho * servers
    last = load**servers / factorial(servers) / (1.0 - rho)
    wait = last / (sum(load**n / factorial(n) for n in range(servers)) + last)
    return load + wait * rho / (1.0 - rho)


@pytest.mark.parametrize("servers", [1, 2, 3, 4])
def test_the_number_in_a_replica_is_that_of_mmc(servers):
    rho = np.array([0.05, 0.3, 0.7, 0.95])
    found = stations.stationary_number(jnp.asarray(rho), jnp.full(4, float(servers)))
    np.testing.assert_allclose(found, [erlang_number(one, servers) for one in rho], rtol=2e-4)


def test_a_replica_of_half_a_core_is_a_slow_single_server():
    rho = jnp.asarray([0.2, 0.6, 0.9])
    np.testing.assert_allclose(stations.stationary_number(rho, jnp.full(3, 0.5)), rho / (1 - rho), rtol=1e-5)


def test_a_station_settles_at_its_stationary_number_and_obeys_littles_law():
    number, rate, cores = jnp.zeros(3), jnp.asarray([50.0, 50.0, 90.0]), jnp.asarray([1.0, 1.0, 1.5])
    arriving = jnp.asarray([20.0, 45.0, 60.0])
    step = jax.jit(lambda number: stations.pass_time(number, arriving, rate, cores, jnp.full(3, 100.0), 5.0))
    for _ in range(60):
        passed = step(number)
        number = passed.number
    np.testing.assert_allclose(passed.done_per_s, arriving, rtol=1e-3)
    np.testing.assert_allclose(number, stations.stationary_number(arriving / rate, cores), rtol=2e-2)
    mean_s, variance = stations.sojourn(
        number, passed.done_per_s, cores / rate / jnp.minimum(cores, 1.0), jnp.full(3, 100.0)
    )
    np.testing.assert_allclose(mean_s * passed.done_per_s, number, rtol=1e-3)
    rho = 0.9  # M/M/1 with processor sharing: W = 1 / (mu - lambda), variance W^2 (2 + rho) / (2 - rho)
    np.testing.assert_allclose(mean_s[1], 0.2, rtol=2e-2)
    np.testing.assert_allclose(variance[1], 0.04 * (2 + rho) / (2 - rho), rtol=5e-2)


def test_no_call_is_lost_or_made_in_an_overload():
    number, arriving, rate = jnp.asarray([3.0]), jnp.asarray([80.0]), jnp.asarray([50.0])
    passed = stations.pass_time(number, arriving, rate, jnp.asarray([1.0]), jnp.asarray([60.0]), 5.0)
    came = 3.0 + 5.0 * 80.0
    went = passed.number + 5.0 * (passed.done_per_s + passed.refused_per_s)
    np.testing.assert_allclose(went, came, rtol=1e-5)
    assert float(passed.number[0]) == pytest.approx(60.0)
    assert float(passed.done_per_s[0]) <= 50.0


def test_presets_have_the_services_they_promise():
    assert {one.name: len(one.services) for one in APPLICATIONS} == {
        "chain": 5,
        "boutique": 11,
        "trainticket": 40,
    }
    for one in APPLICATIONS:
        assert np.all(graph.visits(one).sum(axis=0) > 0.0)
        assert sum(user.share for user in one.users) == pytest.approx(1.0)


def test_flows_follow_the_call_graph_and_stop_where_a_service_is_off():
    boutique = application("boutique")
    nodes, number = graph.nodes_of(boutique), len(boutique.services)
    arrivals = graph.flows(nodes, number)
    rates = jnp.asarray([40.0, 30.0, 20.0, 10.0])
    ones = jnp.ones(number)
    np.testing.assert_allclose(arrivals(rates, ones, ones), rates @ graph.visits(boutique), rtol=1e-5)
    off = ones.at[boutique.deployments.index("recommendation")].set(0.0)
    without = arrivals(rates, ones, off)
    assert float(without[boutique.deployments.index("recommendation")]) == 0.0
    assert float(without[boutique.deployments.index("catalog")]) < float(arrivals(rates, ones, ones)[1])


def test_parallel_calls_take_as_long_as_the_longest():
    """The larger of two equal exponential times has mean 1.5 of one; normal variables come close."""
    services = (Microservice("a", 0.01), Microservice("b", 0.01), Microservice("c", 0.01))
    one = Application(
        "fan",
        services,
        (
            UserType(
                "u", 1.0, ServiceCall("a", (ServiceCall("b", parallel=True), ServiceCall("c", parallel=True)))
            ),
        ),
        10.0,
    )
    ones = jnp.ones(3)
    mean, _ = graph.end_to_end(one, one.users[0].root, 0.01 * ones, 1e-4 * ones, ones)
    assert float(mean) == pytest.approx(0.01 + 0.015, rel=0.06)


def play_fluid(app, replicas, cores, rates, interval_s):
    """Gateway and deployments of intervals with rates [intervals, users]."""
    grants = Grants(jnp.asarray(cores), jnp.full(len(cores), 2.0), jnp.asarray(replicas))
    play = jax.jit(fluid.interval(app, interval_s))
    _, dt_s = fluid.steps_of(interval_s)
    running, seen = fluid.at_rest(app, grants, dt_s), []
    for asked in rates:
        running, news = play(running, grants, jnp.asarray(asked), jnp.ones(len(cores)))
        seen.append(news)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *seen)


@pytest.fixture(scope="module")
def in_a_loop():
    """The chain at a steady load, then overloaded for a minute, in the event loop."""
    chain = application("chain")
    replicas = {"edge": 2, "web": 3, "logic": 1, "cache": 1, "storage": 2}
    cores = dict.fromkeys(replicas, 0.5)
    return (
        chain,
        replicas,
        cores,
        Loop(
            chain, replicas, cores, lambda now_s: 240.0 if 240.0 <= now_s < 300.0 else 100.0, 240.0, seed=3
        ).run(390.0),
    )


@pytest.mark.slow
def test_the_fluid_form_agrees_with_the_event_loop_at_a_steady_load(in_a_loop):
    chain, replicas, cores, loop = in_a_loop
    shares = np.array([user.share for user in chain.users])
    names = chain.deployments
    counts = np.array([float(replicas[name]) for name in names])
    seen = play_fluid(chain, counts, np.array([cores[name] for name in names]), [100.0 * shares] * 8, 30.0)
    for index, name in enumerate(names):
        calls = [spent for began, spent in loop.calls[name] if 30.0 <= began < 240.0]
        assert seen.measured.response_s[-1, index] == pytest.approx(np.mean(calls), rel=0.06), name
        assert seen.measured.rate_per_s[-1, index] == pytest.approx(len(calls) / 210.0, rel=0.03), name
    response_s = [spent for began, spent, _ in loop.requests if 30.0 <= began < 240.0]
    assert seen.gateway.response_s[-1] == pytest.approx(np.mean(response_s), rel=0.05)
    for share in (0.5, 0.95, 0.99):
        found = float(quantile_s(jnp.asarray(seen.gateway.latency[-1]), share))
        assert found == pytest.approx(np.quantile(response_s, share), rel=0.1), share


@pytest.mark.slow
def test_an_overload_queues_and_drains_as_in_the_event_loop(in_a_loop):
    chain, replicas, cores, loop = in_a_loop
    shares = np.array([user.share for user in chain.users])
    rates = [100.0 * shares] * 8 + [240.0 * shares] * 2 + [100.0 * shares] * 3
    counts = np.array([float(replicas[name]) for name in chain.deployments])
    seen = play_fluid(chain, counts, np.array([cores[name] for name in chain.deployments]), rates, 30.0)
    lost, failed = 0, 0.0
    for index in range(8, 13):
        inside = [one for one in loop.requests if 30.0 * index <= one[0] < 30.0 * (index + 1)]
        refused = sum(was_refused or spent > chain.timeout_s for _, spent, was_refused in inside)
        assert seen.gateway.num_failures[index] == pytest.approx(refused, abs=0.1 * len(inside)), index
        lost, failed = lost + refused, failed + seen.gateway.num_failures[index]
    asked = 30.0 * sum(rates[index].sum() for index in range(8, 13))
    assert failed / asked == pytest.approx(lost / asked, abs=0.03)
    used = seen.measured.cpu_cores_used[9] / 0.5
    assert used.max() > 0.97
