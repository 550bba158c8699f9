"""Insertion of many assignments at once: whole ones to begin with, and parts of one that were taken out.

Every array operation serves all assignments, which at this size costs hardly more than one. A request goes where the
potential

    sum over edges of price * exp(alpha * (completion / target - 1))

grows least (Aspnes, Azar, Fiat, Plotkin and Waarts, 1997, for load balancing): a large alpha sends it to the edge that
then ends soonest, a small one to where it costs the least of what can be balanced later, as a long way does. Which is
best differs, so each assignment has its own alpha.

What is taken out (ruin and recreate: Schrimpf et al., 2000): of some edge, mostly the last, the requests of the longest
ways, which keep an edge late together, and any others besides. Those of long ways may not go back.
"""

from collections.abc import Callable

import numpy as np

from offline_rl.assignment.terms import ARRIVING, LOCAL, RETURNING, PairTerms, ended_s, held_by, with_one

ALPHAS = (3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
"""Of whole assignments."""
_ALPHA_RANGE = (1.0, 64.0)
"""Of parts, evenly over the logarithm."""
_ORDER_NOISE = 0.2
"""How far a request may be out of the order of sizes, over the largest size."""
_BALANCE = 8.0
"""Alpha of the potential by which variants are compared: what they would come to once balanced."""
_LAST_SHARE = 0.7
"""Of variants that take requests from the last edge; the others from any."""
_ONE_LEFT = 0.35
"""Chance that no further request of the longest ways is taken out."""
_MOST, _FORBIDDEN = 300.0, 1e200


def started(
    terms: PairTerms, target_s: float, rng: np.random.Generator, copies: int, is_over: Callable[[], bool]
) -> np.ndarray | None:
    """[Z] the best of whole assignments, largest first; None where the time is over before.

    Args:
        terms: Of the instance.
        target_s: The makespan of some assignment; more than 0.
        rng: Of the order, but for the first copy.
        copies: How many of each of `ALPHAS`; 0 makes a single assignment, of the middle alpha.
        is_over: Tells whether the time is over.
    """
    alphas = np.array(ALPHAS[len(ALPHAS) // 2 : len(ALPHAS) // 2 + 1] if not copies else ALPHAS * copies)
    noise = _ORDER_NOISE * rng.random((len(alphas), len(terms.size)))
    noise[: len(ALPHAS)] = 0.0
    order = np.argsort(-(terms.size + noise), axis=1, kind="stable")
    edges = np.full(order.shape, terms.base.shape[1])
    held = np.repeat(terms.base[None], len(alphas), axis=0)
    if not _insert(terms, edges, held, order, alphas, target_s, is_over=is_over):
        return None
    best: np.ndarray = edges[ended_s(held).max(axis=1).argmin()]
    return best


def varied(
    terms: PairTerms, edge: np.ndarray, best_s: float, rng: np.random.Generator, count: int, most: int
) -> np.ndarray:
    """[Z] the most promising of `count` variants of an assignment.

    Args:
        terms: Of the instance.
        edge: [Z] the assignment.
        best_s: The best makespan so far; more than 0.
        rng: Of everything.
        count: Of variants.
        most: Requests at most that a variant takes out.
    """
    num_edges, taken = terms.base.shape[1], int(rng.integers(1, min(most, len(edge)) + 1))
    last = int(ended_s(held_by(terms, edge[None])[0]).argmax())
    focus = np.where(rng.random(count) < _LAST_SHARE, last, rng.integers(num_edges, size=count))
    term = ARRIVING if rng.random() < 0.5 else RETURNING
    out, longest_s = _taken_out(terms, edge, focus, term, rng, taken)
    order = np.argsort(-(terms.size[out] + _ORDER_NOISE * rng.random(out.shape)), axis=1)
    out = np.take_along_axis(out, order, axis=1)
    edges = np.repeat(edge[None], count, axis=0)
    np.put_along_axis(edges, out, num_edges, axis=1)
    held = held_by(terms, edges)
    low, high = np.log(_ALPHA_RANGE)
    alphas = np.exp(rng.uniform(low, high, count))
    penalty = _FORBIDDEN * (terms.of_pair[out, term, focus[:, None]] > longest_s[:, None])
    _insert(terms, edges, held, out, alphas, best_s, focus, penalty)
    exponent = np.minimum(_BALANCE * (ended_s(held) / best_s - 1.0), _MOST)
    worth = (terms.prices * np.exp(exponent)).sum(axis=1)
    worth[(edges == edge).all(axis=1)] = np.inf
    best: np.ndarray = edges[worth.argmin()]
    return best


def _taken_out(
    terms: PairTerms, edge: np.ndarray, focus: np.ndarray, term: int, rng: np.random.Generator, taken: int
) -> tuple[np.ndarray, np.ndarray]:
    """[variants, taken] requests, and [variants] the longest way that the edges of `focus` shall have from then on."""
    requests, num_edges = np.arange(len(edge)), terms.base.shape[1]
    way_s = terms.of_pair[requests, term, edge]
    if term == ARRIVING:  # who stays comes last
        way_s = np.where(terms.of_pair[requests, LOCAL, edge] > 0.0, -1.0, way_s)
    order = np.lexsort((-way_s, edge))
    first = np.searchsorted(edge[order], np.arange(num_edges))
    rank = np.empty(len(edge), int)
    rank[order] = requests - first[edge[order]]
    num_longest = np.minimum(rng.geometric(_ONE_LEFT, size=len(focus)), taken)
    on_focus = edge == focus[:, None]
    is_longest = on_focus & (rank < num_longest[:, None])
    left_s = np.where(on_focus & ~is_longest, way_s, 0.0).max(axis=1)
    key = rng.random(on_focus.shape) + 2.0 * is_longest
    out = np.argpartition(-key, taken - 1, axis=1)[:, :taken]
    return out, np.maximum(left_s, terms.base[term, focus]) * (1.0 + 1e-9)


def _insert(
    terms: PairTerms,
    edges: np.ndarray,
    held: np.ndarray,
    order: np.ndarray,
    alphas: np.ndarray,
    target_s: float,
    focus: np.ndarray | None = None,
    penalty: np.ndarray | None = None,
    is_over: Callable[[], bool] | None = None,
) -> bool:
    """Inserts requests [variants, n] in their order into `edges` and `held`, in place; False where the time is over."""
    rows, rate, at_target = np.arange(len(edges)), alphas[:, None] / target_s, alphas[:, None]
    potential = np.exp(np.minimum(rate * ended_s(held) - at_target, _MOST))
    for number in range(order.shape[1]):
        if is_over is not None and number % 16 == 0 and is_over():
            return False
        request = order[:, number]
        more = with_one(held, terms.of_pair[request])
        end_s = ended_s(more)
        then = np.exp(np.minimum(rate * end_s - at_target, _MOST + 1e-9 * end_s))  # inf where not hosted
        score = then - potential
        score *= terms.prices
        if penalty is not None:
            score[rows, focus] += penalty[:, number]
        best = score.argmin(axis=1)
        held[rows, :, best] = more[rows, :, best]
        potential[rows, best] = then[rows, best]
        edges[rows, request] = best
    return True
