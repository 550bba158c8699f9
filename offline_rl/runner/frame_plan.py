"""The planned deployment in NumPy: the arithmetic of `offline_rl.rules.orchestration.planned`, without draws.

Services are without the unknown one, and so are all tables here; `load_level` and `wanted_replicas` are the original's
own, in NumPy or JAX.
"""

from typing import Any, NamedTuple

import numpy as np

from offline_rl.runner.frame_network import Chosen
from offline_rl.runner.frame_view import FrameView, OrchestrationTables


class PlanNumbers(NamedTuple):
    """What a plan is made with; see `offline_rl.rules.orchestration.planned.PlannedConfig`."""

    target: Any
    safety: Any
    most_gib: Any  # memory that replicas may take, of all nodes together
    prior: Any
    backlog: Any


def load_level(numbers: PlanNumbers, busy: Any, requests: Any, forecast: Any, np: Any = np) -> Any:
    """[services, *streams] load of the last frames over what was forecast for them.

    Args:
        numbers: See `PlanNumbers`.
        busy: [frames, services, *streams] mean number of requests in service; NaN where it was not measured.
        requests: The same of all requests, waiting ones included.
        forecast: The same shape, what was expected to be in service.
        np: NumPy or JAX.
    """
    seen = busy + numbers.backlog * (requests - busy)
    is_known = np.isfinite(seen)
    came, expected = (np.where(is_known, one, 0.0).sum(axis=0) for one in (seen, forecast))
    return (numbers.prior + came) / (numbers.prior + expected)


def wanted_replicas(numbers: PlanNumbers, busy: Any, replica_gib: Any, np: Any = np) -> Any:
    """[services, *streams] replicas for a number of busy ones, all alike fewer where memory does not suffice.

    Of what is wanted at all there is at least one; `replica_gib` [services, ...] broadcasts to the result.
    """
    wanted = busy / numbers.target + numbers.safety * np.sqrt(busy)
    needed_gib = (wanted * replica_gib).sum(axis=0, keepdims=True)
    share = np.minimum(1.0, numbers.most_gib / np.maximum(needed_gib, 1e-9))
    return np.where(wanted > 0.0, np.maximum(wanted * share, 1.0), 0.0)


class _Sofar(NamedTuple):
    """What the changes of a frame have come to, one after another."""

    has: np.ndarray  # [services] replicas as requested
    used_gib: np.ndarray  # [nodes]
    free: np.ndarray  # [services, nodes] replicas that can be removed


def planned_changes(tables: OrchestrationTables, view: FrameView, num_changes: int) -> Chosen:
    """The changes of the plan for now."""
    ago_s = float(tables.frame_s) * (len(view.busy) - 0.5 - np.arange(len(view.busy)))
    past = _expected(tables, view.time_of_day_s - ago_s)
    numbers = PlanNumbers(*tables.plan)
    busy = _expected(tables, view.time_of_day_s + tables.lead_s) * load_level(
        numbers, view.busy, view.requests, past
    )
    wanted = wanted_replicas(numbers, busy, tables.replica_gib)
    sofar = _Sofar(view.specified(), view.used_gib(tables), view.removable())
    nodes, changes = [], []
    for _ in range(num_changes):
        node, change, sofar = _one(tables, view, wanted, busy, sofar)
        nodes.append(node)
        changes.append(change)
    return Chosen(np.array(nodes), np.array(changes))


def _expected(tables: OrchestrationTables, time_of_day_s: float | np.ndarray) -> np.ndarray:
    """[..., services] replicas that are expected to be in service at times of day."""
    row = np.asarray(time_of_day_s / tables.bin_s).astype(int)
    return np.asarray(tables.busy[np.clip(row, 0, len(tables.busy) - 1)])


def _one(
    tables: OrchestrationTables, view: FrameView, wanted: np.ndarray, busy: np.ndarray, sofar: _Sofar
) -> tuple[int, int, _Sofar]:
    has, used_gib, free = sofar
    lacks = wanted - has
    service, is_short = _largest(lacks, lacks > 0.5)
    left_gib = tables.memory_gib - used_gib - tables.replica_gib[service]
    can_host = tables.hosts[service] & view.up & (left_gib >= -1e-4)
    node, has_room = _largest(_suits(tables, view, has, busy, service), can_host)
    if not is_short:
        return _surplus(tables, -lacks, free, service)[0], 0, sofar
    if has_room:
        has, used_gib = has.copy(), used_gib.copy()
        has[service] += 1.0
        used_gib[node] += tables.replica_gib[service]
        return node, service + 1, _Sofar(has, used_gib, free)
    node, out, gives = _surplus(tables, -lacks, free, service)
    if not gives:
        return node, 0, sofar
    has, free = has.copy(), free.copy()
    has[out] -= 1.0
    has[service] += 1.0  # its turn comes when there is room
    free[out, node] -= 1.0
    return node, len(has) + out + 1, _Sofar(has, used_gib, free)


def _suits(
    tables: OrchestrationTables, view: FrameView, has: np.ndarray, busy: np.ndarray, service: int
) -> np.ndarray:
    """[nodes] how well nodes suit another replica."""
    use = np.minimum(busy / np.maximum(has, np.float32(1.0)), np.float32(1.0))
    load = (view.replicas * use[:, None]).sum(axis=0) / tables.cores
    return np.asarray(-load - np.log(np.maximum(tables.run_s[service], np.float32(1e-6))))


def _surplus(
    tables: OrchestrationTables, surplus: np.ndarray, free: np.ndarray, service: int
) -> tuple[int, int, bool]:
    """A node that the service with the largest surplus can leave for `service`, that service, whether there is one."""
    hosts = tables.hosts[service]
    leaves = (free > 0.0) & hosts[None]
    out, some = _largest(surplus, (surplus >= 0.5) & leaves.any(axis=1))
    node, found = _largest(free[out], (free[out] > 0.0) & hosts)
    return node, out, some and found


def _largest(score: np.ndarray, allowed: np.ndarray) -> tuple[int, bool]:
    """The first of the allowed choices of the largest score, and whether there is one."""
    return int(np.argmax(np.where(allowed, score, -np.inf))), bool(allowed.any())
