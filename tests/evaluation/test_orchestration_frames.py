"""Frames as an environment: a toy whose optimum is known, what must hold in every frame, GSP-SS by slots, learning."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import (
    BASELINES,
    GREEDY_SCALING,
    HPA,
    ORCHESTRATION_BASELINES,
    RANDOM_SCALING,
    STATIC_DEPLOYMENT,
    gsp_ss_dispatch,
)
from evaluation.baselines.gsp_ss import rates, solve, time_ratios
from evaluation.baselines.gsp_ss_by_slots import deployed_schedule
from evaluation.baselines.orchestration_baseline import OrchestrationBaseline
from evaluation.baselines.random import RANDOM
from evaluation.problems.orchestration.bench import (
    OrchestrationBenchConfig,
    Pair,
    bench_orchestration,
    default_pairs,
    with_changes,
)
from evaluation.reproduction.benches.orchestration_table import as_json, as_table
from evaluation.simulator.conditions import conditions, world_draw
from evaluation.simulator.laws import constant
from evaluation.simulator.presets import preset
from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.instance import Instance, deployed_on, instance
from evaluation.simulator.world import Link, World, WorldNode, WorldService
from logs_schema.errors import ConfigError
from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.networks import example_of
from tests.evaluation.slot_runs import frame_environment, small_kais
from twin.contracts import Array, Environment, EnvironmentState
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import observing
from twin.orchestration.frame_state import FrameOutcome, Scaling
from twin.orchestration.frames import few_waiting, on_time_share
from twin.placement.features import one_hot
from twin.rollout import follow, rollout

SLOTS = SlotConfig(slots_per_frame=20, node_places=8, queue_places=10)
FRAMES = FrameConfig(num_changes=2, samples_per_frame=5)


class Frames(NamedTuple):
    """Every frame of a run, as NumPy."""

    counts: Any
    deployment: Any
    measured: Any
    asked: Any
    busy: np.ndarray  # [frames, services, nodes, streams] requests in service at the end of the frame
    there: np.ndarray  # [frames, streams] requests at access points, at nodes and on their way


def runner(
    case: Instance, baseline: OrchestrationBaseline, num_frames: int, num_streams: int
) -> Callable[[int], Frames]:
    """Runs of a rule under random dispatch, by seed; one program is compiled."""
    system = frame_environment(case, observing(case.public, RANDOM.policy(case.public.cluster)), FRAMES)
    rule = baseline.rule(case.public, FRAMES)

    def frame(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, tuple]:
        key_rule, key_frame = jax.random.split(key)
        asked = rule(key_rule, state.problem)
        after = system.step(key_frame, state, asked)[0]
        held, queues, known = after.response.response.held, after.response.response.queues, after.problem
        now = known.clock_s[None, None]
        serving = (held.start_s <= now) & (held.end_s > now)
        back_s = held.end_s + jnp.where(jnp.isfinite(held.end_s), held.back_s, 0.0)
        there = jnp.sum(jnp.isfinite(held.arrives_s) & (back_s > now), axis=(0, 1))
        there += jnp.sum(jnp.isfinite(queues.arrival_s), axis=(0, 1))
        busy = jnp.sum(one_hot(held.service, case.public.num_services) & serving[None], axis=2)
        return after, (known.counts, known.deployment, known.measured, asked, busy, there)

    @jax.jit
    def run(key: Array) -> tuple:
        return jax.lax.scan(frame, system.reset(key, (num_streams,)), jax.random.split(key, num_frames))[1]

    return lambda seed: Frames(*jax.tree.map(np.asarray, run(jax.random.key(seed))))


def toy() -> Instance:
    """One node of eight cores, one service of 2 s with deadlines of 6 s, 1.4 requests a second, one replica at first:
    2.8 replicas are busy on average if there are enough, so that a target of 0.8 asks for four, and for more in a busy
    frame."""
    world = World(
        "toy",
        ("here",),
        (WorldNode("node", "here", "edge", 8, 16.0, 1.0),),
        (WorldService("only", 2.0, 1.0, 0.0, 6.0),),
        local=Link(),
        requests_per_day=1.4 * 86_400.0,
        run=constant(),
        input=constant(),
        daily_amplitude=0.0,
    )
    return instance(world, replace(SLOTS, most_replicas=1))


@pytest.mark.slow
def test_scaling_out_serves_what_one_replica_cannot() -> None:
    case = toy()
    assert case.public.replicas.sum() == 1
    frames = runner(case, HPA, 40, 8)(0)
    replicas = frames.deployment.replicas[:, 1, 0]
    assert (replicas[0] == 1).all()
    assert (np.diff(replicas, axis=0) >= 0).all()  # nothing is removed within the window
    late = frames.counts.on_time[-1] - frames.counts.on_time[19]
    arrived = frames.counts.arrived[-1] - frames.counts.arrived[19]
    assert late.sum() / arrived.sum() > 0.9
    assert ((replicas[-1] >= 4) & (replicas[-1] <= 8)).all()
    assert (frames.counts.pulled_mib == 0.0).all()  # the image was there
    one = frames.counts.on_time[3] / np.maximum(frames.counts.arrived[3], 1)
    assert one.mean() < 0.6
    busy = frames.measured.busy[-1, -1, 1]
    assert abs(frames.measured.busy[20:, -1, 1].mean() - 2.8) < 0.6
    assert (busy <= replicas[-1]).all()


@pytest.fixture(scope="module")
def shuffling() -> tuple[Instance, Callable[[int], Frames]]:
    case = instance(time_scaled(small_kais(2, 2), SLOTS, 0.6), SLOTS)
    return case, runner(case, RANDOM_SCALING, 40, 6)


@pytest.fixture(scope="module")
def shuffled(shuffling: tuple[Instance, Callable[[int], Frames]]) -> tuple[Instance, Frames]:
    case, run = shuffling
    return case, run(0)


@pytest.mark.slow
def test_same_key_same_bits(
    shuffling: tuple[Instance, Callable[[int], Frames]], shuffled: tuple[Instance, Frames]
) -> None:
    run, (_, first) = shuffling[1], shuffled
    jax.tree.map(np.testing.assert_array_equal, first, run(0))
    assert (run(1).counts.arrived != first.counts.arrived).any()


@pytest.mark.slow
def test_requests_are_conserved_while_replicas_come_and_go(shuffled: tuple[Instance, Frames]) -> None:
    _, frames = shuffled
    counts = frames.counts
    gone = (
        counts.turned_away + counts.dropped_waiting + counts.refused + counts.dropped_at_node + counts.failed
    )
    np.testing.assert_array_equal(counts.arrived, gone + counts.finished + frames.there)
    assert (counts.finished[-1] > 20).all()


@pytest.mark.slow
def test_memory_is_kept_to_and_accounted_for(shuffled: tuple[Instance, Frames]) -> None:
    case, frames = shuffled
    deployment = frames.deployment
    assert (deployment.used_gib <= case.public.memory_gib[None, :, None] + 1e-3).all()
    pulled = np.zeros_like(deployment.used_gib)
    for one in range(case.public.config.changes):
        adds = (deployment.service[:, one] > 0) & deployment.adds[:, one]
        gib = np.where(adds, case.public.replica_gib[deployment.service[:, one]], 0.0)
        where = deployment.node[:, one, None] == np.arange(case.public.cluster.num_nodes)[None, :, None]
        pulled += np.where(where, gib[:, None], 0.0)
    held = np.einsum("s,fsnb->fnb", case.public.replica_gib, deployment.replicas)
    np.testing.assert_allclose(deployment.used_gib, held + pulled, atol=1e-3)
    changes = np.diff(deployment.replicas, axis=0)
    assert (changes > 0).any()
    assert (changes < 0).any()


@pytest.mark.slow
def test_nobody_loses_the_replica_that_serves_them(shuffled: tuple[Instance, Frames]) -> None:
    _, frames = shuffled
    assert (frames.busy <= frames.deployment.replicas).all()
    assert (frames.deployment.replicas >= 0).all()
    assert frames.busy.sum() > 50


@pytest.mark.slow
def test_an_image_takes_its_time_and_its_bandwidth() -> None:
    """A service that an edge node lacks: its replica serves in the first frame that ends after the pull."""
    world = time_scaled(small_kais(2, 2), SLOTS, 0.6)
    wan = Link(latency_s=0.1, bandwidth_mib_per_s=11.0)
    case = instance(replace(world, wan=wan), SLOTS)
    edge = np.flatnonzero(~case.public.cluster.is_cloud)
    service, position = np.argwhere(case.public.replicas[1:, edge] == 0)[0]
    service, node = int(service) + 1, int(edge[position])
    frame_s, num_frames = SLOTS.slot_s * SLOTS.slots_per_frame, 8
    image_mib = SLOTS.image_mib_per_gib * float(case.public.replica_gib[service])
    due_s = wan.latency_s + image_mib / 11.0
    assert frame_s < due_s < (num_frames - 1) * frame_s
    asked = np.zeros((num_frames, 2, 1), np.int32)
    asked[0, 0] = service
    system = frame_environment(case, observing(case.public, RANDOM.policy(case.public.cluster)), FRAMES)
    shown = system._replace(
        problem=system.problem._replace(observe=lambda state: _seen(state, service, node))
    )
    nodes = np.full((num_frames, 2, 1), node, np.int32)
    path = jax.jit(lambda key: follow(key, shown, Scaling(jnp.asarray(nodes), jnp.asarray(asked)), (1,)))(
        jax.random.key(0)
    )
    replicas, pulled_mib = (np.asarray(leaf)[:, 0, 0] for leaf in path.observation)
    begins_s = np.arange(num_frames) * frame_s
    np.testing.assert_array_equal(replicas, begins_s >= due_s)
    np.testing.assert_allclose(pulled_mib, np.where(begins_s > 0, image_mib, 0.0), rtol=1e-5)
    assert path.settled.all()
    cost = np.asarray(path.outcome.scheduling_mib)[:, 0, 0]
    assert cost[0] >= image_mib
    share = np.asarray(path.outcome.on_time / np.maximum(path.outcome.arrived, 1))
    np.testing.assert_allclose(np.asarray(path.reward).sum(axis=1), share[:, 0], rtol=1e-5)


def _seen(state: Any, service: int, node: int) -> tuple[Array, Array]:
    replicas = state.deployment.replicas[service, node]
    return tuple(jnp.broadcast_to(leaf, (2, *leaf.shape)) for leaf in (replicas, state.counts.pulled_mib))


def test_what_a_frame_is_worth() -> None:
    outcome = FrameOutcome(*(jnp.asarray(one) for one in (10.0, 8.0, 2.0, 5.0, 1.0)))
    assert float(on_time_share(outcome)) == pytest.approx(0.8)
    assert float(few_waiting(outcome)) == pytest.approx(np.exp(-2.0))


def test_gsp_ss_keeps_to_what_replicas_can_serve() -> None:
    """One node of four cores, one replica, two requests of 1 s a second: half of them."""
    share = solve(
        np.array([[2.0]]), np.ones((1, 1)), np.array([4.0]), np.full((1, 1, 1), 0.5), np.array([[1]])
    )
    np.testing.assert_allclose(share, 0.5, atol=1e-6)
    world = time_scaled(preset("kais"), SlotConfig())
    case = instance(world, SlotConfig())
    found, names = deployed_schedule(case), case.names
    assert (found.sum(axis=2) <= 1.0 + 1e-6).all()
    assert (found[:, case.public.replicas == 0] == 0.0).all()
    today, population = conditions(world, 0.0), world_draw(world)
    run_s = time_ratios(world, today, population)[0][:, names.world_node]
    share = found[np.ix_(names.site, names.service)]
    work = np.einsum("bs,bsn,sn->sn", rates(world, population), share, run_s)
    assert (work <= case.public.replicas[names.service] + 1e-6).all()
    assert (work.sum(axis=0) <= case.public.cores + 1e-6).all()


def test_gsp_ss_dispatches_as_scheduled_among_legal_nodes() -> None:
    case = instance(time_scaled(small_kais(), SlotConfig()), SlotConfig())
    shares, num = deployed_schedule(case), 4000
    site = int(case.names.site[0])
    service = int(np.argmax((shares[site] > 0.05).sum(axis=1)))
    wanted = shares[site, service]
    system = frame_environment(case, gsp_ss_dispatch(case), FrameConfig())
    state = jax.eval_shape(lambda key: system.reset(key, (num,)).response.problem, jax.random.key(0))
    state = jax.tree.map(jnp.zeros_like, state)
    request = state.placement.request
    request = request._replace(site=request.site + site, service=request.service + service)
    state = state._replace(placement=state.placement._replace(request=request))
    legal = np.broadcast_to(
        (case.public.replicas[service] > 0)[:, None, None], (len(wanted), case.public.num_seats, num)
    )
    dispatch = gsp_ss_dispatch(case)
    node = np.asarray(dispatch(jax.random.key(1), state, jnp.asarray(legal)))
    found = np.bincount(node.ravel(), minlength=len(wanted)) / node.size
    assert np.abs(found - wanted / wanted.sum()).max() < 5.0 * np.sqrt(0.25 / node.size)
    off = int(np.argmax(wanted))
    without = legal & (np.arange(len(wanted)) != off)[:, None, None]
    node = np.asarray(dispatch(jax.random.key(2), state, jnp.asarray(without)))
    assert (node != off).all()
    assert (case.public.replicas[service][node] > 0).all()


def test_a_later_day_begins_with_the_deployment_of_day_0() -> None:
    world = time_scaled(preset("kais"), SlotConfig())
    then, made_for = deployed_on(world, SlotConfig(), 30.0), instance(world, SlotConfig(), 30.0)
    np.testing.assert_array_equal(then.public.replicas, instance(world, SlotConfig(), 0.0).public.replicas)
    assert (then.public.replicas != made_for.public.replicas).any()
    np.testing.assert_array_equal(then.run_factor, made_for.run_factor)


def test_unknown_policies_and_empty_runs_are_refused() -> None:
    assert default_pairs(("random",), ("static", "hpa")) == [
        Pair("random", "static"),
        Pair("least_loaded", "static"),
        Pair("least_loaded", "hpa"),
    ]
    world = preset("small")
    for days, pair, said in (
        ((0,), Pair("nobody", "static"), "nobody"),
        ((0,), Pair("random", "never"), "never"),
        ((-1,), Pair("random", "static"), "days"),
        ((), Pair("random", "static"), "days"),
    ):
        with pytest.raises(ConfigError, match=said):
            bench_orchestration(world, days, [pair])
    with pytest.raises(ConfigError, match="frames=0"):
        OrchestrationBenchConfig(num_frames=0)
    with pytest.raises(ConfigError, match="num_changes"):
        bench_orchestration(
            world, (0,), [Pair("random", "static")], with_changes(OrchestrationBenchConfig(), 0)
        )


def small_frames() -> Environment:
    case = instance(time_scaled(small_kais(2, 1), SLOTS, 0.6), SLOTS)
    return frame_environment(case, observing(case.public, RANDOM.policy(case.public.cluster)), FRAMES)


@pytest.mark.slow
def test_a_learner_finds_the_shapes_it_needs() -> None:
    """Both parts of the action, node and change, travel in one pytree through PPO; traced, not compiled."""
    system = small_frames()
    algorithm = ppo(example_of(system), PPOConfig(num_minibatches=2, actor_hidden=(8,), critic_hidden=(8,)))

    def learn(key: Array) -> Any:
        state = algorithm.init(key)
        path = rollout(key, system, algorithm.policy(state), 4, (4,))
        return path.action, algorithm.step(key, state, path)[1]

    action, _ = jax.eval_shape(learn, jax.random.key(0))
    assert {leaf.shape for leaf in jax.tree.leaves(action)} == {(4, 2, 4)}


@pytest.mark.slow
def test_ppo_learns_in_frames() -> None:
    system = small_frames()
    algorithm = ppo(example_of(system), PPOConfig(num_minibatches=2, actor_hidden=(8,), critic_hidden=(8,)))

    def learn(key: Array) -> Any:
        state = algorithm.init(key)
        path = rollout(key, system, algorithm.policy(state), 6, (4,))
        return path, algorithm.step(key, state, path)[1]

    path, info = jax.jit(learn)(jax.random.key(0))
    assert path.settled.all()
    assert not path.illegal.any()
    assert np.isfinite(np.asarray(jax.tree.leaves(info))).all()
    assert np.isfinite(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(path.observation)])).all()


@pytest.mark.slow
def test_the_same_requests_come_whoever_orchestrates(shuffled: tuple[Instance, Frames]) -> None:
    case, shuffle = shuffled
    for baseline in (STATIC_DEPLOYMENT, GREEDY_SCALING):
        frames = runner(case, baseline, 40, 6)(0)
        np.testing.assert_array_equal(shuffle.counts.arrived, frames.counts.arrived)
        grown = np.diff(frames.deployment.replicas.sum(axis=(1, 2)), axis=0)
        assert (grown >= 0).all()
        assert grown.any() == (baseline is GREEDY_SCALING)


@pytest.mark.slow
def test_every_dispatcher_and_orchestrator_is_scored() -> None:
    world = replace(small_kais(2, 2), drift=small_kais().drift)
    dispatchers = (*(one.name for one in BASELINES), "gsp_ss")
    pairs = default_pairs(dispatchers, tuple(one.name for one in ORCHESTRATION_BASELINES))
    config = OrchestrationBenchConfig(num_seeds=3, num_frames=2, slots=SLOTS, frames=FRAMES)
    scores = bench_orchestration(world, (0,), pairs, config)
    assert {score.pair for score in scores} == set(pairs)
    for score in scores:
        assert 0.0 <= score.measures["on_time"].value <= 1.0
        assert score.per_run.shape == (6,)
        if score.pair.orchestration == "static":
            assert score.gain.value == 0.0
    rows = json.loads(json.dumps(as_json(world, config, scores), allow_nan=False))["rows"]
    assert [(row["dispatch"], row["orchestration"]) for row in rows] == [tuple(one.pair) for one in scores]
    assert {
        "on_time",
        "on_time_low",
        "on_time_high",
        "scheduling_mib",
        "energy_j",
        "gain_over_static",
    } <= set(rows[0])
    assert as_table(world, config, scores).row_count == len(pairs)
