"""A shifted day as rounds: its own requests, what the scheduler believes of them, and what a judge says they take."""

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evaluation.simulator.rounds import Absence, Region
from evaluation.simulator.true_rounds import true_times
from logs_schema import Archive
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError, first
from twin.assignment.from_logs import EdgesFromLog, fit_edges
from twin.assignment.log_day import day_costs
from twin.assignment.ran_requests import RanRequests, read_ran, sized, take
from twin.assignment.types import Costs


class ShiftedRequests(NamedTuple):
    """The requests of a shift that are played.

    Attributes:
        rows: They, in the order of arrival.
        costs: What the scheduler believes; backlogs are 0.
        replicas: [edges].
        absences: When which edges are not there, on the clock of `arrival_s`.
        note: What was left out; may be empty.
    """

    rows: RanRequests
    costs: Costs
    replicas: np.ndarray
    absences: tuple[Absence, ...]
    note: str

    @property
    def arrival_s(self) -> np.ndarray:
        """[requests] since the first."""
        found: np.ndarray = self.rows.arrival_s - self.rows.arrival_s[0]
        return found


def shifted_requests(
    archive: Archive, edges: EdgesFromLog, days: Sequence[dt.date], max_requests: int
) -> ShiftedRequests:
    """The busiest requests of some days; ConfigError where none ran."""
    every = sized(read_ran(archive, edges.names, days), edges.size)
    if not len(every.edge):
        raise ConfigError("no request of these days ran", where=f"{archive.path}, {days[0]} to {days[-1]}")
    kept = busiest(every.arrival_s, max_requests)
    rows = take(every, kept)
    left = len(every.edge) - len(kept)
    note = f"the busiest {len(kept):,} of {len(every.edge):,} requests that ran" if left else ""
    replicas = np.array([edges.replicas[name] for name in edges.names])
    absences = absences_of(archive, edges.names, days, rows.arrival_s[0])
    return ShiftedRequests(rows, day_costs(edges, rows), replicas, absences, note)


def busiest(arrival_s: np.ndarray, most: int) -> np.ndarray:
    """The indices of the `most` consecutive arrivals that come in the shortest time; all where there are fewer."""
    if len(arrival_s) <= most:
        return np.arange(len(arrival_s))
    begin = int(np.argmin(arrival_s[most - 1 :] - arrival_s[: len(arrival_s) - most + 1]))
    return np.arange(begin, begin + most)


def absences_of(
    archive: Archive, edges: Sequence[str], days: Sequence[dt.date], begin_s: float
) -> tuple[Absence, ...]:
    """When the log says of an edge that it cannot take requests (`node_samples.available`), from `begin_s` on."""
    if "node_samples" not in archive.tables or not archive.num_rows("node_samples"):
        return ()
    table = archive.read("node_samples", columns=["time", "node_id", "available"], days=days)
    time_s = np.asarray(table["time"]).astype("datetime64[us]").astype(np.int64) / 1e6 - begin_s
    names, there = np.asarray(table["node_id"].to_pylist(), str), table["available"].to_pylist()
    end_s = (max(days) - dt.date(1970, 1, 1)).days * DAY_S + DAY_S - begin_s
    found = []
    for edge, name in enumerate(edges):
        away_s = None
        for row in np.flatnonzero(names == name).tolist():
            if there[row] is False and away_s is None:
                away_s = float(time_s[row])
            elif there[row] and away_s is not None:
                found.append(Absence(edge, away_s, float(time_s[row])))
                away_s = None
        if away_s is not None:
            found.append(Absence(edge, away_s, end_s))
    return tuple(one for one in found if one.to_s > 0.0)


def day_model(
    archive: Archive, edges: EdgesFromLog, days: Sequence[dt.date]
) -> tuple[EdgesFromLog, list[str]]:
    """Edges as the shifted days alone tell them, and notes; what they do not tell stays as the twin has it."""
    found = fit_edges(archive, days, size=edges.size)
    few = [name for name in edges.compute if found.compute[name].source != "own"]
    notes = (
        [f"{first(few)}: too few requests of these days, so the judge keeps the twin's function"]
        if few
        else []
    )
    kept = {name: found.compute[name] for name in edges.names} | {name: edges.compute[name] for name in few}
    fields = {"compute": kept, "replicas": edges.replicas, "sites": edges.sites}
    return EdgesFromLog(**{**vars(found), **fields, "ways": found.ways or edges.ways}), notes


def modelled(shift: ShiftedRequests, day: EdgesFromLog, rng: np.random.Generator) -> Region:
    """The shift by the model of its days: their functions, with noise of what these leave."""
    costs = day_costs(day, shift.rows)
    uniform = rng.random(costs.work_s.T.shape)
    noise = np.stack(
        [one.noise(place) for one, place in zip(day.compute.values(), uniform, strict=True)], axis=1
    )
    true_s = costs.work_s * shift.replicas * noise
    return Region(
        shift.arrival_s, shift.costs, true_s, costs.transfer_s, costs.result_s, shift.replicas, shift.absences
    )


def true_region(
    archive: Archive, shift: ShiftedRequests, edges: EdgesFromLog, rng: np.random.Generator
) -> Region:
    """The shift in the world that wrote the log."""
    times = true_times(archive.facts, shift.rows, edges.names, rng)
    nothing = np.zeros_like(times.run_s)
    return Region(
        shift.arrival_s, shift.costs, times.run_s, times.way_s, nothing, shift.replicas, shift.absences
    )
