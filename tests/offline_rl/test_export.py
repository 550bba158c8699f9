"""The bundle decides as the policy it was made from, proves it, and refuses everything that was tampered
with."""

import json
import re
import shutil
import sys
from dataclasses import replace

import jax
import numpy as np
import onnxruntime
import pytest

from logs_schema.errors import ProductError
from logs_schema.product import writing
from offline_rl import bundle, contract, losses, numpy_networks, runner
from offline_rl.contract import FeatureFacts, NetworkFacts, PolicyContract
from offline_rl.errors import PolicyInputError
from offline_rl.export import decided, export_policy, golden_decisions, network_facts, original

NUM_NODES, NUM_FEATURES, NUM_CONTEXT = 5, 2, 3
FLAT = NUM_NODES * NUM_FEATURES + NUM_CONTEXT
NETWORKS = {
    "mlp": NetworkFacts("mlp", (16, 8)),
    "scorer": NetworkFacts("scorer", (12, 8), identity=True, pooled=True),
    "free": NetworkFacts("scorer", (12, 8), identity=False, pooled=True),
    "plain": NetworkFacts("scorer", (12,), identity=False, pooled=False),
}
BACKENDS = ("numpy", "onnx")


def contract_of(network: NetworkFacts) -> PolicyContract:
    return PolicyContract(
        problem="assignment",  # one that is decided from arrays only
        choice_features=tuple(FeatureFacts(f"choice {index}", "share") for index in range(NUM_FEATURES)),
        context_features=tuple(FeatureFacts(f"context {index}", "share") for index in range(NUM_CONTEXT)),
        choices=tuple(f"node {index}" for index in range(NUM_NODES)),
        network=network,
        legality="the request fits",
    )


def peaked_params(network: NetworkFacts = NETWORKS["mlp"]):
    """Untrained parameters, with random biases, scaled until the choices are far apart."""
    params = original(contract_of(network)).init(jax.random.key(0))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: np.asarray(leaf) + 0.3 * rng.normal(size=leaf.shape), params)
    last = "Dense_2" if network.kind == "mlp" else "score"
    params["params"][last]["kernel"] = params["params"][last]["kernel"] * 30.0
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)


def export(out, params, **changes):
    export_policy(params, out, contract_of(network_facts(params)), **changes)


def observations(rng, num, num_nodes=NUM_NODES):
    choices = rng.normal(size=(num, num_nodes, NUM_FEATURES)).astype(np.float32)
    context = rng.normal(size=(num, NUM_CONTEXT)).astype(np.float32)
    legal = rng.random((num, num_nodes)) < 0.5
    legal[:, 0] |= ~legal.any(axis=1)
    return choices, context, legal


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """One bundle for every network."""
    folder = tmp_path_factory.mktemp("export")
    for name, network in NETWORKS.items():
        params = peaked_params(network)
        export(
            folder / name, params, observed=np.eye(FLAT, dtype=np.float32), seed=4, made_from={"twin": "ab"}
        )
    return folder


@pytest.fixture(scope="module")
def exported(bundles):
    return bundles / "mlp"


@pytest.fixture
def copied(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "bundle")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_the_bundle_decides_as_the_policy_on_fresh_observations(bundles, name, backend):
    policy, rng, num = runner.load_network(bundles / name, backend), np.random.default_rng(9), 500
    seen = observations(rng, num)
    logits, action = decided(peaked_params(NETWORKS[name]), policy.contract, *seen)
    np.testing.assert_allclose(policy.logits(*seen), logits, atol=1e-3, rtol=1e-5)
    np.testing.assert_array_equal(policy.decide(*seen), action)
    assert len(set(action.tolist())) == NUM_NODES  # the test would notice a constant policy
    assert seen[2][np.arange(num), action].all()
    one = policy.decide(*(part[:1] for part in seen))
    assert one.shape == (1,)
    assert one[0] == action[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["free", "plain"])
def test_a_policy_bound_to_no_nodes_decides_among_any_number_of_them(bundles, name, backend):
    policy, rng = runner.load_network(bundles / name, backend), np.random.default_rng(3)
    for num_nodes in (1, 3, 40):
        seen = observations(rng, 200, num_nodes)
        logits, action = decided(peaked_params(NETWORKS[name]), policy.contract, *seen)
        np.testing.assert_allclose(policy.logits(*seen), logits, atol=1e-3, rtol=1e-5)
        np.testing.assert_array_equal(policy.decide(*seen), action)
    choices, context, legal = observations(rng, 50)
    shuffled = rng.permutation(NUM_NODES)
    again = policy.decide(choices[:, shuffled], context, legal[:, shuffled])
    np.testing.assert_array_equal(shuffled[again], policy.decide(choices, context, legal))


