"""The decision: which edge takes a batch. Exact bookkeeping, no chance; the chance stands in `edges_response`.

A batch of so many MiB arrives and is sent to one edge as a whole. Its response time is known at once, and batches do
not meet. So the best edge is the one with the least expected response: near and slow for small batches, far and fast
for large ones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Outcome, Problem, PyTree, Records, Response, Streams


class BatchEdges(NamedTuple):
    """How the edges answer, and which batches come: known of the truth, learned of a log."""

    delay_s: Array  # [edges]
    s_per_mib: Array  # [edges]
    spread: Array  # []: deviation of the log of the response time
    cores: Array  # [edges]
    size_mib: Array  # [rows]: sizes of the batches
    gap_s: Array  # [rows]: time to the next batch


class BatchEvents(NamedTuple):
    """What is revealed from one decision to the next."""

    response_s: Array  # [1, *streams] of the batch that was sent; 0 at the start
    size_mib: Array  # [*streams] of the next batch


def expected_s(edges: BatchEdges, size_mib: Array) -> Array:
    """Expected response times [edges, *streams] of batches [*streams]."""
    by_edge = (-1,) + (1,) * jnp.ndim(size_mib)
    return edges.delay_s.reshape(by_edge) + edges.s_per_mib.reshape(by_edge) * size_mib[None]


def observe(cores: Array, size_mib: Array) -> PyTree:
    """What the one seat sees: of every edge [1, edges, 1, *streams], of the batch [1, 1, *streams]."""
    shape = (1, len(cores), 1, *jnp.shape(size_mib))
    log_cores = jnp.log(cores).reshape((1, -1, 1) + (1,) * jnp.ndim(size_mib))
    return jnp.broadcast_to(log_cores, shape), jnp.log(size_mib)[None, None]


def batches_problem(cores: Array) -> Problem:
    """The bookkeeping; its state is the size of the batch in hand [*streams]."""

    def apply(size_mib: Array, action: Array, outcome: Outcome, decision: Array) -> tuple[Array, Records]:
        settled = jnp.ones(decision.shape, bool)
        return outcome.observed_events.size_mib, Records(
            decision, settled, outcome.observed_events.response_s
        )

    def remaining(size_mib: Array) -> Records:
        none = jnp.full((1, *size_mib.shape), -1, jnp.int32)
        return Records(none, none >= 0, jnp.zeros(none.shape))

    return Problem(
        num_seats=1,
        start=lambda outcome: outcome.observed_events.size_mib,
        observe=lambda size_mib: observe(cores, size_mib),
        observe_global=lambda size_mib: jnp.log(size_mib)[None],
        legal=lambda size_mib: jnp.ones((len(cores), 1, *size_mib.shape), bool),
        active=lambda size_mib: jnp.ones((1, *size_mib.shape), bool),
        apply=apply,
        remaining=remaining,
        decision_info=lambda size_mib, action: {"size_mib": size_mib[None]},
        reward=lambda decision_info, response_s: -jnp.log(response_s),
    )


def edges_response(edges: BatchEdges, length: int) -> Response:
    """Answers with the expected response time, stretched by chance, and draws the next batch from the sizes.

    Args:
        edges: Known or learned.
        length: Batches in an episode, which is cut short then.
    """

    def batch(key: Array, streams: Streams) -> tuple[Array, Array]:
        row = jax.random.randint(key, streams, 0, len(edges.size_mib))
        return edges.size_mib[row], edges.gap_s[row]

    def init(key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        size_mib, gap_s = batch(key, streams)
        step, no = jnp.zeros(streams, jnp.int32), jnp.zeros(streams, bool)
        observed_events = BatchEvents(jnp.zeros((1, *streams)), size_mib)
        return (step, gap_s), Outcome(jnp.zeros(streams), no, step >= length, observed_events)

    def advance(key: Array, private: PyTree, size_mib: Array, action: Array) -> tuple[PyTree, Outcome]:
        key_noise, key_batch = jax.random.split(key)
        step, gap_s = private
        chance = edges.spread * jax.random.normal(key_noise, size_mib.shape) - 0.5 * edges.spread**2
        expected = jnp.take_along_axis(expected_s(edges, size_mib), action, axis=0)
        following = batch(key_batch, size_mib.shape)
        ends, no = step + 1 >= length, jnp.zeros(size_mib.shape, bool)
        observed_events = BatchEvents(expected * jnp.exp(chance)[None], following[0])
        return (step + 1, following[1]), Outcome(gap_s, no, ends, observed_events)

    return Response(init, advance, lambda _private, size_mib: size_mib)
