"""Which products of a work folder are kept, and why: the rule of `pruning`, which changes nothing itself."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evaluation.pipeline.fleet.exports import EXPORTS
from evaluation.pipeline.fleet.holdings import Holding, holds_archive
from evaluation.pipeline.refresh.job import FOLDER as REFRESH
from evaluation.pipeline.refresh.standing import has_ended
from evaluation.pipeline.run import BUNDLE
from logs_schema.packs import as_written
from logs_schema.product import MANIFEST, read_manifest
from offline_rl.bundle import RUN_BY

STEPS = (
    "bundle",
    "candidate",
    "certificate",
    "comparison",
    "decision",
    "judged",
    "policy",
    "running",
    "twin",
)
"""Products of `schedtwin run` and `schedtwin refresh` that may be removed; others are kept, whoever made them."""
HANDED_OVER = ("bundle", "comparison")
"""Products that hold the bundle of the last export."""


def kept_products(
    products: Sequence[Holding], running: Mapping[str, str], work: Path, keep_exports: int
) -> dict[Path, str]:
    """Path of every product that is kept -> why.

    Args:
        products: The products of a work folder.
        running: Content hashes of running bundles -> whose.
        work: The work folder, absolute.
        keep_exports: Exports to keep besides those of running bundles, the newest first.

    Raises:
        ProductError: A manifest is damaged.
    """
    kept: dict[Path, str] = {}
    for one in products:
        if one.path.parent.parent != work / EXPORTS and one.name not in STEPS:
            kept[one.path] = "not a step of a job"
        if holds_archive(one.path):
            kept[one.path] = "an archive is never removed"
    for path, why in _roots(products, running, work).items():
        for found, made_into in _with_ancestors(path, products):
            kept.setdefault(found, why if made_into is None else f"{made_into} was made from it, for {why}")
        if path.parent.parent == work / EXPORTS:
            kept = {one.path: f"beside {why}" for one in products if one.path.parent == path.parent} | kept
    for folder in _newest_exports(products, work, keep_exports):
        number = "the newest export" if keep_exports == 1 else f"one of the {keep_exports} newest exports"
        kept = {one.path: number for one in products if one.path.parent == folder} | kept
    place = work / REFRESH
    if any(one.path.parent == place for one in products) and not _has_ended(place):
        unfinished = "a refresh is not finished"
        kept = {one.path: unfinished for one in products if one.path.parent == place} | kept
    current = {
        path: "the next job goes on from it"
        for path in _current(products)
        if path.parent.parent != work / EXPORTS
    }
    return current | kept


def _roots(products: Sequence[Holding], running: Mapping[str, str], work: Path) -> dict[Path, str]:
    """Products with a running bundle, or with the last one that was exported -> why."""
    found = {}
    for one in products:
        hash_ = _bundle_hash(one)
        if hash_ in running:
            found[one.path] = running[hash_]
        elif hash_ and one.name in HANDED_OVER and one.path.parent.parent != work / EXPORTS:
            found[one.path] = "the last export"
    return found


def _bundle_hash(one: Holding) -> str:
    """Content hash of the bundle that a product is or holds; empty if there is none."""
    if one.manifest is None:
        return ""
    if one.manifest.kind in RUN_BY:
        return one.manifest.content_hash
    inside = one.path / BUNDLE
    return read_manifest(inside).content_hash if (inside / MANIFEST).is_file() else ""


def _with_ancestors(start: Path, products: Sequence[Holding]) -> Iterator[tuple[Path, str | None]]:
    """(product, name of what was made from it): the start, and everything that it was made from, by content hash."""
    by_hash: dict[str, list[Holding]] = {}
    for one in products:
        if one.manifest is not None:
            by_hash.setdefault(as_written(one.manifest).content_hash, []).append(one)
    left: list[tuple[Holding, str | None]] = [(one, None) for one in products if one.path == start]
    seen: set[Path] = set()
    while left:
        one, made_into = left.pop(0)
        if one.path in seen:
            continue
        seen.add(one.path)
        yield one.path, made_into
        inputs = one.manifest.made_from.values() if one.manifest is not None else ()
        left += [(source, one.name) for found in inputs for source in by_hash.get(found, ())]


def _newest_exports(products: Sequence[Holding], work: Path, number: int) -> list[Path]:
    """Folders of the newest exports, by when their bundle was written; those of one second by the clock of files."""
    created = {
        one.path.parent: (one.manifest.created, (one.path / MANIFEST).stat().st_mtime_ns)
        for one in products
        if one.manifest is not None and one.name == "bundle" and one.path.parent.parent == work / EXPORTS
    }
    return sorted(created, key=lambda path: (created[path], path), reverse=True)[:number]


def _has_ended(place: Path) -> bool:
    """Whether the refresh of the history in a folder has ended; one without a history has not begun."""
    return not (place / "history" / MANIFEST).is_file() or has_ended(place)


def _current(products: Sequence[Holding]) -> set[Path]:
    """Products whose inputs lie beside them as they were, and are so themselves: a job would reuse them."""
    by_path = {one.path: one for one in products}
    found: dict[Path, bool] = {}

    def is_current(one: Holding) -> bool:
        if one.path not in found:
            found[one.path] = False  # of a circle nothing is current
            made_from = one.manifest.made_from if one.manifest is not None else {}
            found[one.path] = all(
                is_beside(by_path.get(one.path.with_name(name)), hash_)
                for name, hash_ in made_from.items()
                if name != "code" and not name.startswith("file:")
            )
        return found[one.path]

    def is_beside(source: Holding | None, hash_: str) -> bool:
        if source is None or source.manifest is None:
            return False
        return as_written(source.manifest).content_hash == hash_ and is_current(source)

    return {one.path for one in products if is_current(one)}
