"""A tiny Problem of another kind than placement: requests assigned at once to edges, with a pytree action.

A step is one batch of `NUM_REQUESTS` requests, one seat each. A seat chooses an edge and whether its request
is served first or last there. A request's work takes `size / speed` on its edge, after the edge's backlog and
after the requests served before it (urgent ones first, then by seat). What counts is the largest weighted
response time of the batch and a fee for every urgent request; each seat is charged its fee and an equal
share, so that the seats' rewards sum to the cost.

Batches do not influence each other, so the best joint action of a batch is found by enumeration. The response
stretches all response times of a batch by one factor of mean 1, which leaves the optimum where it is.
Outcomes are revealed one to `DEPTH` steps late.
"""

from itertools import product
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Outcome, Problem, PyTree, Records, Response, Streams

NUM_REQUESTS = 2
NUM_EDGES = 3
DEPTH = 3
URGENT_FEE_S = 0.1
SPEED = np.array([1.0, 2.0, 0.5], np.float32)
JOINT = np.array(list(product(range(NUM_EDGES), range(2), repeat=NUM_REQUESTS)), np.int32)
"""[joint actions, 2 * requests]: edge and priority of each request."""


class Batch(NamedTuple):
    """The requests in hand and the edges they meet."""

    size: Array  # [requests, *streams]
    weight: Array  # [requests, *streams]
    backlog_s: Array  # [edges, *streams]
    up: Array  # [edges, *streams] bool: the edge can be chosen; never all false


class ToyOutcome(NamedTuple):
    """What became of one request."""

    response_s: Array
    largest_s: Array  # the largest weighted response time of its batch


class ToyEvents(NamedTuple):
    """Outcomes that fell due, and the next batch."""

    due: Array  # [depth, *streams] bool
    outcome: ToyOutcome  # leaves [depth, requests, *streams], NaN where not due
    batch: Batch


class Pending(NamedTuple):
    """Batches sent, by `step % DEPTH`; leaves [depth, requests, *streams]."""

    decision: Array
    settled: Array
    outcome: ToyOutcome


class ToyState(NamedTuple):
    """The public bookkeeping."""

    clock_s: Array
    num_steps: Array
    batch: Batch
    pending: Pending


class ToyPrivate(NamedTuple):
    """What the response keeps to itself: outcomes drawn and not yet due."""

    num_steps: Array  # [*streams] int32
    length: Array  # [*streams] int32: batches in the episode
    batch: Batch
    outcome: ToyOutcome  # leaves [depth, requests, *streams]
    wait: Array  # [depth, *streams] int32: steps until it is revealed


def response_times(batch: Batch, edge: Array, urgent: Array) -> Array:
    """Response times [requests, *streams] of the joint action, without noise (seconds)."""
    speed = jnp.asarray(SPEED).reshape((-1,) + (1,) * (edge.ndim - 1))
    times = []
    for mine in range(NUM_REQUESTS):
        on = jnp.arange(NUM_EDGES).reshape((-1,) + (1,) * (edge.ndim - 1)) == edge[mine][None]
        own_speed = jnp.sum(jnp.where(on, speed, 0.0), axis=0)
        time = jnp.sum(jnp.where(on, batch.backlog_s, 0.0), axis=0) + batch.size[mine] / own_speed
        for other in range(NUM_REQUESTS):
            if other != mine:
                first = (urgent[other] > urgent[mine]) | ((urgent[other] == urgent[mine]) & (other < mine))
                time = time + jnp.where(
                    (edge[other] == edge[mine]) & first, batch.size[other] / own_speed, 0.0
                )
        times.append(time)
    return jnp.stack(times)


def cost(batch: Batch, edge: Array, urgent: Array) -> Array:
    """The expected cost of a joint action: [*streams]."""
    fees = URGENT_FEE_S * jnp.sum(urgent.astype(jnp.float32), axis=0)
    return jnp.max(batch.weight * response_times(batch, edge, urgent), axis=0) + fees


