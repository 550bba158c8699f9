"""A step with two saved units, killed at the n-th change of the file system after its build: a process for each n.

`python -m tests.evaluation.stopped_points FOLDER` prints a line for each n until the step ends undisturbed: whether the
product was in place when the process died, how many units the second run made, and the content hash of its product.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.jobs.job import Step, run_job
from evaluation.jobs.unfinished import Unfinished
from logs_schema.product import MANIFEST, read_manifest
from logs_schema.progress import SilentProgress

DIED = 99
CHANGES = ("rename", "fsync", "rmdir")
"""Functions of `os` that the end of a step calls."""


def main(folder: Path) -> None:
    """Kills, counts and prints, for one n after the other."""
    number, was_killed = 0, True
    while was_killed:
        here = folder / str(number)
        here.mkdir()
        was_killed = _in_a_process(partial(_step, here, number)) == DIED
        was_in_place = (here / "work" / "fit" / MANIFEST).exists()
        num_made = _in_a_process(partial(_step, here, None))
        product = read_manifest(here / "work" / "fit")
        left = sorted(path.name for path in (here / "work").iterdir())
        print(int(was_killed), int(was_in_place), num_made, product.content_hash, *left)
        number += 1


def _step(here: Path, dies_at: int | None) -> int:
    """Runs the step; returns the number of units made, or ends the process."""
    made = []

    def build(out: Path, _: Any, __: Any) -> dict[str, Any]:
        keep = Unfinished.beside(out, "twin", {"archive": "1f"}, {})

        def make(name: str) -> np.ndarray:
            made.append(name)
            return np.arange(3.0)

        for name in ("a", "b"):
            values = keep.tree(name, lambda name=name: make(name), lambda: 0)  # type: ignore[misc]
            np.save(out / name, values)
        keep.remove()
        if dies_at is not None:
            die_at(dies_at, partial(os._exit, DIED), CHANGES)
        return {}

    run_job([Step("fit", "twin", build)], here / "work", SilentProgress())
    return len(made) if dies_at is None else 0


def die_at(
    number: int, die: Callable[[], Any], names: Sequence[str], patch: Callable[..., None] = setattr
) -> None:
    """From now on this process counts its calls of some functions of `os`, and dies before the one of this number."""
    left = [number]

    def dying(usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if not left[0]:
                die()
            left[0] -= 1
            return usual(*arguments, **options)

        return call

    for name in names:
        patch(os, name, dying(getattr(os, name)))


def _in_a_process(work: Callable[[], int]) -> int:
    """Runs `work` in a child of this process; returns what it returned, or `DIED`."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(work())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
