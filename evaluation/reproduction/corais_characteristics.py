"""The characteristic tests of CoRaiS's table VI, for any solver: does it balance, see workload, know quick edges?

    LB  load balancing            five equal edges with equal backlogs: requests and completions are about equal
    WP  workload perception       equal edges, more to do already from A to E: fewer requests from A to E
    HA  heterogeneity awareness   equal backlogs in seconds, quicker edges from A to E: more requests from A to E

100 equal requests come to edge A, and their clients stay there; where the edges lie and how large the requests are is
drawn anew for every experiment. The numbers of the edges are ours: the text that is at hand has lost the paper's.
Equal requests have equal logits, so a network that always takes the likeliest edge sends them all to one; the paper
samples, and so does a scheduler that is compared with it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from evaluation.reproduction.corais_solvers import Solve
from logs_schema.errors import ConfigError
from twin.assignment.instances import costs_of
from twin.assignment.objective import completion_s
from twin.assignment.types import AssignmentInstance, Edges, RoundRequests, row_of

LB, WP, HA = "LB", "WP", "HA"
NUM_EDGES, NUM_REQUESTS = 5, 100
REPLICAS, SIZE_MIB, TRANSFER_S = 3.0, (0.5, 1.0), 1.0
S_PER_MIB: Mapping[str, tuple[float, ...]] = {LB: (0.6,) * 5, WP: (0.6,) * 5, HA: (1.0, 0.8, 0.6, 0.45, 0.3)}
"""Slope of the computing time of edges A to E."""
BACKLOG_S: Mapping[str, tuple[float, ...]] = {LB: (0.7,) * 5, WP: (0.0, 0.4, 0.8, 1.2, 1.6), HA: (0.7,) * 5}
"""Computing left of edges A to E: half of it of requests that came there, half of requests from other edges."""
MOST_OFF = 0.2
"""Of LB: mean requests of an edge over an equal share, at most (the paper's: .08); the source rightly keeps more."""
MOST_SPREAD: Mapping[str, float] = {LB: 0.1, WP: 0.2, HA: 0.6}
"""Mean completions: the latest edge's less the earliest's, over their mean (the paper's: .007, .017, .48)."""
TIE = 1.0
"""Of WP and HA: requests by which an edge may be out of order (the paper's HA: .04)."""


def characteristic_instances(test: str, num_experiments: int, seed: int = 0) -> AssignmentInstance:
    """The experiments of a test; leaves [experiments, ...].

    Args:
        test: `LB`, `WP` or `HA`.
        num_experiments: How many.
        seed: Of places and sizes; the tests share them.

    Raises:
        ConfigError: No such test, or no experiment.
    """
    if test not in S_PER_MIB or num_experiments < 1:
        raise ConfigError(
            f"{num_experiments} experiments of '{test}'",
            where="characteristic tests",
            allowed=f"1 or more of {', '.join(S_PER_MIB)}",
        )
    rng, edge = np.random.default_rng(seed), (num_experiments, NUM_EDGES)
    xy = rng.uniform(size=(*edge, 2))
    compute = np.zeros((*edge, 3))
    compute[..., 1] = S_PER_MIB[test]
    half_s = np.broadcast_to(0.5 * np.array(BACKLOG_S[test]), edge)
    nothing = np.zeros(edge)
    edges = Edges(xy, compute, np.full(edge, REPLICAS), half_s, nothing, half_s, nothing, nothing)
    size_mib = np.repeat(rng.uniform(*SIZE_MIB, size=(num_experiments, 1)), NUM_REQUESTS, axis=1)
    at_a = np.zeros(size_mib.shape, int)
    xy_of_a = np.broadcast_to(xy[:, :1], (*size_mib.shape, 2))
    requests = RoundRequests(at_a, at_a, xy_of_a, size_mib, size_mib)
    return AssignmentInstance(edges, requests, costs_of(edges, requests, TRANSFER_S))


def measure(solver: Solve, num_experiments: int, seed: int = 0) -> list[dict[str, Any]]:
    """What a solver makes of the tests.

    Args:
        solver: (instance, generator) -> answer.
        num_experiments: Of every test; every solver meets the same.
        seed: Of the experiments and of what the solver draws.

    Returns:
        Three rows: `test`; [A to E] `requests` and `completion_s`, means over the experiments; `off`, the largest
        distance of the former from an equal share, relatively; `spread`, the latter's largest minus least over their
        mean; `in_order`, the share of pairs of edges whose requests are in the test's order, None for LB; `holds`.
    """
    rows = []
    for test in S_PER_MIB:
        batch = characteristic_instances(test, num_experiments, seed)
        counts, ends_s = np.empty((2, num_experiments, NUM_EDGES))
        for number in range(num_experiments):
            instance = row_of(batch, number)
            edge = solver(instance, np.random.default_rng((seed, number))).edge
            counts[number] = np.bincount(edge, minlength=NUM_EDGES)
            ends_s[number] = completion_s(instance.costs, edge)
        rows.append({"test": test, "num_experiments": num_experiments} | judged(test, counts, ends_s))
    return rows


def judged(test: str, counts: np.ndarray, ends_s: np.ndarray) -> dict[str, Any]:
    """What `measure` says of the requests and completions [experiments, edges] of a test."""
    requests, completion = counts.mean(axis=0), ends_s.mean(axis=0)
    off = float(np.max(np.abs(requests * NUM_EDGES / NUM_REQUESTS - 1.0)))
    spread = float(np.ptp(completion) / completion.mean())
    in_order = None
    if test != LB:
        first, last = np.triu_indices(NUM_EDGES, 1)
        more = (requests[last] - requests[first]) * (1.0 if test == HA else -1.0)
        in_order = float(np.mean(more > -TIE))
        in_order = 0.0 if np.max(np.abs(more)) <= TIE else in_order  # all alike is no order
    is_shared = off <= MOST_OFF if in_order is None else in_order == 1.0
    return {
        "requests": requests.tolist(),
        "completion_s": completion.tolist(),
        "off": off,
        "spread": spread,
        "in_order": in_order,
        "holds": bool(is_shared and spread <= MOST_SPREAD[test]),
    }