def toy_problem() -> Problem:
    """The bookkeeping of the assignment."""

    def start(outcome: Outcome) -> ToyState:
        batch = outcome.observed_events.batch
        shape = (DEPTH, *batch.size.shape)
        empty = ToyOutcome(jnp.full(shape, jnp.nan, jnp.float32), jnp.full(shape, jnp.nan, jnp.float32))
        pending = Pending(jnp.full(shape, -1, jnp.int32), jnp.zeros(shape, bool), empty)
        zero = jnp.zeros(batch.size.shape[1:])
        return ToyState(zero, zero.astype(jnp.int32), batch, pending)

    def apply(state: ToyState, action: PyTree, outcome: Outcome, decision: Array) -> tuple[ToyState, Records]:
        del action
        here = jnp.broadcast_to(_slot(state.num_steps)[:, None], state.pending.decision.shape)
        left = jax.tree.map(lambda leaf: _pick(leaf, here), state.pending)
        fresh = Pending(
            jnp.where(here, decision[None], state.pending.decision),
            state.pending.settled & ~here,
            jax.tree.map(lambda leaf: jnp.where(here, jnp.nan, leaf), state.pending.outcome),
        )
        due = jnp.broadcast_to(outcome.observed_events.due[:, None], here.shape) & (fresh.decision >= 0)
        told = jax.tree.map(
            lambda old, new: jnp.where(due, new, old), fresh.outcome, outcome.observed_events.outcome
        )
        pending = Pending(fresh.decision, fresh.settled | due, told)
        following = ToyState(
            state.clock_s + outcome.elapsed_s, state.num_steps + 1, outcome.observed_events.batch, pending
        )
        return following, Records(*left)

    def remaining(state: ToyState) -> Records:
        return Records(*jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), state.pending))

    return Problem(
        num_seats=NUM_REQUESTS,
        start=start,
        observe=_observe,
        observe_global=lambda state: state.batch._replace(up=state.batch.up.astype(jnp.float32)),
        legal=_legal,
        active=lambda state: jnp.ones(state.batch.size.shape, bool),
        apply=apply,
        remaining=remaining,
        decision_info=lambda state, action: {"fee_s": URGENT_FEE_S * action["urgent"]},
        reward=lambda decision_info, outcome: -outcome.largest_s / NUM_REQUESTS - decision_info["fee_s"],
    )


def toy_response(
    *, noise: float = 0.3, length: int = 1000, resolves_pending: bool = False, drawn: bool = True
) -> Response:
    """Draws batches, noise and delays; without `drawn` all three follow from the step alone.

    Args:
        noise: Half-width of the uniform stretch factor around 1.
        length: Batches in an episode; one fewer in half of the streams when drawn.
        resolves_pending: Whether unfinished outcomes are reported at truncation.
        drawn: Whether there is chance at all.
    """

    def init(key: Array, streams: Streams) -> tuple[ToyPrivate, Outcome]:
        key_batch, key_length = jax.random.split(key)
        steps = jnp.zeros(streams, jnp.int32)
        batch = draw_batch(key_batch, streams) if drawn else _batch_of(steps)
        shorter = jax.random.bernoulli(key_length, 0.5, streams) if drawn else jnp.zeros(streams, bool)
        shape = (DEPTH, NUM_REQUESTS, *streams)
        nothing = ToyOutcome(jnp.full(shape, jnp.nan, jnp.float32), jnp.full(shape, jnp.nan, jnp.float32))
        private = ToyPrivate(
            steps, jnp.int32(length) - shorter, batch, nothing, jnp.zeros((DEPTH, *streams), jnp.int32)
        )
        observed_events = ToyEvents(jnp.zeros((DEPTH, *streams), bool), nothing, batch)
        no = jnp.zeros(streams, bool)  # batches do not influence each other: what ends here goes on elsewhere
        return private, Outcome(jnp.zeros(streams), no, steps >= private.length, observed_events)

    def advance(
        key: Array, private: ToyPrivate, state: ToyState, action: PyTree
    ) -> tuple[ToyPrivate, Outcome]:
        streams = state.clock_s.shape
        key_batch, key_noise, key_wait, key_time = jax.random.split(key, 4)
        steps = private.num_steps
        stretch = (
            1.0 + noise * jax.random.uniform(key_noise, streams, minval=-1.0) if drawn else jnp.ones(streams)
        )
        wait = jax.random.randint(key_wait, streams, 1, DEPTH + 1) if drawn else 1 + steps % DEPTH
        elapsed_s = jax.random.exponential(key_time, streams) if drawn else 0.5 + (steps % 2)
        time = response_times(private.batch, action["edge"], action["urgent"]) * stretch[None]
        worst = jnp.max(private.batch.weight * time, axis=0)
        here = _slot(steps)
        new = ToyOutcome(time, jnp.broadcast_to(worst[None], time.shape))
        outcome = jax.tree.map(
            lambda old, now: jnp.where(here[:, None], now[None], old), private.outcome, new
        )
        wait = jnp.where(here, wait[None], private.wait) - 1
        due = wait == 0
        told = jax.tree.map(lambda leaf: jnp.where(due[:, None], leaf, jnp.nan), outcome)
        batch = draw_batch(key_batch, streams) if drawn else _batch_of(steps + 1)
        following = ToyPrivate(steps + 1, private.length, batch, outcome, wait)
        ends, no = steps + 1 >= private.length, jnp.zeros(streams, bool)
        return following, Outcome(elapsed_s, no, ends, ToyEvents(due, told, batch))

    def resolve_pending(private: ToyPrivate, state: ToyState) -> ToyState:
        pending = state.pending
        fill = (pending.decision >= 0) & ~pending.settled
        outcome = jax.tree.map(lambda old, new: jnp.where(fill, new, old), pending.outcome, private.outcome)
        return state._replace(pending=Pending(pending.decision, pending.settled | fill, outcome))

    return Response(init, advance, resolve_pending if resolves_pending else lambda _private, state: state)


