"""The workload as a table of agents: one row an agent and day, never one row a request.

Agents that stay long appear in many rows of a log, so a draw by row would show them too often. Here every agent of a
day gives one row: a request drawn evenly among its own of that day, and how many it made (`ACTIVITY`). Weighted by that
number, the rows follow the law of the requests again; unweighted, that of the agents. Where agents are few, each may
give several of its requests, all agents equally many, which changes neither law and shows more of each agent; the
workload less often than that gives some request again.

Where a log hides most of its agents every request is a row of its own, and the report states it.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema import Archive
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError, first

UNKNOWN = "unknown"
"""Label of what a log does not have."""
ACTIVITY = "requests_a_day"
"""The column with the number of requests that the agent made that day."""
LABELS = ("site", "service", "queue")
CANDIDATES = "candidates"
ANY_NODE = "any"
SEPARATOR = "|"
AMOUNTS = (
    "cpu_cores", "memory_gib", "memory_share", "gpus", "num_nodes", "requested_run_s", "input_mib", "output_mib",
    "deadline_s",
)  # fmt: skip
ROUND, UNIT = "round", "unit"
MIN_KNOWN = 0.5
"""A column known in a smaller share of the rows is left out; agents named in a smaller share are taken as hidden."""


class AgentConditions(NamedTuple):
    """Conditions of a sample; arrays [rows]."""

    scenario: np.ndarray  # labels
    day_fraction: np.ndarray  # time of day in [0, 1)

    def take(self, rows: np.ndarray) -> "AgentConditions":
        """The conditions of some rows, by index or mask."""
        return AgentConditions(self.scenario[rows], self.day_fraction[rows])


@dataclass(frozen=True)
class AgentTable:
    """Agents, a row each.

    Attributes:
        conditions: Scenario and time of day of every row.
        categorical: Name -> [rows] labels.
        continuous: Name -> [rows] float64, NaN where unknown.
        unit: [rows] int, the same for rows of one agent and day; None where every row is one by itself.
    """

    conditions: AgentConditions
    categorical: Mapping[str, np.ndarray]
    continuous: Mapping[str, np.ndarray]
    unit: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.conditions.scenario)

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """All categorical columns, the scenario among them: what measures of fidelity compare."""
        return {"scenario": self.conditions.scenario, **self.categorical}

    def take(self, rows: np.ndarray) -> "AgentTable":
        """The table of some rows, by index or mask."""
        return AgentTable(
            self.conditions.take(rows),
            {name: column[rows] for name, column in self.categorical.items()},
            {name: column[rows] for name, column in self.continuous.items()},
            None if self.unit is None else self.unit[rows],
        )


class DrawReport(NamedTuple):
    """How a table of agents was drawn."""

    unit: str  # "agent and day" or "request"
    rows_a_unit: int
    num_requests: int
    num_rows: int
    num_hidden: int  # requests whose agent is hidden; left out where the unit is the agent
    left_out: tuple[str, ...]  # columns that the log does not fill

    @property
    def num_units(self) -> int:
        """Agents and days, or requests."""
        return self.num_rows // self.rows_a_unit


def draw_agents(
    archive: Archive,
    days: Sequence[dt.date],
    *,
    seed: int = 0,
    max_rows: int = 100_000,
    rows_an_agent: int = 1,
) -> tuple[AgentTable, DrawReport]:
    """Draws the agents of some days, a day in memory at a time.

    Args:
        archive: The log archive.
        days: Days to draw from, all in the archive.
        seed: Of the draws.
        max_rows: Rows kept at most, evenly over the days.
        rows_an_agent: Rows of every agent and day at most; fewer where all agents have no room otherwise.

    Returns:
        The agents in order of days, and how they were drawn.

    Raises:
        ConfigError: No days, or a day without requests.
    """
    missing = sorted(set(days) - set(archive.days("requests")))
    if not days or missing:
        raise ConfigError(
            f"days without requests: {first(missing)}" if days else "no days to draw agents from",
            where=str(archive.path),
            allowed="days of the archive's requests",
        )
    random = np.random.default_rng([seed, 0xA6E7])
    per_agent, num_requests, num_hidden = _agents_are_named(archive, days)
    room = max(1, max_rows // len(days))
    most = rows_an_agent if per_agent else 1
    parts = [_draw_day(archive, day, random, per_agent, room, most) for day in sorted(days)]
    rounds = _rounds(parts)  # the same for all: every day and agent counts alike
    taken = [part[ROUND] < rounds for part in parts]
    columns = {
        name: np.concatenate([part[name][rows] for part, rows in zip(parts, taken, strict=True)])
        for name in parts[0]
    }
    of_day = np.repeat(np.arange(len(parts)), [rows.sum() for rows in taken])
    _, unit = np.unique(np.stack([of_day, columns[UNIT]]), axis=1, return_inverse=True)
    known = {name: np.mean(~np.isnan(columns[name])) for name in AMOUNTS}
    known |= {name: np.mean(columns[name] != UNKNOWN) for name in LABELS}
    kept = [name for name in known if known[name] >= MIN_KNOWN]
    conditions = AgentConditions(columns["scenario"], columns["day_fraction"])
    labels = {name: columns[name] for name in (*LABELS, CANDIDATES) if name in kept or name == CANDIDATES}
    amounts = {name: columns[name] for name in AMOUNTS if name in kept}
    if per_agent:
        amounts[ACTIVITY] = columns[ACTIVITY]
    table = AgentTable(conditions, labels, amounts, unit)
    left_out = tuple(name for name in known if name not in kept)
    what = "agent and day" if per_agent else "request"
    return table, DrawReport(what, rounds, num_requests, table.num_rows, num_hidden, left_out)


def _rounds(parts: Sequence[Mapping[str, np.ndarray]]) -> int:
    """Rows that every agent of every day gives: no more than the busiest one has."""
    taken = [int(part[ROUND].max()) + 1 for part in parts if len(part[ROUND])]
    busiest = max((int(part[ACTIVITY].max()) for part in parts if len(part[ROUND])), default=1)
    return min(*taken, busiest) if taken else 1


def _agents_are_named(archive: Archive, days: Sequence[dt.date]) -> tuple[bool, int, int]:
    total = hidden = 0
    for batch in archive.scan("requests", days=days, columns=["agent"]):
        total, hidden = total + batch.num_rows, hidden + batch.column(0).null_count
    return hidden <= (1.0 - MIN_KNOWN) * total, total, hidden


def _draw_day(
    archive: Archive, day: dt.date, random: np.random.Generator, per_agent: bool, room: int, most: int
) -> dict[str, np.ndarray]:
    if per_agent:
        agent = _agent_index(archive.read("requests", days=[day], columns=["agent"])["agent"])
        named = np.flatnonzero(agent >= 0)
        chosen, unit, count, turn = _requests_of_agents(agent[named], random, room, most)
        chosen = named[chosen]
    else:
        chosen = np.sort(random.permutation(archive.num_rows("requests", day))[:room])
        unit, count, turn = np.arange(len(chosen)), np.ones(len(chosen)), np.zeros(len(chosen), int)
    rows = _rows_at(archive, day, chosen)
    microseconds = pc.cast(rows["arrival"], pa.int64()).to_numpy()
    found = {name: _labels(rows, name) for name in ("scenario", *LABELS)}
    found[CANDIDATES] = _candidates(rows)
    found |= {
        name: pc.cast(rows[name], pa.float64()).to_numpy(zero_copy_only=False).astype(float)
        for name in AMOUNTS
    }
    return {
        **found,
        ACTIVITY: count.astype(float),
        ROUND: turn,
        UNIT: unit,
        "day_fraction": (microseconds / 1e6 % DAY_S) / DAY_S,
    }


def _agent_index(column: pa.ChunkedArray) -> np.ndarray:
    """[rows] place of the agent among the day's in order of their names; -1 where it is hidden."""
    coded = pc.dictionary_encode(pc.cast(column, pa.string())).combine_chunks()
    names = np.asarray(coded.dictionary.to_pylist(), dtype=str)
    place = np.argsort(np.argsort(names))
    code = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    return np.where(code >= 0, place[code], -1) if len(names) else np.full(len(column), -1)


