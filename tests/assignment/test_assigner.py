"""A scheduler handed over: the same logits without JAX, goldens that prove it, and nothing altered is believed."""

import json
import shutil
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from logs_schema.errors import ProductError
from logs_schema.product import writing
from offline_rl.assignment.assigner import (
    SETTING,
    Assigner,
    AssignerSetting,
    golden_search,
    load_assigner,
    prove,
)
from offline_rl.assignment.export import export_assigner
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.learning import single
from offline_rl.assignment.local_search import LocalSearchConfig, improve
from offline_rl.assignment.onnx_priced import priced_graph
from offline_rl.assignment.priced import pairs_of, priced_logits, priced_params
from offline_rl.bundle import ARRAYS, ASSIGNMENT_KIND, GOLDEN, GRAPH
from tests.assignment.making import drawn
from twin.assignment.checking import AssignmentError
from twin.assignment.instances import InstanceConfig, draw_instances
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs, row_of
from twin.nested import by_path

LAW = InstanceConfig(5, 3, 12)
LARGER = InstanceConfig(12, 9, 40)
SETTING_OF_LAW = AssignerSetting(12, 3, trained_on={"law": "drawn"})


def draw(rng, num_instances):
    return draw_instances(rng, LAW, num_instances).costs


@pytest.fixture(scope="module")
def params():
    return priced_params(np.random.default_rng(3))


@pytest.fixture(scope="module")
def bundle(params, tmp_path_factory):
    out = tmp_path_factory.mktemp("assigner") / "bundle"
    export_assigner(params, out, SETTING_OF_LAW, draw)
    return out


def test_numpy_and_jax_agree_to_rounding(params, bundle):
    costs = single(draw(np.random.default_rng(5), 20))
    network = jax.jit(lambda params, costs: priced_logits(params, pairs_of(costs)))
    wanted, found = np.asarray(network(params, costs)), load_assigner(bundle).logits(costs)
    assert isinstance(found, np.ndarray)
    assert np.max(np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))) < 1e-5
    assert np.ptp(wanted) > 1.0
    steep = steeper(params)
    wanted, found = np.asarray(network(steep, costs)), Assigner(SETTING_OF_LAW, steep).logits(costs)
    largest = np.abs(wanted).max(axis=(1, 2))
    assert largest.min() > 100.0
    assert np.max(np.abs(found - wanted) / largest[:, None, None]) < 1e-5


def steeper(params):
    """Prices as after long training: logits are small differences of hundreds, and carry the rounding of those."""
    heads = params["prices"]["dense_0"]
    bias = heads["bias"] + np.r_[[6.0, 6.0, 6.0, 600.0], np.zeros(9)].astype(np.float32)
    return params | {"prices": {"dense_0": heads | {"bias": bias}}}


def test_a_network_of_large_logits_is_proved_too(params, tmp_path):
    export_assigner(steeper(params), tmp_path / "bundle", SETTING_OF_LAW, draw)
    assert load_assigner(tmp_path / "bundle").setting == SETTING_OF_LAW


