"""Advice: what corrects a planning rule begins as that rule, whatever it changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.instance import instance
from offline_rl.networks import Example
from offline_rl.orchestration.advice import AdvisedObservation, advised, advised_actor
from offline_rl.orchestration.graph_encoder import GraphConfig
from offline_rl.orchestration.stepwise_actor import StepwiseConfig
from tests.evaluation.slot_runs import small_kais
from twin.contracts import Given
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import Scaling
from twin.orchestration.frames import FrameObservation, frame_problem

SLOTS = SlotConfig(node_places=4, queue_places=6)
EDGE = instance(time_scaled(small_kais(2, 2), SLOTS, 0.6), SLOTS).public
NUM_SEATS = 2
SMALL = StepwiseConfig(GraphConfig(4, (4,)), hidden=(8, 4))


@pytest.mark.slow
def test_the_likeliest_changes_are_the_advice_until_something_is_learned():
    """Two additions of one service at two nodes; one less of a service and nothing; nothing at all; two services more
    at one node; one service twice at one node; one more and one less at one node."""
    num_services, num_nodes = EDGE.num_services, EDGE.num_nodes
    # [H, streams]
    advice = Scaling(
        np.array([[1, 2, 0, 1, 3, 2], [3, 1, 0, 1, 3, 2]], np.int32),
        np.array([[2, num_services, 0, 1, 2, 3], [2, 0, 0, 2, 2, num_services]], np.int32),
    )
    streams = 6
    legal = Scaling(
        np.ones((num_nodes, NUM_SEATS, streams), bool),
        Given(np.ones((2 * num_services - 1, num_nodes, NUM_SEATS, streams), bool)),
    )
    shapes = (
        (5, num_nodes),
        (4, num_services),
        (3, num_services, num_nodes),
        (num_services, EDGE.num_seats),
        (1, 2),
    )
    frame = FrameObservation(*(np.zeros((*shape, NUM_SEATS, streams), np.float32) for shape in shapes))
    seen = AdvisedObservation(
        frame, jax.tree.map(lambda leaf: np.repeat(leaf[:, None], NUM_SEATS, 1), advice)
    )
    example = Example(*jax.tree.map(lambda leaf: leaf[..., 0], (seen, legal)), None)
    actor = advised_actor(example, EDGE, SMALL)
    chosen = jax.jit(lambda one: actor.choose(actor.init(jax.random.key(0)), None, one, legal))(seen)
    np.testing.assert_array_equal(np.asarray(chosen.change), np.asarray(advice.change))
    done = advice.change > 0
    np.testing.assert_array_equal(np.asarray(chosen.node)[done], advice.node[done])


def test_an_advised_problem_shows_what_the_rule_would_change():
    problem = frame_problem(EDGE, FrameConfig(num_changes=NUM_SEATS))._replace(observe=lambda _state: "frame")
    rule = advised(problem, lambda _key, state: Scaling(state, state + 1))
    seen = rule.observe(jnp.array([4, 5]))
    np.testing.assert_array_equal(seen.advice.node, [[4, 4], [5, 5]])
    np.testing.assert_array_equal(seen.advice.change, [[5, 5], [6, 6]])
    assert seen.frame == "frame"
