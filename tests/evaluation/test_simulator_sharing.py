"""Processor sharing against theory: the mean response and the number in the system do not feel the law of the runs."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.simulator.laws import Law, constant, exponential
from tests.evaluation.worlds import ends_by_hand, interval, queue, simulated

LOAD = 0.6
NUM_STREAMS = 32
WARM_UP_S = 10_000.0


HYPEREXPONENTIAL = Law("hyperexponential", variation=4.5)
HEAVY = Law("bounded_pareto", tail=1.5, range=200.0)


def sharing(law, num_cores=1, requests_per_day=2_880.0):
    world = queue(num_cores, LOAD, law, requests_per_day=requests_per_day)
    return replace(world, nodes=(replace(world.nodes[0], discipline="ps"),))


def responses(rows):
    """Mean response of every stream, the beginning left out."""
    counted = rows.live & (rows.arrival_s > WARM_UP_S)
    response_s = np.where(counted, rows.fate.finish_s - rows.arrival_s, 0.0)
    return response_s.sum(axis=0) / counted.sum(axis=0)


def seen_by_arrivals(rows, most):
    """[most + 1, streams] share of arrivals that find so many in the system."""
    shares = []
    for column in range(rows.live.shape[1]):
        live = rows.live[:, column]
        arrival_s, finish_s = rows.arrival_s[live, column], np.sort(rows.fate.finish_s[live, column])
        number = np.arange(live.sum()) - np.searchsorted(finish_s, arrival_s, side="right")
        shares.append([np.mean(number[arrival_s > WARM_UP_S] == held) for held in range(most + 1)])
    return np.array(shares).T


def check(rows, run_s):
    mean_s, error_s = interval(responses(rows))
    assert error_s < 0.05 * run_s / (1.0 - LOAD)
    assert abs(mean_s - run_s / (1.0 - LOAD)) < 3.5 * error_s
    for held, share in enumerate(seen_by_arrivals(rows, 4)):
        mean, error = interval(share)
        assert abs(mean - (1.0 - LOAD) * LOAD**held) < 3.5 * error


@pytest.mark.slow
def test_equal_runs_that_share_a_core_respond_as_exponential_ones_would():
    """1 / (mu - lambda), though runs are all alike; first come, first served would take 1.75 of a run, not 2.5."""
    world = sharing(constant())
    check(simulated(world, "random", num_streams=NUM_STREAMS), world.services[0].work_s)


@pytest.mark.slow
@pytest.mark.parametrize("law", [exponential(), HYPEREXPONENTIAL, HEAVY], ids=lambda law: law.name)
def test_the_response_under_sharing_does_not_feel_the_law_of_the_runs(law):
    world = sharing(law, requests_per_day=4_320.0)
    check(simulated(world, "random", num_streams=48, seed=1), world.services[0].work_s)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2, 3])
def test_finishes_equal_those_of_sharing_written_by_hand(limit):
    """Two cores shared by at most `limit`; where nobody meets anybody, a run takes what was drawn."""
    num_cores = 2
    crowded = sharing(exponential(), num_cores, requests_per_day=900.0)
    crowded = replace(
        crowded,
        services=(replace(crowded.services[0], work_s=120.0, memory_gib=1.0),),
        nodes=(replace(crowded.nodes[0], memory_gib=float(limit)),),
    )
    roomy = replace(crowded, nodes=(replace(crowded.nodes[0], cpu_cores=64, memory_gib=64.0),))
    rows = simulated(crowded, "random", num_streams=1, chunk_steps=500)
    alone = simulated(roomy, "random", num_streams=1, chunk_steps=500)
    live = rows.live[:, 0]
    arrival_s, start_s, finish_s = (
        np.asarray(leaf[live, 0], np.float64)
        for leaf in (rows.arrival_s, alone.fate.start_s, alone.fate.finish_s)
    )

    def equally(jobs):
        return dict.fromkeys(jobs, min(1.0, num_cores / max(len(jobs), 1)))

    expected_s = ends_by_hand(arrival_s, finish_s - start_s, limit, equally)
    np.testing.assert_allclose(rows.fate.finish_s[live, 0], expected_s, atol=0.5)
    waited = rows.fate.start_s[live, 0] > rows.arrival_s[live, 0] + 1.0
    assert np.sum(waited) > 100
