"""The outcome of a refresh: whether it has ended, and which decision stands."""

import datetime as dt
import json
from pathlib import Path

from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.pipeline.refresh import appending
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.deciding import ExportDecision, Result
from logs_schema.errors import ProductError
from logs_schema.product import MANIFEST, read_manifest, verify
from offline_rl.bundle import read_bundle

DECISION = "decision"
DATA, TEXT = "decision.json", "decision.txt"
STALE = dt.timedelta(hours=20)
"""A refresh begun longer ago is abandoned for one with newer decisions."""


def load_decision(folder: Path) -> ExportDecision:
    """The decision in a product folder."""
    return ExportDecision.from_json(json.loads((folder / DATA).read_text(encoding="utf-8")))


def is_under_way(place: Path, now: dt.datetime) -> bool:
    """Whether a refresh in `place` was begun within the last `STALE` hours and has not ended."""
    history = read_manifest(place / "history", appending.KIND)
    return now - dt.datetime.fromisoformat(history.created) <= STALE and not has_ended(place)


def has_ended(place: Path) -> bool:
    """Whether the refresh of the history in `place` has decided and, after a decision to export, written the bundle."""
    if not (place / DECISION / MANIFEST).is_file():
        return False
    decided = read_manifest(place / DECISION)
    if decided.made_from["history"] != read_manifest(place / "history", appending.KIND).content_hash:
        return False
    if decided.extra["result"] != Result.EXPORTED.value:
        return True
    bundle = place / "bundle"
    is_out = (bundle / MANIFEST).is_file()
    return is_out and read_manifest(bundle).made_from["candidate"] == decided.made_from["candidate"]


def is_news(history: Path) -> bool:
    """Whether a history has information that no refresh has used."""
    return bool(read_manifest(history, appending.KIND).extra.get("is_news", True))


def forced_export(
    place: Path, running: Path | None, settings: RefreshConfig, certificate: Path | None
) -> ExportDecision | None:
    """The decision of a forced refresh of the same history that a refresh without `--force` leaves in place.

    A refresh that is repeated decides the same. Without `--force` it would train nothing, and say so of a policy that
    was exported, so that decision stands while nothing changed that it was based on.

    Args:
        place: Folder of the refresh.
        running: The running policy.
        settings: Of this refresh.
        certificate: Of this refresh; None where the history has nothing new, so that nothing is fitted.

    Returns:
        The decision; None where there is none, or where it was based on something else.
    """
    folder = place / DECISION
    if settings.force or running is None or not has_ended(place):
        return None
    decided = read_manifest(folder)
    is_forced_export = decided.extra["result"] == Result.EXPORTED.value and "force" in decided.config
    if not is_forced_export or decided.config["accept"] != settings.accept:
        return None
    if certificate is not None and decided.made_from[CERTIFICATE] != read_manifest(certificate).content_hash:
        return None
    try:
        verify(folder)
        verify(place / "candidate")
    except ProductError:  # damaged: it is decided again
        return None
    decision = load_decision(folder)
    is_same = read_bundle(running).content_hash in (decision.new, decision.running)
    return decision if is_same else None
