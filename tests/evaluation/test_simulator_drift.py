"""What the days bring: weekends, a hot service, several slowing nodes; late requests that are dropped, and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.simulator.conditions import (
    conditions,
    longest_day,
    peak_load,
    requests_on,
    service_mix,
    world_draw,
)
from evaluation.simulator.laws import exponential
from evaluation.simulator.options import LinkFault, Outage, Reactions
from evaluation.simulator.presets import preset
from evaluation.simulator.world import Drift, validate
from tests.evaluation.worlds import interval, queue, refused_by_name, simulated
from twin.placement.types import DROPPED

SMALL = preset("small")


def with_service(index, **change):
    services = list(SMALL.services)
    services[index] = replace(services[index], **change)
    return tuple(services)


def test_weekends_change_the_rate_on_two_days_of_seven_and_nothing_else():
    world = replace(SMALL, weekend_factor=0.25, drift=Drift())
    rates = [float(conditions(world, day).rate_per_s) for day in range(14)]
    weekday = SMALL.requests_per_day / SMALL.day_s
    np.testing.assert_allclose(rates, ([weekday] * 5 + [0.25 * weekday] * 2) * 2, rtol=1e-6)
    for one, two in zip(conditions(world, 0.0)[1:], conditions(world, 5.0)[1:], strict=True):
        assert one is two is None or np.array_equal(one, two) or one.size == 1


def test_busier_weekends_are_simulated_to_their_end():
    world = validate(replace(SMALL, weekend_factor=2.0, drift=Drift()))
    saturday = requests_on(world, 5)
    assert saturday == 2.0 * world.requests_per_day
    assert longest_day(world) > saturday + 5.0 * saturday**0.5
    assert longest_day(replace(world, weekend_factor=0.5)) == longest_day(replace(world, weekend_factor=1.0))


def test_a_hot_service_jumps_to_its_share_and_the_others_keep_their_proportions():
    hot = SMALL.services[2].name
    drift = Drift(hot_service=hot, hot_from_day=3, hot_share=0.4)
    world = validate(replace(SMALL, drift=drift))
    population = world_draw(world)
    before, after = (service_mix(world, population, day / 30.0) for day in (2, 3))
    np.testing.assert_allclose(after[2], 0.4, rtol=1e-9)
    others = np.arange(len(world.services)) != 2
    np.testing.assert_allclose(
        after[others] / before[others], 0.6 / (1.0 - before[2])[None].repeat(5, 0), rtol=1e-9
    )
    np.testing.assert_allclose(after.sum(axis=0), 1.0)
    new = validate(replace(world, services=with_service(2, share=0.0)))
    assert np.all(service_mix(new, world_draw(new), 2 / 30.0)[2] == 0.0)
    np.testing.assert_allclose(service_mix(new, world_draw(new), 3 / 30.0)[2], 0.4)


def test_several_nodes_slow_down_together():
    drift = Drift(slowing=0.5, slowing_node=("north-1", "south-2"))
    world = validate(replace(SMALL, drift=drift))
    ratio = conditions(world, 15.0).speed / conditions(world, 0.0).speed
    slow = [node.name in drift.slowing_node for node in world.nodes]
    np.testing.assert_allclose(ratio, np.where(slow, 0.75, 1.0), rtol=1e-6)


def test_peak_load_keeps_to_the_rules():
    """One service bound to the node with a third of the speed makes that node the busiest."""
    world = queue(1, 0.3, exponential())
    nodes = (world.nodes[0], replace(world.nodes[0], name="other", speed=3.0))
    free = replace(world, nodes=nodes)
    bound = replace(free, services=(replace(world.services[0], only_on=("node",)),))
    assert peak_load(free) == pytest.approx(0.3 / 4.0)
    assert peak_load(bound) == pytest.approx(0.3)


@pytest.mark.slow
def test_impatient_requests_are_lost_as_often_as_barrer_says():
    """M/M/1 with patience tau until the start: P(lost) = p0 rho exp(-(mu - lambda) tau), p0 from normalisation.

    Source: D. Y. Barrer, Queuing with impatient customers and ordered service, 1957.
    """
    load, patience_runs = 0.9, 2.0
    world = queue(1, load, exponential(), requests_per_day=4_320.0)
    run_s = world.services[0].work_s
    service = replace(world.services[0], deadline_s=patience_runs * run_s)
    world = replace(world, services=(service,), drop_late=True)
    decay = np.exp(-(1.0 - load) * patience_runs)
    idle = 1.0 / (1.0 + load * (1.0 - decay) / (1.0 - load) + load * decay)
    rows = simulated(world, "random", num_streams=16)
    dropped = np.sum((rows.fate.status == DROPPED) & rows.live, axis=0) / rows.live.sum(axis=0)
    mean, error = interval(dropped)
    assert error < 0.01
    assert abs(mean - idle * load * decay) < 3.5 * error


@pytest.mark.parametrize(
    ("change", "offender"),
    [
        ({"services": with_service(0, only_on=("nowhere",))}, "no node, site or tier is called 'nowhere'"),
        (
            {"services": with_service(0, only_on=("cloud",), never_on=("cloud",))},
            "service-00: no node may host it",
        ),
        ({"services": with_service(0, never_on=("edge", "cloud"))}, "service-00: no node may host it"),
        ({"services": with_service(0, output_mib=-1.0)}, "service-00: output_mib is -1"),
        ({"services": with_service(0, share=0.0)}, "service-00: share is 0"),
        (
            {"nodes": (replace(SMALL.nodes[0], discipline="lifo"), *SMALL.nodes[1:])},
            "unknown discipline 'lifo'",
        ),
        ({"weekend_factor": 0.0}, "weekend_factor is 0"),
        ({"drift": Drift(hot_service="ghost", hot_share=0.5)}, "no service is called 'ghost'"),
        ({"drift": Drift(slowing=0.1, slowing_node=("north-1", "ghost"))}, "no node is called 'ghost'"),
        ({"reactions": Reactions(leaving=1.5)}, "reactions.leaving is 1.5"),
        ({"reactions": Reactions(memory=0.0)}, "reactions.memory is 0"),
        ({"outages": (Outage("ghost", (0,), 0.0, 1.0),)}, "no node is called 'ghost'"),
        ({"outages": (Outage("north-1", (0,), 5.0, 5.0),)}, "outage of north-1: to_s is 5"),
        ({"outages": (Outage("north-1", (), 0.0, 5.0),)}, "outage of north-1: no day"),
        ({"link_faults": (LinkFault("lan", (0,), 0.0, 5.0),)}, "no link is called 'lan'"),
        ({"link_faults": (LinkFault("wan", (0,), 0.0, 5.0, 0.5),)}, "fault of link wan: slowdown is 0.5"),
    ],
)
def test_impossible_options_are_refused_by_name(change, offender):
    refused_by_name(replace(SMALL, **change), offender)


def test_every_table_drifts_by_what_is_declared():
    drift = Drift(acceptance=-1.0, work=0.5, inputs=-0.2, deadlines=0.1, latency=0.7, bandwidth=-0.4)
    world = replace(preset("small"), drift=drift)
    before, after = (conditions(world, day) for day in (0, 15))
    for name, exponent in (
        ("work_s", 0.5),
        ("input_mib", -0.2),
        ("deadline_s", 0.1),
        ("latency_s", 0.7),
        ("s_per_mib", 0.4),
    ):
        np.testing.assert_allclose(
            getattr(after, name), getattr(before, name) * np.exp(exponent / 2), rtol=1e-6
        )
    np.testing.assert_array_equal(before.accepts[0], after.accepts[0])
    inside = (before.accepts[1:] > 1e-3) & (before.accepts[1:] < 1.0 - 1e-3)
    odds = [np.log(one / (1.0 - one)) for one in (before.accepts[1:][inside], after.accepts[1:][inside])]
    np.testing.assert_allclose(odds[1] - odds[0], -0.5, atol=2e-3)
    assert inside.mean() > 0.5
