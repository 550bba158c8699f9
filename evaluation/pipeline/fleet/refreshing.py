"""Refreshes the clusters of a fleet that are due, each as a task of its own; whatever one comes to, the others go on.

A task runs in a process apart, so that one that is killed (memory, a crash of native code) takes no other with it. It
holds the lock of WORK/fleet, writes its progress to WORK/fleet/refresh.log, and its outcome beside it. What was killed
is due at the next call and goes on from the products that are there.
"""

import datetime as dt
import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from evaluation.jobs.engine.config import tasks_on
from evaluation.jobs.engine.errors import EngineError
from evaluation.jobs.progress import LineProgress
from evaluation.pipeline.fleet.config import Fleet, FleetCluster, in_one_process, trouble_of
from evaluation.pipeline.fleet.drifting import drift_of
from evaluation.pipeline.fleet.exports import keep_export
from evaluation.pipeline.fleet.outcomes import (
    ERROR,
    FAILURE,
    FOLDER,
    LOG,
    UNEXPECTED,
    USER_ERROR,
    LogDrift,
    RefreshOutcome,
    due_at,
    lock_of,
    now,
    read_outcome,
    write_attempt,
    write_outcome,
)
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.deciding import EXIT_STATUS, ExportDecision
from evaluation.pipeline.refresh.job import refresh
from logs_schema.atomic_folders import try_lock
from logs_schema.errors import ProductError, SchedtwinError
from logs_schema.mapping import TaskMap
from logs_schema.progress import Progress

RefreshStep = Callable[[FleetCluster, Progress], ExportDecision]


class Why(Enum):
    """Why a cluster was not refreshed."""

    NOT_DUE = "not due"
    BUSY = "another process is at work in its folder"
    DONE = "another call has refreshed it meanwhile"


@dataclass(frozen=True)
class Refreshed:
    """What a call came to for one cluster.

    Attributes:
        name: Of the cluster.
        outcome: Of its refresh; None if there was none.
        skipped: Why there was none; None if there was.
    """

    name: str
    outcome: RefreshOutcome | None = None
    skipped: Why | None = None


@dataclass(frozen=True)
class ClusterTask:
    """A refresh as a task.

    Attributes:
        cluster: Which.
        drift_days: Days that its drift is measured on.
        step: Refreshes it.
        asked: When it was found due; a refresh that another call has begun since will do. None: none will.
    """

    cluster: FleetCluster
    drift_days: int
    step: RefreshStep
    asked: dt.datetime | None = None

    def __str__(self) -> str:
        return self.cluster.name


def refresh_cluster(cluster: FleetCluster, progress: Progress) -> ExportDecision:
    """`schedtwin refresh` of a cluster; an exported policy is kept with what it was made from."""
    try:  # of an export that was not kept because its refresh was killed, or was none of the fleet's
        keep_export(cluster.work)
    except ProductError as error:  # what is damaged is made again
        progress.note(f"the last export cannot be kept: {error.brief}")
    settings = RefreshConfig(cluster.settings.judge_days, cluster.settings.accept)
    decision, _ = refresh(
        cluster.job,
        cluster.config.parent,
        cluster.log,
        cluster.work,
        cluster.bundle,
        settings,
        progress,
        options=cluster.options,
    )
    keep_export(cluster.work)
    return decision


def refresh_fleet(
    fleet: Fleet,
    clusters: Sequence[FleetCluster],
    progress: Progress,
    *,
    at_once: bool = False,
    step: RefreshStep = refresh_cluster,
) -> list[Refreshed]:
    """Refreshes those of the clusters that are due.

    What is wrong with a cluster's data is noted before any work begins, and is the outcome of this cluster.

    Args:
        fleet: The fleet; its engine runs the tasks.
        clusters: Those of its clusters to look at.
        progress: Progress display.
        at_once: Also those that are not due.
        step: Refreshes a cluster.

    Returns:
        What came of every cluster, in order.

    Raises:
        ConfigError: Tasks cannot run where the fleet's engine says.
    """
    found: dict[str, Refreshed] = {}
    tasks: list[ClusterTask] = []
    for cluster in clusters:
        if not at_once and not is_due(cluster, now()):
            found[cluster.name] = Refreshed(cluster.name, skipped=Why.NOT_DUE)
        elif (error := trouble_of(cluster)) is not None:
            progress.note(f"{cluster.name}: {error}")
            found[cluster.name] = _failed_before(cluster, error)
        else:
            one = in_one_process(cluster, fleet.settings.engine)
            tasks.append(ClusterTask(one, fleet.settings.drift_days, step, now()))
    if tasks:
        paths = [path for task in tasks for path in _paths_of(task.cluster)]
        with tasks_on(fleet.settings.engine, progress, paths, apart=True) as run_tasks:
            found |= {one.name: one for one in run_all(tasks, run_tasks)}
    return [found[cluster.name] for cluster in clusters]


