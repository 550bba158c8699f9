"""`schedtwin run`: import or simulate, fit, certify, train, compare, export, as one resumable job.

Each step makes a product under the work folder and is reused while nothing it depends on has changed. A log that
leaves a scheduler no choice of node ends with the comparison: there is nothing to train and nothing to export. What
there is to learn of such a log is the order of its queue: with a table [order] that is the job (`evaluation.ordering`).
In a twin that has not passed its certificate nothing is trained, and from it nothing exported, unless that is asked for
(`force`): the job ends with the comparison of what needs no training. Forced, the first line of every report says so,
and the bundle too. Orders of a queue are chosen by exact replay, not by the twin, so their job goes on and says it.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

from evaluation.certify.keeping import CERTIFICATE_CODE, KIND, build_certificate, certification_in
from evaluation.comparing import COMPARISON_CODE, refuse_uneven_lives
from evaluation.configuration import LogConfig, RunConfig
from evaluation.job import Step, alone_in, run_steps
from evaluation.ordering.config import ORDER_CODE, OrderConfig, as_settings
from evaluation.pipeline import (
    POLICY_CODE,
    build_bundle,
    build_comparison,
    build_policy,
    build_twin,
)
from evaluation.records import to_plain
from evaluation.shifts import answerable
from evaluation.simulator.logs import simulate
from evaluation.training_days import plan_of, train_days_of
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.formats.pool_size import parse_capacity
from logs_schema.importing import find_format, import_log, source_files
from logs_schema.progress import Progress
from offline_rl.recipes.training import refuse_uneven_streams
from twin.placement.model import load_encoding

Products = Mapping[str, Path]
ARCHIVE, BUNDLE = "archive", "bundle"
TWIN_CODE = 8
"""Raised when code changes what a fit makes: those of older code are made again then."""


def run(
    config: RunConfig, here: Path, workdir: Path, progress: Progress, *, title: str, force: bool = False
) -> dict[str, Path]:
    """Runs the job, or what is left of it.

    Args:
        config: What to do.
        here: Folder that relative paths in the configuration start from.
        workdir: Folder of the products.
        progress: Where to show how far it is.
        title: Of the report.
        force: Train and export also in a twin that has not passed its certificate.

    Returns:
        Step name -> path of its product; `report` -> the page.

    Raises:
        ConfigError: The configuration names no log, or asks for what the log cannot give.
    """
    if config.log is None:
        raise ConfigError("the configuration names no log", allowed="a table [log]", advice="see the README")
    with alone_in(workdir):
        if config.order is not None:
            return _run_order(config, config.log, config.order, here, workdir, progress, title)
        return _run_placements(config, config.log, here, workdir, progress, title, force=force)


def _run_order(
    config: RunConfig,
    log: LogConfig,
    order: OrderConfig,
    here: Path,
    workdir: Path,
    progress: Progress,
    title: str,
) -> dict[str, Path]:
    from evaluation.ordering.running import refuse_unplayable

    products = run_steps([archive_step(log, here)], workdir, progress)
    refuse_unplayable(products["archive"] / ARCHIVE, order)
    steps = [_queue_twin_step(order), _certificate_step(config), _order_step(order, title)]
    if order.training is not None and not order.training.index_only:
        steps.append(Step("bundle", "job-bundle", _hand_over, inputs=("comparison",)))
    products = run_steps(steps, workdir, progress, done=products)
    return products | {"report": products["comparison"] / "report.html"}


def _hand_over(out: Path, inputs: Products, _: Progress) -> None:
    """The bundle that the comparison chose, where every job has its bundle."""
    copytree(inputs["comparison"] / BUNDLE, out / BUNDLE)


def _run_placements(
    config: RunConfig,
    log: LogConfig,
    here: Path,
    workdir: Path,
    progress: Progress,
    title: str,
    *,
    force: bool,
) -> dict[str, Path]:
    products = run_steps([archive_step(log, here)], workdir, progress)
    _refuse_untestable(Archive(products["archive"] / ARCHIVE), config)
    products = run_steps([twin_step(config), _certificate_step(config)], workdir, progress, done=products)
    has_choice = load_encoding(products["twin"]).cluster.num_nodes > 1
    held_back = untrained(products) if has_choice and not force else ""
    is_trained = has_choice and not held_back
    steps = _policy_steps(config, title) if is_trained else [_comparison_step(config, title, (), held_back)]
    if not has_choice:
        progress.note(
            "one node only: nothing to choose, so nothing is trained or exported; to learn the order of its queue add "
            f"a table [order] to the configuration, or: schedtwin order {products['archive'] / ARCHIVE}"
        )
    products = run_steps(steps, workdir, progress, done=products)
    return products | {"report": products["comparison"] / "report.html"}


def untrained(products: Products) -> str:
    """Why nothing is to be trained in a job's twin, in words; empty where it passed its certificate."""
    trouble = certification_in(products[KIND]).trouble
    return (
        f"Nothing was trained, and nothing exported: {trouble} (--force goes on all the same)."
        if trouble
        else ""
    )


def _refuse_untestable(archive: Archive, config: RunConfig) -> None:
    """Says before anything is learned that it could not be trained in or compared; ConfigError."""
    from evaluation.ordering.fitting import refuse_several_queues

    refuse_several_queues(archive)
    refuse_uneven_streams(config.train, config.twin.num_members)
    refuse_uneven_lives(config.judge, config.twin.num_members)
    answerable(plan_of(archive, train_days_of(archive, config.days, config.shifts), config.shifts))


