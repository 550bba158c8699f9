"""Every preset: what the books hold agrees with the fates, request by request, and obeys Little's law."""

import numpy as np
import pytest

from evaluation.baselines import LEAST_LOADED
from evaluation.simulator.presets import PRESETS, preset
from evaluation.simulator.vocabulary import cluster_of
from tests.evaluation.worlds import held_less_in_system, simulated, truth_of
from twin.placement.bookkeeping import PlacementConfig


@pytest.mark.slow
@pytest.mark.parametrize("world", PRESETS, ids=lambda world: world.name)
def test_books_and_fates_agree_and_the_number_held_is_rate_times_time_in_system(world):
    """Poisson arrivals see time averages, so the sum of `held / rate` over arrivals estimates the integral of what is
    held, which is the sum of the times in system, cut at the end."""
    cluster = cluster_of(world)
    truth = truth_of(world, cluster, PlacementConfig(depth=40), 0.0)
    difference, error, in_system_s = held_less_in_system(world, truth, LEAST_LOADED.policy(cluster))
    assert abs(difference) < 4.0 * error
    assert error < 0.05 * in_system_s


@pytest.mark.slow  # the quick one: `test_simulator_history`, a smaller world
def test_no_core_of_any_node_runs_two_requests_at_once():
    world = preset("kmps")
    rows = simulated(world, "fewest_per_core", num_streams=1)
    live = rows.live[:, 0] & rows.fate.accepted[:, 0]
    node, start_s, finish_s = (
        leaf[:, 0][live] for leaf in (rows.node, rows.fate.start_s, rows.fate.finish_s)
    )
    for index, machine in enumerate(world.nodes):
        here = node == index
        moments = np.concatenate([start_s[here], finish_s[here]])
        steps = np.concatenate([np.ones(here.sum()), -np.ones(here.sum())])
        order = np.lexsort((steps, moments))  # a core given back at an instant can be taken at it
        assert np.cumsum(steps[order]).max() <= machine.cpu_cores
    assert len(np.unique(node)) == len(world.nodes)
