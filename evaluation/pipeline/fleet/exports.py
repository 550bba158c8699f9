"""Exported policies with everything that they were made from: WORK/exports/CONTENT_HASH, a folder for each.

A refresh writes its twin, its policy and its certificate over those of the day before. After an export they are linked
into a folder of their own, so that what a running bundle was made from stays to be looked at, and an earlier bundle to
go back to. The history is not among them: it only grows, and its content hash is in the manifests.

Only what the manifests name is linked. Where a refresh was killed after its export, what it left is kept before the
next one begins; where another command has written over it meanwhile, the bundle is kept without it.
"""

import shutil
from pathlib import Path

from evaluation.pipeline.refresh.job import FOLDER
from evaluation.pipeline.run import BUNDLE
from logs_schema.atomic_folders import into_place, locked_folder, sweep, sync, unlock
from logs_schema.disk import link
from logs_schema.product import MANIFEST, read_manifest
from offline_rl.bundle import read_bundle

EXPORTS = "exports"
KEPT = ("bundle", "candidate", "policy", "twin", "certificate", "running", "judged", "decision")
NUM_DIGITS = 16


def folder_of(work: Path, content_hash: str) -> Path:
    """Where an exported bundle is kept with what it was made from."""
    return work / EXPORTS / content_hash[:NUM_DIGITS]


def keep_export(work: Path) -> Path | None:
    """Keeps the bundle of the last export of a refresh, with the products that it was made from.

    Args:
        work: Work folder; its lock or that of its fleet is held.

    Returns:
        The folder; None if nothing was exported yet.

    Raises:
        ProductError: The bundle is damaged.
    """
    place = work / FOLDER
    if not (place / "bundle" / BUNDLE / MANIFEST).is_file():
        return None
    goal = folder_of(work.absolute(), read_bundle(place / "bundle" / BUNDLE).content_hash)
    sweep(goal)
    if goal.exists():
        return goal
    folder, lock = locked_folder(goal)
    try:
        for name in belonging(place):
            shutil.copytree(place / name, folder / name, copy_function=link)
        sync(folder)
        into_place(folder, goal)
    finally:
        unlock(folder, lock)
    return goal


def belonging(place: Path) -> list[str]:
    """The products in a refresh's folder that its bundle was made from, and its decision with what that looked at.

    Of an input only the very one that a manifest names belongs; a decision, where it is on the bundle's candidate.

    Raises:
        ProductError: A manifest is damaged.
    """
    found = {name: read_manifest(place / name) for name in KEPT if (place / name / MANIFEST).is_file()}
    belongs, left = list[str](), ["bundle"]
    candidate = found["bundle"].made_from.get("candidate")
    if candidate and "decision" in found and found["decision"].made_from.get("candidate") == candidate:
        left.append("decision")
    while left:
        belongs.append(left.pop())
        inputs = found[belongs[-1]].made_from
        is_there = (name for name in inputs if name in found and found[name].content_hash == inputs[name])
        left += [name for name in is_there if name not in (*belongs, *left)]
    return belongs