def test_the_network_is_known_by_its_layers():
    for network in NETWORKS.values():
        assert network_facts(peaked_params(network)) == network
    with pytest.raises(ProductError, match="cannot be exported"):
        network_facts({"params": {"Conv_0": {"kernel": np.ones((1, 1)), "bias": np.ones(1)}}})


def test_the_graph_decides_by_itself_too(exported):
    golden = bundle.read_golden(exported, contract_of(NETWORKS["mlp"]))
    session = onnxruntime.InferenceSession((exported / bundle.GRAPH).read_bytes())
    inputs = {name: golden[name] for name in ("choices", "context", "legal")}
    logits, action = session.run(None, inputs)
    np.testing.assert_array_equal(action, golden["action"])
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-3, rtol=1e-5)
    assert action.dtype == np.int64


def test_goldens_cover_masks_of_all_kinds_and_the_observed(exported):
    golden = bundle.read_golden(exported, contract_of(NETWORKS["mlp"]))
    num_legal = golden["legal"].sum(axis=1)
    assert num_legal.min() == 1
    assert num_legal.max() == NUM_NODES
    assert len(golden["action"]) > 200
    contract = runner.load_network(exported).contract
    unmasked = golden_decisions(peaked_params(), contract, None, np.random.default_rng(4))
    assert len(golden["action"]) > len(unmasked["action"])
    assert numpy_networks.MASKED_LOGIT == losses.MASKED_LOGIT
    assert np.all(golden["logits"][~golden["legal"]] == np.float32(numpy_networks.MASKED_LOGIT))


@pytest.mark.parametrize("name", ["mlp", "scorer"])
def test_the_same_policy_gives_the_same_bytes(bundles, name, tmp_path):
    params = peaked_params(NETWORKS[name])
    export(tmp_path / "b", params, observed=np.eye(FLAT, dtype=np.float32), seed=4, made_from={"twin": "ab"})
    for backend in BACKENDS:
        again = runner.load_network(tmp_path / "b", backend)
        assert again.content_hash == runner.load_network(bundles / name, backend).content_hash


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mlp", "free"])
def test_where_nothing_is_legal_nothing_is_decided(bundles, name, backend):
    policy = runner.load_network(bundles / name, backend)
    legal = np.zeros((2, NUM_NODES), bool)
    legal[1, 3] = True
    choices, context = np.zeros((2, NUM_NODES, NUM_FEATURES)), np.zeros((2, NUM_CONTEXT))
    np.testing.assert_array_equal(policy.decide(choices, context, legal), [runner.NOTHING_LEGAL, 3])
    assert policy.decide(choices[:0], context[:0], legal[:0]).shape == (0,)
    if name == "free":
        nobody = policy.decide(choices[:, :0], context, legal[:, :0])
        np.testing.assert_array_equal(nobody, [runner.NOTHING_LEGAL] * 2)


def test_unfit_input_is_told_by_name(exported):
    policy = runner.load_network(exported)
    choices, context = np.zeros((2, NUM_NODES, NUM_FEATURES)), np.zeros((2, NUM_CONTEXT))
    legal = np.ones((2, NUM_NODES), bool)
    for array, message in ((choices[1, 2], "feature 'choice 1'"), (context[1], "row 1, feature 'context 1'")):
        array[1] = np.inf
        with pytest.raises(PolicyInputError, match=message):
            policy.decide(choices, context, legal)
        array[1] = 0.0
    for bad in (
        (choices[:, :4], context, legal),
        (choices, context[:, :2], legal),
        (choices[0], context[0], legal[0]),
        (choices, context, legal[:1]),
        (choices, context, legal * 1.0),
    ):
        with pytest.raises(PolicyInputError, match="these shapes"):
            policy.logits(*bad)


@pytest.mark.parametrize(
    "name", [contract.CONTRACT, bundle.ARRAYS, bundle.GRAPH, bundle.GOLDEN, "manifest.json"]
)
@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_damaged_bundles_are_refused(copied, name, damage):
    file = copied / name
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 1
    damaged = {"flipped": bytes(content), "truncated": bytes(content[:middle])}
    file.write_bytes(damaged[damage]) if damage in damaged else file.unlink()
    for backend in BACKENDS:
        with pytest.raises(ProductError):
            runner.load_network(copied, backend)


