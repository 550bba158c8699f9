"""Local search on the exact objective: moves, swaps and ejection chains away from the edge that answers last.

    move    a request of the last edge goes to another edge
    swap    it takes the place of a request there, which comes back
    chain   it takes the place of a request there, which goes on to a third edge

The first of these kinds that helps is taken, with the pair after which the edges concerned end soonest: the sorted
completions fall lexicographically, so the search ends. With restarts it begins from the best of insertions under a cap
(`offline_rl.assignment.capped`), where the instance is large, and of many insertions at once, and goes on from local
optima: of many variants of the assignment, made together (`offline_rl.assignment.recreating`), the most promising one
is searched, and kept while it is not much worse than the best that was seen.
"""

import time
from dataclasses import dataclass

import numpy as np

from offline_rl.assignment.capped import capped_insertions
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.recreating import ALPHAS, started, varied
from offline_rl.assignment.search_state import SearchState
from offline_rl.assignment.terms import ended_s, with_one
from twin.assignment.types import Costs

_LEAST_GAIN = 1e-9
"""What a step must gain, relative to the makespan: less is rounding."""
_WORSE = 0.003
"""How much worse than the best, relatively, an assignment may be from which the search goes on."""
_COPIES, _VARIANTS, _LEAST_VARIANTS = 4, 32, 4
"""Of each kind of insertion to begin with; of an assignment."""
_S_PER_PAIR = 2e-7
"""About what reading an instance takes, with room: a search with less time is not begun."""
_PAIRS_FOR_CAPS = 10_000
"""From which on insertions under a cap are tried first: below, many insertions at once take hardly longer than one."""
_ENTRIES_AT_ONCE, _REQUESTS_AT_ONCE = 4000, 8000
"""Up to which more assignments at once cost hardly more time: assignments x edges, and x requests."""


@dataclass(frozen=True)
class LocalSearchConfig:
    """How long and how wide to search.

    Attributes:
        time_s: Wall-clock time after which the best found so far is returned; inf ends at the first local optimum.
        max_partners: Requests of other edges that are looked at in a step, of the edges that end soonest.
        restarts: Whether to go on from local optima until the time is over.
        max_restarts: How often at most; what is found is then a function of the generator, where the time suffices.
        kicks: Requests at most that are taken out and inserted anew before going on.
    """

    time_s: float = float("inf")
    max_partners: int = 1000
    restarts: bool = False
    max_restarts: float = float("inf")
    kicks: int = 25


def insertion_local_search(
    costs: Costs, config: LocalSearchConfig | None = None, rng: np.random.Generator | None = None
) -> np.ndarray:
    """[Z] local search from the insertion."""
    return improve(costs, insertion(costs), config, rng)


def improve(
    costs: Costs,
    edge: np.ndarray,
    config: LocalSearchConfig | None = None,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """[Z] the best assignment found from `edge` on; never worse than it.

    Args:
        costs: Of one instance.
        edge: [Z] where to begin.
        config: How long and how wide.
        rng: Needed for restarts.
    """
    config = config or LocalSearchConfig()
    until_s = time.monotonic() + config.time_s
    goes_on = config.restarts and len(costs.local_s) > 1 and len(edge) > 0
    kick_rng = rng if goes_on else None
    if kick_rng is not None and costs.work_s.size >= _PAIRS_FOR_CAPS:
        edge = capped_insertions(costs, edge, until_s)
    if until_s - time.monotonic() <= _S_PER_PAIR * costs.work_s.size:
        return np.array(edge)
    state = SearchState(costs, edge)
    if kick_rng is not None:
        state = _begun(state, kick_rng, until_s)
    _descend(state, config, until_s)
    best, best_s = state.edge.copy(), float(state.end_s.max())
    if kick_rng is None or best_s <= 0.0:
        return best
    current, num_restarts = best, 0
    count = int(np.clip(_REQUESTS_AT_ONCE // len(best), _LEAST_VARIANTS, _VARIANTS))
    least_s = state.terms.base_end_s()
    while best_s > least_s and time.monotonic() < until_s and num_restarts < config.max_restarts:
        num_restarts += 1
        state = SearchState(state.terms, varied(state.terms, current, best_s, kick_rng, count, config.kicks))
        _descend(state, config, until_s)
        found_s = float(state.end_s.max())
        if found_s <= best_s * (1.0 + _WORSE):
            current = state.edge
        if found_s < best_s:
            best, best_s = state.edge.copy(), found_s
    return best


def _begun(state: SearchState, rng: np.random.Generator, until_s: float) -> SearchState:
    """The state of the best of many insertions, where it is better."""
    target_s = float(state.end_s.max())
    if target_s <= state.terms.base_end_s() or time.monotonic() >= until_s:
        return state
    copies = min(_COPIES, _ENTRIES_AT_ONCE // (len(ALPHAS) * len(state.end_s)))
    edge = started(state.terms, target_s, rng, copies, lambda: time.monotonic() >= until_s)
    if edge is None:
        return state
    other = SearchState(state.terms, edge)
    return other if other.end_s.max() < target_s else state


def _descend(state: SearchState, config: LocalSearchConfig, until_s: float) -> None:
    """Steps until none gains anything or the time is over."""
    while time.monotonic() < until_s:
        last = int(state.end_s.argmax())
        step = _next_step(state, last, config)
        if step is None:
            return
        state.send(*step)


def _next_step(
    state: SearchState, last: int, config: LocalSearchConfig
) -> tuple[tuple[int, int], ...] | None:
    """The best move, else the best swap, else the best chain; None where nothing ends sooner than now."""
    mine = state.members(last)
    if not len(mine):
        return None
    now_s = state.end_s[last] * (1.0 - _LEAST_GAIN)
    inserted_s = state.inserted_end_s(mine)
    without_s = state.without_end_s[mine, None]
    found, place = _least(np.maximum(inserted_s, without_s))
    if found < now_s:
        return ((int(mine[place[0]]), int(place[1])),)
    others = _partners(state, last, inserted_s, config.max_partners)
    if not len(others):
        return None
    there_s = state.exchanged_end_s(mine, others)
    back = state.terms.of_pair[others, :, last].T  # [4, others]
    here_s = ended_s(with_one(state.without[:, mine].T[..., None], back))
    found, place = _least(np.maximum(there_s, here_s))
    if found < now_s:
        one, other = int(mine[place[0]]), int(others[place[1]])
        return (one, int(state.edge[other])), (other, last)
    onward_s = state.inserted_end_s(others)
    onward_s[:, last] = np.inf
    third = onward_s.argmin(axis=1)
    chain_s = np.maximum(there_s, onward_s[np.arange(len(others)), third])
    found, place = _least(np.maximum(chain_s, without_s))
    if found >= now_s:
        return None
    one, other = int(mine[place[0]]), int(others[place[1]])
    return (one, int(state.edge[other])), (other, int(third[place[1]]))


def _partners(state: SearchState, last: int, inserted_s: np.ndarray, at_most: int) -> np.ndarray:
    """Requests of other edges: all, or those of the edges that would end soonest with one of the last edge's."""
    if len(state.edge) <= at_most:
        return np.flatnonzero(state.edge != last)
    soonest, found, count = np.argsort(inserted_s.min(axis=0), kind="stable"), [], 0
    for edge in soonest.tolist():
        if edge != last:
            found.append(state.members(edge))
            count += len(found[-1])
        if count >= at_most:
            break
    return np.concatenate(found)


def _least(values: np.ndarray) -> tuple[float, tuple[int, int]]:
    row, column = divmod(int(values.argmin()), values.shape[1])
    return float(values[row, column]), (row, column)
