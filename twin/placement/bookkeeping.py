"""Placement as exact bookkeeping: what is known to be in flight on every node, and how observations change it.

The table of requests in flight has a row of `depth` slots for every node. An accepted request takes the first slot of
its node that is free or settled; the settled request it displaces leaves as a record. So one record at most leaves per
seat and step, and the table never has to be searched for what happened since.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from logs_schema.errors import ConfigError
from twin.contracts import Array, Outcome, Problem, PyTree, Records
from twin.environment import beside
from twin.placement.features import fits, observe, one_hot
from twin.placement.ranks import rank_in_hand, rank_type
from twin.placement.rewards import on_time_reward, response_reward
from twin.placement.run_filter import cut, later, updated_levels
from twin.placement.run_levels import (
    filed_run_s,
    first_ends,
    first_levels,
    pair_run_s,
    updated_ends,
    updated_pair,
)
from twin.placement.slots import fold_slots, num_filled, place, read, write
from twin.placement.types import (
    EMPTY,
    NUM_RESOURCES,
    REJECTED,
    UNKNOWN,
    Carried,
    Cluster,
    Fate,
    InFlight,
    PlacementDecisionInfo,
    PlacementOutcome,
    PlacementState,
    RunLevels,
)

VIEWS = ("summary", "full")


@dataclass(frozen=True)
class PlacementConfig:
    """What the placement problem leaves open.

    Attributes:
        depth: Slots per node for requests in flight; a request that finds none is counted as overflow.
        time_unit_s: Unit of durations in features, of the order of a short run time.
        memory_s: Time in which the memory of recent waits fades to 1/e.
        reward: "on_time" (1 if accepted and finished within the deadline) or "response" (minus the log of response time
            over expected run).
        worst_response: So many expected runs a request is charged that does not complete, and every other at most.
        num_seats: Decisions per step: 1 by event, the number of sites by slot.
        view: What a site that decides sees of the others: "summary", the means of their nodes (KaiS, section III),
            or "full", as a scheduler that is one for all sites does.
    """

    depth: int = 32
    time_unit_s: float = 1.0
    memory_s: float = 300.0
    reward: str = "on_time"
    worst_response: float = 1000.0
    num_seats: int = 1
    view: str = "summary"


def empty_table(num_nodes: int, depth: int, streams: tuple[int, ...], ranks: type | None = None) -> InFlight:
    """A table of requests in flight with nothing in it; leaves [nodes, depth, *streams], ranks of type `ranks`."""
    shape = (num_nodes, depth, *streams)
    never = jnp.full(shape, jnp.inf, jnp.float32)
    zero = jnp.zeros(shape, jnp.float32)
    return InFlight(
        decision=jnp.full(shape, EMPTY, jnp.int32),
        arrival_s=zero,
        start_s=never,
        finish_s=never,
        status=jnp.full(shape, UNKNOWN, jnp.int32),
        expected_run_s=zero,
        mean_run_s=zero,
        service=jnp.zeros(shape, jnp.int32),
        demand=jnp.zeros((NUM_RESOURCES, *shape), jnp.float32),
        rank=None if ranks is None else jnp.zeros(shape, ranks),
    )


def tables_of(carried: Carried, num_nodes: int, depth: int) -> tuple[InFlight, Fate]:
    """The table of what was in flight already, and under the same slots what becomes of it.

    Args:
        carried: Leaves [rows, *streams].
        num_nodes, depth: Of the table.

    Returns:
        Leaves [nodes, depth, *streams].
    """
    streams = carried.node.shape[1:]
    at = jnp.arange(math.prod(streams)).reshape(streams)
    slot = jnp.where(carried.node >= 0, carried.node * depth + carried.slot, num_nodes * depth)

    def filed(leaf: Array, rows: Array) -> Array:
        flat = leaf.reshape(num_nodes * depth, -1)
        flat = flat.at[slot, at[None]].set(rows, mode="drop")
        return flat.reshape(leaf.shape)

    ranks = carried.request.rank
    table = empty_table(num_nodes, depth, streams, None if ranks is None else ranks.dtype)
    named = {
        name: filed(getattr(table, name), getattr(carried.request, name))
        for name in InFlight._fields
        if name != "demand" and getattr(table, name) is not None
    }
    demand = jax.vmap(filed)(table.demand, carried.request.demand)
    fate = Fate(jnp.ones(table.decision.shape, bool), table.start_s, table.finish_s, table.status)
    return InFlight(demand=demand, **named), jax.tree.map(filed, fate, carried.fate)


def choose_slots(state: PlacementState, node: Array) -> Array:
    """[seats, streams] the place (see `slots.place`) every seat's request would take on the node it is offered to.

    Bookkeeping and responses call this same function, so that both file a request under the same slot. Seats choose in
    order; a full row leaves a seat without a place, and the environment counts it as overflow.
    """
    table, shape = state.in_flight, state.in_flight.decision.shape
    taken: list[tuple[Array, Array]] = []
    for seat in range(node.shape[0]):
        first = _first_free(table, state.clock_s, taken)
        slot = jnp.take_along_axis(first, node[seat][None], axis=0)[0]
        taken.append((node[seat], slot))
    return jnp.stack(
        [
            place(shape, node, slot, (slot < shape[1]) & active)
            for (node, slot), active in zip(taken, state.active, strict=True)
        ]
    )


def _first_free(table: InFlight, clock_s: Array, taken: list[tuple[Array, Array]]) -> Array:
    """[nodes, *streams] the first slot free or settled and not taken; the depth where a row is full."""
    depth = table.decision.shape[1]

    def per_slot(leaves: tuple[Array, ...], index: Array) -> Array:
        decision, finish_s = leaves
        free = (decision == EMPTY) | (finish_s <= clock_s[None])
        for node, slot in taken:
            free &= ~(one_hot(node, decision.shape[0]) & (slot == index)[None])
        return jnp.where(free, index, depth)

    # beyond those filled, a slot is free for every seat
    until = num_filled(table.decision) + len(taken) + 1
    return fold_slots(per_slot, jnp.minimum, (table.decision, table.finish_s), until)


def _leave(table: InFlight, position: Array) -> tuple[Array, PlacementOutcome]:
    """The number and outcome of the settled request in a slot; EMPTY where the slot never held one."""
    outcome = PlacementOutcome(
        read(table.start_s, position, 0.0),
        read(table.finish_s, position, 0.0),
        read(table.status, position, 0),
    )
    return read(table.decision, position, EMPTY), outcome


def _enter(
    cluster: Cluster,
    table: InFlight,
    position: Array,
    state: PlacementState,
    seat: int,
    node: Array,
    decision: Array,
) -> InFlight:
    """Files the seat's request under its slot of `node`, waiting."""
    request, never, ranks = state.request, jnp.float32(jnp.inf), rank_in_hand(cluster, state, node[None], jnp)
    filed_s = filed_run_s(cluster, state, seat, node)
    return InFlight(
        decision=write(table.decision, position, decision),
        arrival_s=write(table.arrival_s, position, state.clock_s),
        start_s=write(table.start_s, position, never),
        finish_s=write(table.finish_s, position, never),
        status=write(table.status, position, jnp.int32(UNKNOWN)),
        expected_run_s=write(table.expected_run_s, position, filed_s),
        mean_run_s=write(table.mean_run_s, position, pair_run_s(cluster, state, seat, node, filed_s)),
        service=write(table.service, position, request.service[seat]),
        demand=write(table.demand, position, request.demand[:, seat]),
        rank=None if ranks is None else write(table.rank, position, ranks[seat]),
    )


