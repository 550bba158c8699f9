"""`schedtwin run`: import or simulate, fit, certify, train, compare, export, as one resumable job.

Each step writes a product into the work folder; a product is reused while its inputs are unchanged. A table [order],
[scale], [orchestration] or [assign] selects the problem; without one it is the first that the log supports, as for
`fit`: of one pool the order of its queue. Where a log of several nodes leaves no choice between them, the job ends with
the comparison: there is nothing to train or to export.
Without a passed certificate the job trains and exports nothing and ends with the comparison of policies that need no
training. With `force` it trains and exports all the same, and trains while the twin is certified; the first line of
every report and the bundle then state the missing certificate. Orders of a queue are chosen by exact replay, not by
the twin: their job goes on, with a note.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.certify.persistence import KIND
from evaluation.jobs.engine.config import HERE, EngineConfig, tasks_on
from evaluation.jobs.job import Step, alone_in, run_steps
from evaluation.problems.certificates import certificate_plan
from evaluation.problems.configuration import LogConfig, RunConfig
from evaluation.problems.kit import Job, ProblemOptions
from evaluation.problems.kits import choose_kit, claiming_kit
from evaluation.problems.usual_job import usual_job
from evaluation.simulator.applications.log import OPERATOR, simulate_application
from evaluation.simulator.applications.presets import application, is_application
from evaluation.simulator.logs import FIRST_DAY, simulate
from evaluation.simulator.world import World
from evaluation.simulator.world_files import chosen_world
from logs_schema.errors import ConfigError
from logs_schema.formats.finding import find_format
from logs_schema.formats.pool_size import parse_capacity
from logs_schema.importing import import_log, source_files
from logs_schema.importing_parts import IMPORT_CODE
from logs_schema.progress import Progress

Products = Mapping[str, Path]
ARCHIVE, BUNDLE = "archive", "bundle"


def run(
    config: RunConfig, here: Path, workdir: Path, progress: Progress, *, title: str, force: bool = False
) -> dict[str, Path]:
    """Runs the job, or what is left of it.

    Args:
        config: Configuration of the job.
        here: Folder that relative paths in the configuration start from.
        workdir: Folder of the products.
        progress: Progress display.
        title: Title of the report.
        force: Train and export also in a twin that has not passed its certificate.

    Returns:
        Step name -> path of its product; `report` -> path of the report's page.

    Raises:
        ConfigError: The configuration names no log, or requests what the log does not support.
    """
    if config.log is None:
        raise ConfigError("the configuration names no log", allowed="a table [log]", advice="see the README")
    claiming_kit(config).refuse_config(config)
    with alone_in(workdir):
        products = run_steps([archive_step(config.log, here, config.engine)], workdir, progress)

        def make(steps: Sequence[Step]) -> dict[str, Path]:
            products.update(run_steps(steps, workdir, progress, done=products))
            return products

        archive = products["archive"] / ARCHIVE
        kit, config, note = choose_kit(config, archive, ProblemOptions())
        if note:
            progress.note(note)
        certify = replace(config.certify, rankings=config.certify.rankings and kit.ranks_in_job)
        certificate = certificate_plan(certify, record_refusal=True, engine=config.engine).step(
            KIND, ("archive", "twin"), archive_of
        )
        run_kit = kit.run or partial(usual_job, kit)
        run_kit(Job(config, title, force, archive, certificate, make, progress, archive_of))
    return products | {"report": products["comparison"] / "report.html"}


def archive_of(products: Products) -> Products:
    """The products, with `archive` replaced by the archive's folder inside its product."""
    return {**products, "archive": products["archive"] / ARCHIVE} if "archive" in products else products


def archive_step(log: LogConfig, here: Path, engine: EngineConfig = HERE) -> Step:
    """The step that imports or simulates the log; relative paths start from `here`, files are read by engine tasks."""
    if log.preset or log.world:
        return Step(
            "archive",
            "job-archive",
            lambda out, _, progress: _simulate(log, here, out / ARCHIVE, progress),
            files=world_files_of(log, here),
            config=replace(log, world=Path(log.world).name),
        )
    if not log.paths:
        raise ConfigError("a log format without paths", where="[log]", advice='add paths = ["folder"]')
    paths = [here / path for path in log.paths]
    origin = None if log.origin is None else dt.datetime(log.origin.year, log.origin.month, log.origin.day)

    capacity = dict(map(parse_capacity, log.capacity))

    def build(out: Path, _: Products, progress: Progress) -> Mapping[str, Any]:
        with (
            progress.stage("import", unit="rows") as stage,
            tasks_on(engine, progress, [*paths, out]) as tasks,
        ):
            report = import_log(
                log.format,
                paths,
                out / ARCHIVE,
                origin=origin,
                capacity=capacity,
                progress=stage,
                run_tasks=tasks,
                only_parts=engine.is_here,
                beside=out,
            )
        progress.note(str(report.lines))
        for notice in report.notices:
            progress.note(f"warning: {notice}")
        return {"rows": dict(report.rows)}

    files = {str(index): path for index, path in enumerate(source_files(find_format(log.format), paths))}
    settings: dict[str, Any] = {
        "format": log.format,
        "origin": None if origin is None else origin.isoformat(),
    }
    settings |= {"capacity": capacity} if capacity else {}
    return Step("archive", "job-archive", build, files=files, config=settings, code_version=IMPORT_CODE)


def world_in(log: LogConfig, here: Path) -> World:
    """The simulated cluster of a log; the path of its file starts from `here`."""
    return chosen_world(log.preset, here / log.world if log.world else None, log.world_seed)


def world_files_of(log: LogConfig, here: Path) -> dict[str, Path]:
    """The file that declares the simulated cluster, by its name in a step; empty without such a file."""
    return {"world": here / log.world} if log.world else {}


def _simulate(log: LogConfig, here: Path, out: Path, progress: Progress) -> Mapping[str, Any]:
    if log.preset and is_application(log.preset, "[log] preset"):
        return _simulate_application(log, out)
    with progress.stage("simulate", unit="requests") as stage:
        simulate(world_in(log, here), log.days, log.behaviour, log.seed, out, progress=stage)
    return {}


def _simulate_application(log: LogConfig, out: Path) -> Mapping[str, Any]:
    if log.world_seed:
        raise ConfigError(
            f"world_seed = {log.world_seed}: nothing of an application is drawn once and for all",
            where="[log]",
            allowed="0",
            advice="vary seed, the one of loads, noise and operator",
        )
    behaviour = OPERATOR if log.behaviour == LogConfig.behaviour else log.behaviour
    simulate_application(application(log.preset), log.days, behaviour, log.seed, out, first_day=FIRST_DAY)
    return {}