def archive_step(log: LogConfig, here: Path) -> Step:
    """Imports or simulates the log; paths start from `here`."""
    if log.preset:
        return Step(
            "archive",
            "job-archive",
            lambda out, _, progress: _simulate(log, out / ARCHIVE, progress),
            config=log,
        )
    if not log.paths:
        raise ConfigError("a log format without paths", where="[log]", advice='add paths = ["folder"]')
    paths = [here / path for path in log.paths]
    origin = None if log.origin is None else dt.datetime(log.origin.year, log.origin.month, log.origin.day)

    capacity = dict(map(parse_capacity, log.capacity))

    def build(out: Path, _: Products, progress: Progress) -> Mapping[str, Any]:
        with progress.stage("import", unit="rows") as stage:
            report = import_log(
                log.format, paths, out / ARCHIVE, origin=origin, capacity=capacity, progress=stage
            )
        progress.note(str(report.lines))
        return {"rows": dict(report.rows)}

    files = {str(index): path for index, path in enumerate(source_files(find_format(log.format), paths))}
    settings: dict[str, Any] = {
        "format": log.format,
        "origin": None if origin is None else origin.isoformat(),
    }
    settings |= {"capacity": capacity} if capacity else {}
    return Step("archive", "job-archive", build, files=files, config=settings)


def _order_step(config: OrderConfig, title: str) -> Step:
    """Trains orders of the queue and judges them; the bundle lies beside the report."""

    def build(out: Path, inputs: Products, progress: Progress) -> Mapping[str, Any]:
        from evaluation.ordering.running import write_order_comparison

        found = certification_in(inputs[KIND])
        return write_order_comparison(
            out, inputs["archive"] / ARCHIVE, config, progress, title=title, certification=found.facts()
        )

    settings = as_settings(config) | {"title": title}
    return Step(
        "comparison", "comparison", build, inputs=("archive", KIND), config=settings, code_version=ORDER_CODE
    )


def _queue_twin_step(config: OrderConfig) -> Step:
    """Fits the twin of the last anchor's training days: the one that the bundle is made in."""

    def build(out: Path, inputs: Products, progress: Progress) -> Mapping[str, Any]:
        from evaluation.ordering.fitting import build_queue_twin, days_of_last_anchor

        archive = inputs["archive"] / ARCHIVE
        return build_queue_twin(out, archive, days_of_last_anchor(archive, config), config, progress)

    settings = as_settings(config, "weeks", "processors", "pool")
    return Step("twin", "twin", build, inputs=("archive",), config=settings)


def _simulate(log: LogConfig, out: Path, progress: Progress) -> Mapping[str, Any]:
    with progress.stage("simulate", unit="requests") as stage:
        simulate(log.preset, log.days, log.behaviour, log.seed, out, progress=stage)
    return {}


def twin_step(config: RunConfig) -> Step:
    """Fits the twin on the training days."""

    def build(out: Path, inputs: Products, progress: Progress) -> Mapping[str, Any]:
        archive = inputs["archive"] / ARCHIVE
        return build_twin(
            out, archive, config.days, config.shifts, config.twin, config.seed, progress,
            population=config.population, imitation=config.imitation,
        )  # fmt: skip

    settings = {
        "days": config.days,
        "shifts": config.shifts,
        "twin": config.twin,
        "population": config.population,
        **config.imitation.as_settings(),
    }
    return Step(
        "twin", "twin", build, inputs=("archive",),
        config=to_plain(settings), seed=config.seed, code_version=TWIN_CODE,
    )  # fmt: skip


def _certificate_step(config: RunConfig) -> Step:
    """Policies are ranked by the comparison, against the truth too where it is at hand, so not here once more; but for
    the rules of a queue, which cost little and whose certificate is about other weeks."""
    settings = replace(config.certify, rankings=config.certify.rankings and config.order is not None)

    def build(out: Path, inputs: Products, progress: Progress) -> Mapping[str, Any]:
        facts = build_certificate(
            out, inputs["archive"] / ARCHIVE, inputs["twin"], None, settings, progress, record_refusal=True
        )
        progress.note(f"the twin's certificate: {facts['verdict']}")
        return facts

    return Step(
        KIND, KIND, build, inputs=("archive", "twin"), config=to_plain(settings), seed=settings.seed,
        code_version=CERTIFICATE_CODE,
    )  # fmt: skip


def _policy_steps(config: RunConfig, title: str) -> list[Step]:
    def train(out: Path, inputs: Products, progress: Progress) -> Mapping[str, Any]:
        found = certification_in(inputs[KIND])
        return build_policy(
            out, inputs["twin"], config.train, config.seed, progress, certification=found.facts()
        )

    def export(out: Path, inputs: Products, _: Progress) -> Mapping[str, Any]:
        return build_bundle(out / BUNDLE, inputs["policy"])

    return [
        Step(
            "policy",
            "policy",
            train,
            inputs=("twin", KIND),
            config=to_plain(config.train),
            seed=config.seed,
            code_version=POLICY_CODE,
        ),
        _comparison_step(config, title, ("policy",)),
        Step("bundle", "job-bundle", export, inputs=("policy",)),
    ]


def _comparison_step(config: RunConfig, title: str, policy: tuple[str, ...], held_back: str = "") -> Step:
    def build(out: Path, inputs: Products, progress: Progress) -> Mapping[str, Any]:
        archive, trained = inputs["archive"] / ARCHIVE, inputs.get("policy")
        warnings = [held_back] if held_back else []
        return build_comparison(
            out, archive, inputs["twin"], trained, config, progress, title=title, warnings=warnings
        )

    parts = {"shifts": config.shifts, "judge": config.judge, "intervals": config.intervals}
    settings = to_plain(parts) | {"title": title} | ({"held_back": held_back} if held_back else {})
    return Step(
        "comparison",
        "comparison",
        build,
        inputs=("archive", "twin", *policy),
        config=settings,
        seed=config.judge.seed,
        code_version=COMPARISON_CODE,
    )