def _apply(
    cluster: Cluster,
    config: PlacementConfig,
    state: PlacementState,
    node: Array,
    outcome: Outcome,
    decision: Array,
) -> tuple[PlacementState, Records]:
    """The next state: offers taken are filed, then the clock moves and what was observed meanwhile is written down."""
    observed_events, table = outcome.observed_events, state.in_flight
    going = decision[0] >= 0  # [*streams]: the stream was not done before
    offered = state.active & going[None]
    nowhere = table.decision.size
    slots = choose_slots(state, node)
    slots = jnp.where((offered & observed_events.accepted).reshape(slots.shape), slots, nowhere)
    numbers, outcomes, before = [], [], state
    for seat in range(config.num_seats):
        number, displaced = _leave(table, slots[seat])
        levels = updated_pair(cluster, state, table, slots[seat], node[seat], displaced)
        state = state._replace(levels=levels)
        refused = offered[seat] & ~observed_events.accepted[seat]
        numbers.append(jnp.where(refused, decision[seat], number))
        outcomes.append(
            PlacementOutcome(
                jnp.where(refused, jnp.inf, displaced.start_s),
                jnp.where(refused, jnp.inf, displaced.finish_s),
                jnp.where(refused, REJECTED, displaced.status),
            )
        )
        table = _enter(cluster, table, slots[seat], before, seat, node[seat], decision[seat])
    number = jnp.stack(numbers)
    left = Records(number, number >= 0, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outcomes))
    table, recent, levels = _observe_moves(cluster, config, table, state, outcome, going)
    lost = offered & observed_events.accepted & (slots == nowhere).reshape(offered.shape)

    def follow(new: PyTree, old: PyTree) -> PyTree:
        return jax.tree.map(lambda a, b: jnp.where(beside(going, a), a, b), new, old)

    following = PlacementState(
        clock_s=follow(observed_events.clock_s, state.clock_s),
        request=follow(observed_events.request, state.request),
        active=follow(observed_events.active, state.active),
        available=follow(observed_events.available, state.available),
        in_flight=table,
        recent_wait_s=follow(recent[0], state.recent_wait_s),
        recent_starts=follow(recent[1], state.recent_starts),
        num_overflow=state.num_overflow + jnp.sum(lost, axis=0, dtype=jnp.int32),
        levels=levels,
        last_end_s=updated_ends(cluster, before, node, offered & observed_events.accepted),
    )
    return following, left


