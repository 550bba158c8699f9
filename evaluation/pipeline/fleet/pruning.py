"""Removes old products of a fleet by one rule, which begins with what must stay.

Kept are archives and histories; the running bundles, the last export, and everything they were made from, followed
through the content hashes in the manifests; as many older exports as the fleet's file says, each whole; everything of a
refresh that is not finished; products that the next job can go on from, because they were made from what lies beside
them. The rest is removed: products made from something that is no longer there, older exports, remains of writers that
died, and units of steps that were finished otherwise. What is no product is named and left alone.

A plan is made and carried out under the locks of the work folder, so nothing is being made from what is removed. Each
folder is renamed to remains before its files go: killed at any time, it is whole or the next call removes it.
"""

import datetime as dt
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.pipeline.fleet.config import Fleet, FleetCluster
from evaluation.pipeline.fleet.exports import EXPORTS
from evaluation.pipeline.fleet.holdings import (
    REMAINS,
    Holding,
    What,
    holdings_in,
    holds_archive,
    inodes_in,
    newest_s,
)
from evaluation.pipeline.fleet.keeping import kept_products
from evaluation.pipeline.fleet.outcomes import FOLDER as FLEET
from evaluation.pipeline.fleet.outcomes import read_outcome
from logs_schema.atomic_folders import discard, try_lock
from logs_schema.errors import ConfigError
from offline_rl.bundle import read_bundle

BLOCK_BYTES = 512
"""Unit of `st_blocks`."""


@dataclass(frozen=True)
class Disposal:
    """What is done with one thing in a work folder.

    Attributes:
        path: Where it is, absolute.
        goes: Whether it is removed.
        why: Why it is kept, removed, or left alone.
        is_product: Whether it is a product, remains or units; what is none of these is left alone.
        bytes_freed: What its removal frees on the disk, after the removals before it: a file goes with its last link.
    """

    path: Path
    goes: bool
    why: str
    is_product: bool = True
    bytes_freed: int = 0


@dataclass(frozen=True)
class PrunePlan:
    """The fates of everything in a work folder; `busy` where a job is at work there, and so nothing is removed."""

    cluster: str
    fates: tuple[Disposal, ...]
    busy: bool = False

    @property
    def bytes_freed(self) -> int:
        """What all removals free."""
        return sum(one.bytes_freed for one in self.fates)


def prune(fleet: Fleet, clusters: Sequence[FleetCluster], *, apply: bool) -> list[PrunePlan]:
    """Plans what of the clusters' products goes, and removes it if `apply`.

    All plans are made before anything is removed, and once more under the locks of each work folder.

    Raises:
        ProductError: A manifest is damaged, so that it is not known what something was made from.
        ConfigError: A work folder is a file.
    """
    running, keep = running_hashes(fleet.clusters), fleet.settings.keep_exports

    def plan(cluster: FleetCluster) -> PrunePlan:
        return plan_of(cluster, running | running_hashes([cluster]), keep)

    plans = [plan(cluster) for cluster in clusters]
    if not apply:
        return plans
    done = []
    for cluster, planned in zip(clusters, plans, strict=True):
        if any(one.goes for one in planned.fates):
            with _alone_in(cluster.work) as is_alone:
                if is_alone:
                    planned = plan(cluster)
                    carry_out(planned, cluster.work.absolute())
                else:
                    planned = PrunePlan(cluster.name, (), busy=True)
        done.append(planned)
    return done


def running_hashes(clusters: Sequence[FleetCluster]) -> dict[str, str]:
    """Content hash of every running bundle -> whose it is."""
    found = {}
    for cluster in clusters:
        if (running := cluster.running) is not None:
            found[read_bundle(running).content_hash] = f"the running bundle of {cluster.name}"
    return found


def plan_of(cluster: FleetCluster, running: Mapping[str, str], keep_exports: int) -> PrunePlan:
    """What would become of everything in a cluster's work folder; changes nothing.

    Args:
        cluster: The cluster.
        running: See `running_hashes`.
        keep_exports: Exports to keep besides those of running bundles.

    Raises:
        ProductError: A manifest is damaged.
        ConfigError: The work folder is a file.
    """
    if not cluster.work.exists():
        return PrunePlan(cluster.name, ())
    if not cluster.work.is_dir():
        raise ConfigError("the work folder is a file", where=str(cluster.work), allowed="a folder")
    work = cluster.work.absolute()
    holdings = holdings_in(work)
    products = [one for one in holdings if one.what is What.PRODUCT]
    kept, begun_s = kept_products(products, running, work, keep_exports), _begun_s(work)
    return PrunePlan(cluster.name, tuple(_with_sizes([_fate(one, kept, work, begun_s) for one in holdings])))


def carry_out(plan: PrunePlan, work: Path) -> None:
    """Removes what goes, of an export the whole folder where all of it goes."""
    goes = {one.path for one in plan.fates if one.goes}
    stays = {one.path.parent for one in plan.fates if not one.goes}
    for path in sorted(goes):
        folder = path.parent
        is_whole = folder.parent == work / EXPORTS and folder not in stays
        if is_whole and folder.exists():
            discard(folder)
        elif not is_whole:
            discard(path)


def _fate(one: Holding, kept: Mapping[Path, str], work: Path, begun_s: float) -> Disposal:
    if one.what is What.OTHER:
        return Disposal(one.path, False, f"left alone: {one.remark}", is_product=False)
    if one.what is What.PRODUCT:
        is_export = one.path.parent.parent == work / EXPORTS
        gone = "an older export" if is_export else "what it was made from is no longer there"
        return Disposal(one.path, one.path not in kept, kept.get(one.path, gone))
    if holds_archive(one.path):
        return Disposal(one.path, False, "an archive is never removed")
    if one.what is What.UNITS:
        if one.path.parent == work:
            return Disposal(one.path, False, "schedtwin run goes on from these units")
        if newest_s(one.path) >= begun_s:
            return Disposal(one.path, False, "the next refresh goes on from these units")
        return Disposal(one.path, True, "units of a step that was finished otherwise")
    return _fate_of_remains(one)


def _fate_of_remains(one: Holding) -> Disposal:
    lock = try_lock(one.path)
    if lock is None:
        return Disposal(one.path, False, "it is being written")
    os.close(lock)
    match = REMAINS.fullmatch(one.name)
    if match is not None and match[2] == "replaced" and not one.path.with_name(match[1]).exists():
        return Disposal(one.path, False, f"the next writer or reader of {match[1]} brings it back")
    return Disposal(one.path, True, "remains of a writer that died")


def _begun_s(work: Path) -> float:
    """When the last refresh began that ended with a decision, in seconds since 1970; before all time without one."""
    outcome = read_outcome(work)
    if outcome is None or outcome.is_error:
        return float("-inf")
    return dt.datetime.fromisoformat(outcome.begun).timestamp()


def _with_sizes(fates: Sequence[Disposal]) -> Iterator[Disposal]:
    """The fates with the bytes that they free."""
    links: Counter[int] = Counter()
    for one in fates:
        freed = 0
        for inode, status in inodes_in(one.path) if one.goes else ():
            links[inode] += 1
            freed += status.st_blocks * BLOCK_BYTES if links[inode] == status.st_nlink else 0
        yield replace(one, bytes_freed=freed)


@contextmanager
def _alone_in(work: Path) -> Iterator[bool]:
    """Holds the locks of a work folder and of its fleet's records; False where another process has one of them."""
    folder, locks = work / FLEET, list[int | None]()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        locks += [try_lock(one) for one in (folder, work)]
        yield None not in locks
    finally:
        for lock in locks:
            if lock is not None:
                os.close(lock)