def forged(exported, folder, change):
    """A bundle whose hashes are right and whose content is not."""
    with writing(folder, bundle.KIND) as draft:
        for name in (contract.CONTRACT, bundle.ARRAYS, bundle.GRAPH, bundle.GOLDEN):
            shutil.copy(exported / name, draft / name)
        change(draft)
    return folder


def test_a_network_that_decides_otherwise_is_refused_although_its_hashes_are_right(exported, tmp_path):
    def swap(draft):
        arrays = bundle.read_arrays(draft / bundle.ARRAYS)
        arrays["Dense_2/bias"] = arrays["Dense_2/bias"] + np.eye(NUM_NODES, dtype=np.float32)[2]
        np.savez(draft / bundle.ARRAYS, **arrays)

    def reverse(draft):
        golden = bundle.read_arrays(draft / bundle.GOLDEN)
        golden["action"] = np.where(golden["legal"], golden["logits"], np.inf).argmin(axis=1)
        np.savez(draft / bundle.GOLDEN, **golden)

    folder = forged(exported, tmp_path / "swapped", swap)
    with pytest.raises(ProductError, match="does not decide as the original"):
        runner.load_network(folder)
    runner.load_network(folder, "onnx")  # the graph is untouched
    with pytest.raises(ProductError, match=r"golden row .*: decides"):
        runner.load_network(forged(exported, tmp_path / "reversed", reverse), "onnx")


def test_foreign_contracts_are_refused(exported, tmp_path):
    def edit(**changes):
        def change(draft):
            facts = json.loads((draft / contract.CONTRACT).read_text()) | changes
            (draft / contract.CONTRACT).write_text(json.dumps(facts))

        return change

    network = json.loads((exported / contract.CONTRACT).read_text())["network"]
    cases = {
        r"(?s)bundle is of version 3.*schedtwin export POLICY --out": edit(schema_version=3),
        "unknown activation 'tanh'": edit(network=network | {"activation": "tanh"}),
        "unknown network 'transformer'": edit(network=network | {"kind": "transformer"}),
        "the problem must have a name": edit(problem=""),
        "not the one of the contract": edit(choices=["a", "b"]),
        "contract cannot be read": edit(legality="x", surprise=1),
    }
    for number, (message, change) in enumerate(cases.items()):
        folder = forged(exported, tmp_path / str(number), change)
        for backend in BACKENDS:
            with pytest.raises(ProductError) as caught:
                runner.load_network(folder, backend)
            assert re.search(message, str(caught.value))
    with writing(tmp_path / "twin", "twin") as draft:
        (draft / "a").write_text("b")
    with pytest.raises(ProductError, match="product of kind 'twin'"):
        runner.load_network(tmp_path / "twin")
    with pytest.raises(ProductError, match="no bundle here"):
        runner.load_network(tmp_path / "nowhere")
    with pytest.raises(ProductError, match="unknown backend 'torch'"):
        runner.load_network(exported, "torch")
    with pytest.raises(ProductError, match="is of the problem 'assignment', not 'placement'"):
        runner.load(exported)


def test_an_export_that_does_not_fit_or_does_not_agree_leaves_nothing(tmp_path, monkeypatch):
    out, params = tmp_path / "bundle", peaked_params()
    fitting = contract_of(NETWORKS["mlp"])
    for unfit in (
        replace(fitting, choice_features=fitting.choice_features[:-1]),
        replace(fitting, network=replace(fitting.network, hidden=(16,))),
        replace(fitting, network=NETWORKS["scorer"]),
    ):
        with pytest.raises(ProductError, match="not the one of the contract"):
            export_policy(params, out, unfit)
    with pytest.raises(ProductError, match="cannot serve as golden"):
        export(out, params, observed=np.full((1, FLAT), np.nan))
    with pytest.raises(ProductError, match="no JSON form"):
        export_policy(params, out, replace(fitting, setting={"capacity": float("inf")}))
    assert not out.exists()

    def wrong(arrays, contract):
        bias = arrays["Dense_2/bias"] + np.arange(NUM_NODES, dtype=np.float32)
        return graph_of(arrays | {"Dense_2/bias": bias}, contract)

    import offline_rl.export as module

    graph_of = module.graph_of
    monkeypatch.setattr(module, "graph_of", wrong)
    with pytest.raises(ProductError, match="does not decide as the original"):
        export(out, params)
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_message_says_what_to_install(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ProductError, match=r"\[runner\]"):
        runner.load_network(exported, "onnx")
    runner.load_network(exported, "numpy")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ProductError, match=r"\[onnx\]"):
        export(tmp_path / "bundle", peaked_params())
