"""Services told apart by where the data of a request lie: found in a log, and the same in twin, bundle and books."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from evaluation.judges.bundle_policies import encoding_of
from offline_rl.placement_contract import setting_of
from offline_rl.runner import Held, Request, load
from offline_rl.runner.setting import parse_setting
from offline_rl.runner.table import vocabulary_of
from tests.offline_rl.bundles import MLP, made_policy
from tests.twin.test_fit_encoding import DAYS, archived, request
from twin.placement.encode import read_rows
from twin.placement.encoding import Encoding, fit_encoding

NUM_NODES, SERVICES, DATA = 3, ("a", "b"), ("maps", "logs", "films")
NODES = [{"node_id": f"m{n}", "site": "here", "tier": "pool", "cpu_cores": 4.0} for n in range(NUM_NODES)]
USUAL_S = {"a": 10.0, "b": 30.0}
AWAY = 3.0
"""How much longer a run takes on a node that does not hold its data."""


def log_of(folder: Path, factor, num_rows: int = 2_400, **others):
    """The encoding of a log, its archive and its rows; runs of service, data (or whatever `label` is) and node take
    `factor(data, node)` times what is usual of the service."""
    rng, label = np.random.default_rng(3), others.pop("label", "scenario")
    rows = []
    for number in range(num_rows):
        service, data = (names[int(rng.integers(len(names)))] for names in (SERVICES, DATA))
        node = int(rng.integers(NUM_NODES))
        run_s = USUAL_S[service] * factor(data, node) * float(np.exp(0.2 * rng.normal()))
        named = {label: data, "service": service, "ran_node": f"m{node}"}
        rows.append(request(number, 0, 30.0 * number, run_s, **named, **others))
    rows.append(request(num_rows, 0, 30.0 * num_rows, 5.0, service="a", ran_node="m0", **{label: "new"}))
    archive = archived(folder / "archive", NODES, rows)
    return fit_encoding(archive, DAYS[:1]), archive, rows


def held_by_one(data: str, node: int) -> float:
    """Every node holds one of the data sets."""
    return 1.0 if DATA[node] == data else AWAY


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory):
    return log_of(tmp_path_factory.mktemp("kinds"), held_by_one)


def test_runs_are_expected_by_the_data_that_a_node_holds(logged):
    encoding, cluster = logged[0], logged[0].cluster
    assert cluster.kinds_by == "scenario"
    for service in SERVICES:
        for data in DATA:
            kind = cluster.services.index(f"{service} of {data}")
            usual_s = encoding.run_of_service_s[kind] * cluster.run_ratio[kind]
            expected = [USUAL_S[service] * held_by_one(data, node) for node in range(NUM_NODES)]
            np.testing.assert_allclose(usual_s, expected, rtol=0.12)


def test_of_labels_that_the_log_hardly_has_the_service_is_known(logged):
    """As without kinds: what is usual of the service over all data."""
    encoding, cluster = logged[0], logged[0].cluster
    for service, usual_s in USUAL_S.items():
        whole = cluster.services.index(service)
        at_all = encoding.run_of_service_s[whole] * cluster.run_ratio[whole]
        np.testing.assert_allclose(at_all, usual_s * AWAY ** (2 / 3), rtol=0.15)


@pytest.mark.parametrize("label", ["queue", "site", "agent"])
def test_other_labels_tell_kinds_apart_too_and_stated_times_count(tmp_path, label):
    encoding, _, _ = log_of(tmp_path, held_by_one, label=label, requested_run_s=60.0)
    cluster = encoding.cluster
    assert cluster.kinds_by == label
    ratio = cluster.run_ratio[cluster.services.index("b of logs")]
    np.testing.assert_allclose(60.0 * ratio, [90.0, 30.0, 90.0], rtol=0.15)


@pytest.mark.parametrize(
    "factor",
    [lambda _data, _node: 1.0, lambda data, node: (1.0 + DATA.index(data)) * (2.0 - 0.5 * node)],
    ids=["nothing", "labels and nodes, each by itself"],
)
def test_services_stay_what_they_are_where_no_label_goes_with_nodes(tmp_path, factor):
    encoding, _, _ = log_of(tmp_path, factor)
    assert encoding.cluster.kinds_by == ""
    assert set(encoding.cluster.services) == {"unknown", *SERVICES}
    assert "kinds_by" not in encoding.to_json()
    assert "kinds_by" not in setting_of(encoding)


def test_a_label_that_follows_from_the_service_makes_no_kinds(tmp_path):
    """It says nothing that the service does not, however run times go with nodes."""
    rng, rows = np.random.default_rng(0), []
    for number in range(1_200):
        service, node = int(rng.integers(3)), int(rng.integers(NUM_NODES))
        run_s = 10.0 * held_by_one(DATA[service], node)
        rows.append(request(number, 0, 60.0 * number, run_s, service=f"s{service}", scenario=DATA[service],
                            ran_node=f"m{node}"))  # fmt: skip
    assert fit_encoding(archived(tmp_path / "archive", NODES, rows), DAYS[:1]).cluster.kinds_by == ""


def test_log_and_runner_find_the_same_kind(logged):
    encoding, archive, requests = logged
    setting = parse_setting(setting_of(encoding))
    vocabulary = vocabulary_of(setting)
    rows, _ = read_rows(archive, encoding, DAYS[:1], known_until_s=np.inf)
    index_of = dict(zip(rows.request_id.tolist(), rows.request.service.tolist(), strict=True))
    for one in requests[:100] + requests[-1:]:
        labels = {name: one[name] for name in ("service", "scenario")}
        for asked in (Request(**labels), Held(0.0, **labels)):
            assert vocabulary.service_index(asked) == index_of[one["request_id"]]
    assert setting.services[index_of[requests[-1]["request_id"]]] == "a"
    assert vocabulary.service_index(Request(service="c", scenario="maps")) == 0
    assert vocabulary.service_index(Request(service="b")) == setting.services.index("b")


def test_an_encoding_keeps_them_and_a_contract_refuses_other_labels(logged):
    encoding = logged[0]
    assert Encoding.from_json(encoding.to_json()).cluster.kinds_by == "scenario"
    content = setting_of(replace(encoding, cluster=replace(encoding.cluster, kinds_by="num_nodes")))
    with pytest.raises(Exception, match="told apart"):
        parse_setting(content)


def test_a_bundle_of_kinds_decides_by_them_and_says_so(logged, tmp_path):
    """Its golden questions too; what it shows of a request's run times is what the log expects."""
    encoding, cluster = logged[0], logged[0].cluster
    made_policy(tmp_path / "bundle", encoding, MLP)
    assert "told apart by their scenario" in bundle_text(bundle_facts(tmp_path / "bundle"))
    policy, nodes = load(tmp_path / "bundle"), [{"name": name} for name in cluster.node_names]
    for data in DATA:
        asked = Request(service="a", scenario=data)
        books = policy.ledger(nodes, encoding.trained_until_s)
        for shown in (policy.explain(nodes, asked, 1e9), books.explain(asked, encoding.trained_until_s)):
            usual = [shown.features[name]["usual_run"] for name in cluster.node_names]
            usual_s = encoding.problem.time_unit_s * np.expm1(usual)
            np.testing.assert_allclose(
                usual_s, [10.0 * held_by_one(data, n) for n in range(NUM_NODES)], rtol=0.15
            )


def test_a_judge_without_kinds_shows_a_bundle_its_own(logged, tmp_path):
    encoding, archive, _ = logged
    judged, _, _ = log_of(tmp_path, lambda _data, _node: 1.0, num_rows=600)
    assert judged.cluster.kinds_by == ""
    seen_as = encoding_of(parse_setting(setting_of(encoding)), judged)
    own, shown = (read_rows(archive, one, DAYS[:1], known_until_s=np.inf)[0] for one in (encoding, seen_as))
    np.testing.assert_array_equal(shown.request.service, own.request.service)
