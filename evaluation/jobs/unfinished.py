"""What a long step has finished already, kept beside its unfinished product: a kill loses one unit, not the step.

A unit is a small product of its own, so it is there whole or not at all. The folder's name holds the fingerprint of
everything that the units depend on: with another log, policy or configuration nothing of it is found. What is kept is
also what is used, so a step that was killed makes what an undisturbed one makes, bit for bit.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from logs_schema.errors import ProductError
from logs_schema.product import fingerprint, verify, writing
from logs_schema.records import to_plain
from twin.arrays import load_structure, save_arrays
from twin.contracts import PyTree

Value = TypeVar("Value")
KIND = "unit"
ARRAYS = "arrays.npz"


@dataclass(frozen=True)
class Unfinished:
    """The finished units of an unfinished product.

    Attributes:
        folder: Where they are kept; None keeps nothing.
    """

    folder: Path | None = None

    @staticmethod
    def beside(
        out: Path, kind: str, made_from: Mapping[str, str], config: Any, seed: int | None = None
    ) -> "Unfinished":
        """The units of the product that is written into `out`.

        Args:
            out: Folder that the product is written into; the units lie beside it.
            kind: Of the product.
            made_from: Name -> content hash of everything that the units are made from.
            config: Everything else they depend on, JSON or dataclasses.
            seed: Of their randomness, or None.
        """
        wanted = fingerprint(kind, made_from, to_plain(config), seed)
        return Unfinished(out.parent / f".unfinished-{kind}-{wanted[:16]}")

    def unit(
        self,
        name: str,
        make: Callable[[], Value],
        save: Callable[[Value, Path], None],
        load: Callable[[Path], Value],
    ) -> Value:
        """A unit: as it was kept, or made and kept now.

        Args:
            name: Of the unit, unique in the product.
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

    def remove(self) -> None:
        """Removes the units, for the product that they belong to is there."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
