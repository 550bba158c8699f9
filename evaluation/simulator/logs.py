"""Simulated logs: days of history written as an archive in the project's schema.

Day k of the world is the calendar day `first_day + k` (UTC); the nominal day begins at its midnight. Information that
an operator does not have is not in the archive: the propensities go to a separate product,
`<archive>-truth`, and the archive's facts hold world, seed and behaviour so that the truth can be rebuilt
(`evaluation.simulator.truth`). Requests that came from another archive are kept there too
(`evaluation.simulator.workloads`).
"""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.calendar_days import validate_days
from evaluation.simulator.history import History, play
from evaluation.simulator.log_tables import left_for_good, node_samples_table, nodes_table, requests_table
from evaluation.simulator.memory import refuse_too_large
from evaluation.simulator.options import Declared
from evaluation.simulator.presets import preset
from evaluation.simulator.workloads import FACT, Workload, save_workload, workload
from evaluation.simulator.world import CALENDAR_DAY_S, World
from evaluation.simulator.world_files import facts_of, load_world
from logs_schema import Archive, product
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.options import refuse_arguments
from logs_schema.progress import Stage, unseen
from twin.placement.types import COMPLETED

FIRST_DAY = dt.date(2024, 1, 1)
"""A Monday."""
DAYS_AT_ONCE = 8
"""Days simulated together; memory grows with it, time hardly."""

_PROPENSITIES = pa.schema([("request_id", pa.string()), ("propensity", pa.float64())])


@dataclass(frozen=True)
class SimulationReport:
    """What `simulate` wrote: archive, truth beside it, requests by outcome; a world that is no preset in full."""

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
    world: dict[str, Any] | None = None


def truth_folder(archive: Path) -> Path:
    """The product beside a simulated archive with information that an operator does not have."""
    return archive.with_name(f"{archive.name}-truth")


