"""Planned deployment: as many replicas of every service as will be busy by the forecast, one frame ahead.

    wanted = busy / target + safety * sqrt(busy)
    busy   = forecast * (prior + load of the last frames) / (prior + load forecast for them)

with `forecast` the replicas expected in service when an image requested now is there, and the load the requests in
service and a part of those that wait: what has become popular since the log, or runs longer, is seen within frames.
All wanted shrink alike where memory does not suffice. Of H changes each adds a replica of the service that lacks most,
where the expected load of the cores is least; where no node has room, one of the service with the largest surplus goes
instead.

Square-root staffing: W. Whitt, Understanding the efficiency of multi-server service systems, 1992.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.runner.frame_plan import PlanNumbers, load_level, wanted_replicas
from twin.contracts import Array
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.forecast import DayForecast, expected_busy
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameState, Scaling, removable, specified
from twin.orchestration.orchestrator import Orchestrate, any_largest, host_score, row_of
from twin.placement.features import one_hot


@dataclass(frozen=True)
class PlannedConfig:
    """How far ahead and how generously is planned.

    Attributes:
        lead_frames: Frames from now to the time that is planned for.
        target: Share of a service's replicas that shall be busy.
        safety: Replicas more for each square root of busy ones.
        memory_share: Share of all memory that is planned with.
        follows: Whether the load of the last frames corrects the forecast.
        prior: Load, in replicas times frames, by which the forecast is believed. On `hot_services` (seed 0) .3, .5, 1
            and 3 gave .788, .789, .798 and .804 on time on the day of the log (the forecast alone .818) and .779, .778,
            .761 and .719 a month later (.565).
        backlog: How much a request that waits counts, one in service being 1: some of them will not be waited for.
        draws: Of equals any is taken; otherwise the first, so that the same state always gives the same plan.
    """

    lead_frames: float = 1.5
    target: float = 0.8
    safety: float = 0.7
    memory_share: float = 0.95
    follows: bool = True
    prior: float = 0.5
    backlog: float = 0.3
    draws: bool = True


ADVICE = PlannedConfig(draws=False)
"""What learners are shown, and bundles repeat without JAX."""


def plan_numbers(case: EdgeCloud, config: PlannedConfig) -> PlanNumbers:
    """The numbers of a plan for a cluster."""
    most_gib = config.memory_share * float(case.memory_gib.sum())
    return PlanNumbers(config.target, config.safety, most_gib, config.prior, config.backlog)


def hosted_busy(case: EdgeCloud, forecast: DayForecast) -> np.ndarray:
    """[bins, services] replicas that are expected in service; of what no node may host none."""
    return expected_busy(case, forecast) * case.hosts.any(axis=1)


def lead_of(case: EdgeCloud, config: PlannedConfig) -> float:
    """Seconds from now to the time that is planned for."""
    return config.lead_frames * case.config.frame_s


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
    expected, numbers, lead_s = hosted_busy(case, forecast), plan_numbers(case, config), lead_of(case, config)
    table, level = jnp.asarray(expected), load_levels(case, forecast, config, begin_s)

    def orchestrate(key: Array, state: FrameState) -> Scaling:
        busy = _rows(table, forecast.at(begin_s + state.clock_s + lead_s))
        busy = busy * level(state) if config.follows else busy
        replica_gib = jnp.asarray(case.replica_gib).reshape((-1,) + (1,) * state.clock_s.ndim)
        wanted = wanted_replicas(numbers, busy, replica_gib, jnp)
        return _changes(
            case, forecast, frames.num_changes, key if config.draws else None, state, wanted, busy
        )

    return orchestrate


def load_levels(
    case: EdgeCloud, forecast: DayForecast, config: PlannedConfig | None = None, begin_s: float | Array = 0.0
) -> Callable[[FrameState], Array]:
    """State -> [services, *streams] load of the last frames over what was forecast for them; arguments of `planned`."""
    numbers, table = plan_numbers(case, config or PlannedConfig()), jnp.asarray(hosted_busy(case, forecast))

    def level(state: FrameState) -> Array:
        busy, requests = state.measured.busy, state.measured.requests
        num_frames, trailing = busy.shape[0], (1,) * state.clock_s.ndim
        ago_s = case.config.frame_s * (num_frames - 0.5 - np.arange(num_frames, dtype=np.float32))
        past_s = (begin_s + state.clock_s)[None] - ago_s.reshape((-1, *trailing))
        past = jnp.moveaxis(table[forecast.at(past_s)], -1, 1)  # [frames, services, *streams]
        found: Array = load_level(numbers, busy, requests, past, jnp)
        return found

    return level


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
        # Its turn comes when there is room
        has = has + jnp.where(one_hot(service, num_services) & removes[None], 1.0, 0.0)
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
