"""A day of history as tables of an archive.

Columns of a world's options: `output_mib`, `candidates` of services with hosting rules, `agent_left` and `session` of
agents that react, `node_samples.available` around outages. Without the option there is no such column.
"""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa

from evaluation.simulator.conditions import hosting
from evaluation.simulator.history import History
from evaluation.simulator.names import agent_name
from evaluation.simulator.world import CALENDAR_DAY_S, World
from logs_schema.calendar import EPOCH_DATE
from logs_schema.columns import INSTANT
from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED, UNKNOWN, Fate


def nodes_table(world: World) -> pa.Table:
    """The inventory of a world as the archive's `nodes`."""
    names = ("site", "tier", "memory_gib", "speed")
    columns: dict[str, list[Any]] = {name: [getattr(node, name) for node in world.nodes] for name in names}
    columns["node_id"] = [node.name for node in world.nodes]
    columns["cpu_cores"] = [float(node.cpu_cores) for node in world.nodes]
    columns["virtual"] = [False] * len(world.nodes)
    return pa.table(columns)


def requests_table(
    world: World, rows: History, day: dt.date, generation: np.ndarray | None = None, *, seed: int = 0
) -> pa.Table:
    """One day's history as the archive's `requests`.

    Args:
        world: Names, and the options with columns in the log.
        rows: The day's requests.
        day: Date of the day.
        generation: [agents] number of times that each agent has left for good and been replaced before.
        seed: Seed of the history; late and missing reports are drawn from it.
    """
    request = rows.request
    fate = _reported(world, rows.fate, np.random.default_rng([seed, day.toordinal(), 0x4E90]))
    midnight_s = (day - EPOCH_DATE).days * CALENDAR_DAY_S
    arrival = instants(midnight_s, rows.arrival_s)
    node = labels([node.name for node in world.nodes], rows.node)
    accepted = np.asarray(fate.accepted)
    count = len(accepted)
    agents, agent = _agents(world, rows, generation)
    return pa.table(
        {
            "request_id": [f"{day:%Y%m%d}-{index:06d}" for index in range(count)],
            "arrival": arrival,
            "site": labels(world.sites, request.site),
            "scenario": labels([one.name for one in world.scenarios], request.scenario),
            "service": labels([one.name for one in world.services], request.service),
            "agent": labels(agents, agent),
            "cpu_cores": pa.array(np.asarray(request.demand)[:, 0], pa.float64()),
            "memory_gib": pa.array(np.asarray(request.demand)[:, 1], pa.float64()),
            "num_nodes": pa.array(np.ones(count), pa.int32()),
            "requested_run_s": pa.array(np.asarray(request.expected_run_s), pa.float64()),
            "input_mib": pa.array(np.asarray(request.input_mib), pa.float64()),
            "deadline_s": pa.array(np.asarray(request.deadline_s), pa.float64()),
            "decided": arrival,
            "offered_node": node,
            "accepted": pa.array(accepted),
            "start": instants(midnight_s, fate.start_s),
            "finish": instants(midnight_s, fate.finish_s),
            "status": _status(fate),
            "ran_node": pa.DictionaryArray.from_arrays(
                pa.array(np.asarray(rows.node), mask=~(accepted & np.isfinite(fate.start_s))), node.dictionary
            ),
            **_traces_of_options(world, rows, [agents[index] for index in agent], day),
        }
    )


def _status(fate: Fate) -> pa.DictionaryArray:
    names = {REJECTED: "rejected", COMPLETED: "completed", FAILED: "failed", DROPPED: "dropped"}
    status = np.asarray(fate.status)
    if np.any(status == UNKNOWN):
        names[UNKNOWN] = "unknown"
    place = np.argsort(list(names))  # of every code, in their order, among the names
    return labels(list(names.values()), place[np.searchsorted(np.sort(list(names)), status)])


