"""The orchestrator in NumPy decides as the one in JAX, on clusters of other sizes too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.errors import PolicyInputError
from offline_rl.orchestration.graph_encoder import GraphConfig
from offline_rl.orchestration.stepwise_actor import ChangeView, StepwiseConfig, stepwise_actor
from offline_rl.runner.frame_network import Frame, NumpyOrchestrator, orchestrator_arrays

CONFIG = StepwiseConfig(GraphConfig(8, (8,), num_hops=2), hidden=(16, 8))
NUM_CHANGES, NUM_SERVICES = 3, 4
UTILISATION = 3
"""Row of a node's features: requests in service for each core."""


def drawn(num_nodes, num_points, num_frames=20):
    """Frames with numbers by chance; leaves [..., frames]."""
    random = np.random.default_rng(num_nodes)
    shapes = (5, num_nodes), (2, num_points), (4, NUM_SERVICES), (3, NUM_SERVICES, num_nodes)
    parts = [random.normal(size=(*shape, num_frames)).astype(np.float32) for shape in shapes]
    parts[2] = np.abs(parts[2])
    able = random.random((2, NUM_SERVICES, num_nodes, num_frames)) < 0.5
    return ChangeView(*parts, able, random.random((num_nodes, num_frames)) < 0.9)


def queue_rule(view, made):
    """A replica more of the service with the longest queue, where fewest cores are in service."""
    _, _, waiting, queued, *_ = view.service
    queue = jnp.log1p(jnp.expm1(waiting) + jnp.expm1(queued)) * (jnp.sum(made, axis=1) <= 0.0)
    adds = queue[:, None] - view.node[UTILISATION][None]
    none = jnp.full_like(adds[:1], 0.2)
    return 4.0 * jnp.concatenate([none, adds, jnp.full_like(adds, -0.2)])


QUEUE_RULE = jax.jit(queue_rule)


def numpy_queue_rule(frame, made):
    """`queue_rule` for one frame."""
    return np.asarray(QUEUE_RULE(ChangeView(*frame), made))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "filtered"),
    [
        (queue_rule, True),
        (None, True),
        (None, False),
    ],
)
def test_it_decides_as_the_original(rule, filtered):
    config = StepwiseConfig(CONFIG.graph, hidden=CONFIG.hidden, filtered=filtered)
    topology = np.array([0, 0, 0, 1, 1, 2, 2])
    view = drawn(7, 3)

    def build(sites, seen):
        example = jax.tree.map(lambda leaf: leaf[..., 0], seen)
        return stepwise_actor(example, lambda one, _: one, tuple(sites), NUM_CHANGES, config, rule)

    params = build(topology, view).init(jax.random.key(1))
    params = jax.tree.map(lambda leaf: leaf + 0.1 * np.cos(np.arange(leaf.size)).reshape(leaf.shape), params)
    wide = np.repeat(np.arange(4), 5)
    for sites, seen in ((topology, view), (wide, drawn(20, 4))):
        legal = {"a_node": seen.up, "change": seen.up}
        original = jax.jit(build(sites, seen).choose)(params, None, seen, legal)
        numpy_rule = None if rule is None else numpy_queue_rule
        policy = NumpyOrchestrator(
            orchestrator_arrays(params),
            sites,
            int(sites.max()) + 1,
            NUM_CHANGES,
            2,
            True,
            filtered,
            numpy_rule,
        )
        for index in range(seen.up.shape[1]):
            chosen = policy.decide(Frame(*(leaf[..., index] for leaf in seen)))
            np.testing.assert_array_equal(chosen.node, np.asarray(original["a_node"])[:, index])
            np.testing.assert_array_equal(chosen.change, np.asarray(original["change"])[:, index])


def test_measurements_that_cannot_be_are_refused():
    view = drawn(7, 3)
    policy = NumpyOrchestrator({}, np.zeros(7, int), 1, NUM_CHANGES)
    frame = Frame(*(leaf[..., 0] for leaf in view))
    with pytest.raises(PolicyInputError, match="2 of 7 nodes"):
        policy.decide(frame._replace(up=np.arange(7) < 2))
    with pytest.raises(PolicyInputError, match="pair has numbers that are not finite"):
        policy.decide(frame._replace(pair=np.full_like(frame.pair, np.nan), up=np.ones(7, bool)))
