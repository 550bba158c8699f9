"""Local search on the exact objective: moves, swaps and ejection chains away from the edge that answers last.

    move    a request of the last edge goes to another edge
    swap    it takes the place of a request there, which comes back
    chain   it takes the place of a request there, which goes on to a third edge

Of all of them the one after which the edges concerned end soonest is taken, if that is sooner than now: the sorted
completions fall lexicographically, so the search ends. From a local optimum it goes on, if time is left, after it has
sent a few requests away from an edge that ends late, and keeps the best that it has seen.
"""

import time
from dataclasses import dataclass

import numpy as np

from offline_rl.assignment.books import Books
from offline_rl.assignment.insertion import insertion
from twin.assignment.types import Costs

_LEAST_GAIN = 1e-9
"""What a step must gain, relative to the makespan: less is rounding."""


@dataclass(frozen=True)
class LocalSearchConfig:
    """How long and how wide to search.

    Attributes:
        time_s: Wall-clock time after which the best found so far is returned; inf ends at the first local optimum.
        max_partners: Requests of other edges that are looked at in a step, of the edges that end soonest.
        restarts: Whether to go on from local optima until the time is over.
        max_restarts: How often at most; what is found is then a function of the generator, where the time suffices.
        kicks: Requests at most that are sent away before going on.
    """

    time_s: float = float("inf")
    max_partners: int = 1000
    restarts: bool = False
    max_restarts: float = float("inf")
    kicks: int = 5


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
    books = Books(costs, edge)
    _descend(books, config, until_s)
    best, best_s = books.edge.copy(), books.end_s.max()
    if not config.restarts or rng is None or len(books.end_s) < 2:
        return best
    num_restarts = 0
    while time.monotonic() < until_s and num_restarts < config.max_restarts:
        num_restarts += 1
        _kick(books, config.kicks, rng)
        _descend(books, config, until_s)
        if books.end_s.max() < best_s:
            best, best_s = books.edge.copy(), books.end_s.max()
        elif books.end_s.max() > best_s:
            books = Books(costs, best)
    return best


def _descend(books: Books, config: LocalSearchConfig, until_s: float) -> None:
    """Steps until none gains anything or the time is over."""
    while time.monotonic() < until_s:
        last = int(books.end_s.argmax())
        step = _best_step(books, last, config)
        if step is None:
            return
        books.send(*step)


def _best_step(books: Books, last: int, config: LocalSearchConfig) -> tuple[tuple[int, int], ...] | None:
    """The step after which the edges concerned end soonest; None where nothing ends sooner than now."""
    mine = books.members(last)
    if not len(mine):
        return None
    now_s = books.end_s[last] * (1.0 - _LEAST_GAIN)
    inserted_s = books.inserted_end_s(mine)
    moved_s = np.maximum(inserted_s, books.without_end_s[mine, None])
    found, place = _least(moved_s)
    step: tuple[tuple[int, int], ...] = ((int(mine[place[0]]), int(place[1])),)
    others = _partners(books, last, inserted_s, config.max_partners)
    if not len(others):
        return step if found < now_s else None
    there_s = books.exchanged_end_s(mine, others)
    here_s = books.exchanged_end_s(others, mine).T
    swapped_s, place = _least(np.maximum(there_s, here_s))
    if swapped_s < found:
        one, other = int(mine[place[0]]), int(others[place[1]])
        found, step = swapped_s, ((one, int(books.edge[other])), (other, last))
    if found < now_s:
        return step
    return _best_chain(books, last, mine, others, there_s, now_s)


def _best_chain(
    books: Books, last: int, mine: np.ndarray, others: np.ndarray, there_s: np.ndarray, now_s: float
) -> tuple[tuple[int, int], ...] | None:
    onward_s = books.inserted_end_s(others)
    onward_s[:, last] = np.inf
    third = onward_s.argmin(axis=1)
    chain_s = np.maximum(there_s, onward_s[np.arange(len(others)), third])
    found, place = _least(np.maximum(chain_s, books.without_end_s[mine, None]))
    if found >= now_s:
        return None
    one, other = int(mine[place[0]]), int(others[place[1]])
    return (one, int(books.edge[other])), (other, int(third[place[1]]))


def _partners(books: Books, last: int, inserted_s: np.ndarray, at_most: int) -> np.ndarray:
    """Requests of other edges: all, or those of the edges that would end soonest with one of the last edge's."""
    if len(books.edge) <= at_most:
        return np.flatnonzero(books.edge != last)
    soonest, found, count = np.argsort(inserted_s.min(axis=0), kind="stable"), [], 0
    for edge in soonest.tolist():
        if edge != last:
            found.append(books.members(edge))
            count += len(found[-1])
        if count >= at_most:
            break
    return np.concatenate(found)


def _kick(books: Books, most: int, rng: np.random.Generator) -> None:
    """Sends up to `most` requests of one of the edges that end late away: any, or those of the longest ways.

    The longest ways are sent away together, because one alone that stays keeps the edge as late as all of them.
    """
    ends_s = books.end_s
    late = np.argsort(-ends_s)[: max(2, len(ends_s) // 4)]
    edge = int(rng.choice(late)) if rng.random() < 0.5 else int(late[0])
    mine = books.members(edge)
    if not len(mine):
        return
    costs, kind, count = books.costs, rng.integers(3), int(rng.integers(1, most + 1))
    sent_s = np.where(costs.source[mine] == edge, 0.0, costs.transfer_s[mine, edge])
    weight = (sent_s, costs.result_s[mine, edge], rng.random(len(mine)))[kind]
    for request in mine[np.argsort(-weight)[:count]]:
        end_s = books.inserted_end_s(request[None])[0]
        if np.isfinite(end_s.min()):
            books.send((int(request), int(end_s.argmin())))


def _least(values: np.ndarray) -> tuple[float, tuple[int, int]]:
    row, column = divmod(int(values.argmin()), values.shape[1])
    return float(values[row, column]), (row, column)