def _rows_at(archive: Archive, day: dt.date, chosen: np.ndarray) -> pa.Table:
    """Requests of a day by their numbers, in this order; a row group in memory at a time."""
    columns = ["arrival", "scenario", *LABELS, CANDIDATES, *AMOUNTS]
    order = np.argsort(chosen, kind="stable")
    wanted, before, found = chosen[order], 0, []
    for group in archive.row_groups("requests", days=[day]):
        here = wanted[slice(*np.searchsorted(wanted, (before, before + group.num_rows)))] - before
        if len(here):
            found.append(group.read(columns).take(pa.array(here)))
        before += group.num_rows
    if not found:
        return archive.read("requests", days=[day], columns=columns).slice(0, 0)
    return pa.concat_tables(found).unify_dictionaries().take(pa.array(np.argsort(order)))


def _requests_of_agents(
    agent: np.ndarray, random: np.random.Generator, room: int, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Agent by agent, at most `room` in all: rows, their agents, how many requests those make, and turns."""
    order = random.permutation(len(agent))
    _, place, count = np.unique(agent[order], return_inverse=True, return_counts=True)
    if not len(count):
        return order, count, count, count
    # the agents' requests one after the other, each in random order
    own = order[np.argsort(place, kind="stable")]
    begin = np.cumsum(count) - count
    rounds = int(np.clip(room // len(count), 1, most))
    kept = np.sort(random.permutation(len(count))[:room])
    turn = np.tile(np.arange(rounds), len(kept))
    kept = np.repeat(kept, rounds)
    return own[begin[kept] + turn % count[kept]], kept, count[kept], turn


def _labels(rows: pa.Table, name: str) -> np.ndarray:
    filled = pc.fill_null(pc.cast(rows[name], pa.string()), UNKNOWN)
    return np.asarray(filled.to_pylist(), dtype=str) if len(rows) else np.zeros(0, dtype="U7")


def _candidates(rows: pa.Table) -> np.ndarray:
    lists = rows[CANDIDATES].to_pylist()
    text = [ANY_NODE if names is None else SEPARATOR.join(sorted(names)) for names in lists]
    return np.asarray(text, dtype=str) if text else np.zeros(0, dtype="U3")
