"""Checks that products belong together, and the facts about products that reports show."""

import datetime as dt
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evaluation.comparison.comparison import Comparison
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import Manifest, read_manifest
from logs_schema.records import to_plain
from twin.problems import problem_of

NO_CERTIFICATE = "trained in a twin without a certificate"
ENCODING = "encoding.json"


def training_in_words(policy_path: Path) -> str:
    """Sentence of the report about the certificate of the twin that the policies were trained in."""
    return f"The policies were {trained_in(read_manifest(policy_path, 'policy'))['certification']}."


def in_certified_twin(policy_path: Path) -> bool:
    """Whether the twin that a policy was trained in had passed its certificate."""
    return read_manifest(policy_path, "policy").extra.get("certificate") is not None


def remarks_on_training(policy_path: Path | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Limits and warnings of a report on the twin of its trained policies, which is a warning where that twin has not
    passed its certificate; neither where nothing was trained."""
    limits = () if policy_path is None else (training_in_words(policy_path),)
    return limits, () if policy_path is None or in_certified_twin(policy_path) else limits


def trained_in(manifest: Manifest) -> dict[str, Any]:
    """Content hash of the twin that a policy was trained in, and the state of the twin's certificate in words."""
    certification = str(manifest.extra.get("certification", NO_CERTIFICATE))
    return {"twin": manifest.made_from.get("twin"), "certification": certification}


def train_days_in(twin_path: Path) -> list[dt.date]:
    """The days that a twin was fitted on."""
    return [dt.date.fromisoformat(day) for day in read_manifest(twin_path, "twin").extra["train_days"]]


def holds_training(archive: Archive, train_days: Iterable[dt.date]) -> bool:
    """Whether an archive has requests on any of a twin's training days."""
    return not set(train_days).isdisjoint(archive.days("requests"))


def refuse_other_days(archive: Archive, twin_path: Path) -> None:
    """Raises ConfigError if the archive's requests on the twin's training days differ from those of the fit."""
    facts, train_days = read_manifest(twin_path, "twin").extra, train_days_in(twin_path)
    is_held = holds_training(archive, train_days)
    if is_held and archive.days_hash("requests", train_days) != facts.get("train_days_hash"):
        raise ConfigError(
            "the twin was fitted on another archive",
            where=f"{twin_path}: requests of the training days {train_days[0]} to {train_days[-1]} differ",
            allowed="the archive of the fit, as it was or with days added",
            advice="fit a twin on this archive",
        )


def refuse_other_twin(policy_path: Path | None, twin_path: Path) -> None:
    """Raises unless a policy, where there is one, was trained in the given twin.

    Raises:
        ConfigError: The policy was trained in another twin.
        ProductError: One of the products is of another kind.
    """
    if policy_path is None:
        return
    own = read_manifest(policy_path, "policy").made_from.get("twin")
    problems = problem_of(policy_path), problem_of(twin_path)
    encodings = [path / ENCODING for path in (policy_path, twin_path)]
    if problems[0] != problems[1]:
        what = f"the policy is of the problem '{problems[0]}', the twin of '{problems[1]}'"
    elif all(path.is_file() for path in encodings) and len({path.read_text() for path in encodings}) > 1:
        what = "the policy was trained for other nodes, features or days than the twin's"
    elif own != read_manifest(twin_path, "twin").content_hash:
        what = "the policy was trained in another twin"
    else:
        return
    raise ConfigError(
        what,
        where=f"policy {policy_path}, twin {twin_path}",
        allowed="a policy and the very twin it was trained in",
        advice=f"schedtwin train {twin_path} --out POLICY",
    )


def archive_facts(archive: Archive) -> dict[str, Any]:
    """Facts of an archive for reports."""
    days = archive.days("requests")
    return {
        "content_hash": archive.content_hash,
        "first_day": days[0].isoformat() if days else None,
        "last_day": days[-1].isoformat() if days else None,
        "num_days": len(days),
        "num_requests": archive.num_rows("requests"),
        "facts": to_plain(dict(archive.facts)),
    }


def load_comparison(folder: Path) -> Comparison:
    """The comparison in a product folder."""
    return Comparison.from_json(json.loads((folder / "comparison.json").read_text()))
