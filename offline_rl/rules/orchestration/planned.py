"""Planned deployment: as many replicas of every service as will be busy by the forecast, one frame ahead.

    wanted = busy / target + safety * sqrt(busy)

with `busy` the replicas that the forecast expects in service when an image requested now is there; all wanted shrink
alike where memory does not suffice. Of H changes each adds a replica of the service that lacks most, where the
expected load of the cores is least; where no node has room, one of the service with the largest surplus goes instead.

Square-root staffing: W. Whitt, Understanding the efficiency of multi-server service systems, 1992.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.forecast import DayForecast, expected_busy
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameState, Scaling, removable, specified
from twin.orchestration.orchestrating import Orchestrate, any_largest, host_score, row_of
from twin.placement.features import one_hot


@dataclass(frozen=True)
class PlannedConfig:
    """How far ahead and how generously is planned.

    Attributes:
        lead_frames: Frames from now to the time that is planned for.
        target: Share of a service's replicas that shall be busy.
        safety: Replicas more for each square root of busy ones.
        memory_share: Share of all memory that is planned with.
        draws: Of equals any is taken; otherwise the first, so that the same state always gives the same plan.
    """

    lead_frames: float = 1.5
    target: float = 0.8
    safety: float = 0.7
    memory_share: float = 0.95
    draws: bool = True


ADVICE = PlannedConfig(draws=False)
"""What learners are shown, and bundles repeat without JAX."""


class PlanTables(NamedTuple):
    """What the plan is made of; NumPy."""

    wanted: np.ndarray  # [bins, services] replicas
    busy: np.ndarray  # [bins, services] of them that are expected to be in service


def plan_tables(case: EdgeCloud, forecast: DayForecast, config: PlannedConfig) -> PlanTables:
    """The tables of a cluster and a day; of a service that no node may host nothing is wanted."""
    busy = expected_busy(case, forecast)
    wanted = (busy / config.target + config.safety * np.sqrt(busy)) * case.hosts.any(axis=1)
    return PlanTables(_within_memory(case, config, wanted), busy)


def lead_of(case: EdgeCloud, config: PlannedConfig) -> float:
    """Seconds from now to the time that is planned for."""
    return config.lead_frames * case.config.slot_s * case.config.slots_per_frame


def planned(
    case: EdgeCloud,
    forecast: DayForecast,
    frames: FrameConfig,
    config: PlannedConfig | None = None,
    begin_s: float | Array = 0.0,
) -> Orchestrate:
    """The rule for a cluster.

    Args:
        case: The cluster.
        forecast: Of the day.
        frames: For the number of changes.
        config: See `PlannedConfig`.
        begin_s: Time of day at which the clock is zero.
    """
    config = config or PlannedConfig()
    wanted, expected = map(jnp.asarray, plan_tables(case, forecast, config))
    lead_s = lead_of(case, config)

    def orchestrate(key: Array, state: FrameState) -> Scaling:
        now = forecast.at(begin_s + state.clock_s + lead_s)
        draws = key if config.draws else None
        return _changes(
            case, forecast, frames.num_changes, draws, state, _rows(wanted, now), _rows(expected, now)
        )

    return orchestrate


def _within_memory(case: EdgeCloud, config: PlannedConfig, wanted: np.ndarray) -> np.ndarray:
    """[bins, services] what all memory has room for, at least one replica of what is wanted at all."""
    total_gib = config.memory_share * case.memory_gib.sum()
    needed_gib = wanted @ case.replica_gib
    scaled = wanted * np.minimum(1.0, total_gib / np.maximum(needed_gib, 1e-9))[:, None]
    return np.where(wanted > 0.0, np.maximum(scaled, 1.0), 0.0).astype(np.float32)


def _rows(table: Array, row: Array) -> Array:
    """[services, *streams] rows [*streams] of a table [bins, services]."""
    return jnp.moveaxis(table[row], -1, 0)


def _changes(
    case: EdgeCloud,
    forecast: DayForecast,
    num_changes: int,
    key: Array | None,
    state: FrameState,
    wanted: Array,
    busy: Array,
) -> Scaling:
    deployment = state.deployment
    has, used_gib, free = specified(deployment), deployment.used_gib, removable(deployment)
    num_services, num_nodes = case.num_services, case.num_nodes
    nodes, changes = [], []
    for key_change in _split(key, num_changes):
        key_service, key_node, key_out = _split(key_change, 3)
        lacks = wanted - has
        service, any_ = any_largest(key_service, lacks, lacks > 0.5)
        _, can_host = host_score(case, state, used_gib, service)
        to, has_room = any_largest(
            key_node, _suits(case, forecast, deployment.replicas, has, busy, service), can_host
        )
        out, off, gives = _surplus(case, key_out, -lacks, free, service)
        adds, removes = any_ & has_room, any_ & ~has_room & gives
        node, moved = jnp.where(adds, to, off), jnp.where(adds, service, out)
        step = jnp.where(adds, 1.0, jnp.where(removes, -1.0, 0.0))
        whose, where = one_hot(moved, num_services), one_hot(node, num_nodes)
        takes_gib = jnp.asarray(case.replica_gib)[moved] * jnp.maximum(step, 0.0)
        used_gib = used_gib + jnp.where(where, takes_gib[None], 0.0)
        free = free + jnp.where(whose[:, None] & where[None], jnp.minimum(step, 0.0)[None, None], 0.0)
        has = has + jnp.where(whose, step[None], 0.0)
        has = has + jnp.where(
            one_hot(service, num_services) & removes[None], 1.0, 0.0
        )  # its turn comes when there is room
        nodes.append(node)
        changes.append(jnp.where(adds, moved, jnp.where(removes, num_services - 1 + moved, 0)))
    return Scaling(jnp.stack(nodes), jnp.stack(changes))


def _split(key: Array | None, number: int) -> Sequence[Array | None]:
    """Keys of as many draws; of none where there is no key."""
    return [None] * number if key is None else list(jax.random.split(key, number))


def _suits(
    case: EdgeCloud, forecast: DayForecast, replicas: Array, has: Array, busy: Array, service: Array
) -> Array:
    """[nodes, *streams] how well nodes suit another replica: short runs, cores that are not expected to be busy."""
    trailing = (1,) * service.ndim
    use = jnp.minimum(busy / jnp.maximum(has, 1.0), 1.0)
    load = jnp.sum(replicas * use[:, None], axis=0) / jnp.asarray(case.cores).reshape((-1, *trailing))
    run_s = jnp.moveaxis(jnp.asarray(forecast.run_s)[service], -1, 0)
    return -load - jnp.log(jnp.maximum(run_s, 1e-6))


def _surplus(
    case: EdgeCloud, key: Array | None, surplus: Array, free: Array, service: Array
) -> tuple[Array, Array, Array]:
    """The service with the largest surplus and a node that it can leave for `service`, and whether there is one."""
    key_service, key_node = _split(key, 2)
    hosts = jnp.moveaxis(jnp.asarray(case.hosts)[service], -1, 0)
    leaves = (free > 0.0) & hosts[None]
    out, some = any_largest(key_service, surplus, (surplus >= 0.5) & jnp.any(leaves, axis=1))
    here = row_of(free, out)
    node, found = any_largest(key_node, here, (here > 0.0) & hosts)
    return out, node, some & found