def test_no_jax_is_needed(bundle):
    program = (
        "import sys\n"
        "from offline_rl.assignment.assigner import load_assigner\n"
        f"assigner = load_assigner({str(bundle)!r})\n"
        "print(assigner.setting.num_requests, 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["12", "False"]


def test_answers_are_never_worse_than_insertion_and_keep_to_their_time(bundle):
    assigner = load_assigner(bundle)
    for seed in range(5):
        costs = drawn(seed, 3, 12).costs
        inserted_s = makespan_s(costs, insertion(costs))
        assert makespan_s(costs, assigner.assign(costs)) <= inserted_s
        # No time for more
        assert assigner.assign(costs, LocalSearchConfig(time_s=0.0)).tolist() == insertion(costs).tolist()
    large = drawn(0, 40, 1500).costs
    begun_s = time.monotonic()
    found = assigner.assign(large, LocalSearchConfig(time_s=0.2, restarts=True))
    assert time.monotonic() - begun_s < 60.0
    assert makespan_s(large, found) <= makespan_s(large, insertion(large))
    nobody = large._replace(**{name: getattr(large, name)[:0] for name in large._fields[:4]})
    assert assigner.assign(nobody).shape == (0,)


def test_the_network_decides_where_the_search_begins():
    """Logits that name the best assignment are followed, where insertion and its search end elsewhere."""

    class Knowing(Assigner):
        def logits(self, costs):
            return np.where(np.arange(3) == known[:, None], 20.0, 0.0)

    better = 0
    for seed in (9, 10, 19):
        costs = drawn(seed, 3, 12, backlogs=(0, 0)).costs
        known = improve(
            costs,
            insertion(costs),
            LocalSearchConfig(restarts=True, max_restarts=30),
            np.random.default_rng(0),
        )
        plain_s, best_s = makespan_s(costs, improve(costs, insertion(costs))), makespan_s(costs, known)
        assert makespan_s(costs, Knowing(SETTING_OF_LAW, {}).assign(costs)) == pytest.approx(best_s)
        better += plain_s > best_s * (1.0 + 1e-9)
    assert better > 0


def test_rounds_of_another_order_are_outside():
    assigner = Assigner(SETTING_OF_LAW, {})
    assert assigner.outside(12, 3) == {"requests": 1.0, "edges": 1.0, "is_outside": False}
    assert not assigner.outside(119, 29)["is_outside"]
    assert assigner.outside(121, 3)["is_outside"]
    assert assigner.outside(12, 31)["is_outside"]
    assert assigner.outside(1, 3)["is_outside"]


def test_impossible_costs_are_refused(bundle):
    costs = drawn(0, 3, 12).costs
    with pytest.raises(AssignmentError, match="no edge hosts"):
        load_assigner(bundle).assign(costs._replace(work_s=np.full_like(costs.work_s, np.inf)))


def test_an_altered_copy_is_refused(bundle, tmp_path):
    for name in (ARRAYS, GOLDEN, SETTING):
        copy = tmp_path / name
        shutil.copytree(bundle, copy)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(bytes(content))
        with pytest.raises(ProductError, match="altered"):
            load_assigner(copy)
    with pytest.raises(ProductError, match="expected"):
        load_assigner(bundle, expect="0" * 64)


def rewritten(bundle, out, **files):
    """The bundle with other files, and checksums that fit them."""
    with writing(out, ASSIGNMENT_KIND) as folder:
        for name in (ARRAYS, GOLDEN, SETTING):
            (folder / name).write_bytes((bundle / name).read_bytes())
        for name, write in files.items():
            write(folder / {"arrays": ARRAYS, "golden": GOLDEN, "setting": SETTING}[name])
    return out


def saved(**arrays):
    return lambda path: np.savez(path, allow_pickle=False, **arrays)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (lambda params, golden: {"arrays": saved(**by_path(priced_params(np.random.default_rng(9))))}, "a logit is"),
        (lambda params, golden: {"arrays": saved(**dict(list(by_path(params).items())[1:]))}, "not the one that"),
        (lambda params, golden: {"arrays": saved(**{k: v * np.nan for k, v in by_path(params).items()})}, "finite"),
        (lambda params, golden: {"golden": saved(**golden | {"logits": golden["logits"] + 0.01})}, "a logit is"),
        (lambda params, golden: {"golden": saved(**{k: v[:3] for k, v in golden.items()})}, "3 rounds"),
        (lambda params, golden: {"golden": saved(**golden | {"edge": golden["edge"][:, :2]})}, "cannot be read"),
        (lambda params, golden: {"golden": saved(logits=golden["logits"])}, "cannot be read"),
        (lambda params, golden: {"setting": lambda path: path.write_text("{}")}, "setting of the scheduler"),
        (
            lambda params, golden: {"setting": lambda path: path.write_text(
                json.dumps({"num_requests": 1, "num_edges": 1, "network": "other"}))},
            "setting of the scheduler",
        ),
    ],
)  # fmt: skip
def test_what_does_not_answer_as_the_original_is_refused(bundle, params, tmp_path, files, words):
    with np.load(bundle / GOLDEN, allow_pickle=False) as file:
        golden = dict(file)
    with pytest.raises(ProductError, match=words):
        load_assigner(rewritten(bundle, tmp_path / "copy", **files(params, golden)))


def test_worse_answers_than_the_originals_are_noticed(bundle, params):
    class Lazy(Assigner):
        def assign(self, costs, search=None, rng=None):
            return np.zeros(len(costs.source), int)

    with pytest.raises(ProductError, match="a round takes"):
        prove(Lazy(SETTING_OF_LAW, params), bundle)


def test_golden_answers_are_those_of_the_original(bundle):
    assigner = load_assigner(bundle)
    with np.load(bundle / GOLDEN, allow_pickle=False) as file:
        golden = dict(file)
    costs = Costs(*(golden[f"costs/{name}"] for name in Costs._fields))
    found = [
        assigner.assign(row_of(costs, row), golden_search()).tolist() for row in range(len(golden["edge"]))
    ]
    assert found == golden["edge"].tolist()


def test_onnx_and_numpy_agree_to_rounding_on_rounds_of_any_size(params, tmp_path):
    for name, network in (("flat", params), ("steep", steeper(params))):
        folder = tmp_path / name
        export_assigner(network, folder, SETTING_OF_LAW, draw)
        by_graph, by_numpy = load_assigner(folder, backend="onnx"), load_assigner(folder)
        for rounds in (
            draw(np.random.default_rng(6), 4),
            draw_instances(np.random.default_rng(7), LARGER, 2).costs,
        ):
            costs = single(rounds)
            costs.work_s[0, 0, 0] = np.inf  # an edge that does not host the service
            wanted, found = by_numpy.logits(costs), by_graph.logits(costs)
            assert found.shape == wanted.shape
            assert found[0, 0, 0] == wanted[0, 0, 0] == np.float32(-1e9)
            hosted = np.isfinite(costs.work_s)
            largest = max(1.0, np.abs(wanted[hosted]).max())
            assert np.max(np.abs(found - wanted)[hosted]) / largest < 1e-5
        one = row_of(draw(np.random.default_rng(8), 1), 0)
        assert makespan_s(one, by_graph.assign(one)) == pytest.approx(makespan_s(one, by_numpy.assign(one)))


def test_a_graph_of_another_network_is_refused(bundle, params, tmp_path):
    other = rewritten(bundle, tmp_path / "other")
    with pytest.raises(ProductError, match="no ONNX copy"):
        load_assigner(other, backend="onnx")
    graph = priced_graph(priced_params(np.random.default_rng(9)))
    with writing(tmp_path / "wrong", ASSIGNMENT_KIND) as folder:
        for name in (ARRAYS, GOLDEN, SETTING):
            (folder / name).write_bytes((bundle / name).read_bytes())
        (folder / GRAPH).write_bytes(graph)
    assert load_assigner(tmp_path / "wrong").setting == SETTING_OF_LAW
    with pytest.raises(ProductError, match="a logit is"):
        load_assigner(tmp_path / "wrong", backend="onnx")