def _paths_of(cluster: FleetCluster) -> list[Path]:
    """What a task reads and writes."""
    log = cluster.job.log
    raw = [cluster.config.parent / path for path in (() if log is None else log.paths)]
    return [cluster.log, cluster.work, *raw, *([] if cluster.bundle is None else [cluster.bundle])]


def is_due(cluster: FleetCluster, time: dt.datetime) -> bool:
    """Whether a cluster is due for a refresh."""
    due = due_at(cluster.settings, cluster.work, time)
    return due is None or due <= time


def run_all(tasks: Sequence[ClusterTask], run_tasks: TaskMap) -> list[Refreshed]:
    """Runs all tasks; a task that was lost or late fails its cluster, and those it took with it run again."""
    left, begun, found = list(tasks), now(), dict[str, Refreshed]()
    while left:
        try:
            found |= {one.name: one for one in run_tasks(refresh_one, left, "clusters")}
            break
        except EngineError as error:
            culprits = {str(one) for one in error.items} or {str(one) for one in left}
            for task in left:
                ended = read_outcome(task.cluster.work)
                if task.cluster.name in culprits:
                    found[task.cluster.name] = _failed_before(task.cluster, error)
                elif ended is not None and dt.datetime.fromisoformat(ended.begun) >= begun:
                    found[task.cluster.name] = Refreshed(task.cluster.name, ended)
            left = [task for task in left if task.cluster.name not in found]
    return [found[task.cluster.name] for task in tasks]


def refresh_one(task: ClusterTask) -> Refreshed:
    """A task: refreshes one cluster, and writes down what came of it; raises nothing but what ends the process."""
    cluster, begun = task.cluster, _as_text(now())
    try:
        cluster.work.mkdir(parents=True, exist_ok=True)
        if _is_locked(cluster.work) or (lock := lock_of(cluster.work)) is None:
            return Refreshed(cluster.name, skipped=Why.BUSY)
    except OSError as error:
        return Refreshed(cluster.name, _outcome_of(error, begun))
    try:
        if _is_done(task):
            return Refreshed(cluster.name, skipped=Why.DONE)
        outcome = _refreshed(task, begun)
        write_outcome(cluster.work, outcome)
    except Exception as error:  # of writing: a disk that is full
        outcome = _outcome_of(error, begun)
    finally:
        os.close(lock)
    return Refreshed(cluster.name, outcome)


def _is_done(task: ClusterTask) -> bool:
    """Whether another call has refreshed a cluster since it was asked for here."""
    ended = read_outcome(task.cluster.work)
    if task.asked is None or ended is None:
        return False
    return task.asked <= dt.datetime.fromisoformat(ended.begun) <= now()


def _refreshed(task: ClusterTask, begun: str) -> RefreshOutcome:
    cluster = task.cluster
    write_attempt(cluster.work, begun)
    with open(cluster.work / FOLDER / LOG, "w", encoding="utf-8") as stream:
        try:
            decision = task.step(cluster, LineProgress(stream))
        except Exception as error:
            traceback.print_exc(file=stream)
            return _outcome_of(error, begun)
        try:
            drift = drift_of(cluster.work, cluster.running, task.drift_days)
        except Exception as error:  # it decides nothing: the decision stands
            traceback.print_exc(file=stream)
            drift = LogDrift((), f"it could not be measured: {_outcome_of(error, begun).reason}", "")
        status = EXIT_STATUS[decision.result]
        return RefreshOutcome(begun, _as_text(now()), status, decision.result.value, decision.reason, drift)


def _failed_before(cluster: FleetCluster, error: Exception) -> Refreshed:
    """The outcome of a cluster whose refresh could not begin, or did not come back."""
    outcome = _outcome_of(error, _as_text(now()))
    try:
        if (lock := lock_of(cluster.work)) is None:
            return Refreshed(cluster.name, skipped=Why.BUSY)
        try:
            write_attempt(cluster.work, outcome.begun)
            write_outcome(cluster.work, outcome)
        finally:
            os.close(lock)
    except OSError as trouble:  # the outcome cannot be written down either
        return Refreshed(cluster.name, replace(outcome, reason=f"{outcome.reason}\n{trouble}"))
    return Refreshed(cluster.name, outcome)


def _outcome_of(error: Exception, begun: str) -> RefreshOutcome:
    is_known = isinstance(error, SchedtwinError | OSError)
    name = type(error).__name__
    reason = str(error) or name if is_known else f"{name}: {error}"
    status, result = (USER_ERROR, ERROR) if is_known else (FAILURE, UNEXPECTED)
    return RefreshOutcome(begun, _as_text(now()), status, result, reason, None)


def _is_locked(work: Path) -> bool:
    """Whether another command is at work in the folder."""
    lock = try_lock(work)
    if lock is not None:
        os.close(lock)
    return lock is None


def _as_text(time: dt.datetime) -> str:
    return time.isoformat()
