"""Simulated logs: days of history written as an archive in the project's schema.

Day k of the world is the calendar day `first_day + k` (UTC); the nominal day begins at its midnight. What an
operator would not know stays out of the archive: the propensities go to a separate product,
`<archive>-truth`, and the archive's facts name preset, seed and behaviour so that the truth can be rebuilt
(`evaluation.simulator.truth`). Requests that came from another archive are kept there too
(`evaluation.simulator.workloads`).
"""

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.history import History, play
from evaluation.simulator.presets import preset
from evaluation.simulator.workloads import FACT, Workload, save_workload, workload
from evaluation.simulator.world import World
from logs_schema import Archive, product
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.columns import INSTANT
from logs_schema.errors import ConfigError
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from twin.placement.types import COMPLETED

FIRST_DAY = dt.date(2024, 1, 1)
"""A Monday."""
DAYS_AT_ONCE = 8
"""Days simulated together; memory grows with it, time hardly."""

_EPOCH = dt.date(1970, 1, 1)
_PROPENSITIES = pa.schema([("request_id", pa.string()), ("propensity", pa.float64())])


@dataclass(frozen=True)
class SimulationReport:
    """What `simulate` wrote: the archive, the truth beside it, requests by outcome."""

    archive: str
    truth: str
    preset: str
    behaviour: str
    seed: int
    first_day: str
    num_days: int
    num_requests: int
    num_rejected: int
    num_on_time: int
    arrivals: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


def truth_folder(archive: Path) -> Path:
    """The product beside a simulated archive that holds what an operator would not know."""
    return archive.with_name(f"{archive.name}-truth")


def simulate(
    preset_name: str,
    num_days: int,
    behaviour_name: str,
    seed: int,
    out: Path,
    *,
    first_day: dt.date = FIRST_DAY,
    arrivals: Path | None = None,
    pattern: str = "logged",
    replace: bool = False,
    progress: Callable[[float, float | None], None] = lambda done, total: None,
) -> SimulationReport:
    """Writes the logs of days 0 to `num_days - 1` of a world under a behaviour.

    Args:
        preset_name: Which world.
        num_days: How many days, >= 1.
        behaviour_name: Who decides.
        seed: Seed of the histories, >= 0; the same arguments give the same archive.
        out: Folder of the archive; `truth_folder(out)` is written too.
        first_day: Calendar day of day 0.
        arrivals: Archive that the requests are made of; None: the world draws them.
        pattern: How, see `evaluation.simulator.patterns`.
        replace: Whether what is already there may be replaced.
        progress: Told how many days are done, of how many.

    Returns:
        The report.

    Raises:
        ConfigError: unknown preset, behaviour or pattern, no days, a negative seed, an archive without requests.
        ArchiveError, ProductError: a folder is in the way.
    """
    world, decider = preset(preset_name), behaviour(behaviour_name)
    _at_least("number of days", num_days, 1)
    _at_least("seed", seed, 0)
    out = Path(out).absolute()
    truth: dict[str, Any] = {
        "preset": world.name,
        "seed": seed,
        "behaviour": decider.name,
        "first_day": first_day.isoformat(),
        "num_days": num_days,
    }
    made = None if arrivals is None else workload(Archive(arrivals), world, pattern, num_days, seed)
    if made is not None:
        truth[FACT] = made.facts
    facts = describe("simulated", clock=ABSOLUTE_CLOCK, notes=_notes(world, made), ground_truth=truth)
    counts = np.zeros(3, np.int64)
    with (
        ArchiveWriter(out, source={}, facts=facts, replace=replace) as archive,
        _propensity_writer(truth_folder(out), truth, made, replace) as propensities,
    ):
        archive.write("nodes", nodes_table(world), source="simulation")
        for begin in range(0, num_days, DAYS_AT_ONCE):
            days = range(begin, begin + DAYS_AT_ONCE)  # all batches alike: one compiled program
            history = play(world, decider, days, seed, asked=None if made is None else made.on)
            for column in range(min(DAYS_AT_ONCE, num_days - begin)):
                rows = day_of(history, column)
                table = requests_table(world, rows, first_day + dt.timedelta(days=days[column]))
                archive.write("requests", table, source="simulation", first_row=int(counts[0]) + 1)
                propensities.write_table(_propensities(table, rows))
                counts += [len(table), int(np.sum(~rows.fate.accepted)), int(np.sum(on_time(rows)))]
                progress(days[column] + 1.0, float(num_days))
    num_requests, num_rejected, num_on_time = (int(count) for count in counts)
    return SimulationReport(
        str(out), str(truth_folder(out)), **truth,
        num_requests=num_requests, num_rejected=num_rejected, num_on_time=num_on_time,
    )  # fmt: skip


