"""Renaming nodes renames results; deeper tables and nodes that nobody may use change nothing; same key, same bits."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_rows, reordered
from twin.contracts import Trajectory
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encode import EncodedRows, cut_windows
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.history import replay_log
from twin.placement.learned import AnswerConfig, AnswerModel, answer_network, learned_answers, num_inputs
from twin.placement.responses import drawn_response
from twin.placement.windows import replayed_arrivals
from twin.rollout import rollout

STEPS = 30


@pytest.fixture(scope="module")
def rows() -> EncodedRows:
    """Every logged decision is legal, and some requests are kept off the first node by their rule."""
    made = made_rows(np.random.default_rng(11), made_cluster(), 3 * STEPS)
    small = np.minimum(made.request.demand, 1.0) * np.array([[1.0], [1.0], [0.0]], np.float32)
    rule = np.where(made.node == 0, 0, made.request.rule)
    return made._replace(request=made.request._replace(demand=small, rule=rule))


@pytest.fixture(scope="module")
def plain(rows: EncodedRows) -> Trajectory:
    return history_of(rows, made_encoding(made_cluster(), depth=8))


def history_of(rows: EncodedRows, encoding: Encoding) -> Trajectory:
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=STEPS)
    assert windows.num_overflow == 0
    history = jax.tree.map(np.asarray, replay_log(windows, encoding))
    assert not history.illegal.any()
    return history


def same_outcomes(one: Trajectory, other: Trajectory, where: np.ndarray) -> None:
    for name in ("settled", "reward", "elapsed_s"):
        a, b = getattr(one, name), getattr(other, name)
        mask = where if a.ndim == 3 else where[:, 0]
        np.testing.assert_allclose(a[mask], b[mask], rtol=1e-5, atol=1e-5)
    for a, b in zip(one.outcome, other.outcome, strict=True):
        settled = where & one.settled
        np.testing.assert_array_equal(a[settled], b[settled])


@pytest.mark.slow
def test_permuting_nodes_permutes_results(rows: EncodedRows, plain: Trajectory) -> None:
    cluster, order = made_cluster(), np.array([2, 0, 3, 1])
    place_of = np.argsort(order)
    encoding = made_encoding(reordered(cluster, order), depth=8)
    other = history_of(rows._replace(node=place_of[rows.node].astype(np.int32)), encoding)
    for seen in ("observation", "global_observation"):
        a, b = getattr(plain, seen), getattr(other, seen)
        np.testing.assert_allclose(a.node[:, :, order], b.node, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(a.request, b.request)
    same_outcomes(plain, other, plain.active)
    np.testing.assert_array_equal(plain.legal[:, order], other.legal)


@pytest.mark.slow
def test_deeper_tables_change_nothing(
    rows: EncodedRows, plain: Trajectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deep ones are folded as a single block, the plain ones in a loop over blocks, and what is left over."""
    monkeypatch.setattr("twin.placement.slots.MAX_UNROLLED", 32)
    monkeypatch.setattr("twin.placement.slots.FEW_UNROLLED", 32)
    deeper = history_of(rows, made_encoding(made_cluster(), depth=20))
    for a, b in zip(*(jax.tree.leaves(one.global_observation) for one in (plain, deeper)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    same_outcomes(plain, deeper, plain.active)
    np.testing.assert_array_equal(plain.action, deeper.action)


@pytest.mark.slow
def test_a_node_nobody_may_use_changes_nothing(rows: EncodedRows, plain: Trajectory) -> None:
    cluster = made_cluster()
    padded = replace(
        cluster,
        node_names=(*cluster.node_names, "padding"),
        capacity=np.hstack([cluster.capacity, np.full((3, 1), 5.0)]),
        unit_capacity=np.hstack([cluster.unit_capacity, np.full((3, 1), 5.0)]),
        run_ratio=np.hstack([cluster.run_ratio, np.ones((len(cluster.services), 1))]),
        run_variance=np.hstack([cluster.run_variance, np.zeros((len(cluster.services), 1))]),
        site_of_node=np.append(cluster.site_of_node, len(cluster.sites)),
        is_cloud=np.append(cluster.is_cloud, False),
        sites=(*cluster.sites, "nowhere"),
        rules=np.hstack([cluster.rules, np.zeros((len(cluster.rules), 1), bool)]),
    )
    other = history_of(rows, made_encoding(padded, depth=8))
    np.testing.assert_allclose(other.observation.node[:, :, :4], plain.observation.node, atol=1e-6)
    np.testing.assert_array_equal(other.legal[:, :4], plain.legal)
    assert not other.legal[:, 4].any()
    same_outcomes(plain, other, plain.active)


@pytest.fixture(scope="module")
def learned(rows: EncodedRows) -> tuple:
    encoding = made_encoding(made_cluster(), depth=8)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=STEPS)
    config = AnswerConfig(num_members=2, hidden=(8,))
    network = answer_network(config)
    keys = jax.random.split(jax.random.key(0), 2)
    zeros = jnp.zeros((num_inputs(encoding.cluster), 1))
    parameters = jax.tree.map(np.asarray, jax.vmap(lambda key: network.init(key, zeros))(keys))
    answers = learned_answers(encoding, config, AnswerModel(parameters, 30.0, 60.0, 0.0))
    response = drawn_response(encoding.cluster, 8, replayed_arrivals(windows), answers)
    system = environment(placement(encoding.cluster, encoding.problem), response)

    def policy(key: jax.Array, _observation: object, legal: jax.Array) -> jax.Array:
        scores = jax.random.uniform(key, legal.shape)
        return jnp.argmax(jnp.where(legal, scores, -1.0), axis=0).astype(jnp.int32)

    return system, jax.jit(lambda key: rollout(key, system, policy, STEPS, (6,)))


@pytest.mark.slow
def test_same_key_same_bits_another_key_another_episode(learned: tuple) -> None:
    _, run = learned
    one, same, other = (jax.tree.leaves(run(jax.random.key(seed))) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.slow
def test_learned_outcomes_are_possible(learned: tuple) -> None:
    _, run = learned
    path = jax.tree.map(np.asarray, run(jax.random.key(3)))
    assert path.settled.mean() > 0.5
    for name in ("start_s", "finish_s"):
        times = getattr(path.outcome, name)
        known = path.settled & np.isfinite(times)
        assert (times[known] >= path.decision_info.arrival_s[known] - 1e-3).all()
        assert (times[known] <= path.decision_info.arrival_s[known] + 90.0 + 1e-2).all()
    names = [feature.name for feature in NODE_FEATURES]
    assert np.isfinite(path.global_observation.node).all()
    assert (path.global_observation.node[:, names.index("num_running")] >= 0).all()


@pytest.mark.slow
def test_streams_do_not_touch_each_other(learned: tuple) -> None:
    """The state of one stream is the same whatever the other streams decide."""
    system, _ = learned
    step = jax.jit(system.step)
    one = other = jax.jit(lambda key: system.reset(key, (6,)))(jax.random.key(4))
    for number in range(8):
        key = jax.random.key(number)
        node = jnp.full((1, 6), number % 3, jnp.int32)
        one, _ = step(key, one, node)
        other, _ = step(key, other, node.at[0, 1:].set((number + 1) % 4))
    for a, b in zip(jax.tree.leaves(one.problem), jax.tree.leaves(other.problem), strict=True):
        np.testing.assert_array_equal(a[..., 0], b[..., 0])
    assert any(
        not np.array_equal(a[..., 1:], b[..., 1:])
        for a, b in zip(jax.tree.leaves(one.problem), jax.tree.leaves(other.problem), strict=True)
    )
