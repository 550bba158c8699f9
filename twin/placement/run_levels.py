"""Run times in the state of placement: levels, updated by runs that end (`run_filter`), and start-ups that are due
(`cold_starts`)."""

import jax.numpy as jnp

from twin.contracts import Array
from twin.placement.cold_starts import ColdStarts, due
from twin.placement.evictions import due_by_others
from twin.placement.run_filter import NodeLevel, aged, cut, fresh_level, wandered
from twin.placement.slots import place, read, write
from twin.placement.types import (
    Cluster,
    InFlight,
    PlacementEvents,
    PlacementOutcome,
    PlacementState,
    RunLevels,
)


def first_levels(cluster: Cluster, observed_events: PlacementEvents, age_s: Array | float) -> RunLevels:
    """What is known of run times as an episode begins."""
    streams = observed_events.clock_s.shape
    since_s = jnp.broadcast_to(
        jnp.asarray(age_s if observed_events.age_s is None else observed_events.age_s, jnp.float32), streams
    )
    shape, trailing = (len(cluster.services), cluster.num_nodes, *streams), (1,) * len(streams)
    known = jnp.asarray(cluster.run_variance, jnp.float32).reshape((*cluster.run_variance.shape, *trailing))
    fresh = fresh_level(cluster.dynamics, shape[1:], since_s[None], jnp)
    node = fresh if observed_events.level is None else observed_events.level
    return RunLevels(jnp.zeros(shape, jnp.float32), jnp.broadcast_to(known, shape), node, since_s)


def usual_levels(state: PlacementState) -> Array | None:
    """[nodes, seats, *streams] the levels of the nodes and of the requested services on them, together: the logarithm
    of how much longer runs take now than by the tables. None where nothing is followed."""
    if state.levels is None:
        return None
    of_service = state.request.service[None, None]
    pair = jnp.take_along_axis(state.levels.pair[:, :, None], of_service, axis=0)[0]
    return pair + jnp.sum(state.levels.node.mean, axis=0)[:, None]


def pair_run_s(cluster: Cluster, state: PlacementState, seat: int, node: Array, filed_s: Array) -> Array:
    """[*streams] how long the seat's request should run on `node`, but for the node's own level; `filed_s` of
    `filed_run_s`."""
    service = state.request.service[seat]
    ratio = jnp.asarray(cluster.run_ratio, jnp.float32)[service, node]
    run_s = ratio * filed_s
    if state.levels is None:
        return run_s
    pair = state.levels.pair
    return run_s * jnp.exp(read(pair, place(pair.shape, service, node, jnp.ones(node.shape, bool)), 0.0))


def first_ends(cluster: Cluster, observed_events: PlacementEvents) -> Array | None:
    """When the last runs of services on nodes should have ended, as an episode begins; None without cold starts."""
    if cluster.cold is None:
        return None
    shape = (len(cluster.services), cluster.num_nodes, *observed_events.clock_s.shape)
    if observed_events.last_end_s is None:  # as if all had run until now
        return jnp.broadcast_to(observed_events.clock_s, shape)
    return observed_events.last_end_s


def startups_s(cluster: Cluster, state: PlacementState) -> Array | None:
    """[nodes, seats, *streams] the start-up that is due of every seat's service on every node; None without any."""
    if cluster.cold is None or state.last_end_s is None:
        return None
    service = state.request.service
    last_s = jnp.take_along_axis(state.last_end_s[:, :, None], service[None, None], axis=0)[0]
    share = _share_due(cluster.cold, state.clock_s, state.last_end_s, last_s, service)
    share = jnp.where(state.request.expected_run_s[None] > 0.0, share, 0.0)
    return jnp.asarray(cluster.cold.startup_s, jnp.float32)[service][None] * share


