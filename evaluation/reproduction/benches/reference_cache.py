"""References kept between runs, so that a bench trains each of them once.

A reference's folder is named for its preset, its day and a hash of all that it depends on: the world, the
configuration, the seed, the version of the project and that of the training (`reference.FORM`).
Change any of them and another is trained.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from evaluation.jobs.engine.config import EngineConfig, tasks_on
from evaluation.reproduction.benches.reference import (
    FORM,
    KIND,
    ReferenceConfig,
    TruthReference,
    load_reference,
    write_reference,
)
from evaluation.simulator.world import World
from evaluation.simulator.world_files import plain
from logs_schema.errors import ProductError
from logs_schema.hashing import json_hash
from logs_schema.product import fingerprint, read_manifest
from logs_schema.progress import Progress, Stage, unseen

REFERENCES = "references"
"""Kind of things in the user's cache."""


class Kept(NamedTuple):
    """A reference, where it is kept and what it took."""

    reference: TruthReference
    folder: Path
    num_updates: int  # after all doublings
    last_gain: float  # on-time share that the last doubling gained
    trained_now: bool
    train_s: float | None  # when it was trained, now or earlier; None: not known


def made_from(world: World) -> dict[str, str]:
    """What a reference of this world is made from, besides configuration and seed: name -> hash or version."""
    return {"world": json_hash(plain(world)), "schedtwin": version("schedtwin"), "form": str(FORM)}


def kept_reference(
    world: World,
    day: int,
    config: ReferenceConfig,
    folder: Path,
    *,
    progress: Stage = unseen,
) -> Kept:
    """The reference of a day: read if it is kept, otherwise trained and kept.

    Args:
        world: A validated world.
        day: Days since day 0, >= 0.
        config: How it is trained.
        folder: Where references are kept; made if need be.
        progress: Called with the number of updates done, and how it goes.

    Raises:
        ConfigError: a negative day.
        ProductError: what is kept there cannot be read.
    """
    sources = made_from(world)
    name = fingerprint(KIND, sources | {"day": str(day)}, config, 0)[:16]
    path = Path(folder) / f"{world.name}-day-{day}-{name}"
    found = path.exists()
    if not found:
        began_s = time.perf_counter()
        Path(folder).mkdir(parents=True, exist_ok=True)
        try:
            write_reference(world, day, config, path, sources=sources, progress=progress)
        except ProductError:
            if not path.exists():
                raise
            # else another process has kept the same one meanwhile
        (path.parent / f"{path.name}.seconds").write_text(f"{time.perf_counter() - began_s:.1f}\n")
    facts = read_manifest(path, KIND).extra
    return Kept(
        load_reference(path, world),
        path,
        int(facts["num_updates"]),
        float(facts["last_gain"]),
        not found,
        _train_s(path),
    )


@dataclass(frozen=True)
class ReferenceTask:
    """The reference of one day as a task."""

    world: World
    day: int
    config: ReferenceConfig
    folder: Path

    def __str__(self) -> str:
        return f"reference of {self.world.name}, day {self.day}"


def train_reference(task: ReferenceTask) -> None:
    """Trains the reference of one day, if it is not kept yet."""
    kept_reference(task.world, task.day, task.config, task.folder)


def train_ahead(
    world: World,
    days: Sequence[int],
    config: ReferenceConfig,
    folder: Path,
    engine: EngineConfig,
    progress: Progress,
) -> None:
    """Has an engine train the references that are not kept yet, a task a day; nothing where this process does all."""
    if engine.is_here:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tasks_on(engine, progress, [folder]) as run:
        for _ in run(
            train_reference, [ReferenceTask(world, day, config, folder) for day in days], "references"
        ):
            pass


def _train_s(path: Path) -> float | None:
    """Beside the product, not in it: a product trained again is equal, the time it took is not."""
    try:
        return float((path.parent / f"{path.name}.seconds").read_text())
    except (OSError, ValueError):
        return None
