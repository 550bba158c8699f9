"""One system with the bookkeeping states of several encodings: policies of other encodings get their own observations.

The state holds the bookkeeping of the evaluated problem and that of every other encoding, updated with the same
decisions and events; the others' requests come from their own windows of the same days, cut the same way. Outcomes,
legality, credit assignment and rewards are those of the evaluated problem.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Outcome, Problem, PyTree, Records, Response, Streams
from twin.placement.bookkeeping import placement, tables_of
from twin.placement.encoding import Encoding
from twin.placement.run_filter import NodeLevel
from twin.placement.types import Carried, InFlight, Leaf, PlacementEvents, PlacementState, Requests
from twin.placement.windows import Windows, asked, in_hand


class Translation(NamedTuple):
    """The evaluated windows' requests in another encoding, and those in flight; leaves as in `Windows`."""

    request: Requests  # leaves [T, W]
    carried: Carried  # leaves [rows, W]
    level: NodeLevel  # leaves [2, nodes, W]
    age_s: Leaf  # [W]
    last_end_s: Leaf | None = None  # [services, nodes, W]; None without cold starts


class ViewStates(NamedTuple):
    """The bookkeeping states of all encodings."""

    own: PlacementState
    others: dict[str, PlacementState]
    step: Array  # [] int32: index of the current request in the window of every stream


def translation_of(windows: Windows) -> Translation:
    """The part of another encoding's windows that its bookkeeping needs."""
    return Translation(windows.request, windows.carried, windows.level, windows.age_s, windows.last_end_s)


def with_views(
    judged: Problem, others: Mapping[str, Encoding], translations: Mapping[str, Translation]
) -> Problem:
    """A placement problem with the bookkeeping of other encodings; observations are its own.

    Args:
        judged: The problem of the system.
        others: Name -> encoding of the same nodes, in the same order.
        translations: Name -> translation of the streams' windows, one window for each stream.

    Returns:
        The problem; its state is `ViewStates`, its observation that of `judged`.
    """
    beside = {name: placement(other.cluster, other.problem) for name, other in others.items()}

    def translated(
        outcome: Outcome, step: Array, translation: Translation, table: InFlight | None
    ) -> Outcome:
        observed_events: PlacementEvents = outcome.observed_events
        inside = jnp.minimum(step, translation.request.site.shape[0] - 1)
        begun = translation.level, translation.age_s, translation.last_end_s
        level, age_s, last_end_s = jax.tree.map(
            jnp.asarray, begun if table is not None else (None, None, None)
        )

        if observed_events.place is None:
            request = in_hand(translation.request, inside)
        else:
            request = asked(translation.request, observed_events.place)
        events = observed_events._replace(
            request=request, carried=table, level=level, age_s=age_s, last_end_s=last_end_s
        )
        return outcome._replace(observed_events=events)

    def start(outcome: Outcome) -> ViewStates:
        step = jnp.int32(0)
        opened = {}
        for name, problem in beside.items():
            carried = jax.tree.map(jnp.asarray, translations[name].carried)
            table, _ = tables_of(carried, others[name].cluster.num_nodes, others[name].problem.depth)
            opened[name] = problem.start(translated(outcome, step, translations[name], table))
        return ViewStates(judged.start(outcome), opened, step)

    def apply(
        books: ViewStates, node: Array, outcome: Outcome, decision: Array
    ) -> tuple[ViewStates, Records]:
        own, left = judged.apply(books.own, node, outcome, decision)
        step = books.step + 1
        kept = {
            name: problem.apply(
                books.others[name], node, translated(outcome, step, translations[name], None), decision
            )[0]
            for name, problem in beside.items()
        }
        return ViewStates(own, kept, step), left

    return judged._replace(
        start=start,
        observe=lambda books: judged.observe(books.own),
        observe_global=lambda books: judged.observe_global(books.own),
        legal=lambda books: judged.legal(books.own),
        active=lambda books: judged.active(books.own),
        apply=apply,
        remaining=lambda books: judged.remaining(books.own),
        decision_info=lambda books, node: judged.decision_info(books.own, node),
    )


def answered(response: Response) -> Response:
    """The response, applied to the bookkeeping state of the evaluated problem."""

    def init(key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        return response.init(key, streams)

    def advance(key: Array, private: PyTree, books: ViewStates, node: Array) -> tuple[PyTree, Outcome]:
        return response.advance(key, private, books.own, node)

    def resolve_pending(private: PyTree, books: ViewStates) -> ViewStates:
        return books._replace(own=response.resolve_pending(private, books.own))

    return Response(init, advance, resolve_pending)
