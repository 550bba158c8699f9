"""Configuration of a fleet: `fleet.toml`, its clusters, and everything that is refused before any work begins.

Errors of the file itself refuse the whole fleet. What is wrong with one cluster's data (a log that is missing, a
damaged product, a bundle of another problem) is found by `trouble_of` before any work begins, and stops this cluster
only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evaluation.jobs.engine.config import HERE, EngineConfig
from evaluation.pipeline.refresh import appending
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.job import FOLDER, find_running, refuse_other_decisions
from evaluation.pipeline.run import ARCHIVE
from evaluation.problems.configuration import RunConfig, load_config
from evaluation.problems.kit import ProblemOptions
from evaluation.problems.kits import KITS, choose_kit, find_kit
from logs_schema.errors import ConfigError, FormatError, ProductError
from logs_schema.product import MANIFEST, read_manifest
from logs_schema.settings import load_settings
from offline_rl.bundle import read_bundle
from twin.problems import problem_of

NAMES = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
HOURS_A_DAY = 24.0
LEAST_H, MOST_H = 0.01, 87_600.0
"""Periods of refreshes: half a minute to ten years."""


@dataclass(frozen=True)
class ClusterConfig:
    """One cluster: its log, its job, and when it is refreshed. Paths are relative to the fleet's file.

    Attributes:
        name: Name on the page, in metrics and on the command line.
        config: Configuration of its job, as for `schedtwin run`.
        log: Decision log, as for `schedtwin refresh --log`.
        work: Work folder, of this cluster alone.
        bundle: Running bundle; by default that of the last export in the work folder.
        every_h: Hours between refreshes.
        at_h: Hour of the day, in UTC, from which these are counted: with every_h = 24 and at_h = 3 a refresh is due at
            3 o'clock, however early or late the one before was.
        retry_h: Hours after which a refresh that ended with an error is due again.
        judge_days, accept: As for `schedtwin refresh`.
        problem, processors, pool: As on the command line.
    """

    name: str
    config: str
    log: str
    work: str
    bundle: str = ""
    every_h: float = HOURS_A_DAY
    at_h: float = 0.0
    retry_h: float = 1.0
    judge_days: int | None = None
    accept: str = RefreshConfig.accept
    problem: str | None = None
    processors: float | None = None
    pool: str | None = None

    def __post_init__(self) -> None:
        where = f"cluster {self.name!r}"
        if not re.fullmatch(NAMES, self.name):
            raise ConfigError("not a name for a cluster", where=where, allowed="letters, digits, _, . and -")
        is_possible = LEAST_H <= self.every_h <= MOST_H and 0.0 <= self.retry_h <= MOST_H
        if not (is_possible and 0.0 <= self.at_h < HOURS_A_DAY):
            raise ConfigError(
                f"every_h = {self.every_h:g}, at_h = {self.at_h:g}, retry_h = {self.retry_h:g}",
                where=where,
                allowed=f"every_h from {LEAST_H:g} to {MOST_H:.0f}, at_h from 0 to below 24, retry_h to {MOST_H:.0f}",
            )
        RefreshConfig(self.judge_days, self.accept)
        if self.problem is not None:
            find_kit(self.problem)


@dataclass(frozen=True)
class FleetConfig:
    """The file of a fleet.

    Attributes:
        clusters: The clusters, `[[clusters]]`.
        page: Status page to write, relative to this file.
        metrics: File for the textfile collector of Prometheus' node exporter to write; its name ends with .prom.
        keep_exports: Exported policies that are kept of every cluster, with everything they were made from, besides the
            running one.
        drift_days: Newest days that are compared with as many of the running policy's training days.
        engine: Where clusters are refreshed; a task is a cluster.
    """

    clusters: tuple[ClusterConfig, ...]
    page: str = "fleet.html"
    metrics: str = "schedtwin.prom"
    keep_exports: int = 3
    drift_days: int = 7
    engine: EngineConfig = field(default_factory=EngineConfig)

    def __post_init__(self) -> None:
        if not self.clusters:
            raise ConfigError(
                "the fleet has no clusters", where="clusters", allowed="one table [[clusters]] or more"
            )
        if self.keep_exports < 0 or self.drift_days < 1:
            raise ConfigError(
                f"keep_exports = {self.keep_exports}, drift_days = {self.drift_days}",
                allowed="keep_exports 0 or more, drift_days 1 or more",
            )
        if not self.metrics.endswith(".prom"):
            raise ConfigError(
                "the node exporter does not read this file",
                where=f"metrics = {self.metrics!r}",
                allowed="a name that ends with .prom",
                advice="give a file in its --collector.textfile.directory",
            )


@dataclass(frozen=True)
class FleetCluster:
    """A cluster with absolute paths and its job.

    Attributes:
        settings: As in the fleet's file.
        job: Configuration of the job; it names a log.
        config, log, work: Absolute paths.
        bundle: Absolute path of the named running bundle; None for that of the last export.
    """

    settings: ClusterConfig
    job: RunConfig
    config: Path
    log: Path
    work: Path
    bundle: Path | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.settings.name

    @property
    def options(self) -> ProblemOptions:
        """Options on the problem."""
        return ProblemOptions(self.settings.problem, self.settings.processors, self.settings.pool)

    @property
    def running(self) -> Path | None:
        """The running bundle; None without one."""
        return find_running(self.bundle, self.work)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Fleet:
    """A fleet with absolute paths.

    Attributes:
        settings: As in its file.
        clusters: In the order of the file.
        page, metrics: Files to write.
    """

    settings: FleetConfig
    clusters: tuple[FleetCluster, ...]
    page: Path
    metrics: Path

    def chosen(self, names: Sequence[str]) -> tuple[FleetCluster, ...]:
        """The clusters of these names, or all without names; ConfigError for an unknown one."""
        known = [one.name for one in self.clusters]
        if unknown := [name for name in names if name not in known]:
            raise ConfigError(f"no cluster is called {', '.join(unknown)}", allowed=", ".join(known))
        return tuple(one for one in self.clusters if not names or one.name in names)


def load_fleet(path: Path) -> Fleet:
    """Reads a fleet's file and the configurations of its clusters' jobs.

    Raises:
        ConfigError: One of these cannot be read or has unknown keys, a job names no log, two clusters have one name, or
            work folders are the same or inside each other.
    """
    settings, here = load_settings(FleetConfig, path), path.absolute().parent
    names = [one.name for one in settings.clusters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"two clusters are called {', '.join(twice)}", where=str(path), allowed="unique names"
        )
    clusters = tuple(_cluster(one, here, path) for one in settings.clusters)
    _refuse_shared(clusters, path)
    return Fleet(settings, clusters, here / settings.page, here / settings.metrics)


def _cluster(settings: ClusterConfig, here: Path, file: Path) -> FleetCluster:
    config = here / settings.config
    job = load_config(config)
    if job.log is None:
        raise ConfigError(
            "the job's configuration names no log",
            where=f"{config}, of cluster '{settings.name}' in {file}",
            allowed="a table [log]",
        )
    bundle = here / settings.bundle if settings.bundle else None
    return FleetCluster(settings, job, config, here / settings.log, here / settings.work, bundle)


def _refuse_shared(clusters: Sequence[FleetCluster], file: Path) -> None:
    owners: dict[Path, FleetCluster] = {}
    for one in clusters:
        other = owners.setdefault(one.work.resolve(), one)
        if other is not one:
            raise _shared(one, other, file)
    for work, one in owners.items():
        for other in (owners[above] for above in work.parents if above in owners):
            raise _shared(one, other, file)


def _shared(one: FleetCluster, other: FleetCluster, file: Path) -> ConfigError:
    return ConfigError(
        f"the clusters '{other.name}' and '{one.name}' share a work folder",
        where=f"{file}: {other.work}, {one.work}",
        allowed="a work folder of its own for every cluster, none inside another",
        advice="rename one",
    )


def in_one_process(cluster: FleetCluster, engine: EngineConfig) -> FleetCluster:
    """The cluster as a task: where several clusters are refreshed at once, each is in one process."""
    return cluster if engine.is_here else replace(cluster, job=replace(cluster.job, engine=HERE))


def trouble_of(cluster: FleetCluster) -> Exception | None:
    """What is wrong with a cluster's data, as far as can be seen before work begins; None if nothing is. Whatever it
    is, it stops no other cluster."""
    try:
        _refuse_missing(cluster)
        for folder in _needed_products(cluster.work):
            read_manifest(folder)
        _refuse_other_problem(cluster)
    except Exception as error:
        return error
    return None


def _refuse_missing(cluster: FleetCluster) -> None:
    log = cluster.job.log
    for path in () if log is None else log.paths:
        if not (cluster.config.parent / path).exists():
            raise FormatError(
                f"the log of cluster '{cluster.name}' does not exist",
                where=f"[log] paths of {cluster.config}: {path}",
                allowed="files or folders, relative to the configuration",
                advice="check the path",
            )
    if not cluster.log.exists():
        raise FormatError(
            f"the decision log of cluster '{cluster.name}' does not exist",
            where=str(cluster.log),
            allowed="the folder of schedtwin serve --log, or tables in this project's format",
            advice="check the path, and whether the server writes a log",
        )
    if cluster.bundle is not None and not (cluster.bundle / MANIFEST).is_file():
        raise ProductError(
            f"the running bundle of cluster '{cluster.name}' is not there",
            where=str(cluster.bundle),
            allowed=f"a folder holding {MANIFEST}",
            advice="check the path; while nothing of this cluster runs yet, leave its bundle out",
        )
    appending.log_files(cluster.log)


def _needed_products(work: Path) -> Iterator[Path]:
    """Products that a refresh cannot make again from others: the history, and where it began."""
    for folder in (work / ARCHIVE, work / FOLDER / "history"):
        if (folder / MANIFEST).exists():
            yield folder


def _refuse_other_problem(cluster: FleetCluster) -> None:
    running = cluster.running
    if running is not None:
        read_bundle(running)
    archive = cluster.work / ARCHIVE / appending.ARCHIVE
    if cluster.options.problem is not None:
        problem = cluster.options.problem
    elif (claiming := next((one for one in KITS if one.claims(cluster.job)), None)) is not None:
        problem = claiming.name
    elif archive.exists():
        problem = choose_kit(cluster.job, archive, cluster.options)[0].name
    else:
        return
    if running is not None:
        refuse_other_decisions(running, problem)
    twin = cluster.work / FOLDER / "twin"
    if (twin / MANIFEST).exists() and (found := problem_of(twin)) != problem:
        raise ProductError(
            f"the work folder of cluster '{cluster.name}' is of the problem '{found}', its job of '{problem}'",
            where=f"{twin}, {cluster.config}",
            allowed="one problem for each work folder",
            advice="give the cluster another work folder, or name its problem",
        )
