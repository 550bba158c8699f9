"""Services that slow each other down on a node, against a loop written by hand and a chain of births and deaths."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from evaluation.simulator.laws import constant, exponential
from evaluation.simulator.world import validate
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import ends_by_hand, interval, queue, simulated

PRESSURE, SENSITIVITY = (0.0, 1.5), (0.8, 0.3)


def contending(discipline, slowdown=1.0):
    """Three cores, two services: one presses and hardly feels it, the other feels it and does not press."""
    world = queue(3, 0.5, exponential(), requests_per_day=900.0)
    only, node = world.services[0], world.nodes[0]
    services = tuple(
        replace(
            only,
            name=f"service-{index}",
            work_s=100.0,
            memory_gib=1.0,
            pressure=slowdown * pressure,
            sensitivity=sensitivity,
        )
        for index, (pressure, sensitivity) in enumerate(zip(PRESSURE, SENSITIVITY, strict=True))
    )
    return replace(world, services=services, nodes=(replace(node, discipline=discipline, memory_gib=4.0),))


def paces(service, num_cores, jobs):
    """Those in service share the cores and press on each other."""
    share = min(1.0, num_cores / max(len(jobs), 1))
    total = sum(PRESSURE[service[job]] for job in jobs)
    return {job: share / (1.0 + SENSITIVITY[service[job]] * (total - PRESSURE[service[job]])) for job in jobs}


@pytest.mark.slow
@pytest.mark.parametrize("discipline", ["fifo", pytest.param("ps", marks=pytest.mark.slow)])
def test_finishes_equal_those_of_contention_written_by_hand(discipline):
    rows = simulated(contending(discipline), "random", num_streams=1, chunk_steps=500)
    undisturbed = contending("fifo", slowdown=0.0)
    roomy = replace(undisturbed.nodes[0], cpu_cores=64, memory_gib=64.0)
    alone = simulated(replace(undisturbed, nodes=(roomy,)), "random", num_streams=1, chunk_steps=500)
    live = rows.live[:, 0]
    arrival_s, start_s, finish_s = (
        np.asarray(leaf[live, 0], np.float64)
        for leaf in (rows.arrival_s, alone.fate.start_s, alone.fate.finish_s)
    )
    service = rows.request.service[live, 0]
    run_s = finish_s - start_s
    most = 3 if discipline == "fifo" else 4
    expected_s = ends_by_hand(arrival_s, run_s, most, partial(paces, service, 3))
    np.testing.assert_allclose(rows.fate.finish_s[live, 0], expected_s, atol=0.5)
    slowed = expected_s - rows.fate.start_s[live, 0] > 1.05 * run_s
    assert np.mean(slowed[service == 0]) > 0.2
    assert np.mean(slowed[service == 1]) > 0.1


@pytest.mark.slow
def test_a_queue_whose_runs_press_on_each_other_has_the_number_that_births_and_deaths_give():
    """M/M/2 with `mu` for one in service and `2 mu / (1 + sensitivity * pressure)` for two."""
    world = queue(2, 0.45, exponential(), requests_per_day=2_880.0)
    pressed = replace(world, services=(replace(world.services[0], pressure=0.5, sensitivity=1.0),))
    arrive, serve = 2_880.0 / 86_400.0, 1.0 / world.services[0].work_s
    ratio = arrive / (2.0 * serve / 1.5)
    weight = np.cumprod(np.append([1.0, arrive / serve], np.full(400, ratio)))
    expected_s = np.sum(np.arange(len(weight)) * weight) / weight.sum() / arrive
    rows = simulated(pressed, "random", num_streams=32, seed=2)
    counted = rows.live & (rows.arrival_s > 8_000.0)
    response_s = np.where(counted, rows.fate.finish_s - rows.arrival_s, 0.0).sum(axis=0) / counted.sum(axis=0)
    mean, error = interval(response_s)
    assert abs(mean - expected_s) < 3.5 * error < 0.2 * expected_s


def test_pressure_on_nobody_is_a_contradiction():
    world = queue(2, 0.4, constant())
    with pytest.raises(ConfigError, match="none with sensitivity"):
        validate(replace(world, services=(replace(world.services[0], pressure=1.0),)))
    with pytest.raises(ConfigError, match="sensitivity"):
        validate(replace(world, services=(replace(world.services[0], pressure=1.0, sensitivity=-1.0),)))