def _observe_moves(
    cluster: Cluster,
    config: PlacementConfig,
    table: InFlight,
    state: PlacementState,
    outcome: Outcome,
    going: Array,
) -> tuple[InFlight, tuple[Array, Array], RunLevels | None]:
    """Writes observed starts and finishes into the table; adds the waits they end to the nodes' fading memory, and the
    residuals of the runs they end to the nodes' levels."""
    observed_events, levels, dynamics = outcome.observed_events, state.levels, cluster.dynamics
    level = None if levels is None else later(dynamics, levels.node, outcome.elapsed_s[None], jnp)

    def begins(start_s: Array, seen_s: Array) -> Array:
        return jnp.isinf(start_s) & jnp.isfinite(seen_s) & beside(going, start_s)

    def ends(finish_s: Array, seen_s: Array) -> Array:
        return jnp.isinf(finish_s) & jnp.isfinite(seen_s) & beside(going, finish_s)

    def per_slot(leaves: tuple[Array, ...], _: Array) -> tuple[Array, ...]:
        start_s, seen_s, arrival_s, *of_run = leaves
        new = begins(start_s, seen_s)
        waits = jnp.where(new, seen_s - arrival_s, 0.0), new.astype(jnp.float32)
        if level is None:
            return waits
        finish_s, ended_s, status, usual_s = of_run
        run_s = ended_s - (jnp.minimum(start_s, seen_s) if cluster.priorities is None else seen_s)
        ran = ends(finish_s, ended_s) & cluster.tells_run(status) & (run_s > 0.0) & (usual_s > 0.0)
        residual = jnp.log(jnp.where(ran, run_s, 1.0) / jnp.where(ran, usual_s, 1.0))
        innovation = cut(dynamics, residual, level.mean.sum(axis=0), level.variance.sum(axis=0), jnp)
        return *waits, jnp.where(ran, innovation, 0.0), ran.astype(jnp.float32)

    leaves: tuple[Array, ...] = (table.start_s, observed_events.start_s, table.arrival_s)
    if level is not None:
        leaves = (*leaves, table.finish_s, observed_events.finish_s, observed_events.status, table.mean_run_s)
    wait_s, starts, *residuals = fold_slots(
        per_slot,
        lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)),
        leaves,
        num_filled(table.decision),
    )
    keep = jnp.exp(-outcome.elapsed_s / config.memory_s)[None]
    recent = keep * state.recent_wait_s + wait_s, keep * state.recent_starts + starts
    if levels is not None and level is not None:
        innovations, count = residuals
        after = updated_levels(dynamics, level, innovations, count, jnp)
        levels = levels._replace(
            node=jax.tree.map(lambda new, old: jnp.where(beside(going, new), new, old), after, levels.node)
        )
    new_ends = ends(table.finish_s, observed_events.finish_s)
    start_s = jnp.where(
        begins(table.start_s, observed_events.start_s), observed_events.start_s, table.start_s
    )
    if cluster.priorities is not None:  # what ran and was driven out waits, or has begun again
        in_flight = jnp.isinf(table.finish_s) & beside(going, start_s)
        start_s = jnp.where(in_flight, observed_events.start_s, start_s)
    table = table._replace(
        start_s=start_s,
        finish_s=jnp.where(new_ends, observed_events.finish_s, table.finish_s),
        status=jnp.where(new_ends, observed_events.status, table.status),
    )
    return table, recent, levels


