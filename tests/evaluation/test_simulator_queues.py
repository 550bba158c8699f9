"""The mechanics against queueing theory, and against a queue written as events."""

import heapq
import math
from collections import deque

import numpy as np
import pytest

from evaluation.simulator.laws import Law, constant, exponential, lognormal
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import interval, queue, simulated

NUM_STREAMS = 24
WARM_UP_S = 8_000.0
HYPEREXPONENTIAL = Law("hyperexponential", variation=4.0)
HEAVY = Law("bounded_pareto", tail=1.5, range=100.0)


def mean_waits(world):
    """Mean wait in every stream, the beginning left out."""
    rows = simulated(world, "random", num_streams=NUM_STREAMS)
    counted = rows.live & (rows.arrival_s > WARM_UP_S)
    wait_s = np.where(counted, rows.fate.start_s - rows.arrival_s, 0.0)
    return wait_s.sum(axis=0) / counted.sum(axis=0)


def erlang_wait_s(num_cores, load, run_s):
    """Mean wait in M/M/c (Erlang's second formula)."""
    offered = num_cores * load
    terms = [offered**k / math.factorial(k) for k in range(num_cores)]
    last = offered**num_cores / math.factorial(num_cores) / (1 - load)
    return last / (sum(terms) + last) * run_s / (num_cores * (1 - load))


def second_moment(law):
    """E[X^2], that of a bounded Pareto law by its density's integrals."""
    if law.kind == "bounded_pareto":
        first, second = (
            math.log(law.range) if power == 0.0 else (law.range**power - 1.0) / power
            for power in (1.0 - law.tail, 2.0 - law.tail)
        )
        return second / first**2 * (1.0 - law.range**-law.tail) / law.tail
    return {"constant": 1.0, "exponential": 2.0, "lognormal": math.exp(law.spread**2)}.get(
        law.kind, 1.0 + law.variation
    )


def check(waits, expected_s):
    mean_s, error_s = interval(waits)
    assert error_s < 0.04 * expected_s  # else the test could not tell
    assert abs(mean_s - expected_s) < 3 * error_s


@pytest.mark.slow
@pytest.mark.parametrize(("num_cores", "load"), [(1, 0.6), (3, 0.8)])
def test_exponential_runs_wait_as_erlang_says(num_cores, load):
    world = queue(num_cores, load, exponential())
    check(mean_waits(world), erlang_wait_s(num_cores, load, world.services[0].work_s))


@pytest.mark.slow
@pytest.mark.parametrize("law", [lognormal(0.8), constant(), HEAVY], ids=lambda law: law.name)
def test_general_runs_wait_as_pollaczek_and_khinchine_say(law):
    load = 0.6
    world = queue(1, load, law, speed=2.0)
    run_s = world.services[0].work_s / 2.0
    expected_s = load * run_s * second_moment(law) / (2 * (1 - load))
    check(mean_waits(world), expected_s)


@pytest.mark.parametrize(
    "law",
    [
        constant(),
        exponential(),
        lognormal(0.5),
        HYPEREXPONENTIAL,
        HEAVY,
        Law("bounded_pareto", tail=1.0, range=50.0),
    ],
    ids=lambda law: law.name,
)
def test_laws_have_mean_one_and_the_second_moment_of_theory(law):
    uniform = (np.arange(200_000) + 0.5) / 200_000
    values = np.asarray(law.quantile(uniform.astype(np.float32)), np.float64)
    assert np.mean(values) == pytest.approx(1.0, rel=2e-3)
    assert np.mean(values**2) == pytest.approx(second_moment(law), rel=1e-2)


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"kind": "zipf"}, "zipf"),
        ({"kind": "exponential", "spread": 0.4}, "spread"),
        ({"kind": "bounded_pareto", "tail": 1.5}, "range"),
        ({"kind": "hyperexponential", "variation": 0.5}, "variation"),
        ({"kind": "lognormal", "spread": float("inf")}, "spread"),
    ],
)
def test_laws_that_cannot_be_are_refused_by_name(numbers, named):
    with pytest.raises(ConfigError, match=named):
        Law(**numbers)


def starts_by_events(arrival_s, run_s, num_cores):
    """First come, first served, as a line of people and a calendar of departures."""
    line, departures, starts = deque(), [], np.zeros(len(arrival_s))
    events = [(time_s, 1, index) for index, time_s in enumerate(arrival_s)]
    heapq.heapify(events)
    while events:
        now_s, is_arrival, index = heapq.heappop(events)
        if is_arrival:
            line.append(index)
        else:
            departures.remove(index)
        while line and len(departures) < num_cores:
            served = line.popleft()
            starts[served] = now_s
            departures.append(served)
            heapq.heappush(events, (now_s + run_s[served], 0, served))
    return starts


def test_starts_equal_those_of_a_queue_written_as_events():
    num_cores = 3
    rows = simulated(queue(num_cores, 0.9, exponential(), requests_per_day=1_500.0), "random", num_streams=1)
    live = rows.live[:, 0]
    arrival_s, start_s, finish_s = (
        np.asarray(leaf[:, 0], np.float64)[live]
        for leaf in (rows.arrival_s, rows.fate.start_s, rows.fate.finish_s)
    )
    expected_s = starts_by_events(arrival_s, finish_s - start_s, num_cores)
    assert np.sum(start_s > arrival_s + 1.0) > 300
    np.testing.assert_allclose(start_s, expected_s, atol=0.05)
