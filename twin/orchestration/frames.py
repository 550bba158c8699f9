"""Orchestration as a Problem: H seats, each of which chooses a node and what changes there.

A decision is settled when its frame ends. The H seats share the frame's worth, so that their rewards sum to the team's.
What a seat observes is in features for networks; rules read the state, which holds the same in plain units.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from twin.contracts import Array, Given, Outcome, Problem, PyTree, Records
from twin.orchestration.counts import Counts
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig, history_frames
from twin.orchestration.frame_state import (
    FrameDecisionInfo,
    FrameEvents,
    FrameOutcome,
    FrameState,
    Load,
    Measured,
    Scaling,
    removable,
    specified,
)


class FrameObservation(NamedTuple):
    """What a seat sees, the same for all but for `seat`; loads are of the frame that has just ended."""

    # [5, nodes, seats, *streams]: up, free memory, replicas, in service and waiting for each core
    node: Array
    # [4, services, seats, *streams]: replicas, busy, waiting at nodes, queued at access points
    service: Array
    hosted: Array  # [3, services, nodes, seats, *streams]: log1p of replicas, in service, waiting
    queued: Array  # [services, access points, seats, *streams]: log1p of requests at the access points
    seat: Array  # [1, H, seats, *streams] which seat it is


def on_time_share(outcome: FrameOutcome) -> Array:
    """Requests answered in time for each that arrived in the frame (KaiS and KMPS, eq. 1)."""
    return outcome.on_time / jnp.maximum(outcome.arrived, 1.0)


def few_waiting(outcome: FrameOutcome) -> Array:
    """`exp(-sum of queue lengths)`, which KaiS trains orchestration by (section III-B.3)."""
    return jnp.exp(-outcome.waiting)


def frame_problem(
    case: EdgeCloud, config: FrameConfig, worth: Callable[[FrameOutcome], Array] = on_time_share
) -> Problem:
    """The orchestration problem of an instance.

    Returns:
        The problem; actions are `Scaling`, leaves [H, *streams]. Legal are nodes that are up; on the node chosen, no
        change, additions that it has room for and removals of what it hosts. Two changes of one frame may still
        exclude each other (`deployment.schedule`): what cannot be is no change.
    """
    num_seats, num_frames = config.num_changes, history_frames(case.config, config)

    def start(outcome: Outcome) -> FrameState:
        observed_events: FrameEvents = outcome.observed_events
        deployment = observed_events.deployment
        serving, asked = jnp.sum(deployment.replicas, axis=1), specified(deployment)
        unknown = jnp.full_like(serving, jnp.nan)
        first = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[None], (num_frames, *leaf.shape)),
            Measured(unknown, unknown, serving, asked),
        )
        return observed(observed_events, first)

    def observed(events: FrameEvents, measured: Measured) -> FrameState:
        return FrameState(
            events.clock_s, events.available, events.deployment, events.load, measured, events.counts
        )

    def apply(
        state: FrameState, _action: Scaling, outcome: Outcome, decision: Array
    ) -> tuple[FrameState, Records]:
        observed_events: FrameEvents = outcome.observed_events
        latest = _measured(observed_events)
        measured = jax.tree.map(
            lambda past, one: jnp.concatenate([past[1:], one[None]]), state.measured, latest
        )
        came = _seats(num_seats, _came(state.counts, observed_events))
        return observed(observed_events, measured), Records(decision, decision >= 0, came)

    def remaining(state: FrameState) -> Records:
        none = jnp.full((num_seats, *state.clock_s.shape), -1, jnp.int32)
        zero = jnp.zeros(none.shape, jnp.float32)
        return Records(none, none >= 0, FrameOutcome(*[zero] * len(FrameOutcome._fields)))

    return Problem(
        num_seats=num_seats,
        start=start,
        observe=lambda state: _observation(case, state, num_seats),
        observe_global=lambda state: _described(case, state),
        legal=lambda state: _legal(case, state, num_seats),
        active=lambda state: jnp.ones((num_seats, *state.clock_s.shape), bool),
        apply=apply,
        remaining=remaining,
        decision_info=lambda state, _action: FrameDecisionInfo(_seats(num_seats, state.clock_s)),
        reward=lambda _facts, outcome: worth(outcome) / num_seats,
    )


def _seats(num_seats: int, values: PyTree, axis: int = 0) -> PyTree:
    """Every leaf once for each seat, at `axis`."""

    def wide(leaf: Array) -> Array:
        shape = (*leaf.shape[:axis], num_seats, *leaf.shape[axis:])
        return jnp.broadcast_to(jnp.expand_dims(leaf, axis), shape)

    return jax.tree.map(wide, values)


def _measured(observed_events: FrameEvents) -> Measured:
    load = observed_events.load
    busy = jnp.sum(load.running, axis=1)
    requests = busy + jnp.sum(load.waiting, axis=1) + jnp.sum(load.queued, axis=1)
    return Measured(
        busy,
        requests,
        jnp.sum(observed_events.deployment.replicas, axis=1),
        specified(observed_events.deployment),
    )


def _came(before: Counts, observed_events: FrameEvents) -> FrameOutcome:
    frame = jax.tree.map(jnp.subtract, observed_events.counts, before)
    return FrameOutcome(
        frame.arrived.astype(jnp.float32),
        frame.on_time.astype(jnp.float32),
        _waiting(observed_events.load),
        frame.forwarded_mib + frame.pulled_mib,
        frame.energy_j,
    )


def _waiting(load: Load) -> Array:
    """[*streams] requests that wait, anywhere."""
    return jnp.sum(load.waiting, axis=(0, 1)) + jnp.sum(load.queued, axis=(0, 1))


def _legal(case: EdgeCloud, state: FrameState, num_seats: int) -> PyTree:
    """Masks of nodes [nodes, seats, *streams] and, `Given` the node, of changes [2 * services - 1, nodes, ...]."""
    trailing = (1,) * state.clock_s.ndim
    free_gib = jnp.asarray(case.memory_gib).reshape((-1, *trailing)) - state.deployment.used_gib
    needs_gib = jnp.asarray(case.replica_gib).reshape((-1, 1, *trailing))
    fits = jnp.asarray(case.hosts).reshape((*case.hosts.shape, *trailing)) & (
        needs_gib <= free_gib[None] + 1e-4
    )
    adds, removes = (fits & state.available[None])[1:], (removable(state.deployment) > 0.0)[1:]
    changes = jnp.concatenate([jnp.ones((1, *adds.shape[1:]), bool), adds, removes])
    given: PyTree = Given(_seats(num_seats, changes, 2))
    return Scaling(_seats(num_seats, state.available, 1), given)


def _described(case: EdgeCloud, state: FrameState) -> tuple[Array, Array]:
    """Features of nodes [5, nodes, *streams] and of services [4, services, *streams]."""
    trailing = (1,) * state.clock_s.ndim
    memory_gib, cores = (jnp.asarray(one).reshape((-1, *trailing)) for one in (case.memory_gib, case.cores))
    load, deployment = state.load, state.deployment
    node = jnp.stack(
        [
            state.available.astype(jnp.float32),
            1.0 - deployment.used_gib / jnp.maximum(memory_gib, 1e-9),
            jnp.log1p(jnp.sum(deployment.replicas, axis=0)),
            jnp.sum(load.running, axis=0) / cores,
            jnp.log1p(jnp.sum(load.waiting, axis=0) / cores),
        ]
    )
    service = jnp.stack(
        [
            jnp.log1p(jnp.maximum(specified(deployment), 0.0)),
            jnp.log1p(jnp.sum(load.running, axis=1)),
            jnp.log1p(jnp.sum(load.waiting, axis=1)),
            jnp.log1p(jnp.sum(load.queued, axis=1)),
        ]
    )
    return node, service


def _observation(case: EdgeCloud, state: FrameState, num_seats: int) -> FrameObservation:
    node, service = _described(case, state)
    deployment, load = state.deployment, state.load
    hosted = jnp.log1p(jnp.stack([deployment.replicas, load.running, load.waiting]))
    identity = jnp.eye(num_seats).reshape((1, num_seats, num_seats) + (1,) * state.clock_s.ndim)
    which = jnp.broadcast_to(identity, (1, num_seats, num_seats, *state.clock_s.shape))
    return FrameObservation(
        _seats(num_seats, node, 2),
        _seats(num_seats, service, 2),
        _seats(num_seats, hosted, 3),
        _seats(num_seats, jnp.log1p(load.queued), 2),
        which,
    )
