"""The planned deployment in NumPy: the arithmetic of `offline_rl.rules.orchestration.planned`, without draws.

Services are without the unknown one, and so are all tables here.
"""

from typing import NamedTuple

import numpy as np

from offline_rl.numpy_orchestrator import Chosen
from offline_rl.runner.frame_view import FrameView, OrchestrationTables


class _Sofar(NamedTuple):
    """What the changes of a frame have come to, one after another."""

    has: np.ndarray  # [services] replicas as requested
    used_gib: np.ndarray  # [nodes]
    free: np.ndarray  # [services, nodes] replicas that can be removed


def planned_changes(tables: OrchestrationTables, view: FrameView, num_changes: int) -> Chosen:
    """The changes of the plan for now.

    Args:
        tables: Of the cluster.
        view: What is known as the frame begins.
        num_changes: H.
    """
    row = int((view.time_of_day_s + tables.lead_s) / tables.bin_s)
    row = min(max(row, 0), len(tables.wanted) - 1)
    wanted, busy = tables.wanted[row], tables.busy[row]
    sofar = _Sofar(view.specified(), view.used_gib(tables), view.removable())
    nodes, changes = [], []
    for _ in range(num_changes):
        node, change, sofar = _one(tables, view, wanted, busy, sofar)
        nodes.append(node)
        changes.append(change)
    return Chosen(np.array(nodes), np.array(changes))


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
