"""Finished units of a long step, saved beside its unfinished product: a kill loses one unit, not the step.

A unit is a small product of its own, written atomically. The folder's name holds the fingerprint of everything that the
units depend on: with another log, policy or configuration no unit is found. A unit is always loaded from its file, so a
step that was killed gives the same result as an undisturbed one, bit for bit.

Where an engine is given, its tasks make units first (`Unfinished.ahead`); the step then finds them, as after a kill. So
there is one code path, and the same result, wherever units are made.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from evaluation.jobs.engine.config import HERE, EngineConfig, tasks_on
from logs_schema.errors import ProductError
from logs_schema.mapping import Item
from logs_schema.product import fingerprint, remove_once_in_place, verify, writing
from logs_schema.progress import Progress
from logs_schema.records import from_plain, to_plain
from twin.arrays import load_structure, save_arrays
from twin.contracts import PyTree

Value = TypeVar("Value")
KIND, UNFINISHED = "unit", "unfinished"
ARRAYS, RECORD = "arrays.npz", "record.json"


@dataclass(frozen=True)
class Unfinished:
    """The finished units of an unfinished product.

    Attributes:
        folder: Folder of the units; None saves nothing.
        engine: Engine that makes units ahead; by default they are made in this process, on demand.
        out: Folder that the product is written into; None where it is not known.
    """

    folder: Path | None = None
    engine: EngineConfig = HERE
    out: Path | None = None

    @staticmethod
    def beside(
        out: Path,
        kind: str,
        made_from: Mapping[str, str],
        config: Any,
        seed: int | None = None,
        engine: EngineConfig = HERE,
        progress: Progress | None = None,
    ) -> "Unfinished":
        """The units of the product that is written into `out`.

        Args:
            out: Folder that the product is written into; the units are beside it.
            kind: Kind of the product.
            made_from: Name -> content hash of everything that the units are made from.
            config: Everything else they depend on, JSON or dataclasses.
            seed: Their random seed, or None.
            engine: Engine that makes units ahead.
            progress: Where to say that there are units of an earlier run.
        """
        wanted, out = fingerprint(kind, made_from, to_plain(config), seed), out.absolute()
        folder = out.parent / f".{UNFINISHED}-{kind}-{wanted[:16]}"
        if progress is not None and folder.is_dir() and any(folder.iterdir()):
            progress.note(f"{kind}: goes on with what an earlier run has finished, in {folder}")
        return Unfinished(folder, engine, out)

    def ahead(
        self,
        task: Callable[[Item], None],
        items: Sequence[Item],
        name: str,
        progress: Progress,
        shared: Sequence[Path],
    ) -> None:
        """Makes units by tasks of the engine, before they are needed; does nothing without an engine.

        Args:
            task: Makes units, in the folder that its item names.
            items: Its arguments.
            name: Name of the tasks, for the progress display.
            progress: Progress display.
            shared: Paths that tasks read.

        Raises:
            ConfigError: Tasks cannot run there.
            EngineError: A task was lost too often, or did not end in time.
        """
        if self.folder is None or self.engine.is_here or not items:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with tasks_on(self.engine, progress, [*shared, self.folder]) as tasks:
            for _ in tasks(task, items, name):
                pass

    def unit(
        self,
        name: str,
        make: Callable[[], Value],
        save: Callable[[Value, Path], None],
        load: Callable[[Path], Value],
    ) -> Value:
        """A unit: loaded if it was saved, else made and saved.

        Args:
            name: Name of the unit, unique in the product.
            make: Makes it.
            save: Writes it into an empty folder.
            load: Reads what `save` wrote.
        """
        if self.folder is None:
            return make()
        path = self.folder / re.sub(r"[^A-Za-z0-9_+.-]", "-", name)
        try:
            verify(path, KIND)
        except ProductError:  # not there yet, or damaged
            value = make()
            with writing(path, KIND, replace=True) as folder:
                save(value, folder)
        return load(path)

    def tree(self, name: str, make: Callable[[], PyTree], structure: Callable[[], PyTree]) -> PyTree:
        """A unit that is a pytree of arrays; `structure` gives one of the same structure, whatever its leaves."""
        return self.unit(
            name,
            make,
            lambda tree, folder: save_arrays(folder / ARRAYS, tree),
            lambda folder: load_structure(folder / ARRAYS, structure()),
        )

    def record(self, name: str, make: Callable[[], Value], kind: type[Value]) -> Value:
        """A unit that is a record of type `kind` (`logs_schema.records`), to the bit."""

        def save(found: Value, folder: Path) -> None:
            (folder / RECORD).write_text(json.dumps(to_plain(found, finite=False)))

        return self.unit(
            name, make, save, lambda folder: from_plain(kind, json.loads((folder / RECORD).read_text()))
        )

    def remove(self) -> None:
        """Removes the units of a finished step as soon as its product is in place: until then a kill loses neither."""
        if self.folder is not None:
            remove_once_in_place(self.out or self.folder, self.folder)


NOTHING_KEPT = Unfinished()
