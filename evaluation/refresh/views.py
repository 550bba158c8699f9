"""One system, two sets of books: what happens is the same, what a policy of another encoding sees of it is its own.

The state holds the judged problem's books and those of the other encoding, fed with the same decisions and news; the
other's requests come from its own windows of the same days, cut alike. Answers, legality, crediting and worth are the
judged problem's.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Outcome, Problem, PyTree, Records, Response, Streams
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.types import InFlight, News, Observation, PlacementState, Requests
from twin.placement.windows import Windows


class Translation(NamedTuple):
    """The judged windows' requests in another encoding, and what was in flight; leaves as in `Windows`."""

    request: Requests  # leaves [T, W]
    carried: InFlight  # leaves [nodes, depth, W]


class Books(NamedTuple):
    """Both sets of books."""

    own: PlacementState
    other: PlacementState
    step: Array  # [] int32: which request of its window every stream has in hand


class Views(NamedTuple):
    """What is seen from both."""

    own: Observation
    other: Observation


def translation_of(windows: Windows) -> Translation:
    """The part of another encoding's windows that its books need."""
    return Translation(windows.request, windows.carried)


def two_views(judged: Encoding, other: Encoding, translation: Translation) -> Problem:
    """The judged placement problem, with the other encoding's books beside it.

    Args:
        judged: Encoding of the system.
        other: Encoding of the same nodes, in the same order.
        translation: Of the windows that the streams walk through, each stream its own.

    Returns:
        The problem; observations are `Views`.
    """
    problem = placement(judged.cluster, judged.problem)
    beside = placement(other.cluster, other.problem)
    last = translation.request.site.shape[0] - 1

    def told(outcome: Outcome, step: Array, carried: InFlight | None) -> Outcome:
        news: News = outcome.news
        inside = jnp.minimum(step, last)

        def at(leaf: Array, axis: int) -> Array:
            return jax.lax.dynamic_index_in_dim(jnp.asarray(leaf), inside, axis, False)

        named = {
            name: at(getattr(translation.request, name), 0)[None]
            for name in Requests._fields
            if name != "demand"
        }
        request = Requests(demand=at(translation.request.demand, 1)[:, None], **named)
        return outcome._replace(news=news._replace(request=request, carried=carried))

    def start(outcome: Outcome) -> Books:
        step = jnp.int32(0)
        carried = jax.tree.map(jnp.asarray, translation.carried)
        return Books(problem.start(outcome), beside.start(told(outcome, step, carried)), step)

    def apply(books: Books, node: Array, outcome: Outcome, decision: Array) -> tuple[Books, Records]:
        own, left = problem.apply(books.own, node, outcome, decision)
        step = books.step + 1
        other_state, _ = beside.apply(books.other, node, told(outcome, step, None), decision)
        return Books(own, other_state, step), left

    return Problem(
        num_seats=problem.num_seats,
        start=start,
        observe=lambda books: Views(problem.observe(books.own), beside.observe(books.other)),
        observe_global=lambda books: problem.observe_global(books.own),
        legal=lambda books: problem.legal(books.own),
        active=lambda books: problem.active(books.own),
        apply=apply,
        remaining=lambda books: problem.remaining(books.own),
        facts=lambda books, node: problem.facts(books.own, node),
        reward=problem.reward,
        keeps_done=True,
    )


def answered(response: Response) -> Response:
    """A response that answers from the judged books."""

    def init(key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        return response.init(key, streams)

    def advance(key: Array, private: PyTree, books: Books, node: Array) -> tuple[PyTree, Outcome]:
        return response.advance(key, private, books.own, node)

    def foretell(private: PyTree, books: Books) -> Books:
        return books._replace(own=response.foretell(private, books.own))

    return Response(init, advance, foretell)
