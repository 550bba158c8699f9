"""Bundles of untrained placement policies on made clusters, and made logs retold to the runner."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.calendar import DAY_S, MONDAY_S
from offline_rl.contract import NetworkFacts
from offline_rl.export import export_policy, original
from offline_rl.placement_contract import placement_contract
from offline_rl.runner import Held, Request
from tests.reference.placement_loop import NOT_ASKED
from tests.twin.made import agent_name, made_cluster, made_encoding, made_rows
from twin.contracts import PyTree
from twin.placement.cold_starts import ColdStarts
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.run_filter import RunDynamics, fresh_level
from twin.placement.types import Requests
from twin.placement.windows import Windows

DYNAMICS = RunDynamics(0.2, 0.05, node_variance=0.1, node_memory_s=60.0)
STARTUP_S = 15.0
"""Nodes come and go; pairs stand still, for programs are told of their runs a little later than books."""
MLP = NetworkFacts("mlp", (32, 16))
BOUND = NetworkFacts("scorer", (16, 8), identity=True, pooled=True)
FREE = NetworkFacts("scorer", (16, 8), identity=False, pooled=True)
RULE = NetworkFacts("expected_on_time", ())
RESIDUAL = NetworkFacts("scorer", (16, 8), identity=True, pooled=True, corrects="expected_on_time")


def made_policy(folder: Path, encoding: Encoding, network: NetworkFacts, **facts: object) -> PyTree:
    """Writes the bundle of an opinionated policy; its parameters."""
    contract = placement_contract(encoding, network, **facts)  # type: ignore[arg-type]
    rng = np.random.default_rng(5)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(leaf + 0.2 * rng.normal(size=leaf.shape), jnp.float32),
        original(contract).init(jax.random.key(1)),
    )
    export_policy(params, folder, contract)
    return params


def made_system(
    num_steps: int = 48, num_windows: int = 4, *, by_others: bool = False, **cluster: int
) -> tuple[Encoding, Windows]:
    """A cluster and a random log on it in windows; times of day follow from the arrivals, as in real logs.

    Only the first node has a GPU; requests that want one and must not run there fit nowhere. Services start cold after
    an idle time, or by how many others ran there since and where they are always (`by_others`).
    """
    made = made_cluster(**cluster)
    places = np.arange(made.num_nodes)
    part = 0.5 * ((np.arange(len(made.services))[:, None] + places) % 3)
    room = (0.5 + places % 2, 0.5 + places / 4.0, part) if by_others else ()
    gpus = np.eye(1, made.num_nodes)
    capacity, unit_capacity = (np.concatenate([one[:2], gpus]) for one in (made.capacity, made.unit_capacity))
    encoding = made_encoding(
        replace(
            made,
            capacity=capacity,
            unit_capacity=unit_capacity,
            dynamics=DYNAMICS,
            run_variance=np.zeros_like(made.run_variance),
            cold=ColdStarts(40.0, STARTUP_S * np.arange(len(made.services)), *room),
        ),
        depth=64,
    )
    rows = made_rows(np.random.default_rng(3), encoding.cluster, num_steps * num_windows)
    week = 7 * DAY_S
    request = rows.request._replace(
        day_fraction=((rows.arrival_s % DAY_S) / DAY_S).astype(np.float32),
        week_fraction=(((rows.arrival_s - MONDAY_S) % week) / week).astype(np.float32),
    )
    everything = np.ones(rows.num_rows, bool)
    windows = cut_windows(rows._replace(request=request), everything, encoding, num_steps=num_steps)
    fresh = fresh_level(DYNAMICS, windows.level.mean.shape[1:])  # books know nothing of runs before them
    return encoding, windows._replace(level=fresh, last_end_s=_ends_of_carried(encoding, windows))


def _ends_of_carried(encoding: Encoding, windows: Windows) -> np.ndarray:
    """When the runs that are in flight as windows begin should end: books know of no others, and take them to have run
    until then."""
    found, carried = np.broadcast_to(windows.arrival_s[0], windows.last_end_s.shape).copy(), windows.carried
    for at in zip(*np.nonzero(carried.node >= 0), strict=True):
        pair = carried.request.service[at], carried.node[at]
        run_s = encoding.cluster.run_ratio[pair] * carried.request.expected_run_s[at]
        place = (*pair, at[1])
        found[place] = max(found[place], carried.request.arrival_s[at] + run_s)
    return found


def told_request(encoding: Encoding, requests: Requests, *index: int) -> Request:
    """One request of arrays [*batch] as a caller would describe it."""
    cluster = encoding.cluster
    others = [name for name in requests._fields if name not in NOT_ASKED]
    one = {name: getattr(requests, name)[index].item() for name in others}
    cpu_cores, memory_gib, gpus = (float(amount[index]) for amount in requests.demand)
    rule = cluster.rules[one["rule"]]
    names = [name for name, allowed in zip(cluster.node_names, rule, strict=True) if allowed]
    return Request(
        cpu_cores=cpu_cores,
        memory_gib=memory_gib,
        gpus=gpus,
        num_nodes=one["num_nodes"],
        site=cluster.sites[one["site"]],
        service=cluster.services[one["service"]],
        scenario=cluster.scenarios[one["scenario"]],
        queue=cluster.queues[one["queue"]],
        requested_run_s=one["expected_run_s"],
        deadline_s=one["deadline_s"] if np.isfinite(one["deadline_s"]) else None,
        input_mib=one["input_mib"],
        candidates=None if rule.all() else names,
        agent=agent_name(one["agent"]),
    )


def carried_in(encoding: Encoding, windows: Windows, window: int) -> list[tuple[str, Held, float, float]]:
    """Node, request, start and finish of what was in flight when a window begins; the latter two are still to come."""
    table, fate, origin_s = windows.carried.request, windows.carried.fate, float(windows.origin_s[window])
    found = []
    for row in np.flatnonzero(windows.carried.node[:, window] >= 0):
        node, at = windows.carried.node[row, window], (row, window)
        begun = float(table.start_s[at])
        held = Held(
            origin_s + float(table.arrival_s[at]),
            origin_s + begun if np.isfinite(begun) else None,
            float(table.expected_run_s[at]),
            encoding.cluster.services[table.service[at]],
            *(float(amount[at]) for amount in table.demand),
        )
        name = encoding.cluster.node_names[node]
        found.append((name, held, origin_s + float(fate.start_s[at]), origin_s + float(fate.finish_s[at])))
    return found
