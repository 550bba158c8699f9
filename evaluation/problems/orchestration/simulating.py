"""Logs of days by slots: `requests` with access points and queueing, `replicas`, `node_samples`, as an archive.

The log holds what access points and nodes saw: when a request came to its access point (`arrival`), when it was sent
where (`decided`, `offered_node`), when its service began and its answer was back. A request that was late before it was
sent was never decided. `replicas` holds the deployment at midnight and every change of it, `node_samples` what nodes
report. The settings of the system (length of slots, places, strategies) are public facts of the archive.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.baselines import BASELINES, ORCHESTRATION_BASELINES
from evaluation.baselines.baseline import best_legal
from evaluation.simulator.calendar_days import validate_days
from evaluation.simulator.log_tables import nodes_table
from evaluation.simulator.logs import FIRST_DAY
from evaluation.simulator.memory import refuse_too_large
from evaluation.simulator.slots.log_tables import replicas_of, requests_of, samples_of, world_names
from evaluation.simulator.slots.recording import recorder
from evaluation.simulator.slots.worlds import time_scaled
from evaluation.simulator.world import CALENDAR_DAY_S, World
from evaluation.simulator.world_files import facts_of
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.progress import Stage, unseen
from twin.contracts import Array
from twin.orchestration.config import SlotConfig
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.settings import SETTINGS, as_facts
from twin.orchestration.slots import SlotState

DAYS_AT_ONCE = 4


@dataclass(frozen=True)
class SlotLogConfig:
    """Who wrote a log by slots.

    Attributes:
        dispatch: With --slots: baseline that dispatches.
        orchestration: With --slots: baseline that orchestrates.
        explored: With --slots: share of requests sent to a random legal node instead.
        sample_slots: Slots between two samples of nodes.
        slots, frames: See there.
    """

    dispatch: str = "least_loaded"
    orchestration: str = "random_scaling"
    explored: float = 0.3
    sample_slots: int = 10
    slots: SlotConfig = field(default_factory=SlotConfig)
    frames: FrameConfig = field(default_factory=FrameConfig)


@dataclass(frozen=True)
class SlotLogReport:
    """What was written."""

    archive: str
    world: str
    first_day: str
    num_days: int
    num_requests: int
    num_on_time: int
    num_never_sent: int


def simulate_slots(
    world: World,
    num_days: int,
    config: SlotLogConfig,
    seed: int,
    out: Path,
    *,
    first_day: dt.date = FIRST_DAY,
    replace: bool = False,
    progress: Stage = unseen,
) -> SlotLogReport:
    """Writes the log of days 0 to `num_days - 1` of a world that is run by slots.

    Args:
        world: A validated world; it is scaled in time to the pace of slots.
        num_days: How many days, >= 1.
        config: Who decides, and the settings of the system.
        seed: Of the histories, >= 0.
        out: Folder of the archive.
        first_day: Calendar day of day 0.
        replace: Whether what is already there may be replaced.
        progress: Called with the number of days done, and of all.

    Raises:
        ConfigError: there is no such baseline, or a number is out of range.
        ArchiveError: a folder is in the way.
    """
    _validate(num_days, config, seed)
    validate_days(first_day, num_days)
    refuse_too_large(world, DAYS_AT_ONCE)
    pace = time_scaled(world, config.slots)
    days = tuple(range(num_days))
    record = recorder(
        pace, config.slots, config.frames, lambda public: _dispatch(public, config), _rule(config)
    )
    truth = {
        **facts_of(world),
        "seed": seed,
        "behaviour": f"{config.dispatch} and {config.orchestration}",
        "first_day": first_day.isoformat(),
        "num_days": num_days,
    }
    log_facts = describe("simulated", clock=ABSOLUTE_CLOCK, notes=_notes(pace), ground_truth=truth)
    log_facts[SETTINGS] = as_facts(config.slots, config.frames)
    total, done, names = np.zeros(3, np.int64), 0, world_names(pace)
    with ArchiveWriter(out, source={}, facts=log_facts, replace=replace) as archive:
        archive.write("nodes", nodes_table(pace), source="simulation")
        at_once = min(len(days), DAYS_AT_ONCE)
        for begin in range(0, len(days), at_once):
            chosen = list(days[begin : begin + at_once])
            padded = chosen + chosen[-1:] * (at_once - len(chosen))  # all batches alike: one program
            keys = jax.vmap(lambda day: jax.random.fold_in(jax.random.key(seed), day))(np.array(padded))
            recorded = record(keys, padded)
            for index, day in enumerate(chosen):
                rows = jax.tree.map(lambda leaf, index=index: leaf[index], recorded)
                date = first_day + dt.timedelta(days=day)
                table, counts = requests_of(names, config.slots, rows, date)
                archive.write("requests", table, source="simulation", first_row=int(total[0]) + 1)
                archive.write(
                    "replicas", replicas_of(names, rows, date, config.slots.slot_s), source="simulation"
                )
                archive.write(
                    "node_samples",
                    samples_of(names, rows, date, config.slots.slot_s, config.sample_slots),
                    source="simulation",
                )
                total += counts
                done += 1
                progress(float(done), float(len(days)))
    return SlotLogReport(str(out), world.name, first_day.isoformat(), len(days), *map(int, total))


def _dispatch(public: EdgeCloud, config: SlotLogConfig) -> Dispatch:
    usual = observing(public, {one.name: one for one in BASELINES}[config.dispatch].policy(public.cluster))

    def dispatch(key: Array, state: SlotState, legal: Array) -> Array:
        key_usual, key_any, key_explore = jax.random.split(key, 3)
        anywhere = best_legal(jax.random.uniform(key_any, legal.shape), legal)
        explores = jax.random.uniform(key_explore, anywhere.shape) < config.explored
        return jax.numpy.where(explores, anywhere, usual(key_usual, state, legal))

    return dispatch


def _rule(config: SlotLogConfig) -> Callable[[EdgeCloud], Any]:
    baseline = {one.name: one for one in ORCHESTRATION_BASELINES}[config.orchestration]
    return lambda public: baseline.rule(public, config.frames)


def _notes(world: World) -> list[str]:
    return [
        f"Simulated world {world.name!r}, run by slots; every day begins with an empty system.",
        f"The last {CALENDAR_DAY_S - world.day_s:g} s of a calendar day are quiet.",
        "site is the access point; decided is when the request left its queue; start is the beginning of service.",
    ]


def _validate(num_days: int, config: SlotLogConfig, seed: int) -> None:
    checks = (
        ("number of days", num_days, num_days >= 1, "at least 1"),
        ("seed", seed, seed >= 0, "at least 0"),
        ("explored", config.explored, 0.0 <= config.explored <= 1.0, "from 0 to 1"),
        ("dispatch", config.dispatch, config.dispatch in {one.name for one in BASELINES},
         ", ".join(one.name for one in BASELINES)),
        ("orchestration", config.orchestration, config.orchestration in {one.name for one in ORCHESTRATION_BASELINES},
         ", ".join(one.name for one in ORCHESTRATION_BASELINES)),
    )  # fmt: skip
    for what, value, holds, allowed in checks:
        if not holds:
            raise ConfigError(
                f"{what} is {value!r}", where="simulate --slots", allowed=allowed, advice="change it"
            )