def _share_due(cold: ColdStarts, clock_s: Array, ends_s: Array, last_s: Array, service: Array) -> Array:
    """[nodes, seats, *streams] of services [seats, *streams] whose last run should have ended at `last_s`, and that of
    any at `ends_s` [services, nodes, *streams]."""
    if cold.room is None:
        return jnp.asarray(due(clock_s[None, None] - last_s, cold.memory_s, jnp))
    others = jnp.sum(ends_s[:, :, None] > last_s[None], axis=0, dtype=jnp.float32)
    room = jnp.asarray(cold.room, jnp.float32).reshape((-1,) + (1,) * (last_s.ndim - 1))
    if cold.part is None:
        factor = jnp.asarray(cold.slowness, jnp.float32).reshape(room.shape)
    else:
        factor = jnp.moveaxis(jnp.asarray(cold.factor, jnp.float32)[service], -1, 0)
    return jnp.asarray(due_by_others(others, room, jnp) * factor)


def filed_run_s(cluster: Cluster, state: PlacementState, seat: int, node: Array) -> Array:
    """[*streams] what is expected of the seat's request anywhere, with the start-up that is due on `node`: over the
    ratio of the tables, which will multiply it."""
    expected_s, startup_s = state.request.expected_run_s[seat], startups_s(cluster, state)
    if startup_s is None:
        return expected_s
    ratio = jnp.asarray(cluster.run_ratio, jnp.float32)[state.request.service[seat], node]
    return expected_s + jnp.take_along_axis(startup_s[:, seat], node[None], axis=0)[0] / ratio


def updated_ends(cluster: Cluster, state: PlacementState, node: Array, taken: Array) -> Array | None:
    """When the last runs should have ended, after nodes [seats, *streams] have taken requests where `taken` says so."""
    last_s, request = state.last_end_s, state.request
    if last_s is None:
        return None
    for seat in range(node.shape[0]):
        service = request.service[seat]
        ratio = jnp.asarray(cluster.run_ratio, jnp.float32)[service, node[seat]]
        at = place(last_s.shape, service, node[seat], taken[seat])
        ends_s = state.clock_s + ratio * request.expected_run_s[seat]
        last_s = write(last_s, at, jnp.maximum(read(last_s, at, -jnp.inf), ends_s))
    return last_s


def updated_pair(
    cluster: Cluster,
    state: PlacementState,
    table: InFlight,
    position: Array,
    node: Array,
    left: PlacementOutcome,
) -> RunLevels | None:
    """The levels after what leaves a slot of `node` has updated its service's level there by its run time, if it ran.

    level += gain * (log(run / expected) - log(ratio) - the node's level - level), cut as in `run_filter`.
    """
    levels, dynamics = state.levels, cluster.dynamics
    if levels is None:
        return None
    run_s, expected_s = left.finish_s - left.start_s, read(table.expected_run_s, position, 0.0)
    service = read(table.service, position, 0)
    usable = cluster.tells_run(left.status) & jnp.isfinite(run_s) & (run_s > 0.0) & (expected_s > 0.0)
    pair = place(levels.pair.shape, service, node, usable)
    old, since = (
        read(levels.pair, pair, 0.0),
        wandered(dynamics, state.clock_s) + aged(dynamics, levels.age_s),
    )
    variance = read(levels.pair_variance, pair, 0.0) + since
    of_node = NodeLevel(
        *(jnp.take_along_axis(leaf.sum(axis=0), node[None], axis=0)[0] for leaf in levels.node)
    )
    ratio = jnp.log(jnp.asarray(cluster.run_ratio, jnp.float32))[service, node]
    residual = jnp.log(jnp.where(usable, run_s, 1.0) / jnp.where(usable, expected_s, 1.0)) - ratio
    around = variance + of_node.variance
    gain = variance / (around + dynamics.scatter)
    innovation = cut(dynamics, residual, old + of_node.mean, around, jnp)
    return levels._replace(
        pair=write(levels.pair, pair, old + gain * innovation),
        pair_variance=write(levels.pair_variance, pair, (1.0 - gain) * variance - since),
    )
