"""The bundle decides as the policy it was made from, proves it, and refuses everything that was tampered
with."""

import json
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest

from logs_schema.errors import ProductError
from logs_schema.product import writing
from offline_rl import bundle, losses, runner
from offline_rl.errors import PolicyInputError
from offline_rl.export import export_policy, golden_decisions
from offline_rl.networks import Example, actor, greedy_policy
from twin.networks import flatten_features

HIDDEN, NUM_NODES = (16, 8), 5
EXAMPLE = Example(
    {
        "node": jax.ShapeDtypeStruct((2, NUM_NODES, 1), jnp.float32),
        "request": jax.ShapeDtypeStruct((3, 1), jnp.float32),
    },
    jax.ShapeDtypeStruct((NUM_NODES, 1), jnp.bool_),
    None,
)
NETWORK = actor(EXAMPLE, HIDDEN)
FEATURES = tuple((f"feature {index}", "share") for index in range(2 * NUM_NODES + 3))
ACTIONS = tuple(f"node {index}" for index in range(NUM_NODES))
BACKENDS = ("numpy", "onnx")


def peaked_params():
    """Untrained parameters, scaled until the choices are far apart."""
    params = NETWORK.init(jax.random.key(0))
    params["params"]["Dense_2"]["kernel"] *= 300.0
    return params


def export(out, params, **changes):
    described = {"features": FEATURES, "actions": ACTIONS, "legality": "the request fits", "hidden": HIDDEN}
    export_policy(params, out, **(described | changes))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "bundle"
    export(folder, peaked_params(), observed=np.eye(13, dtype=np.float32), seed=4, made_from={"twin": "ab"})
    return folder


@pytest.fixture
def copied(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "bundle")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_bundle_decides_as_the_policy_on_fresh_observations(exported, backend):
    policy, rng, num = runner.load(exported, backend), np.random.default_rng(9), 500
    observation = {
        "node": jnp.asarray(rng.normal(size=(2, NUM_NODES, 1, num)), jnp.float32),
        "request": jnp.asarray(rng.normal(size=(3, 1, num)), jnp.float32),
    }
    legal = rng.random((NUM_NODES, 1, num)) < 0.5
    legal[0] |= ~legal.any(axis=0)
    original = np.asarray(NETWORK.logits(peaked_params(), observation, jnp.asarray(legal)))[:, 0].T
    decided = greedy_policy(NETWORK, peaked_params())(None, observation, jnp.asarray(legal))[0]
    features, mask = np.asarray(flatten_features(observation, 2))[:, 0].T, legal[:, 0].T
    np.testing.assert_allclose(policy.logits(features, mask), original, atol=1e-4)
    np.testing.assert_array_equal(policy.decide(features, mask), decided)
    assert len(set(np.asarray(decided).tolist())) == NUM_NODES  # the test would notice a constant policy
    assert mask[np.arange(num), decided].all()
    one = policy.decide(features[:1], mask[:1])
    assert one.shape == (1,)
    assert one[0] == decided[0]


def test_the_graph_decides_by_itself_too(exported):
    golden = bundle.read_arrays(exported / bundle.GOLDEN)
    session = onnxruntime.InferenceSession((exported / bundle.GRAPH).read_bytes())
    logits, action = session.run(None, {"features": golden["features"], "legal": golden["legal"]})
    np.testing.assert_array_equal(action, golden["action"])
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-4)
    assert action.dtype == np.int64


def test_goldens_cover_masks_of_all_kinds_and_the_observed(exported):
    golden = bundle.read_arrays(exported / bundle.GOLDEN)
    num_legal = golden["legal"].sum(axis=1)
    assert num_legal.min() == 1
    assert num_legal.max() == NUM_NODES
    assert len(golden["action"]) > 200
    unmasked = golden_decisions(peaked_params(), runner.load(exported).contract, None, 4)
    assert len(golden["action"]) > len(unmasked["action"])
    assert bundle.MASKED_LOGIT == losses.MASKED_LOGIT
    assert np.all(golden["logits"][~golden["legal"]] == np.float32(bundle.MASKED_LOGIT))


def test_the_same_policy_gives_the_same_bytes(exported, tmp_path):
    export(
        tmp_path / "b",
        peaked_params(),
        observed=np.eye(13, dtype=np.float32),
        seed=4,
        made_from={"twin": "ab"},
    )
    for backend in BACKENDS:
        again = runner.load(tmp_path / "b", backend)
        assert again.content_hash == runner.load(exported, backend).content_hash


@pytest.mark.parametrize("backend", BACKENDS)
def test_where_nothing_is_legal_nothing_is_decided(exported, backend):
    policy = runner.load(exported, backend)
    legal = np.zeros((2, NUM_NODES), bool)
    legal[1, 3] = True
    features = np.zeros((2, 13), np.float32)
    np.testing.assert_array_equal(policy.decide(features, legal), [runner.NOTHING_LEGAL, 3])
    assert policy.decide(features[:0], legal[:0]).shape == (0,)


