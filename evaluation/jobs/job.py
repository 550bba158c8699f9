"""The resumable job: steps that make products, each reused while its inputs are unchanged.

A step's fingerprint covers its inputs' content, its configuration, its seed and the version of its code. If the product
in the work folder has that fingerprint and its files verify, it is reused; otherwise it is made again. Products are
written atomically, so a job killed at any time is completed by running it again. If a step is made again with the same
content, the steps after it are reused.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logs_schema.atomic_folders import sweep, try_lock
from logs_schema.errors import ConfigError, ProductError
from logs_schema.hashing import as_json, file_hash
from logs_schema.packs import content_hash_of
from logs_schema.product import fingerprint, read_manifest, verify, writing
from logs_schema.progress import Progress

Build = Callable[[Path, dict[str, Path], Progress], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Step:
    """One step of a job.

    Attributes:
        name: its name, and that of its product's folder; lower-case letters, digits, `-` and `_`.
        kind: kind of its product.
        build: `build(out_dir, inputs, progress) -> extra` writes the product's files into the empty folder
            `out_dir`, reading the products in `inputs` (step name -> path), and returns facts for the
            manifest: functions of the inputs, not timings, or equal results would not be equal. A product of
            its own (an archive, a bundle) goes into a folder inside `out_dir`.
        inputs: names of earlier steps.
        files: name -> path of files from outside the job; their content counts, not their path.
        config: everything else the step depends on, JSON or dataclasses.
        seed: seed of its randomness, or None.
        code_version: raise it when the step's code changes what it makes.
    """

    name: str
    kind: str
    build: Build
    inputs: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    config: Any = field(default_factory=dict)
    seed: int | None = None
    code_version: int = 1


def run_job(
    steps: Sequence[Step], workdir: Path | str, progress: Progress, *, done: Mapping[str, Path] | None = None
) -> dict[str, Path]:
    """Run a job's steps in order, reusing every valid product.

    Args:
        steps: each after the steps whose products it reads.
        workdir: folder of the products, one for each step; made if absent.
        progress: progress display.
        done: products of an earlier call, by step, that these steps may read too.

    Returns:
        Step name -> path of its product, those of `done` among them.

    Raises:
        ConfigError: names or inputs of the steps are invalid, an outside file is missing, or another run is
            at work in the folder.
        ProductError: the folder of a product holds something else.
    """
    with alone_in(Path(workdir)):
        return run_steps(steps, workdir, progress, done=done)


def run_steps(
    steps: Sequence[Step], workdir: Path | str, progress: Progress, *, done: Mapping[str, Path] | None = None
) -> dict[str, Path]:
    """`run_job` for a caller that holds the folder's lock (`alone_in`): a part of a longer job.

    Raises:
        ConfigError: names or inputs of the steps are invalid, or an outside file is missing.
        ProductError: the folder of a product holds something else.
    """
    products: dict[str, Path] = dict(done or {})
    _check_steps(steps, products)
    workdir = Path(workdir).absolute()
    with progress.stage("job", total=len(steps), unit="steps") as stage:
        for num_done, step in enumerate(steps):
            stage(num_done, text=step.name)
            products[step.name] = _run_step(step, workdir, products, progress)
        stage(len(steps))
    return products


def _run_step(step: Step, workdir: Path, products: Mapping[str, Path], progress: Progress) -> Path:
    path = workdir / step.name
    sweep(path)
    inputs = {name: products[name] for name in step.inputs}
    made_from = _made_from(step, inputs)
    config = as_json(step.config, f"configuration of step '{step.name}'")
    trouble = _why_not_reusable(path, fingerprint(step.kind, made_from, config, step.seed))
    if trouble is None:
        progress.note(f"{step.name}: unchanged, reused")
        return path
    if trouble:
        progress.note(f"{step.name}: made again, because {trouble}")
    extra: dict[str, Any] = {}
    options: dict[str, Any] = {"made_from": made_from, "config": config, "seed": step.seed, "extra": extra}
    with progress.stage(step.name), writing(path, step.kind, replace=True, **options) as out_dir:
        extra.update(step.build(out_dir, inputs, progress) or {})
    return path


def _made_from(step: Step, inputs: Mapping[str, Path]) -> dict[str, str]:
    hashes = {name: content_hash_of(path) for name, path in inputs.items()}
    for name, path in step.files.items():
        if not Path(path).is_file():
            what = f"step '{step.name}' needs a file that does not exist"
            raise ConfigError(
                what, where=f"{name}: {path}", allowed="an existing file", advice="check the path"
            )
        hashes[f"file:{name}"] = file_hash(path)
    return hashes | {"code": str(step.code_version)}


def _why_not_reusable(path: Path, expected: str) -> str | None:
    """None if the product can be reused, "" if there is none, else the reason."""
    if not path.exists() or not any(path.iterdir()):
        return ""
    try:
        if read_manifest(path).fingerprint != expected:
            return "something it depends on has changed"
        verify(path)
    except ProductError as error:
        return error.brief
    return None


def _check_steps(steps: Sequence[Step], done: Iterable[str]) -> None:
    earlier: set[str] = set(done)
    for step in steps:
        where = f"step '{step.name}'"
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", step.name):
            allowed = "lower-case letters, digits, - and _"
            raise ConfigError("not a name for a step", where=where, allowed=allowed, advice="rename it")
        if step.name in earlier:
            raise ConfigError(
                "two steps of one name", where=where, allowed="unique names", advice="rename one"
            )
        if unknown := [name for name in step.inputs if name not in earlier]:
            allowed = ", ".join(sorted(earlier)) or "none: it is the first step"
            what = f"no earlier step is called {', '.join(unknown)}"
            raise ConfigError(what, where=f"inputs of {where}", allowed=allowed, advice="reorder the steps")
        earlier.add(step.name)


@contextmanager
def alone_in(workdir: Path) -> Iterator[None]:
    """Locks a folder, which is made if absent, from the first step of a job to its last.

    Raises:
        ConfigError: another run is at work there.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    if (lock := try_lock(workdir)) is None:
        advice = "wait for it to end, or give another folder"
        raise ConfigError("another run is at work here", where=str(workdir), allowed="one run", advice=advice)
    try:
        yield
    finally:
        os.close(lock)
