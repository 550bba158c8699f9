"""Resources beside cores that requests wait for: told by a log, and seen alike by twins and runners."""

from dataclasses import replace

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.placement_contract import placement_contract, setting_of
from offline_rl.runner import Held, Node, Request, load
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import RULE, made_policy, made_system
from tests.offline_rl.retelling import episodes_of, follow_and_compare
from tests.twin.test_fit_encoding import DAYS, archived, request
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.scarcity import FEWEST, needed_shares
from twin.placement.types import RESOURCES

GIB, GPUS = RESOURCES.index("memory_gib"), RESOURCES.index("gpus")


def fitted(tmp_path, rounds: int, wait_s: float, *, memory: float = 1.0, cores: float = 1.0) -> Encoding:
    """Of a node with 8 cores, 16 GiB and two GPUs: in every round three requests of a GPU each, of which the last
    begins `wait_s` after it has come."""
    nodes = [
        {"node_id": name, "site": "here", "tier": "pool", "cpu_cores": 8.0, "memory_gib": 16.0, "gpus": 2.0}
        for name in ("m0", "m1")
    ]
    rows = []
    for number in range(3 * rounds):
        second = 100.0 * (number // 3) + number % 3
        late = wait_s if number % 3 == 2 else 0.0
        row = request(
            number, 0, second + late, 20.0, ran_node="m0", cpu_cores=cores, memory_gib=memory, gpus=1.0
        )
        rows.append(row | {"arrival": request(number, 0, second, 0.0)["arrival"]})
    return fit_encoding(archived(tmp_path / "log", nodes, rows), DAYS[:1])


def test_what_requests_wait_for_beside_cores_is_found(tmp_path):
    encoding = fitted(tmp_path, FEWEST, 18.0)
    assert encoding.cluster.scarce == (GPUS,)
    assert Encoding.from_json(encoding.to_json()).cluster.scarce == (GPUS,)
    assert setting_of(encoding)["scarce"] == ["gpus"]


@pytest.mark.parametrize(
    ("rounds", "wait_s", "asked"),
    [
        (FEWEST - 1, 18.0, {}),  # too few
        (FEWEST, 0.0, {}),  # more GPUs are promised than there are
        (FEWEST, 18.0, {"cores": 3.0}),  # cores are short, too
        (FEWEST, 18.0, {"memory": 6.0}),  # and here memory
    ],
)
def test_what_a_log_does_not_show_changes_nothing(tmp_path, rounds, wait_s, asked):
    encoding = fitted(tmp_path, rounds, wait_s, **asked)
    assert encoding.cluster.scarce == ()
    assert "scarce" not in encoding.to_json()
    assert "scarce" not in setting_of(encoding)


def test_the_share_needed_says_what_is_left_of_whatever_is_shortest():
    free = np.array([[0.75, 0.75, 0.75], [1.0, 1.0, 1.0], [0.5, 0.5, 0.25]])
    cores, gpus = np.array([0.25, 0.25, 0.25]), np.array([0.0, 0.5, 0.5])
    needed, largest = needed_shares(cores, free, [(GPUS, gpus)])
    np.testing.assert_allclose(free[0] - needed, [0.5, 0.0, -0.25])
    np.testing.assert_allclose(largest, [0.25, 0.5, 0.5])


def scarce_system():
    """Requests ask for a GPU now and then, which two nodes have one of; memory is short everywhere but in the cloud."""
    encoding, windows = made_system()
    cluster = encoding.cluster
    capacity = cluster.capacity.copy()
    capacity[GPUS] = [1.0, 0.0, 1.0, 2.0]
    capacity[GIB, :3] = [2.0, 3.0, 4.0]
    cluster = replace(cluster, capacity=capacity, unit_capacity=capacity, scarce=(GIB, GPUS))
    return replace(encoding, cluster=cluster, problem=replace(encoding.problem, view="summary")), windows


@pytest.mark.slow
def test_whole_episodes_are_seen_and_decided_as_in_training(tmp_path):
    encoding, windows = scarce_system()
    params = made_policy(tmp_path / "bundle", encoding, RULE)
    episodes = episodes_of(params, RULE, encoding, windows)
    follow_and_compare(load(tmp_path / "bundle"), encoding, windows, episodes)


def test_a_node_without_a_free_gpu_has_no_room(tmp_path):
    encoding, _ = scarce_system()
    made_policy(tmp_path / "bundle", encoding, RULE)
    policy = load(tmp_path / "bundle")
    busy = Node("edge-0", held=[Held(0.0, 0.0, 50.0, cpu_cores=0.5, gpus=1.0)])
    asked = Request(cpu_cores=0.4, gpus=1.0, site="site-0")
    seen = policy.explain([busy, Node("edge-2")], asked, 1.0).features
    assert seen["edge-0"]["free_cpu_cores"] - seen["edge-0"]["needed_share"] == pytest.approx(-1.0)
    assert seen["edge-2"]["free_cpu_cores"] - seen["edge-2"]["needed_share"] == pytest.approx(0.0)
    without = policy.explain([busy], replace(asked, gpus=0.0), 1.0).features["edge-0"]
    assert without["needed_share"] == pytest.approx(0.4 / encoding.cluster.capacity[0, 0])


def test_a_contract_says_what_is_scarce_and_refuses_what_is_not_a_resource():
    encoding, _ = scarce_system()
    contract = placement_contract(encoding, RULE)
    meanings = {one.name: one.description for one in contract.choice_features}
    assert "memory_gib or gpus" in meanings["needed_share"]
    assert "gpus" in meanings["core_time"]
    for wrong in (["cpu_cores"], ["disks"]):
        with pytest.raises(ProductError, match="what is scarce must be some of the resources beside cores"):
            parse_setting(contract.setting | {"scarce": wrong})
