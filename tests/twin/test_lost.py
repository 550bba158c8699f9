"""Requests that find no slot on an overfull node: lost, and the least that a decision can be worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.contracts import Array
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encode import cut_windows
from twin.placement.responses import Answers, drawn_response
from twin.placement.rewards import lost_is_worst
from twin.placement.types import COMPLETED, Fate, PlacementState
from twin.placement.windows import replayed_arrivals
from twin.rollout import rollout

NUM_STEPS, DEPTH = 24, 4


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "worst"), [("on_time", 0.0), ("response", -np.log(1000.0))])
def test_overfilling_a_node_costs_what_it_loses(kind: str, worst: float) -> None:
    encoding = made_encoding(made_cluster(), depth=DEPTH, reward=kind)
    rows = made_rows(np.random.default_rng(0), encoding.cluster, NUM_STEPS)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=NUM_STEPS)

    def at_once(
        key: Array, memory: None, state: PlacementState, node: Array, aux: object
    ) -> tuple[None, Fate]:
        begun = jnp.broadcast_to(state.clock_s, node.shape)
        return None, Fate(node >= 0, begun, begun + 1e6, jnp.full(node.shape, COMPLETED))

    response = drawn_response(
        encoding.cluster, DEPTH, replayed_arrivals(windows), Answers(lambda key, streams: None, at_once)
    )
    system = environment(placement(encoding.cluster, encoding.problem), response)
    run = jax.jit(
        lambda key: rollout(key, system, lambda key, seen, legal: jnp.argmax(legal, axis=0), NUM_STEPS, (1,))
    )
    played = run(jax.random.key(0))
    counted = lost_is_worst(played, kind, 1000.0)
    lost = np.asarray(played.active & ~played.settled)
    assert lost.sum() > NUM_STEPS // 2
    np.testing.assert_array_equal(counted.settled, played.settled | lost)
    np.testing.assert_allclose(np.asarray(counted.reward)[lost], worst)
    np.testing.assert_array_equal(np.asarray(counted.reward)[~lost], np.asarray(played.reward)[~lost])
