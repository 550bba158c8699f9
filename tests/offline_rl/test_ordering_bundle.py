"""Bundles of ordering policies: the same files, decided from arrays."""

import jax
import numpy as np

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from offline_rl.contract import NetworkFacts
from offline_rl.export import decided, export_policy, original
from offline_rl.ordering.contract import ordering_contract
from offline_rl.runner import load_network
from twin.ordering.config import OrderingConfig
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.types import Pool


def test_an_ordering_policy_is_handed_over_and_takes_queues_of_any_length(tmp_path):
    config = OrderingConfig(num_visible=6, queue_size=12)
    network = NetworkFacts("scorer", (16, 8), identity=False, pooled=True)
    contract = ordering_contract(Pool(64.0, easy=True), config, network, licence="ours")
    rng = np.random.default_rng(2)
    params = jax.tree.map(
        lambda leaf: np.asarray(leaf + 0.2 * rng.normal(size=leaf.shape), np.float32),
        original(contract).init(jax.random.key(0)),
    )
    export_policy(params, tmp_path / "bundle", contract)
    for num_places in (6, 20):
        choices = rng.normal(size=(300, num_places, len(JOB_FEATURES))).astype(np.float32)
        context = rng.normal(size=(300, len(POOL_FEATURES))).astype(np.float32)
        legal = np.arange(num_places) < rng.integers(1, num_places + 1, (300, 1))
        _, action = decided(params, contract, choices, context, legal)
        for backend in ("numpy", "onnx"):
            policy = load_network(tmp_path / "bundle", backend)
            np.testing.assert_array_equal(policy.decide(choices, context, legal), action)
    assert policy.contract == contract
    assert policy.contract.setting["processors"] == 64.0
    text = bundle_text(bundle_facts(tmp_path / "bundle"))
    assert "ordering" in text
    assert "could_backfill" in text
    assert "64 processors, with" in text
