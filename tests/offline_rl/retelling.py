"""Episodes of training retold to the runner's own books as plain events, and compared decision by decision."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from offline_rl.contract import NetworkFacts
from offline_rl.export import original
from offline_rl.networks import greedy_policy
from offline_rl.placement_contract import placement_contract
from offline_rl.runner import Ledger, Policy, Request, load
from tests.offline_rl.bundles import carried_in, made_policy, told_request
from twin.contracts import Trajectory
from twin.placement import types
from twin.placement.encoding import Encoding
from twin.placement.history import replay_environment
from twin.placement.windows import Windows
from twin.rollout import rollout


class Retold:
    """An episode of training as plain events: what was carried in, then starts and finishes as they fall due."""

    def __init__(self, policy: Policy, encoding: Encoding, windows: Windows, window: int) -> None:
        nodes = [{"name": name} for name in encoding.cluster.node_names]
        self.ledger: Ledger = policy.ledger(nodes)
        if (cold := self.ledger._cold) is not None:  # a window begins with what its log knows
            cold.begin(float(windows.origin_s[window]) + float(windows.arrival_s[0, window]))
            cold._is_known[:] = True
        self.events: list[tuple[float, int, str]] = []
        self.failed: set[str] = set()
        for number, (node, held, start_s, finish_s) in enumerate(carried_in(encoding, windows, window)):
            self.ledger.hold(f"carried {number}", node, held)
            row = np.flatnonzero(windows.carried.node[:, window] >= 0)[number]
            status = int(windows.carried.fate.status[row, window])
            self.expect(
                f"carried {number}", np.inf if held.start_s is not None else start_s, finish_s, status
            )

    def expect(self, request_id: str, start_s: float, finish_s: float, status: int = types.COMPLETED) -> None:
        if status == types.FAILED:
            self.failed.add(request_id)
        for kind, at_s in enumerate((start_s, finish_s)):
            if np.isfinite(at_s):
                heapq.heappush(self.events, (at_s, kind, request_id))

    def catch_up(self, clock_s: float) -> None:
        while self.events and self.events[0][0] <= clock_s:
            at_s, kind, request_id = heapq.heappop(self.events)
            failed = request_id in self.failed
            ends = kind and self.ledger.finish(request_id, at_s, failed=failed)
            assert ends if kind else self.ledger.start(request_id, at_s)


def retold(
    policy: Policy,
    encoding: Encoding,
    windows: Windows,
    episodes: Trajectory,
    request_of: Callable[[int, int], Request] | None = None,
) -> Iterator[tuple[tuple, Ledger, Request, float]]:
    """Every decision of a trajectory: where it stands in the arrays, the books before it, the request and the clock.

    `request_of` (step, window) tells a request otherwise than from the arrays.
    """
    names = encoding.cluster.node_names
    for window in range(windows.num_windows):
        episode, origin_s = Retold(policy, encoding, windows, window), float(windows.origin_s[window])
        for step in range(windows.length[window]):
            at = (step, 0, window)
            clock_s = origin_s + float(windows.arrival_s[step, window])
            request = (
                told_request(encoding, windows.request, step, window)
                if request_of is None
                else request_of(step, window)
            )
            episode.catch_up(clock_s)
            yield at, episode.ledger, request, clock_s
            if episodes.outcome.status[at] != types.REJECTED:
                episode.ledger.place(f"{step}", names[int(episodes.action[at])], request, clock_s)
                fate = (
                    float(getattr(episodes.outcome, name)[at]) + origin_s for name in ("start_s", "finish_s")
                )
                episode.expect(f"{step}", *fate, int(episodes.outcome.status[at]))


def episodes_of(params: Any, network: NetworkFacts, encoding: Encoding, windows: Windows) -> Trajectory:
    """The episodes that the policy's own greedy decisions make, replayed from the log."""
    actor = original(placement_contract(encoding, network))
    system, streams = replay_environment(windows, encoding), (windows.num_windows,)
    act = jax.jit(lambda key: rollout(key, system, greedy_policy(actor, params), windows.num_steps, streams))
    return jax.tree.map(np.asarray, act(jax.random.key(0)))


def follow_and_compare(
    policy: Policy,
    encoding: Encoding,
    windows: Windows,
    episodes: Trajectory,
    request_of: Callable[[int, int], Request] | None = None,
) -> tuple[set[str], int]:
    """Holds every observation and greedy decision of the runner against a trajectory's.

    Returns:
        The nodes chosen, and how many requests fitted nowhere.
    """
    num_nowhere, chosen = 0, set()
    for at, ledger, request, clock_s in retold(policy, encoding, windows, episodes, request_of):
        told = ledger.explain(request, clock_s)
        seen = np.array([list(told.features[name].values()) for name in told.decision.nodes]).T
        of_node, of_request = episodes.observation.node[at[0], :, :, 0, at[2]], episodes.observation.request
        np.testing.assert_allclose(seen, of_node, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(list(told.request.values()), of_request[at[0], :, 0, at[2]], atol=1e-5)
        node = ledger.decide(request, clock_s).node
        if node is None:
            num_nowhere += 1
            assert not of_node[0].any()  # no node is large enough and a candidate; training had to take some
            continue
        assert told.decision.legal.tolist() == episodes.legal[at[0], :, 0, at[2]].tolist()
        assert encoding.cluster.node_names.index(node) == episodes.action[at]
        chosen.add(node)
    return chosen, num_nowhere


def needs_setting(
    folder: Path, rule: NetworkFacts, encoding: Encoding, windows: Windows, **without: object
) -> None:
    """Makes sure that a bundle of a rule sees and decides whole episodes as in training, and not without a part of its
    setting."""
    params = made_policy(folder / "bundle", encoding, rule)
    episodes = episodes_of(params, rule, encoding, windows)
    follow_and_compare(load(folder / "bundle"), encoding, windows, episodes)
    unaware = load(folder / "bundle")
    unaware.setting = replace(unaware.setting, **without)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        follow_and_compare(unaware, encoding, windows, episodes)
