"""The on-time rule by replicas: by hand on a few nodes, and as the start of what corrects it."""

import jax
import numpy as np
import onnxruntime
import pytest
from scipy.stats import norm

from offline_rl.contract import ON_TIME_BY_REPLICAS, SHARPNESS, FeatureFacts, PolicyContract
from offline_rl.export import decided, named_arrays, network_facts
from offline_rl.losses import MASKED_LOGIT
from offline_rl.networks import Example
from offline_rl.numpy_networks import numpy_network
from offline_rl.onnx_graph import graph_of
from offline_rl.rules.on_time_by_replicas import replica_residual, replica_rule, replica_rule_params
from offline_rl.scorer import ScorerConfig
from twin.orchestration.slots import SLOT_NODE_FEATURES, SLOT_REQUEST_FEATURES
from twin.placement.features import NUMERIC_REQUEST_FEATURES
from twin.placement.types import Observation

ROW = {feature.name: row for row, feature in enumerate(SLOT_NODE_FEATURES)}
REQUEST_ROW = {feature.name: row for row, feature in enumerate(NUMERIC_REQUEST_FEATURES)}
NUM_REQUEST = len(NUMERIC_REQUEST_FEATURES) + len(SLOT_REQUEST_FEATURES)
PARAMS = replica_rule_params((0.0, 0.1, 0.5), spread=0.5, price=0.1, haste=0.0)


def offered(seats=1):
    """Four nodes for a request that takes 1 s, has 4 s and has waited .5 s.

    Node 0: at home, idle. 1: its one replica is busy. 2: no core free, 2 s of work. 3: in the cloud, idle.
    """
    node = np.zeros((len(SLOT_NODE_FEATURES), 4, seats), np.float32)
    node[ROW["free_cpu_cores"]] = np.array([1.0, 0.5, 0.0, 1.0])[:, None]
    node[ROW["needed_share"]] = 0.25
    node[ROW["usual_run"]] = np.log1p(1.0)
    node[ROW["core_time"]] = np.log1p(0.25)
    node[ROW["backlog"], 2] = np.log1p(2.0)
    node[ROW["replicas"]] = np.log1p(1.0)
    node[ROW["same_service"], 1] = np.log1p(1.0)
    node[ROW["same_site"], :3] = 1.0
    node[ROW["is_cloud"], 3] = 1.0
    request = np.zeros((NUM_REQUEST, seats), np.float32)
    request[REQUEST_ROW["deadline"]], request[REQUEST_ROW["has_deadline"]] = np.log1p(4.0), 1.0
    request[-len(SLOT_REQUEST_FEATURES)] = np.log1p(0.5)
    return Observation(node, request), np.array([[True], [True], [True], [True]]).repeat(seats, 1)


def test_scores_are_the_chance_to_be_on_time_less_a_price_for_cores():
    observation, legal = offered()
    found = np.asarray(replica_rule().logits(PARAMS, observation, legal))[:, 0] / SHARPNESS
    # 1 s for the replica; 2 s for a core; 2 x .5 s to the cloud and back
    left = np.array([3.5, 2.5, 1.5, 2.5])
    busy = np.array([0.0, 0.5, 1.0, 0.0])
    wanted = norm.cdf(np.log(left) / 0.5) - 0.1 * np.log1p(0.25) * (1.0 + busy)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    legal[0] = False
    assert np.asarray(replica_rule().logits(PARAMS, observation, legal))[0, 0] == MASKED_LOGIT


@pytest.mark.slow
def test_what_corrects_the_rule_begins_as_the_rule_and_serves_any_number_of_nodes():
    observation, legal = offered()
    example = Example(observation, legal, None)
    network = replica_residual(example, PARAMS, ScorerConfig((8,), identity=False))
    params = network.init(jax.random.key(0))
    plain = replica_rule().logits(PARAMS, observation, legal)
    np.testing.assert_allclose(network.logits(params, observation, legal), plain, rtol=1e-6)
    wide = Observation(np.tile(observation.node, (1, 3, 1)), observation.request)
    np.testing.assert_allclose(network.logits(params, wide, np.tile(legal, (3, 1)))[4:8], plain, rtol=1e-6)
    gradient = jax.grad(lambda one: network.logits(one, observation, legal).sum())(params)["params"]
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient["on_time_by_replicas"]))
    assert np.any(gradient["score"]["kernel"])
    assert float(gradient["score"]["bias"][0]) == pytest.approx(4.0)


def test_its_copies_in_numpy_and_onnx_decide_as_the_original() -> None:
    observation, legal = offered()
    network = replica_residual(Example(observation, legal, None), PARAMS, ScorerConfig((8,), identity=False))
    params = jax.tree.map(np.asarray, network.init(jax.random.key(0)))
    params["params"]["score"]["kernel"] = np.linspace(-1.0, 1.0, 8, dtype=np.float32)[:, None]
    context = (*NUMERIC_REQUEST_FEATURES, *SLOT_REQUEST_FEATURES)
    of_node, of_request = (
        tuple(FeatureFacts(f.name, f.unit) for f in part) for part in (SLOT_NODE_FEATURES, context)
    )
    facts = network_facts(params)
    assert facts.corrects == ON_TIME_BY_REPLICAS
    contract = PolicyContract("orchestration", of_node, of_request, tuple("abcd"), facts, "replicas")
    random = np.random.default_rng(0)
    choices = np.abs(random.normal(size=(50, 4, len(of_node)))).astype(np.float32)
    choices[0], asked = (
        observation.node[:, :, 0].T,
        np.abs(random.normal(size=(50, NUM_REQUEST))).astype(np.float32),
    )
    asked[0], may = observation.request[:, 0], random.random((50, 4)) < 0.7
    may[:, 0] = True
    wanted, _ = decided(params, contract, choices, asked, may)
    arrays = named_arrays(params)
    np.testing.assert_allclose(
        numpy_network(arrays, contract)(choices, asked, may), wanted, rtol=1e-4, atol=1e-3
    )
    session = onnxruntime.InferenceSession(graph_of(arrays, contract), providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {"choices": choices, "context": asked, "legal": may})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
