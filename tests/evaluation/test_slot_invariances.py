"""What must not matter in slot mode: the order of the nodes, empty places, the law under sharing; learning in it."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import BASELINES
from evaluation.commands.cli import main
from evaluation.reproduction.benches.slot_scaling import ScalingConfig, exponent, measure_scaling
from evaluation.simulator.laws import Law, constant, exponential
from evaluation.simulator.slots import SlotConfig, slot_environment, time_scaled
from evaluation.simulator.slots.instance import instance
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import Link, World, WorldNode, WorldService
from logs_schema.errors import ConfigError
from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.networks import example_of
from tests.evaluation.slot_runs import live, runner, small_kais
from tests.twin.made import reordered
from twin.contracts import Array, Environment
from twin.placement.types import Observation
from twin.rollout import rollout


@pytest.mark.slow
def test_order_of_nodes_and_empty_places_change_nothing() -> None:
    config = SlotConfig(node_places=10, queue_places=12)
    world = time_scaled(small_kais(), config, 0.5)
    order = np.random.default_rng(0).permutation(len(world.nodes))
    plain = instance(world, config)
    other = instance(
        world, replace(config, node_places=13, queue_places=20), 0.0, reordered(cluster_of(world), order)
    )
    np.testing.assert_array_equal(plain.public.replicas[:, order], other.public.replicas)
    first, second = live(runner(plain, 150, 3)), live(runner(other, 150, 3))
    assert first.counts.refused[-1].sum() == first.counts.turned_away[-1].sum() == 0
    np.testing.assert_array_equal(first.active, second.active)
    np.testing.assert_array_equal(first.action[first.active], order[second.action][first.active])
    np.testing.assert_array_equal(first.legal[:, order], second.legal)
    for one, two in zip(first.counts, second.counts, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)
    np.testing.assert_allclose(
        first.observation.node[:, :, order], second.observation.node, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(first.observation.request, second.observation.request)


def small() -> tuple[World, Environment]:
    config = SlotConfig(node_places=3, queue_places=6, slots_per_frame=10)
    world = time_scaled(small_kais(2, 1), config, 0.6)
    return world, slot_environment(world, config)


@pytest.mark.slow
def test_what_learns_and_decides_elsewhere_does_so_here() -> None:
    world, system = small()
    algorithm = ppo(example_of(system), PPOConfig(num_minibatches=2, actor_hidden=(8,), critic_hidden=(8,)))

    def learn(key: Array) -> tuple[Any, Any]:
        state = algorithm.init(key)
        path = rollout(key, system, algorithm.policy(state), 24, (4,))
        return path, algorithm.step(key, state, path)[1]

    path, info = jax.jit(learn)(jax.random.key(0))
    assert path.action.shape == (24, 2, 4)
    assert path.settled.sum() > 10
    worth = np.asarray(path.reward)[np.asarray(path.settled & path.active)]
    assert set(np.unique(worth)) == {0.0, 1.0}
    assert np.isfinite(np.asarray(jax.tree.leaves(info))).all()
    cluster = cluster_of(world)
    state = jax.eval_shape(lambda key: system.reset(key, (2,)).problem, jax.random.key(0))
    seen, legal = jax.eval_shape(system.problem.observe, state), jax.eval_shape(system.problem.legal, state)
    for baseline in BASELINES:
        if baseline.applies(cluster):
            shape = jax.eval_shape(baseline.policy(cluster), jax.random.key(0), Observation(*seen), legal)
            assert shape.shape == (2, 2), baseline.name


def test_scaling_says_what_it_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert exponent([1, 2, 4], [3.0, 6.0, 12.0]) == pytest.approx(1.0)
    assert exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)
    with pytest.raises(ConfigError, match="node_factors"):
        measure_scaling(small_kais(), ScalingConfig(node_factors=(1,)))
    with pytest.raises(SystemExit):
        main(["bench", "scaling", "--out", "plot.docx"])
    assert "plot.docx" in capsys.readouterr().err


LAWS = (constant(), exponential(), Law("hyperexponential", variation=3.0))
STREAMS = 32


class Mixed(Law):
    """A different law in every third of the streams."""

    def quantile(self, uniform: Array) -> Array:
        parts = [
            law.quantile(uniform[..., index * STREAMS : (index + 1) * STREAMS])
            for index, law in enumerate(LAWS)
        ]
        return jnp.concatenate(parts, axis=-1)


@pytest.mark.slow
def test_processor_sharing_does_not_care_for_the_law_of_the_work() -> None:
    """M/G/1-PS: mean response `E[S] / (1 - load)` whatever the law; first come first served would give 1.9 to 5.5 s."""
    load, slot_s, num_slots = 0.6, 0.05, 24_000
    services = (WorldService("only", 1.0, 0.0, 0.0, 1e6),)
    world = World(
        "sharing",
        ("here",),
        (WorldNode("node", "here", "edge", 1, 1.0, 1.0, discipline="ps"),),
        services,
        local=Link(),
        requests_per_day=load * 86_400.0,
        run=Mixed(),
        input=constant(),
    )
    config = SlotConfig(slot_s=slot_s, node_places=30, most_replicas=30, queue_places=4)
    system = slot_environment(world, config)

    def run(key: Array) -> tuple[Array, Array, Array]:
        def one(carry: tuple, key: Array) -> tuple[tuple, None]:
            state, held = carry
            _, key_response = jax.random.split(key)
            state, _ = system.step(key_response, state, jnp.zeros((1, 3 * STREAMS), jnp.int32))
            return (state, held + state.problem.here.held[0]), None

        first = system.reset(key, (3 * STREAMS,))
        warm, _ = jax.lax.scan(one, (first, jnp.zeros(3 * STREAMS)), jax.random.split(key, 4_000))
        carry = (warm[0], jnp.zeros(3 * STREAMS))
        (state, held), _ = jax.lax.scan(one, carry, jax.random.split(jax.random.fold_in(key, 1), num_slots))
        sent = state.problem.view.counts.sent - warm[0].problem.view.counts.sent
        return held * slot_s, sent, state.problem.view.counts.refused

    there_s, sent, refused = (
        np.asarray(leaf).reshape(3, STREAMS) for leaf in jax.jit(run)(jax.random.key(0))
    )
    assert refused.sum() <= 1e-3 * sent.sum()
    response_s = there_s / sent  # Little's law: time at the node from the boundary of dispatch
    mean_s, error_s = response_s.mean(axis=1), response_s.std(axis=1, ddof=1) / np.sqrt(STREAMS)
    expected_s = 1.0 / (1.0 - load)
    print(mean_s, error_s)
    for mean, error in zip(mean_s, error_s, strict=True):
        assert abs(mean - expected_s) < 2.0 * slot_s + 4.0 * error
    assert np.ptp(mean_s) < 4.0 * np.sqrt((error_s**2).sum())
