"""The programme of CoRaiS (equations 6-15) solved exactly, with a time limit; a solution comes with a bound.

Variables: x of every pair that some better assignment may hold, and of every edge when it can begin what was sent to it
(B) and the longest way of its results (R); T is minimised subject to

    B_q >= local + sum of x * work of what stays     B_q >= arriving     B_q >= x * transfer of what is sent
    R_q >= returning     R_q >= x * result           T >= B_q + transferred + sum of x * work of what is sent + R_q

solved by HiGHS, as SciPy brings it along. The makespan of a heuristic assignment bounds T from above and thins out the
pairs; where the solver finds nothing better in time, that assignment stands.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.extras import how_to_install
from offline_rl.assignment.local_search import insertion_local_search
from twin.assignment.objective import alone_s, makespan_s
from twin.assignment.types import Costs

_RELATIVE_GAP = 1e-4
"""What counts as solved."""


@dataclass(frozen=True)
class Solution:
    """What a solver with bounds found.

    Attributes:
        edge: [Z] the assignment.
        makespan_s: What it is worth.
        bound_s: What no assignment undercuts.
    """

    edge: np.ndarray
    makespan_s: float
    bound_s: float


class _Pairs(NamedTuple):
    request: np.ndarray
    edge: np.ndarray
    stays: np.ndarray
    work_s: np.ndarray
    transfer_s: np.ndarray
    result_s: np.ndarray


def exact(costs: Costs, time_s: float = 10.0) -> Solution:
    """The best assignment, or the best found in time.

    Raises:
        ConfigError: SciPy is not installed.
    """
    edge = insertion_local_search(costs)
    best_s = float(makespan_s(costs, edge))
    pairs = _pairs_within(costs, best_s)
    found = _solve(costs, pairs, best_s, time_s, integral=True)
    bound_s = getattr(found, "mip_dual_bound", None)
    empty_s = np.maximum(costs.local_s, costs.arriving_s) + costs.transferred_s + costs.returning_s
    if found.status == 2:  # nothing is better than the heuristic assignment, to the solver's precision
        bound_s = best_s
    low_s = max(float(bound_s or 0.0), float(empty_s.max()))
    if found.x is not None:
        shares = np.zeros(costs.work_s.shape)
        shares[pairs.request, pairs.edge] = found.x[: len(pairs.edge)]
        rounded = shares.argmax(axis=1)
        rounded_s = float(makespan_s(costs, rounded))
        if rounded_s < best_s:
            edge, best_s = rounded, rounded_s
    return Solution(edge, best_s, min(low_s, best_s))


def shares_of(costs: Costs, best_s: float, time_s: float = 60.0) -> np.ndarray | None:
    """[Z, Q] the relaxation's shares of every request; None where it was not solved in time.

    Args:
        costs: Of one instance.
        best_s: The makespan of some assignment.
        time_s: Limit of the solver.
    """
    pairs = _pairs_within(costs, best_s)
    found = _solve(costs, pairs, best_s, time_s, integral=False)
    if found.x is None:
        return None
    shares = np.zeros(costs.work_s.shape)
    shares[pairs.request, pairs.edge] = found.x[: len(pairs.edge)]
    return shares


def _pairs_within(costs: Costs, best_s: float) -> _Pairs:
    """The pairs that an assignment as good as that may hold."""
    request, edge = np.nonzero(alone_s(costs) <= best_s * (1.0 + 1e-9))
    values = (of_pair[request, edge] for of_pair in costs[:3])
    return _Pairs(request, edge, costs.source[request] == edge, *values)


def _solve(costs: Costs, pairs: _Pairs, best_s: float, time_s: float, *, integral: bool) -> Any:
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the exact solver needs SciPy, which is not installed",
            where="offline_rl.assignment.exact",
            advice=how_to_install("train"),
        ) from error
    num_requests, num_edges, num_pairs = len(costs.source), len(costs.local_s), len(pairs.edge)
    begin, result, last = num_pairs, num_pairs + num_edges, num_pairs + 2 * num_edges
    rows, columns, values, low, num_rows = [], [], [], [], 0

    def add(count: int, least: np.ndarray, *entries: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """`count` rows `sum of entries >= least`; entries are (row, column, value)."""
        nonlocal num_rows
        for row, column, value in entries:
            rows.append(row + num_rows)
            columns.append(column)
            values.append(value)
        low.append(least)
        num_rows += count

    every, every_edge, sent = np.arange(num_pairs), np.arange(num_edges), np.flatnonzero(~pairs.stays)
    stay, ones = np.flatnonzero(pairs.stays), np.ones(num_edges)
    add(num_requests, np.ones(num_requests), (pairs.request, every, np.ones(num_pairs)))
    add(
        num_edges,
        costs.local_s,
        (every_edge, begin + every_edge, ones),
        (pairs.edge[stay], stay, -pairs.work_s[stay]),
    )
    add(
        num_edges,
        costs.transferred_s,
        (every_edge, last + 0 * every_edge, ones),
        (every_edge, begin + every_edge, -ones),
        (every_edge, result + every_edge, -ones),
        (pairs.edge[sent], sent, -pairs.work_s[sent]),
    )
    ways = (
        (begin, sent[pairs.transfer_s[sent] > costs.arriving_s[pairs.edge[sent]]], pairs.transfer_s),
        (result, every[pairs.result_s > costs.returning_s[pairs.edge]], pairs.result_s),
    )
    for first, longer, way_s in ways:
        row = np.arange(len(longer))
        entries = (row, first + pairs.edge[longer], np.ones(len(longer))), (row, longer, -way_s[longer])
        add(len(longer), np.zeros(len(longer)), *entries)
    place = (np.concatenate(rows), np.concatenate(columns))
    matrix = csr_array((np.concatenate(values), place), shape=(num_rows, last + 1))
    cost = np.zeros(last + 1)
    cost[last] = 1.0
    is_whole = np.zeros(last + 1)
    is_whole[:num_pairs] = integral
    lower = np.concatenate([np.zeros(num_pairs), costs.arriving_s, costs.returning_s, [0.0]])
    upper = np.concatenate([np.ones(num_pairs), np.full(2 * num_edges, np.inf), [best_s]])
    options = {"time_limit": time_s, "mip_rel_gap": _RELATIVE_GAP}
    return milp(
        cost,
        integrality=is_whole,
        bounds=Bounds(lower, upper),
        options=options,
        constraints=LinearConstraint(matrix, np.concatenate(low), np.inf),
    )