def _reported(world: World, fate: Fate, random: np.random.Generator) -> Fate:
    """The outcomes as logged."""
    reports = world.reports
    if not reports.any:
        return fate
    finish_s, status = np.array(fate.finish_s), np.array(fate.status)
    ran = np.isfinite(np.asarray(fate.start_s)) & np.isfinite(finish_s)
    lost = ran & (random.uniform(size=len(ran)) < reports.lost)
    late = ran & ~lost & (random.uniform(size=len(ran)) < reports.late)
    finish_s = np.where(late, finish_s + random.exponential(reports.delay_s, len(ran)), finish_s)
    return fate._replace(
        finish_s=np.where(lost, np.inf, finish_s), status=np.where(lost, UNKNOWN, status).astype(np.int32)
    )


def _traces_of_options(world: World, rows: History, agent: list[str], day: dt.date) -> dict[str, pa.Array]:
    """Columns that only worlds with certain options have."""
    columns: dict[str, pa.Array] = {}
    service = np.asarray(rows.request.service)
    if world.has_output:
        output_mib = np.array([one.output_mib for one in world.services])
        columns["output_mib"] = pa.array(output_mib[service], pa.float64())
    if world.has_rules:
        names = np.array([node.name for node in world.nodes])
        hosts = [None if row.all() else list(names[row]) for row in hosting(world)]
        columns["candidates"] = pa.array([hosts[index] for index in service], pa.list_(pa.string()))
    if rows.left is not None:
        columns["agent_left"] = pa.array(np.asarray(rows.left))
        numbered = zip(agent, np.asarray(rows.session), strict=True)
        sessions = [f"{name}-{day:%Y%m%d}-{number + 1}" for name, number in numbered]
        columns["session"] = pa.array(sessions, pa.string()).dictionary_encode()
    return columns


def left_for_good(world: World, rows: History) -> np.ndarray:
    """[agents] how often an agent left on this day."""
    left = np.zeros(world.num_agents, np.int64)
    if rows.left is not None:
        np.add.at(left, np.asarray(rows.request.agent)[np.asarray(rows.left)], 1)
    return left


def node_samples_table(world: World, day: float, date: dt.date) -> pa.Table:
    """Which nodes can take requests: at midnight, and whenever that changes, as the archive's `node_samples`."""
    midnight_s = (date - EPOCH_DATE).days * CALENDAR_DAY_S
    samples = []
    for node in world.nodes:
        outages = [one for one in world.outages if one.node == node.name and int(day) in one.days]
        moments_s = {0.0, *(moment for one in outages for moment in (one.from_s, one.to_s))}
        for moment_s in sorted(moments_s - {CALENDAR_DAY_S}):
            up = not any(one.from_s <= moment_s < one.to_s for one in outages)
            samples.append((moment_s, node.name, up))
    moments, names, available = zip(*sorted(samples), strict=True)
    return pa.table(
        {
            "time": instants(midnight_s, np.array(moments)),
            "node_id": list(names),
            "available": list(available),
        }
    )


def _agents(world: World, rows: History, generation: np.ndarray | None) -> tuple[list[str], np.ndarray]:
    """Names of agents, and [requests] index of the requesting agent; the replacement of an agent has its own name."""
    if generation is None:
        generation = np.zeros(world.num_agents, np.int64)
    names = [agent_name(agent, times) for agent, times in enumerate(generation.tolist())]
    agent = np.asarray(rows.request.agent).copy()
    if rows.left is None:
        return names, agent
    now = dict(enumerate(range(world.num_agents)))
    times = generation.copy()
    for row, (one, leaves) in enumerate(zip(agent.tolist(), np.asarray(rows.left).tolist(), strict=True)):
        agent[row] = now[one]
        if leaves:
            times[one] += 1
            now[one] = len(names)
            names.append(agent_name(one, int(times[one])))
    return names, agent


def labels(names: list[str] | tuple[str, ...], index: Any) -> pa.DictionaryArray:
    """Labels of rows, by their index among the names."""
    return pa.DictionaryArray.from_arrays(pa.array(np.asarray(index, np.int32)), pa.array(names, pa.string()))


def instants(midnight_s: float, seconds: Any) -> pa.Array:
    """Instants from seconds since midnight; null where they are inf."""
    seconds = np.asarray(seconds, np.float64)
    known = np.isfinite(seconds)
    micros = np.round((midnight_s + np.where(known, seconds, 0.0)) * 1e6).astype(np.int64)
    return pa.array(micros, pa.int64(), mask=~known).cast(INSTANT)
