"""What scenario and queue say of run times that requests do not state: found in a log, and used everywhere alike."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from offline_rl.placement_contract import setting_of
from offline_rl.runner import Held, Request, load
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import MLP, made_policy
from tests.twin.made import made_cluster, made_encoding
from tests.twin.test_fit_encoding import DAYS, archived, request
from twin.placement.cold_starts import ColdStarts
from twin.placement.encode import read_rows
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.run_labels import LabelledRuns, RunLabels, fit_run_labels

FACTORS = np.array([1.0, 0.5, 2.0])
SIZES = (2, 3, 2)
NUM_NODES = 3


def runs_of(num_rows: int, factors: np.ndarray, seed: int = 0) -> LabelledRuns:
    """Runs of two services on three nodes of unlike speeds; long scenarios go to the quick node more often."""
    rng = np.random.default_rng(seed)
    service, scenario, queue = (
        rng.integers(2, size=num_rows),
        rng.integers(3, size=num_rows),
        rng.integers(2, size=num_rows),
    )
    node = np.where((scenario == 2) & (rng.random(num_rows) < 0.6), 0, rng.integers(NUM_NODES, size=num_rows))
    run_s = (
        10.0
        * (1 + service)
        * factors[scenario]
        * np.array([0.5, 1.0, 2.0])[node]
        * np.exp(0.3 * rng.normal(size=num_rows))
    )
    usual_s = np.array([np.median(run_s[service == one]) for one in range(2)])[service]
    return LabelledRuns(service, scenario, queue, node, run_s, usual_s)


def test_factors_of_scenarios_are_found_whatever_nodes_they_ran_on():
    found = fit_run_labels(runs_of(6_000, FACTORS), NUM_NODES, SIZES)
    assert found is not None
    for row in found.of_scenario:
        np.testing.assert_allclose(row / row[0], FACTORS, rtol=0.08)
    np.testing.assert_allclose(found.of_queue, 1.0, atol=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_where_labels_say_nothing(seed):
    assert fit_run_labels(runs_of(6_000, np.ones(3), seed), NUM_NODES, SIZES) is None


def test_nothing_is_found_of_requests_that_state_their_run_time():
    runs = runs_of(6_000, FACTORS)
    assert fit_run_labels(runs._replace(usual_s=np.full(6_000, np.nan)), NUM_NODES, SIZES) is None


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Encoding, np.ndarray, list[dict]]:
    """The encoding of a log whose queues are of short and of long jobs, what it expects of every row, and the rows."""
    rng = np.random.default_rng(1)
    nodes = [{"node_id": "m0", "site": "here", "tier": "pool", "cpu_cores": 4.0}]
    requests = [
        request(number, 0, 20.0 * number, (5.0, 45.0)[number % 2] * np.exp(0.2 * rng.normal()), ran_node="m0",
                service="a", queue=("short", "long")[number % 2])
        for number in range(1_200)
    ]  # fmt: skip
    requests.append(
        request(2_000, 0, 30_000.0, 5.0, ran_node="m0", service="a", queue="long", requested_run_s=7.0)
    )
    archive = archived(tmp_path_factory.mktemp("logs") / "archive", nodes, requests)
    encoding = fit_encoding(archive, DAYS[:1])
    rows, _ = read_rows(archive, encoding, DAYS[:1], known_until_s=np.inf)
    expected_s = dict(zip(rows.request_id.tolist(), rows.request.expected_run_s.tolist(), strict=True))
    return encoding, np.array([expected_s[one["request_id"]] for one in requests]), requests


def test_a_log_expects_runs_by_their_queue(logged):
    encoding, expected_s, requests = logged
    ratio = encoding.cluster.run_ratio[encoding.cluster.services.index("a"), 0]
    for queue, mean_s in (("short", 5.0), ("long", 45.0)):
        of_queue = [one["queue"] == queue and "requested_run_s" not in one for one in requests]
        np.testing.assert_allclose(ratio * expected_s[of_queue], mean_s, rtol=0.05)
    assert expected_s[-1] == 7.0  # what is stated counts


def test_an_encoding_and_a_contract_keep_them(logged):
    encoding = logged[0]
    assert Encoding.from_json(encoding.to_json()).to_json() == encoding.to_json()
    known = parse_setting(setting_of(encoding)).run_labels
    np.testing.assert_array_equal(known.of_queue, encoding.run_labels.of_queue)
    assert "run_labels" not in replace(encoding, run_labels=None).to_json()
    assert "run_labels" not in setting_of(replace(encoding, run_labels=None))


def test_runner_and_books_expect_what_training_does(tmp_path: Path):
    cluster = replace(made_cluster(), queues=("unknown", "short", "long"))
    shape = len(cluster.services), len(cluster.scenarios), len(cluster.queues)
    rng = np.random.default_rng(0)
    labels = RunLabels(rng.uniform(0.2, 5.0, shape[:2]), rng.uniform(0.2, 5.0, (shape[0], shape[2])))
    cold = ColdStarts(40.0, np.full(shape[0], 15.0))
    encoding = replace(made_encoding(replace(cluster, cold=cold)), run_labels=labels)
    made_policy(tmp_path / "bundle", encoding, MLP)
    shown = bundle_text(bundle_facts(tmp_path / "bundle"))
    assert "as usual of service, scenario and queue" in shown
    policy, nodes = load(tmp_path / "bundle"), [{"name": name} for name in cluster.node_names]
    for index in np.ndindex(shape):
        service, scenario, queue = (
            vocabulary[one]
            for vocabulary, one in zip(
                (cluster.services, cluster.scenarios, cluster.queues), index, strict=True
            )
        )
        asked = Request(service=service, scenario=scenario, queue=queue)
        expected_s = encoding.run_of_service_s[index[0]] * float(labels.factor(*index))
        shown = policy.explain(nodes, asked, 1e9).request["expected_run"]
        assert encoding.problem.time_unit_s * np.expm1(shown) == pytest.approx(expected_s, rel=1e-5)
        assert policy.expected_run_s(
            Held(0.0, service=service, scenario=scenario, queue=queue)
        ) == pytest.approx(expected_s)
        books = policy.ledger(nodes, 1e9)
        books.decide(asked, 1e9)
        long_after = books.explain(asked, 1e9 + 1e5).features[cluster.node_names[0]]["usual_run"]
        run_s = policy.setting.nodes[0].run_ratio[index[0]] * expected_s + 15.0
        assert encoding.problem.time_unit_s * np.expm1(long_after) == pytest.approx(run_s, rel=1e-4)
        books = policy.ledger(nodes)
        books.place(1, cluster.node_names[0], asked, 1e9)
        (held,) = books.nodes(1e9)[0].held
        assert held.expected_run_s == pytest.approx(expected_s)