def simulate(
    chosen: str | Path | World,
    num_days: int,
    behaviour_name: str,
    seed: int,
    out: Path,
    *,
    first_day: dt.date = FIRST_DAY,
    arrivals: Path | None = None,
    pattern: str = "logged",
    replace: bool = False,
    progress: Stage = unseen,
) -> SimulationReport:
    """Writes the logs of days 0 to `num_days - 1` of a world under a behaviour.

    Args:
        chosen: The world: name of a preset, file that declares one (a path, or text that ends in .toml), or any
            validated world.
        num_days: Number of days, >= 1.
        behaviour_name: Name of the deciding policy.
        seed: Seed of the histories, >= 0; the same arguments give the same archive.
        out: Folder of the archive; `truth_folder(out)` is written too.
        first_day: Calendar day of day 0.
        arrivals: Archive that the requests are made of; None: the world draws them.
        pattern: Pattern of the requests, see `evaluation.simulator.patterns`.
        replace: Whether an existing archive may be replaced.
        progress: Called with the number of finished days and of all days.

    Raises:
        ConfigError: unknown preset, a file that declares no world, unknown behaviour or pattern, no days, a negative
            seed, an archive without requests, or more requests than fit into memory.
        ArchiveError, ProductError: a folder is in the way.
    """
    _refuse_types(chosen, num_days, behaviour_name, seed, out)
    world = chosen if isinstance(chosen, World) else _world_named(chosen)
    decider = behaviour(behaviour_name)
    _validate(world, num_days, seed, first_day, has_own_requests=arrivals is None)
    out = Path(out).absolute()
    truth: dict[str, Any] = {
        **facts_of(world),
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
    generation = np.zeros(world.num_agents, np.int64)
    with (
        ArchiveWriter(out, source={}, facts=facts, replace=replace) as archive,
        _propensity_writer(truth_folder(out), truth, made, replace or not Path(out).exists()) as propensities,
    ):
        archive.write("nodes", nodes_table(world), source="simulation")
        for begin in range(0, num_days, DAYS_AT_ONCE):
            days = range(begin, begin + DAYS_AT_ONCE)  # batches of equal size: one compiled program
            history = play(world, decider, days, seed, requests=None if made is None else made.on)
            for column in range(min(DAYS_AT_ONCE, num_days - begin)):
                rows = day_of(history, column)
                date = first_day + dt.timedelta(days=days[column])
                table = requests_table(world, rows, date, generation, seed=seed)
                archive.write("requests", table, source="simulation", first_row=int(counts[0]) + 1)
                if world.outages:
                    samples = node_samples_table(world, days[column], date)
                    archive.write("node_samples", samples, source="simulation")
                generation = generation + left_for_good(world, rows)
                propensities.write_table(_propensities(table, rows))
                counts += [len(table), int(np.sum(~rows.fate.accepted)), int(np.sum(on_time(rows)))]
                progress(days[column] + 1.0, float(num_days))
    num_requests, num_rejected, num_on_time = (int(count) for count in counts)
    return SimulationReport(
        str(out),
        str(truth_folder(out)),
        **truth,
        num_requests=num_requests,
        num_rejected=num_rejected,
        num_on_time=num_on_time,
    )


def day_of(history: History, column: int) -> History:
    """One day of a history without its padding: leaves [requests], demand [requests, resources]."""
    live = np.asarray(history.live[:, column])

    def cut(leaf: Any) -> Any:
        if leaf is None:
            return None
        if isinstance(leaf, tuple):
            return type(leaf)(*(cut(part) for part in leaf))
        return np.asarray(leaf)[live, column]

    return cut(history)


def on_time(rows: History) -> np.ndarray:
    """[requests] bool: accepted and finished within the deadline."""
    response_s = np.asarray(rows.fate.finish_s) - np.asarray(rows.arrival_s)
    return np.asarray(rows.fate.status == COMPLETED) & (response_s <= np.asarray(rows.request.deadline_s))


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
    quiet_s = CALENDAR_DAY_S - world.day_s
    return [
        f"Simulated world {world.name!r}; every day begins with an empty system.",
        f"The last {quiet_s:g} s of a calendar day are quiet.",
        f"requested_run_s is the run time {_requested(world.declared)}.",
        "start includes the way of the input to the node; a core is held from start to finish.",
        *(
            ["finish includes the way of the output back; the core is free before."]
            if world.has_output
            else []
        ),
        *([] if made is None else [f"Requests of another log, as days of pattern {made.pattern}."]),
    ]


def _requested(declared: Declared) -> str:
    """What a declared run time means, in words."""
    if declared.kills:
        return "after which a run is killed, on whatever node"
    if declared.limits:
        return "after which a run on a reference core ends, completed: nodes differ in speed"
    return "declared for a reference core, no limit: nodes differ in speed"


def _refuse_types(*given: Any) -> None:
    names = ("chosen", "num_days", "behaviour_name", "seed", "out")
    refuse_arguments(simulate, dict(zip(names, given, strict=True)), "simulate")


def _world_named(chosen: str | Path) -> World:
    is_file = isinstance(chosen, Path) or chosen.endswith(".toml")
    return load_world(Path(chosen)) if is_file else preset(str(chosen))


def _validate(world: World, num_days: int, seed: int, first_day: dt.date, *, has_own_requests: bool) -> None:
    _at_least("number of days", num_days, 1)
    _at_least("seed", seed, 0)
    validate_days(first_day, num_days)
    _validate_first_day(world, first_day)
    refuse_too_large(world, DAYS_AT_ONCE, has_own_requests=has_own_requests)


def _validate_first_day(world: World, first_day: dt.date) -> None:
    if world.weekend_factor != 1.0 and first_day.weekday() != 0:
        raise ConfigError(
            f"day 0 of {world.name!r} is a Monday, {first_day} is not",
            where="simulate: first day",
            allowed="a Monday, in a world whose weekends differ",
            advice="begin on a Monday",
        )


def _at_least(what: str, value: int, lower: int) -> None:
    if value < lower:
        raise ConfigError(
            f"{what} is {value}", where="simulate", allowed=f"at least {lower}", advice="change it"
        )
