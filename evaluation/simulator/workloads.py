"""Workloads: days of requests made of an archive, stored beside the log that they went into.

Preset and seed alone do not rebuild such a truth. So its days are stored in the truth's product as `arrivals.parquet`,
and the facts of the log name the pattern, the content hash of the archive that the days were made of, and a hash of
the days themselves. A truth without them is refused, with the name of the required archive.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.simulator.conditions import world_draw
from evaluation.simulator.patterns import pattern
from evaluation.simulator.pool import read_pool
from evaluation.simulator.request_lists import DayRequests, padded
from evaluation.simulator.world import World
from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.records import at_rows

FILE = "arrivals.parquet"
FACT = "arrivals"
"""Key in the ground truth of an archive's facts."""


@dataclass(frozen=True)
class Workload:
    """Lists of requests, day by day; after the last the first comes again.

    Attributes:
        pattern: Name of the pattern that made them.
        archive: Content hash of the archive they were made of.
        day_s: Length of the world's nominal day.
        days: One list a day, without padding; each arrives before `day_s`.
    """

    pattern: str
    archive: str
    day_s: float
    days: tuple[DayRequests, ...]

    @property
    def num_rows(self) -> int:
        """Rows of every day's padded list: requests of the fullest day, and one."""
        return max(len(day.arrival_s) for day in self.days) + 1

    def on(self, day: float) -> DayRequests:
        """The padded list of a day (days since day 0)."""
        return padded(self.days[int(day) % len(self.days)], self.num_rows, self.day_s)

    def declared(self, world: World) -> World:
        """The world with rates and means of these lists, for baselines that use mean rates and work.

        Rates, mean work, input and deadline of every service are those of all days together; one without requests
        keeps its own numbers and a share of almost zero.
        """
        every = DayRequests(*(np.concatenate(leaves) for leaves in zip(*self.days, strict=True)))
        num_services = len(world.services)
        count = np.bincount(every.service, minlength=num_services)
        factor = np.array([one.deadline_factor for one in world.scenarios])
        own_deadline_s = every.deadline_s / factor[world_draw(world).scenario[every.agent]]

        def mean(values: np.ndarray) -> np.ndarray:
            return np.bincount(every.service, values, num_services) / np.maximum(count, 1)

        numbers = zip(
            count, mean(every.expected_run_s), mean(every.input_mib), mean(own_deadline_s), strict=True
        )
        services = tuple(
            replace(one, share=float(num), work_s=work, input_mib=mib, deadline_s=deadline)
            if num
            else replace(one, share=1e-6)
            for one, (num, work, mib, deadline) in zip(world.services, numbers, strict=True)
        )
        mean_requests = len(every.arrival_s) / len(self.days)
        return replace(world, services=services, requests_per_day=mean_requests, taste_spread=0.0)

    @property
    def facts(self) -> dict[str, str]:
        """Its entries in the facts of a log."""
        digest = hashlib.sha256(repr(float(self.day_s)).encode())
        for day in self.days:
            for leaf in day:
                digest.update(np.ascontiguousarray(leaf).tobytes())
        return {"pattern": self.pattern, "archive": self.archive, "days": digest.hexdigest()}


def workload(archive: Archive, world: World, pattern_name: str, num_days: int, seed: int) -> Workload:
    """Makes days of requests of an archive.

    Args:
        archive: Any archive with requests.
        world: A validated world.
        pattern_name: One of `PATTERNS`.
        num_days: Number of days, >= 1.
        seed: Seed of the draws, >= 0.

    Returns:
        The workload; of a log with fewer days, those.

    Raises:
        ConfigError: no such pattern, the archive does not support it, or the world's agents decide the workload.
    """
    chosen = pattern(pattern_name)
    for name, is_asked in (("bursts", world.bursts.any), ("declared", world.declared.any)):
        if is_asked:
            raise ConfigError(
                f"{name} declare how the world draws its requests, which come from a list",
                where=f"simulated world {world.name!r}, {name}",
                allowed="worlds without it with --arrivals",
                advice="let the world draw its requests, or leave the option out",
            )
    if world.reactions.move_arrivals:
        raise ConfigError(
            "agents that leave, pause or await their answers decide the workload, so requests cannot come from a list",
            where=f"simulated world {world.name!r}, reactions.leaving, pausing and one_at_a_time",
            allowed="0, 0 and false with --arrivals",
            advice="let the world draw its requests, or switch these reactions off",
        )
    days = chosen.days(read_pool(archive, world), world, num_days, seed)
    inside = [_within(day, world.day_s) for day in days]
    return Workload(chosen.name, archive.content_hash, world.day_s, tuple(inside))


def _within(day: DayRequests, day_s: float) -> DayRequests:
    """Without requests that rounding moved to the end of the nominal day."""
    early = day.arrival_s < np.float32(day_s)
    return at_rows(day, early)


def save_workload(folder: Path, made: Workload) -> None:
    """Writes `arrivals.parquet` into a folder."""
    columns = {
        name: np.concatenate([getattr(day, name) for day in made.days]) for name in DayRequests._fields
    }
    number = np.repeat(np.arange(len(made.days)), [len(day.arrival_s) for day in made.days])
    pq.write_table(pa.table({"day": pa.array(number, pa.int32()), **columns}), folder / FILE)


def load_workload(truth: Mapping[str, Any], folder: Path, day_s: float) -> Workload | None:
    """The days that a ground truth was made of; None where its world drew them.

    Args:
        truth: The ground truth in the facts of an archive.
        folder: The truth's product beside the archive.
        day_s: Length of the world's nominal day.

    Raises:
        ConfigError: they are needed and missing, or are not those of the facts.
    """
    if FACT not in truth:
        return None
    wanted, file = truth[FACT], folder / FILE
    if not file.exists():
        raise missing_arrivals(wanted, str(folder))
    table = pq.read_table(file)
    number = table["day"].to_numpy()
    leaves = [table[name].to_numpy() for name in DayRequests._fields]
    days = tuple(
        DayRequests(*(leaf[number == day] for leaf in leaves)) for day in range(int(number.max()) + 1)
    )
    found = Workload(wanted["pattern"], wanted["archive"], day_s, days)
    if found.facts != wanted:
        raise ConfigError(
            "the arrivals beside this log are not those it was made of",
            where=str(file),
            allowed=f"days of hash {wanted['days'][:12]}, pattern {wanted['pattern']}",
            advice="simulate the log again from the same archive",
        )
    return found


def missing_arrivals(wanted: Mapping[str, str], where: str) -> ConfigError:
    """The refusal to rebuild a truth from preset and seed alone."""
    return ConfigError(
        "the truth of this log cannot be rebuilt from its preset and seed: its requests came from an archive",
        where=where,
        allowed=f"the product with {FILE} that was written beside the log",
        advice=f"keep it beside the log, or simulate again with pattern {wanted['pattern']} and the archive of "
        f"content hash {wanted['archive']}",
    )
