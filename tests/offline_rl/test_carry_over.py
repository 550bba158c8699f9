"""Parameters of a small cluster decide in one of 10 access points with 100 nodes, whatever the order of the nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.networks import Actor, Example, near_best_policy
from offline_rl.orchestration.graph_encoder import GraphConfig
from offline_rl.orchestration.stepwise_actor import ChangeView, StepwiseActor, StepwiseConfig, stepwise_actor
from offline_rl.rules.on_time_by_replicas import replica_residual
from offline_rl.scorer import ScorerConfig
from twin.contracts import PyTree
from twin.orchestration.slots import SLOT_NODE_FEATURES, SLOT_REQUEST_FEATURES
from twin.placement.features import NUMERIC_REQUEST_FEATURES
from twin.placement.types import Observation

KEY = jax.random.key(0)
NUM_NODE = len(SLOT_NODE_FEATURES)
NUM_FIXED = len(NUMERIC_REQUEST_FEATURES) + len(SLOT_REQUEST_FEATURES)
RANDOM = np.random.default_rng(0)
ORDER = RANDOM.permutation(100)
CONFIG = StepwiseConfig(GraphConfig(16, (32,)), hidden=(64, 32))


def seen(num_nodes: int, num_points: int, num_services: int) -> tuple[Observation, np.ndarray]:
    """What every access point sees, and where it may send, in three streams."""
    trailing = (num_points, 3)
    node = RANDOM.random((NUM_NODE, num_nodes, *trailing)).astype(np.float32)
    request = RANDOM.random((NUM_FIXED + num_points + num_services, *trailing)).astype(np.float32)
    return Observation(node, request), RANDOM.random((num_nodes, *trailing)) < 0.7


def dispatching(num_nodes: int, num_points: int, num_services: int) -> Actor:
    observation, legal = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype),
        seen(num_nodes, num_points, num_services),
    )
    config = ScorerConfig((32, 16), identity=False, pooled=False)
    return replica_residual(Example(observation, legal, None), None, config, any_size=True)


@pytest.mark.slow
def test_a_dispatcher_of_three_access_points_and_24_nodes_scores_a_hundred_in_any_order() -> None:
    network = dispatching(24, 3, 12)
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(KEY))
    observation, legal = seen(100, 10, 40)
    score = jax.jit(network.logits)
    logits = np.asarray(score(params, observation, legal))
    moved = observation._replace(node=observation.node[:, ORDER])
    np.testing.assert_allclose(score(params, moved, legal[ORDER]), logits[ORDER], rtol=1e-5, atol=1e-5)
    assert logits[legal].std() > 1e-2
    request = observation.request.copy()
    request[len(NUMERIC_REQUEST_FEATURES) : -len(SLOT_REQUEST_FEATURES)] = (
        0.0  # of which site and service it is
    )
    np.testing.assert_array_equal(score(params, observation._replace(request=request), legal), logits)
    chosen = near_best_policy(network, params, 0.0)(KEY, observation, legal)
    assert np.take_along_axis(legal, np.asarray(chosen)[None], axis=0).all()


def view_of(num_nodes: int, num_points: int, num_services: int) -> ChangeView:
    shapes = (8, num_nodes), (2, num_points), (6, num_services), (7, num_services, num_nodes)
    parts = [RANDOM.normal(size=shape).astype(np.float32) for shape in shapes]
    able = RANDOM.random((2, num_services, num_nodes)) < 0.5
    return ChangeView(*parts, able, RANDOM.random(num_nodes) < 0.9)


def orchestrating(view: ChangeView, point_of_node: np.ndarray) -> StepwiseActor:
    return stepwise_actor(view, lambda one, _: one, tuple(point_of_node.tolist()), 2, CONFIG)


@pytest.mark.slow
def test_an_orchestrator_of_40_nodes_changes_the_same_replicas_of_a_hundred_in_any_order() -> None:
    params = orchestrating(view_of(40, 5, 12), np.repeat(np.arange(5), 8)).init(KEY)
    params = jax.tree.map(lambda leaf: 3.0 * leaf, params)
    view, point = view_of(100, 10, 40), np.repeat(np.arange(10), 10)
    other = view._replace(
        node=view.node[:, ORDER], pair=view.pair[:, :, ORDER], able=view.able[:, :, ORDER], up=view.up[ORDER]
    )
    legal = {"a_node": jnp.zeros(()), "change": jnp.zeros(())}

    @jax.jit
    def both(params: PyTree) -> tuple[PyTree, PyTree]:
        return (
            orchestrating(view, point).choose(params, None, view, legal),
            orchestrating(other, point[ORDER]).choose(params, None, other, legal),
        )

    plain, moved = both(params)
    np.testing.assert_array_equal(ORDER[np.asarray(moved["a_node"])], plain["a_node"])
    np.testing.assert_array_equal(moved["change"], plain["change"])
    assert len(set(np.asarray(plain["a_node"]).tolist())) == 2