def placement(cluster: Cluster, config: PlacementConfig, *, age_s: Array | float = 0.0) -> Problem:
    """The placement problem on `cluster`: offer each arriving request to a node.

    Legal is what could ever fit (capacity of the largest machine, candidate set) on an available node: a request may
    queue there. Where nothing fits every available node is legal, so that a decision always exists.

    Args:
        cluster: Nodes and vocabularies.
        config: See `PlacementConfig`.
        age_s: From the end of training to the clock's zero, where the workload does not give it: levels may have
            wandered.

    Returns:
        The problem; actions are int32 node indices [seats, *streams].

    Source: Xiong et al. section 3.1, KaiS and KMPS section III; DESIGN's problem 1.
    """
    rewards = {"on_time": on_time_reward, "response": response_reward}
    if config.reward not in rewards:
        raise ConfigError(
            f"unknown reward {config.reward!r}", where="PlacementConfig.reward", allowed=", ".join(rewards)
        )
    if config.view not in VIEWS:
        raise ConfigError(
            f"unknown view {config.view!r}", where="PlacementConfig.view", allowed=", ".join(VIEWS)
        )
    num_nodes, unit_s, sees_all = cluster.num_nodes, config.time_unit_s, config.view == "full"

    def start(outcome: Outcome) -> PlacementState:
        observed_events = outcome.observed_events
        streams = outcome.elapsed_s.shape
        table = observed_events.carried
        if table is None:
            table = empty_table(num_nodes, config.depth, streams, rank_type(cluster))
        zero = jnp.zeros((num_nodes, *streams), jnp.float32)
        overflow = jnp.zeros(streams, jnp.int32)
        levels = first_levels(cluster, observed_events, age_s) if cluster.dynamics.moves else None
        return PlacementState(
            observed_events.clock_s, observed_events.request, observed_events.active, observed_events.available,
            table, zero, zero, overflow, levels, first_ends(cluster, observed_events),
        )  # fmt: skip

    def legal(state: PlacementState) -> Array:
        possible = fits(cluster, state.request) & state.available[:, None]
        anything = jnp.any(possible, axis=0)
        return jnp.where(anything[None], possible, state.available[:, None])

    def decision_info(state: PlacementState, node: Array) -> PlacementDecisionInfo:
        request = state.request
        home = one_hot(node, num_nodes) & _same_site(cluster, request.site)
        arrival_s = jnp.broadcast_to(state.clock_s[None], node.shape)
        return PlacementDecisionInfo(
            node, request.site, request.agent, ~jnp.any(home, axis=0), arrival_s,
            request.expected_run_s, request.deadline_s, request.demand,
        )  # fmt: skip

    return Problem(
        num_seats=config.num_seats,
        start=start,
        observe=lambda state: observe(cluster, state, unit_s, in_full=sees_all),
        observe_global=lambda state: observe(cluster, state, unit_s, in_full=True, for_answers=True),
        legal=legal,
        active=lambda state: state.active,
        apply=lambda *arguments: _apply(cluster, config, *arguments),
        remaining=_remaining,
        decision_info=decision_info,
        reward=lambda decision_info, outcome: rewards[config.reward](
            config.worst_response, decision_info, outcome
        ),
        keeps_done=True,
    )


def _remaining(state: PlacementState) -> Records:
    """Records of all that is in flight."""
    table = state.in_flight
    settled = table.finish_s < jnp.inf

    def rows(leaf: Array) -> Array:
        return leaf.reshape((-1, *leaf.shape[2:]))

    outcome = PlacementOutcome(rows(table.start_s), rows(table.finish_s), rows(table.status))
    return Records(rows(table.decision), rows(settled), outcome)


def _same_site(cluster: Cluster, site: Array) -> Array:
    sites = jnp.asarray(cluster.site_of_node, jnp.int32).reshape((-1,) + (1,) * site.ndim)
    return sites == site[None]