def draw_batch(key: Array, streams: Streams) -> Batch:
    """A random batch: sizes 1 or 2, weights 1 or 3, backlogs 0 or 2 s; at most one edge is down."""
    key_size, key_weight, key_backlog, key_down = jax.random.split(key, 4)
    requests, edges = (NUM_REQUESTS, *streams), (NUM_EDGES, *streams)
    down = jax.random.randint(key_down, streams, 0, NUM_EDGES + 1)
    return Batch(
        1.0 + jax.random.bernoulli(key_size, 0.5, requests),
        1.0 + 2.0 * jax.random.bernoulli(key_weight, 0.5, requests),
        2.0 * jax.random.bernoulli(key_backlog, 0.5, edges),
        jnp.arange(NUM_EDGES).reshape((-1,) + (1,) * len(streams)) != down[None],
    )


def joint_costs(batch: Batch) -> Array:
    """Cost of every joint action, inf where one of its edges is down: [joint, *streams]."""
    streams = batch.size.shape[1:]
    costs = []
    for joint in jnp.asarray(JOINT):
        edge, urgent = (
            jnp.broadcast_to(part.reshape((-1,) + (1,) * len(streams)), batch.size.shape)
            for part in (joint[0::2], joint[1::2])
        )
        possible = batch.up[joint[0]] & batch.up[joint[2]]
        costs.append(jnp.where(possible, cost(batch, edge, urgent), jnp.inf))
    return jnp.stack(costs)


def best_and_random(batch: Batch) -> tuple[Array, Array]:
    """The smallest possible cost, and the mean cost of choosing uniformly among what is legal: [*streams]
    each."""
    costs = joint_costs(batch)
    legal = jnp.isfinite(costs)
    mean = jnp.sum(jnp.where(legal, costs, 0.0), axis=0) / jnp.sum(legal, axis=0)
    return jnp.min(costs, axis=0), mean


def best_action(batch: Batch) -> PyTree:
    """The first best joint action, leaves [requests, *streams]."""
    chosen = jnp.moveaxis(jnp.asarray(JOINT)[jnp.argmin(joint_costs(batch), axis=0)], -1, 0)
    return {"edge": chosen[0::2], "urgent": chosen[1::2]}


def _observe(state: ToyState) -> PyTree:
    """Each seat sees its own request first, then the others, the edges, and which seat it is; [features,
    seats, ...]."""
    batch = state.batch
    seats = []
    for seat in range(NUM_REQUESTS):
        order = [seat, *(other for other in range(NUM_REQUESTS) if other != seat)]
        which = jnp.broadcast_to(
            (jnp.arange(NUM_REQUESTS) == seat).reshape((-1,) + (1,) * (batch.size.ndim - 1)), batch.size.shape
        )
        parts = [batch.size[jnp.array(order)], batch.weight[jnp.array(order)], which]
        seats.append(jnp.concatenate([part.astype(jnp.float32) for part in parts]))
    edges = jnp.concatenate([batch.backlog_s, batch.up.astype(jnp.float32)])
    edges = jnp.broadcast_to(edges[:, None], (edges.shape[0], NUM_REQUESTS, *edges.shape[1:]))
    return {"request": jnp.stack(seats, axis=1), "edge": edges}


def _legal(state: ToyState) -> PyTree:
    up = state.batch.up[:, None]
    streams = state.clock_s.shape
    return {
        "edge": jnp.broadcast_to(up, (NUM_EDGES, NUM_REQUESTS, *streams)),
        "urgent": jnp.ones((2, NUM_REQUESTS, *streams), bool),
    }


def _batch_of(step: Array) -> Batch:
    """The batch that belongs to a step, without chance: [*streams] int32 -> leaves [..., *streams]."""
    return Batch(
        jnp.stack([1.0 + (step + seat) % 2 for seat in range(NUM_REQUESTS)]),
        jnp.stack([1.0 + 2.0 * ((step // 2 + seat) % 2) for seat in range(NUM_REQUESTS)]),
        jnp.stack([2.0 * ((step // 3 + edge) % 2) for edge in range(NUM_EDGES)]),
        jnp.stack([step % (NUM_EDGES + 1) != edge for edge in range(NUM_EDGES)]),
    )


def _slot(steps: Array) -> Array:
    """One-hot of `steps % DEPTH` over a new axis 0: [depth, *streams] bool."""
    return jnp.arange(DEPTH).reshape((-1,) + (1,) * steps.ndim) == (steps % DEPTH)[None]


def _pick(leaf: Array, here: Array) -> Array:
    """The row of `leaf` [depth, requests, *streams] where `here` is true (exactly one): [requests,
    *streams]."""
    if leaf.dtype == jnp.bool_:
        return jnp.any(leaf & here, axis=0)
    return jnp.sum(jnp.where(here, leaf, jnp.zeros((), leaf.dtype)), axis=0)
