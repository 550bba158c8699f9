"""How the dispatchers and orchestrators of the papers learn, and which policy of theirs is judged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.networks import Actor, Example
from offline_rl.orchestration.config import ALTERNATING, JOINT, SEPARATE, TrainingBudget
from offline_rl.recipes.slot_learners import TOGETHER, dispatchers, orchestrators, trained_together
from offline_rl.recipes.slot_training import TrainedDispatch
from offline_rl.rules.on_time_by_replicas import replica_rule_params
from twin.orchestration.frames import few_waiting, on_time_share
from twin.orchestration.slots import SLOT_NODE_FEATURES, SLOT_REQUEST_FEATURES
from twin.placement.features import NUMERIC_REQUEST_FEATURES
from twin.placement.types import Observation

KEY = jax.random.key(0)


def example(num_nodes=3, num_seats=2):
    """Shapes of a dispatcher's observation in a small cluster."""
    num_features = len(NUMERIC_REQUEST_FEATURES) + len(SLOT_REQUEST_FEATURES)
    node = jax.ShapeDtypeStruct((len(SLOT_NODE_FEATURES), num_nodes, num_seats), jnp.float32)
    seen = Observation(node, jax.ShapeDtypeStruct((num_features, num_seats), jnp.float32))
    return Example(seen, jax.ShapeDtypeStruct((num_nodes, num_seats), jnp.bool_), seen)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("cmmac", (0.5, 0.3, 0.2)),
        ("mappo", (0.5, 0.3, 0.2)),
        ("ac", (0.5, 0.3, 0.2)),
        ("cmmac_central", (0.5, 0.3, 0.2)),
        ("ddpg", (1.0, 0.0, 0.0)),
    ],
)
def test_dispatchers_of_the_papers_are_judged_by_what_they_learned_to_draw(name, shares):
    learner = dispatchers()[name](example(), replica_rule_params())
    logits = jnp.log(jnp.array([0.5, 0.3, 0.2]))[:, None, None]
    network = Actor(
        lambda _key: (), lambda _params, _observation, legal: jnp.broadcast_to(logits, legal.shape)
    )
    trained = TrainedDispatch(network, (), (), learner.margin, None)
    drawn = np.asarray(trained.policy()(KEY, None, jnp.ones((3, 2, 4000), bool)))
    np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=3) / drawn.size, shares, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cmmac_by_node", "mappo_by_node"])
def test_what_scores_node_by_node_serves_other_numbers_of_nodes(name):
    network = dispatchers()[name](example(num_nodes=3), replica_rule_params()).network
    params = network.init(KEY)
    wide = jax.tree.map(lambda leaf: jax.random.normal(KEY, leaf.shape), example(num_nodes=5).observation)
    legal = jnp.ones((5, 2), bool)
    logits = network.logits(params, wide, legal)
    assert logits.shape == (5, 2)
    order = jnp.array([3, 1, 4, 0, 2])
    turned = network.logits(params, wide._replace(node=wide.node[:, order]), legal)
    np.testing.assert_allclose(turned, logits[order], rtol=1e-4, atol=1e-6)


def test_orchestrators_are_worth_the_share_on_time_unless_they_name_a_paper_s_reward():
    worth = {name: one.worth for name, one in orchestrators().items()}
    assert worth.pop("gpg_kais_reward") is few_waiting
    assert set(worth.values()) == {on_time_share}
    assert {"gpg", "gpo", "gpo_kmps_reward"} < set(worth)


def test_together_both_sides_simulate_as_many_slots_as_apart():
    """By hand: 10 updates of 200 + 300 slots and of 16 frames of 100 are 21,000 slots, 13 updates of 1,600."""
    budget = TrainingBudget(num_updates=10, num_frames=16, num_slots=300, num_warm_up_slots=200)
    assert budget.training == SEPARATE
    assert budget.num_joint_updates(slots_per_frame=100) == 13
    assert TrainingBudget(num_updates=1, num_frames=1000).num_joint_updates(100) == 1
    with pytest.raises(ConfigError, match="training = 'both'") as refused:
        TrainingBudget(training="both")
    assert refused.value.allowed == f"{SEPARATE}, {JOINT}, {ALTERNATING}"


def test_pairs_that_learn_together_are_of_learners_that_there_are():
    known = trained_together()
    assert len(known) == 2 * len(TOGETHER)
    assert {way for _, way in known.values()} == {JOINT, ALTERNATING}
    for (dispatcher, orchestrator), _ in known.values():
        assert dispatcher in dispatchers()
        assert orchestrator in orchestrators()
