"""The array code against the plain loop, event by event."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference import networks_loop
from tests.reference.levels_loop import DYNAMICS, LevelsLoop
from tests.reference.placement_loop import NEVER, PlacementLoop, carried_in, request_at
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.environment import environment
from twin.placement.availability import pending_fates
from twin.placement.bookkeeping import placement
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.history import replay_environment, replay_log
from twin.placement.learned import (
    ACCEPTANCE,
    USUAL_RUN,
    AnswerConfig,
    AnswerModel,
    answer_network,
    learned_answers,
    num_inputs,
)
from twin.placement.outcome_model import NUM_UNIFORMS
from twin.placement.replay import replay_table, replayed_answers
from twin.placement.responses import drawn_response
from twin.placement.run_filter import FAST, fresh_level
from twin.placement.types import COMPLETED, FAILED
from twin.placement.windows import Windows, replayed_arrivals
from twin.rollout import follow

STEPS = 48


@pytest.fixture(
    scope="module",
    params=[("on_time", "summary"), pytest.param(("response", "full"), marks=pytest.mark.slow)],
)
def case(request: pytest.FixtureRequest) -> tuple[Encoding, Windows]:
    cluster = made_cluster()
    pressure = np.linspace(-0.2, 0.6, len(cluster.services))
    cluster = replace(cluster, pressure=pressure)
    reward, view = request.param
    encoding = made_encoding(cluster, reward=reward, view=view)
    rows = made_rows(np.random.default_rng(3), cluster, 4 * STEPS)
    return encoding, cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=STEPS)


def walk(
    windows: Windows, encoding: Encoding, window: int, actions: np.ndarray, seen: Callable
) -> PlacementLoop:
    """The loop along `actions` with the fates of the replay; every state is shown to `seen` before its decision."""
    table = replay_table(windows, encoding.cluster.num_nodes, own_run=False)
    loop = PlacementLoop(encoding.cluster, encoding.problem)
    first = request_at(windows.request, 0, window)
    loop.begin(float(windows.arrival_s[0, window]), first, carried_in(windows, window))
    for step in range(windows.length[window]):
        seen(step, loop)
        node = actions[step]
        at = (node, step, window)
        fate = {name: getattr(table.fate, name)[at].item() for name in NEVER}
        after = min(step + 1, windows.length[window] - 1)
        loop.decide(
            node, fate, float(windows.arrival_s[after, window]), request_at(windows.request, after, window)
        )
    return loop


@pytest.mark.slow
@pytest.mark.parametrize("other", [pytest.param(False, id="logged"), pytest.param(True, id="counterfactual")])
def test_rollout_agrees_with_the_loop(case: tuple[Encoding, Windows], other: bool) -> None:
    encoding, windows = case
    actions = np.maximum(windows.node, 0)
    if other:
        actions = np.random.default_rng(4).integers(0, encoding.cluster.num_nodes, actions.shape)
    agrees_with_the_loop(encoding, windows, actions)


def log_agrees_with_the_loop(encoding: Encoding, seed: int = 3) -> Windows:
    """Asserts the same along the decisions of a made log in two windows, which are returned."""
    rows = made_rows(np.random.default_rng(seed), encoding.cluster, 2 * STEPS)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=STEPS)
    agrees_with_the_loop(encoding, windows, np.maximum(windows.node, 0))
    return windows


def agrees_with_the_loop(encoding: Encoding, windows: Windows, actions: np.ndarray) -> None:
    """Asserts that the array code, along `actions` [T, W], is the loop in all that it shows and keeps."""
    system = replay_environment(windows, encoding)
    run = jax.jit(lambda taken: follow(jax.random.key(0), system, taken, (windows.num_windows,)))
    history = jax.tree.map(np.asarray, run(jnp.asarray(actions, jnp.int32)[:, None]))
    for window in range(windows.num_windows):
        taken, arrivals = history.action[:, 0, window], windows.arrival_s[:, window]

        def look(step: int, loop: PlacementLoop, window: int = window) -> None:
            local, full = loop.observe_nodes()
            at = (step, ..., 0, window)
            np.testing.assert_allclose(history.observation.node[at], local, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(history.global_observation.node[at], full, rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(history.observation.request[at], loop.observe_request(), atol=1e-5)
            legal = loop.legal()
            assert history.legal[at].tolist() == legal
            np.testing.assert_allclose(
                history.response_aux.availability_s[at], loop.availability_s(history.action[at]), atol=1e-3
            )
            if encoding.cluster.priorities is not None:
                cleared_s = loop.availability_s(history.action[at], passing=False)
                np.testing.assert_allclose(history.response_aux.cleared_s[at], cleared_s, atol=1e-3)
            if encoding.cluster.shared_waits:
                assert history.response_aux.waiting_beside[at] == loop.waiting_beside(history.action[at])
            stretch = loop.stretch(history.action[at])
            np.testing.assert_allclose(history.response_aux.stretch[at], stretch, rtol=1e-4, atol=1e-4)
            crowding = loop.crowding(history.action[at])
            np.testing.assert_allclose(history.response_aux.crowding[at], crowding, rtol=1e-3, atol=1e-3)
            wanted = int(actions[step, window])
            assert history.action[step, 0, window] == (wanted if legal[wanted] else legal.index(True))

        loop = walk(windows, encoding, window, taken, look)
        loop.look_ahead()
        for step in range(windows.length[window]):
            outcome, at = loop.outcomes.get(step), (step, 0, window)
            settled = outcome is not None and (np.isfinite(outcome["finish_s"]) or outcome["status"] == 3)
            assert history.settled[at] == settled
            if settled:
                assert history.outcome.status[at] == outcome["status"]
                assert history.outcome.finish_s[at] == outcome["finish_s"]
                assert history.outcome.start_s[at] == outcome["start_s"]
                worth = loop.reward(float(arrivals[step]), request_at(windows.request, step, window), outcome)
                np.testing.assert_allclose(history.reward[at], worth, atol=1e-5)
        unknown = sum(one["decision"] >= 0 for held in loop.in_flight for one in held)
        steps = history.settled[: windows.length[window], 0, window]
        assert (~steps).sum() == loop.num_overflow + unknown


@pytest.mark.slow
def test_books_follow_run_times(case: tuple[Encoding, Windows]) -> None:
    """One place a node: the run that leaves it when the next one comes is the one that its pair is told of; its node
    is told when the end is seen."""
    cluster, shown = (
        replace(case[0].cluster, dynamics=DYNAMICS),
        [one.name for one in NODE_FEATURES].index("usual_run"),
    )
    problem = replace(case[0].problem, depth=1)
    rows = made_rows(np.random.default_rng(3), cluster, 4 * STEPS)
    encoding = replace(case[0], problem=problem, cluster=cluster)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=STEPS)
    assert np.abs(windows.level.mean[FAST, ..., 1:]).max() > 0.05  # what ended before a window is known in it
    windows = windows._replace(level=fresh_level(DYNAMICS, windows.level.mean.shape[1:], windows.age_s[None]))
    fates = replay_table(windows, cluster.num_nodes, own_run=False)
    answers = replayed_answers(windows, fates)._replace(response_aux=partial(pending_fates, cluster))
    response = drawn_response(cluster, 1, replayed_arrivals(windows), answers)
    system = environment(placement(cluster, problem), response)
    actions = jnp.asarray(
        np.random.default_rng(7).integers(0, cluster.num_nodes, windows.node.shape), jnp.int32
    )
    run = jax.jit(lambda taken: follow(jax.random.key(0), system, taken, (windows.num_windows,)))
    history, moved = jax.tree.map(np.asarray, run(actions[:, None])), 0
    log_ratio = np.log(cluster.run_ratio)
    for window in range(windows.num_windows):
        loop = LevelsLoop(cluster.num_nodes, float(windows.age_s[window]))
        held = {node: {**one, **one["fate"], "usual": 0.0} for node, one in carried_in(windows, window)}
        for step in range(windows.length[window]):
            clock_s, request = (
                float(windows.arrival_s[step, window]),
                request_at(windows.request, step, window),
            )
            service = request["service"]
            mean_run_s = [
                np.exp(log_ratio[service, node] + loop.mean(service, node)) * request["expected_run_s"]
                for node in range(cluster.num_nodes)
            ]
            seen = history.observation.node[step, shown, :, 0, window]
            np.testing.assert_allclose(seen, np.log1p(np.array(mean_run_s) / problem.time_unit_s), rtol=2e-4)
            node = history.action[step, 0, window]
            level = history.response_aux.level[step, 0, window]
            np.testing.assert_allclose(level, loop.told(service, node), rtol=1e-4, atol=2e-4)
            fate = {name: getattr(fates.fate, name)[node, step, window].item() for name in NEVER}
            before = held.get(node)
            if fate["accepted"] and (before is None or before["finish_s"] <= clock_s):
                pair = loop.pair.get((service, node), (0.0, 0.0))[0]
                if ran(before):
                    at = before["service"], node
                    loop.pair_ran(*at, clock_s, run_of(before) - log_ratio[at])
                    moved += 1
                held[node] = {**request, **fate, "usual": pair}
            if step + 1 < windows.length[window]:
                later_s = float(windows.arrival_s[step + 1, window])
                told = {
                    place: [run_of(one) - log_ratio[one["service"], place] - one["usual"]]
                    for place, one in held.items()
                    if ran(one) and clock_s < one["finish_s"] <= later_s
                }
                loop.move_on(later_s - clock_s, told)
    assert moved > 5 * windows.num_windows


def ran(held: dict | None) -> bool:
    """Whether what held a place is known to have run."""
    return (
        held is not None
        and held["status"] in (COMPLETED, FAILED)
        and 0.0 < held["finish_s"] - held["start_s"] < np.inf
    )


def run_of(held: dict) -> float:
    return float(np.log((held["finish_s"] - held["start_s"]) / held["expected_run_s"]))


def test_learned_answers_agree_with_the_loop(case: tuple[Encoding, Windows]) -> None:
    encoding, windows = case
    encoding = replace(encoding, cluster=replace(encoding.cluster, dynamics=DYNAMICS))
    cluster, unit_s, streams = encoding.cluster, encoding.problem.time_unit_s, 2
    config = AnswerConfig(num_members=2, hidden=(16, 16))
    network = answer_network(config)
    keys = jax.random.split(jax.random.key(5), 2)
    parameters = jax.vmap(lambda key: network.init(key, jnp.zeros((num_inputs(cluster), 1))))(keys)
    parameters = jax.tree.map(lambda leaf: np.asarray(leaf) * 2.0, parameters)
    model = AnswerModel(parameters, 40.0, 60.0, np.zeros(cluster.num_nodes))
    answers = learned_answers(encoding, config, model)
    response = drawn_response(cluster, encoding.problem.depth, replayed_arrivals(windows), answers)
    system = environment(placement(cluster, encoding.problem), response)
    state = jax.jit(lambda key: system.reset(key, (streams,)))(jax.random.key(6))
    step, observe_global = jax.jit(system.step), jax.jit(system.problem.observe_global)
    memory = answers.init(jax.random.key(7), (streams,))
    answer = jax.jit(lambda key, *offer: answers.answer(key, memory, *offer)[1])
    resolve_pending = jax.jit(lambda state: response.resolve_pending(state.response, state.problem))
    pending_of = jax.jit(lambda state, node: pending_fates(cluster, state, node))
    for number in range(20):
        key = jax.random.key(100 + number)
        node = np.array([[number % cluster.num_nodes, (number + 1) % cluster.num_nodes]], np.int32)
        full = jax.tree.map(np.asarray, observe_global(state.problem))
        before = np.asarray(state.response.hidden.start_s)
        clock = np.asarray(state.problem.clock_s)
        _, key_answers = jax.random.split(key)
        low = float(np.finfo(np.float32).tiny)
        uniforms = np.asarray(jax.random.uniform(key_answers, (NUM_UNIFORMS, 1, streams), minval=low))
        pending = jax.tree.map(np.asarray, pending_of(resolve_pending(state), node))
        fate = answer(key_answers, state.problem, node, pending)
        for stream in range(streams):
            chosen = np.eye(cluster.num_nodes)[node[0, stream]]
            availability_s, stretch, crowding, level, tide = (float(leaf[0, stream]) for leaf in pending[:5])
            inputs = np.concatenate(
                [
                    full.node[:, node[0, stream], 0, stream],
                    chosen,
                    full.request[:, 0, stream],
                    networks_loop.pending_inputs(tide, level, crowding, stretch, availability_s, unit_s),
                ]
            )
            outputs = networks_loop.forward(networks_loop.layers_of(parameters, stream), inputs)
            told = networks_loop.answer(
                outputs,
                uniforms[:, 0, stream],
                float(clock[stream]),
                availability_s,
                float(inputs[ACCEPTANCE]),
                float(inputs[USUAL_RUN]),
                unit_s,
                (40.0 + availability_s, 60.0),
            )
            assert bool(fate.accepted[0, stream]) == told["accepted"]
            assert int(fate.status[0, stream]) == told["status"]
            if told["accepted"]:
                np.testing.assert_allclose(fate.start_s[0, stream], told["start_s"], rtol=1e-4)
                np.testing.assert_allclose(fate.finish_s[0, stream], told["finish_s"], rtol=1e-4)
        state, transition = step(key, state, jnp.asarray(node))
        hidden = np.asarray(state.response.hidden.start_s)
        if not np.asarray(transition.illegal).any():
            changed = np.argwhere(~np.isclose(before, hidden, equal_nan=True))
            assert len(changed) <= streams


@pytest.mark.slow
def test_replay_gives_logged_fates_to_the_second(case: tuple[Encoding, Windows]) -> None:
    encoding, windows = case
    history = replay_log(windows, encoding)
    same = windows.valid() & ~np.asarray(history.illegal[:, 0]) & np.asarray(history.settled[:, 0])
    assert same.sum() > 0.5 * windows.valid().sum()
    for name in ("start_s", "finish_s", "status"):
        told, logged = np.asarray(getattr(history.outcome, name))[:, 0], getattr(windows.fate, name)
        np.testing.assert_array_equal(told[same], logged[same])
