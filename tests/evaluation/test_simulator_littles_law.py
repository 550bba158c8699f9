"""Every preset: what the books hold agrees with the fates, request by request, and obeys Little's law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import LEAST_LOADED
from evaluation.simulator.conditions import conditions
from evaluation.simulator.presets import PRESETS, preset
from evaluation.simulator.truth import truth_of
from evaluation.simulator.vocabulary import cluster_of
from tests.evaluation.worlds import interval, simulated
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.features import NODE_FEATURES
from twin.rollout import rollout

NUM_STEPS, NUM_STREAMS, DEPTH = 200, 32, 40
QUICK = ("small",)
NAMES = [feature.name for feature in NODE_FEATURES]


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [pytest.param(one, marks=() if one.name in QUICK else pytest.mark.slow) for one in PRESETS],
    ids=lambda world: world.name,
)
def test_books_and_fates_agree_and_the_number_held_is_rate_times_time_in_system(world):
    """Poisson arrivals see time averages, so the sum of `held / rate` over arrivals estimates the integral of what is
    held, which is the sum of the times in system, cut at the end."""
    cluster = cluster_of(world)
    truth, policy = truth_of(world, cluster, PlacementConfig(depth=DEPTH), 0.0), LEAST_LOADED.policy(cluster)

    def run(key):
        simulated = rollout(key, truth, policy, NUM_STEPS, (NUM_STREAMS,))
        rows = [NAMES.index("num_running"), NAMES.index("num_waiting")]
        node = simulated.global_observation.node[:NUM_STEPS, :, :, 0]
        held = jnp.expm1(node[:, jnp.array(rows)]).sum(axis=(1, 2))
        return (
            held,
            simulated.decision_info.arrival_s[:, 0],
            simulated.outcome.finish_s[:, 0],
            simulated.settled[:, 0],
        )

    held, arrival_s, finish_s, settled = (np.asarray(leaf) for leaf in jax.jit(run)(jax.random.key(0)))
    assert settled.all()
    ends_s = np.where(np.isfinite(finish_s), finish_s, -np.inf)  # a refused offer is never held
    before = np.tril(np.ones((NUM_STEPS, NUM_STEPS), bool), -1)[:, :, None]
    counted = np.sum(before & (ends_s[None] > arrival_s[:, None]), axis=1)
    np.testing.assert_allclose(held, counted, atol=0.01)

    today = conditions(world, 0)
    cycle = np.cos(2.0 * np.pi * arrival_s / today.day_s)
    seen_s = np.sum(held / (today.rate_per_s * (1.0 - today.amplitude * cycle)), axis=0)
    in_system_s = np.sum(np.maximum(np.minimum(ends_s, arrival_s[-1]) - arrival_s, 0.0), axis=0)
    difference, error = interval(seen_s - in_system_s)
    assert abs(difference) < 4.0 * error
    assert error < 0.05 * in_system_s.mean()


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