def test_unfit_input_is_told_by_name(exported):
    policy = runner.load(exported)
    features, legal = np.zeros((2, 13), np.float32), np.ones((2, NUM_NODES), bool)
    features[1, 7] = np.inf
    with pytest.raises(PolicyInputError, match="row 1, feature 'feature 7'"):
        policy.decide(features, legal)
    for bad in (
        (features[:, :12], legal),
        (features[0], legal[0]),
        (features, legal[:1]),
        (features, legal * 1.0),
    ):
        with pytest.raises(PolicyInputError, match="these shapes"):
            policy.logits(*bad)


@pytest.mark.parametrize(
    "name", [bundle.CONTRACT, bundle.ARRAYS, bundle.GRAPH, bundle.GOLDEN, "manifest.json"]
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
            runner.load(copied, backend)


def forged(exported, folder, change):
    """A bundle whose hashes are right and whose content is not."""
    with writing(folder, bundle.KIND) as draft:
        for name in (bundle.CONTRACT, bundle.ARRAYS, bundle.GRAPH, bundle.GOLDEN):
            shutil.copy(exported / name, draft / name)
        change(draft)
    return folder


def test_a_network_that_decides_otherwise_is_refused_although_its_hashes_are_right(exported, tmp_path):
    def swap(draft):
        arrays = bundle.read_arrays(draft / bundle.ARRAYS)
        arrays["bias_2"] = arrays["bias_2"] + np.eye(NUM_NODES, dtype=np.float32)[2]
        np.savez(draft / bundle.ARRAYS, **arrays)

    def reverse(draft):
        golden = bundle.read_arrays(draft / bundle.GOLDEN)
        golden["action"] = golden["action"][::-1]
        np.savez(draft / bundle.GOLDEN, **golden)

    folder = forged(exported, tmp_path / "swapped", swap)
    with pytest.raises(ProductError, match="does not decide as the original"):
        runner.load(folder)
    runner.load(folder, "onnx")  # the graph is untouched
    with pytest.raises(ProductError, match=r"golden row .*: decides"):
        runner.load(forged(exported, tmp_path / "reversed", reverse), "onnx")


def test_foreign_contracts_are_refused(exported, tmp_path):
    def edit(**changes):
        def change(draft):
            facts = json.loads((draft / bundle.CONTRACT).read_text()) | changes
            (draft / bundle.CONTRACT).write_text(json.dumps(facts))

        return change

    cases = {
        "bundle is of version 2": edit(schema_version=2),
        "unknown activation 'tanh'": edit(activation="tanh"),
        "not the one of the contract": edit(actions=["a", "b"]),
        "contract cannot be read": edit(legality="x", surprise=1),
    }
    for number, (message, change) in enumerate(cases.items()):
        folder = forged(exported, tmp_path / str(number), change)
        for backend in BACKENDS:
            with pytest.raises(ProductError, match=message):
                runner.load(folder, backend)
    with writing(tmp_path / "twin", "twin") as draft:
        (draft / "a").write_text("b")
    with pytest.raises(ProductError, match="product of kind 'twin'"):
        runner.load(tmp_path / "twin")
    with pytest.raises(ProductError, match="no bundle here"):
        runner.load(tmp_path / "nowhere")
    with pytest.raises(ProductError, match="unknown backend 'torch'"):
        runner.load(exported, "torch")


def test_an_export_that_does_not_fit_or_does_not_agree_leaves_nothing(tmp_path, monkeypatch):
    out = tmp_path / "bundle"
    with pytest.raises(ProductError, match="not the one described"):
        export(out, peaked_params(), features=FEATURES[:-1])
    with pytest.raises(ProductError, match="not the one described"):
        export(out, peaked_params(), hidden=(16,))
    with pytest.raises(ProductError, match="cannot serve as golden"):
        export(out, peaked_params(), observed=np.full((1, 13), np.nan))
    assert not out.exists()

    def wrong(layers):
        layers.biases[-1] = layers.biases[-1] + np.arange(NUM_NODES, dtype=np.float32)
        return graph_of(layers)

    import offline_rl.export as module

    graph_of = module.masked_mlp
    monkeypatch.setattr(module, "masked_mlp", wrong)
    with pytest.raises(ProductError, match="does not decide as the original"):
        export(out, peaked_params())
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_message_says_what_to_install(exported, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ProductError, match=r"schedtwin\[onnx\]"):
        runner.load(exported, "onnx")
    runner.load(exported, "numpy")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ProductError, match=r"schedtwin\[onnx\]"):
        export(tmp_path / "bundle", peaked_params())


def test_the_runner_needs_no_jax(exported):
    code = """
import sys
import numpy as np
from offline_rl import runner
for backend in ("numpy", "onnx"):
    policy = runner.load(sys.argv[1], backend)
    print(policy.decide(np.zeros((1, 13)), np.ones((1, 5), bool))[0])
heavy = {"jax", "jaxlib", "flax", "optax", "sklearn", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(exported)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 1