def day_of(history: History, column: int) -> History:
    """One day of a history without its padding: leaves [requests], demand [requests, resources]."""
    live = np.asarray(history.live[:, column])

    def cut(leaf: Any) -> Any:
        if isinstance(leaf, tuple):
            return type(leaf)(*(cut(part) for part in leaf))
        return np.asarray(leaf)[live, column]

    return cut(history)


def on_time(rows: History) -> np.ndarray:
    """[requests] bool: accepted and finished within the deadline."""
    response_s = np.asarray(rows.fate.finish_s) - np.asarray(rows.arrival_s)
    return np.asarray(rows.fate.status == COMPLETED) & (response_s <= np.asarray(rows.request.deadline_s))


def nodes_table(world: World) -> pa.Table:
    """The inventory of a world as the archive's `nodes`."""
    names = ("site", "tier", "memory_gib", "speed")
    columns: dict[str, list[Any]] = {name: [getattr(node, name) for node in world.nodes] for name in names}
    columns["node_id"] = [node.name for node in world.nodes]
    columns["cpu_cores"] = [float(node.cpu_cores) for node in world.nodes]
    columns["virtual"] = [False] * len(world.nodes)
    return pa.table(columns)


def requests_table(world: World, rows: History, day: dt.date) -> pa.Table:
    """One day's history as the archive's `requests`."""
    request, fate = rows.request, rows.fate
    midnight_s = (day - _EPOCH).days * 86_400.0
    arrival = _instants(midnight_s, rows.arrival_s)
    node = _labels([node.name for node in world.nodes], rows.node)
    accepted = np.asarray(fate.accepted)
    count = len(accepted)
    return pa.table(
        {
            "request_id": [f"{day:%Y%m%d}-{index:06d}" for index in range(count)],
            "arrival": arrival,
            "site": _labels(world.sites, request.site),
            "scenario": _labels([one.name for one in world.scenarios], request.scenario),
            "service": _labels([one.name for one in world.services], request.service),
            "agent": _labels([f"agent-{index:03d}" for index in range(world.num_agents)], request.agent),
            "cpu_cores": pa.array(np.asarray(request.demand)[:, 0], pa.float64()),
            "memory_gib": pa.array(np.asarray(request.demand)[:, 1], pa.float64()),
            "num_nodes": pa.array(np.ones(count), pa.int32()),
            "requested_run_s": pa.array(np.asarray(request.expected_run_s), pa.float64()),
            "input_mib": pa.array(np.asarray(request.input_mib), pa.float64()),
            "deadline_s": pa.array(np.asarray(request.deadline_s), pa.float64()),
            "decided": arrival,
            "offered_node": node,
            "accepted": pa.array(accepted),
            "start": _instants(midnight_s, fate.start_s),
            "finish": _instants(midnight_s, fate.finish_s),
            "status": _labels(["rejected", "completed"], accepted.astype(np.int32)),
            "ran_node": pa.DictionaryArray.from_arrays(
                pa.array(np.asarray(rows.node), mask=~accepted), node.dictionary
            ),
        }
    )


def _labels(names: list[str] | tuple[str, ...], index: Any) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.asarray(index, np.int32)), pa.array(names, pa.string()))


def _instants(midnight_s: float, seconds: Any) -> pa.Array:
    """Instants from seconds since midnight; null where they are inf."""
    seconds = np.asarray(seconds, np.float64)
    known = np.isfinite(seconds)
    micros = np.round((midnight_s + np.where(known, seconds, 0.0)) * 1e6).astype(np.int64)
    return pa.array(micros, pa.int64(), mask=~known).cast(INSTANT)


def _propensities(table: pa.Table, rows: History) -> pa.Table:
    propensity = pa.array(np.asarray(rows.propensity), pa.float64())
    return pa.table([table["request_id"], propensity], schema=_PROPENSITIES)


@contextmanager
def _propensity_writer(
    folder: Path, truth: dict[str, Any], made: Workload | None, replace: bool
) -> Iterator[pq.ParquetWriter]:
    with (
        product.writing(folder, "truth", config=truth, seed=truth["seed"], replace=replace) as temporary,
        pq.ParquetWriter(temporary / "propensities.parquet", _PROPENSITIES) as writer,
    ):
        if made is not None:
            save_workload(temporary, made)
        yield writer


def _notes(world: World, made: Workload | None) -> list[str]:
    quiet_s = 86_400.0 - world.day_s
    return [
        f"Simulated world {world.name!r}; every day begins with an empty system.",
        f"The last {quiet_s:g} s of a calendar day are quiet.",
        "requested_run_s is the run time declared for a reference core, no limit: nodes differ in speed.",
        "start includes the way of the input to the node; a core is held from start to finish.",
        *([] if made is None else [f"Requests of another log, as days of pattern {made.pattern}."]),
    ]


def _at_least(what: str, value: int, lower: int) -> None:
    if value < lower:
        raise ConfigError(
            f"{what} is {value}", where="simulate", allowed=f"at least {lower}", advice="change it"
        )
