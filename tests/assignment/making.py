"""Small rounds to test with, and the objective once more, as a loop over edges."""

import itertools

import numpy as np
from hypothesis import strategies as st

from twin.assignment.instances import InstanceConfig, draw_instances
from twin.assignment.types import AssignmentInstance, Costs, row_of


def drawn(seed: int = 0, num_edges: int = 3, num_requests: int = 6, **options) -> AssignmentInstance:
    """One instance of the paper's law."""
    config = InstanceConfig(num_edges + 2, num_edges, num_requests, **options)
    return row_of(draw_instances(np.random.default_rng(seed), config, 1), 0)


def plain_costs(work_s, source=None, **backlog) -> Costs:
    """Costs without ways: unrelated machines, where nothing else is said."""
    work_s = np.array(work_s, float)
    zeros = np.zeros(work_s.shape[1])
    ways = (np.array(backlog.pop(name, np.zeros(work_s.shape)), float) for name in ("transfer_s", "result_s"))
    source = np.full(len(work_s), -1) if source is None else np.array(source)
    held = (
        np.array(backlog.get(name, zeros), float)
        for name in ("local_s", "arriving_s", "transferred_s", "returning_s")
    )
    return Costs(work_s, *ways, source, *held)


@st.composite
def small_costs(draw) -> Costs:
    """Rounds of a few pairs, some of which are not hosted, with backlogs of any kind."""
    num_requests, num_edges = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    pair = (num_requests, num_edges)
    work_s = rng.uniform(0.0, 2.0, pair)
    work_s[rng.random(pair) < draw(st.sampled_from([0.0, 0.3]))] = np.inf
    work_s[np.arange(num_requests), rng.integers(num_edges, size=num_requests)] = 1.0  # somebody hosts it
    source = rng.integers(-1, num_edges, num_requests)
    scale = draw(st.sampled_from([0.0, 0.5, 3.0]))
    ways, held = (scale * rng.random((2, *pair)), scale * rng.random((4, num_edges)))
    return Costs(work_s, *ways, source, *held)


def makespan_by_loop(costs: Costs, edge) -> float:
    """Equations 6 to 13, one edge after the other."""
    ends = []
    for one in range(len(costs.local_s)):
        mine = [request for request, chosen in enumerate(edge) if chosen == one]
        stays = [request for request in mine if costs.source[request] == one]
        sent = [request for request in mine if costs.source[request] != one]
        computed = costs.local_s[one] + sum(costs.work_s[request, one] for request in stays)
        arrived = max([costs.arriving_s[one], *(costs.transfer_s[request, one] for request in sent)])
        sent_s = costs.transferred_s[one] + sum(costs.work_s[request, one] for request in sent)
        returned = max([costs.returning_s[one], *(costs.result_s[request, one] for request in mine)])
        ends.append(max(computed, arrived) + sent_s + returned)
    return max(ends)


def optimum_by_trial(costs: Costs) -> float:
    """The least makespan of all assignments."""
    every = itertools.product(range(len(costs.local_s)), repeat=len(costs.source))
    return min(makespan_by_loop(costs, edge) for edge in every)
