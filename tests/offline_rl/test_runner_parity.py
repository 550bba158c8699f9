"""The runner against training: names, numbers, and whole episodes retold to its own books as plain events."""

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from offline_rl.contract import NetworkFacts
from offline_rl.export import decided, original
from offline_rl.networks import greedy_policy
from offline_rl.placement_contract import placement_contract
from offline_rl.runner import Decision, Ledger, Policy, features, load, load_network, table
from offline_rl.runner.setting import RESOURCES, parse_setting
from tests.offline_rl.bundles import BOUND, FREE, MLP, carried_in, made_policy, made_system, told_request
from twin.contracts import Trajectory
from twin.placement import types
from twin.placement.encode import MONDAY_S
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, request_features
from twin.placement.history import replay_environment, replay_log
from twin.placement.windows import Windows
from twin.rollout import rollout


def test_names_are_those_of_training() -> None:
    encoding, _ = made_system()
    vocabulary = table.vocabulary_of(parse_setting(placement_contract(encoding, MLP).setting))
    assert tuple(one.name for one in NODE_FEATURES) == features.NODE_FEATURES
    named = tuple(one.name for one in request_features(encoding.cluster))
    assert table.request_feature_names(vocabulary) == named
    assert RESOURCES == types.RESOURCES
    assert features.MONDAY_S == MONDAY_S


class Retold:
    """An episode of training as plain events: what was carried in, then starts and finishes as they fall due."""

    def __init__(self, policy: Policy, encoding: Encoding, windows: Windows, window: int) -> None:
        nodes = [{"name": name} for name in encoding.cluster.node_names]
        self.ledger: Ledger = policy.ledger(nodes)
        self.events: list[tuple[float, int, str]] = []
        for number, (node, held, start_s, finish_s) in enumerate(carried_in(encoding, windows, window)):
            self.ledger.hold(f"carried {number}", node, held)
            self.expect(f"carried {number}", np.inf if held.start_s is not None else start_s, finish_s)

    def expect(self, request_id: str, start_s: float, finish_s: float) -> None:
        for kind, at_s in enumerate((start_s, finish_s)):
            if np.isfinite(at_s):
                heapq.heappush(self.events, (at_s, kind, request_id))

    def catch_up(self, clock_s: float) -> None:
        while self.events and self.events[0][0] <= clock_s:
            at_s, kind, request_id = heapq.heappop(self.events)
            assert self.ledger.finish(request_id) if kind else self.ledger.start(request_id, at_s)


def retold(
    policy: Policy, encoding: Encoding, windows: Windows, lived: Trajectory
) -> Iterator[tuple[tuple, Ledger, Any, float]]:
    """Every decision of a trajectory: where it stands in the arrays, the books before it, the request and the clock."""
    names = encoding.cluster.node_names
    for window in range(windows.num_windows):
        episode, origin_s = Retold(policy, encoding, windows, window), float(windows.origin_s[window])
        for step in range(windows.length[window]):
            at = (step, 0, window)
            clock_s = origin_s + float(windows.arrival_s[step, window])
            request = told_request(encoding, windows.request, step, window)
            episode.catch_up(clock_s)
            yield at, episode.ledger, request, clock_s
            if lived.outcome.status[at] != types.REJECTED:
                episode.ledger.place(f"{step}", names[int(lived.action[at])], request, clock_s)
                fate = (
                    float(getattr(lived.outcome, name)[at]) + origin_s for name in ("start_s", "finish_s")
                )
                episode.expect(f"{step}", *fate)


def lived_by(params: Any, network: NetworkFacts, encoding: Encoding, windows: Windows) -> Trajectory:
    """The episodes that the policy's own greedy decisions make, replayed from the log."""
    actor = original(placement_contract(encoding, network))
    system, streams = replay_environment(windows, encoding), (windows.num_windows,)
    act = jax.jit(lambda key: rollout(key, system, greedy_policy(actor, params), windows.num_steps, streams))
    return jax.tree.map(np.asarray, act(jax.random.key(0)))


class Case(NamedTuple):
    """A bundle and the episodes its policy lived."""

    folder: Path
    encoding: Encoding
    windows: Windows
    lived: Trajectory


@pytest.fixture(scope="module", params=[MLP, BOUND, FREE], ids=["mlp", "bound", "free"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder, (encoding, windows) = tmp_path_factory.mktemp("parity") / "bundle", made_system()
    params = made_policy(folder, encoding, request.param)
    return Case(folder, encoding, windows, lived_by(params, request.param, encoding, windows))


def test_whole_episodes_are_seen_and_decided_as_in_training(case: Case) -> None:
    encoding, windows, lived = case.encoding, case.windows, case.lived
    policy = load(case.folder)
    num_none, chosen = 0, set()
    for at, ledger, request, clock_s in retold(policy, encoding, windows, lived):
        told = ledger.explain(request, clock_s)
        seen = np.array([list(told.features[name].values()) for name in told.decision.nodes]).T
        of_node, of_request = lived.observation.node[at[0], :, :, 0, at[2]], lived.observation.request
        np.testing.assert_allclose(seen, of_node, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(list(told.request.values()), of_request[at[0], :, 0, at[2]], atol=1e-5)
        node = ledger.decide(request, clock_s).node
        if node is None:
            num_none += 1
            assert not of_node[0].any()  # no node is large enough and a candidate; training had to take some
            continue
        assert told.decision.legal.tolist() == lived.legal[at[0], :, 0, at[2]].tolist()
        assert encoding.cluster.node_names.index(node) == lived.action[at]
        chosen.add(node)
    assert num_none < 0.2 * windows.length.sum()
    assert len(chosen) > 1


def test_books_and_descriptions_tell_the_same(case: Case) -> None:
    policy, num_held = load(case.folder, "onnx"), 0
    for at, ledger, request, clock_s in retold(policy, case.encoding, case.windows, case.lived):
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


@pytest.mark.parametrize(
    "num_windows", [16, pytest.param(800, marks=pytest.mark.slow)], ids=["2,048", "102,400"]
)
def test_recorded_observations_are_decided_alike(tmp_path: Path, num_windows: int) -> None:
    encoding, windows = made_system(num_steps=128, num_windows=num_windows)
    history = replay_log(windows, encoding)
    choices = np.moveaxis(np.asarray(history.observation.node)[:, :, :, 0], (1, 2), (3, 2))
    context = np.moveaxis(np.asarray(history.observation.request)[:, :, 0], 1, 2)
    legal = np.moveaxis(np.asarray(history.legal)[:, :, 0], 1, 2)
    seen = [part.reshape(-1, *part.shape[2:]) for part in (choices, context, legal)]
    assert len(seen[2]) == 128 * num_windows
    for network in (MLP, BOUND, FREE):
        folder = tmp_path / f"{network.kind}-{network.identity}"
        params = made_policy(folder, encoding, network)
        _, action = decided(params, placement_contract(encoding, network), *seen)
        assert len(set(action.tolist())) > 1
        for backend in ("numpy", "onnx"):
            np.testing.assert_array_equal(load_network(folder, backend).decide(*seen), action)
