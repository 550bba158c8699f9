"""The runner against training: names, numbers, and whole episodes retold to its own books as plain events."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from logs_schema.calendar import MONDAY_S
from offline_rl.export import decided
from offline_rl.placement_contract import placement_contract
from offline_rl.runner import Decision, features, load, load_network, table
from offline_rl.runner.setting import RESOURCES, parse_setting
from tests.offline_rl.bundles import BOUND, FREE, MLP, RESIDUAL, RULE, made_policy, made_system
from tests.offline_rl.retelling import episodes_of, follow_and_compare, retold
from twin.contracts import Trajectory
from twin.placement import types
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, request_features
from twin.placement.history import replay_log
from twin.placement.windows import Windows


def test_names_are_those_of_training() -> None:
    encoding, _ = made_system()
    vocabulary = table.vocabulary_of(parse_setting(placement_contract(encoding, MLP).setting))
    assert tuple(one.name for one in NODE_FEATURES) == features.NODE_FEATURES
    named = tuple(one.name for one in request_features(encoding.cluster))
    assert table.request_feature_names(vocabulary) == named
    assert RESOURCES == types.RESOURCES
    assert features.MONDAY_S == MONDAY_S


class Case(NamedTuple):
    """A bundle and the episodes its policy simulated."""

    folder: Path
    encoding: Encoding
    windows: Windows
    episodes: Trajectory


@pytest.fixture(
    scope="module",
    params=[
        (MLP, "summary", True, True),
        pytest.param((BOUND, "summary", True, False), marks=pytest.mark.slow),
        pytest.param((FREE, "full", False, False), marks=pytest.mark.slow),
        pytest.param((RULE, "summary", True, False), marks=pytest.mark.slow),  # the quick one: `test_rules`
    ],
    ids=["mlp, cold by others", "bound", "free, sees all, but no weekdays", "rule"],
)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    network, view, knows_week, by_others = request.param
    folder = tmp_path_factory.mktemp("parity") / "bundle"
    encoding, windows = made_system(by_others=by_others)
    problem = replace(encoding.problem, view=view)
    encoding = replace(encoding, problem=problem, cluster=replace(encoding.cluster, knows_week=knows_week))
    params = made_policy(folder, encoding, network)
    return Case(folder, encoding, windows, episodes_of(params, network, encoding, windows))


def test_whole_episodes_are_seen_and_decided_as_in_training(case: Case) -> None:
    chosen, num_nowhere = follow_and_compare(load(case.folder), case.encoding, case.windows, case.episodes)
    assert 0 < num_nowhere < 0.2 * case.windows.length.sum()
    assert len(chosen) > 1


def test_books_and_descriptions_tell_the_same(case: Case) -> None:
    policy, num_held = load(case.folder, "onnx"), 0
    # descriptions tell nothing of what was learned, nor of what ran before
    policy.setting = replace(policy.setting, dynamics=None, cold=None)
    for at, ledger, request, clock_s in retold(policy, case.encoding, case.windows, case.episodes):
        if at[2] > 0:
            break
        nodes = ledger.nodes(clock_s)
        num_held += sum(len(node.held) for node in nodes)
        same(policy.decide(nodes, request, clock_s), ledger.decide(request, clock_s))
        backwards = policy.decide(nodes[::-1], request, clock_s)
        assert backwards.node == ledger.decide(request, clock_s).node
    assert num_held > 100


def same(one: Decision, other: Decision) -> None:
    assert one.node == other.node
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(one.legal, other.legal)


@pytest.mark.slow
@pytest.mark.parametrize("num_windows", [16, 800], ids=["2,048", "102,400"])
def test_recorded_observations_are_decided_alike(tmp_path: Path, num_windows: int) -> None:
    encoding, windows = made_system(num_steps=128, num_windows=num_windows)
    history = replay_log(windows, encoding)
    choices = np.moveaxis(np.asarray(history.observation.node)[:, :, :, 0], (1, 2), (3, 2))
    context = np.moveaxis(np.asarray(history.observation.request)[:, :, 0], 1, 2)
    legal = np.moveaxis(np.asarray(history.legal)[:, :, 0], 1, 2)
    seen = [part.reshape(-1, *part.shape[2:]) for part in (choices, context, legal)]
    assert len(seen[2]) == 128 * num_windows
    for network in (MLP, BOUND, FREE, RULE, RESIDUAL):
        folder = tmp_path / f"{network.kind}-{network.identity}-{network.corrects}"
        params = made_policy(folder, encoding, network)
        _, action = decided(params, placement_contract(encoding, network), *seen)
        assert len(set(action.tolist())) > 1
        for backend in ("numpy", "onnx"):
            np.testing.assert_array_equal(load_network(folder, backend).decide(*seen), action)
