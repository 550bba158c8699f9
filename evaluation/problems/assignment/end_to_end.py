"""From an archive to a bundle by the kit's own steps, their products kept in a folder that goes afterwards."""

import tempfile
from pathlib import Path
from typing import Any

from evaluation.comparison.training_days import DaysConfig
from evaluation.problems.assignment.kit import ASSIGNMENT_KIT
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import ExportOptions, StepPlan
from logs_schema import Archive
from logs_schema.packs import content_hash_of
from logs_schema.product import read_manifest, writing
from logs_schema.progress import Progress
from logs_schema.records import to_plain
from offline_rl.assignment.config import AssignConfig


def train_assigner(
    archive: Path, out: Path, config: AssignConfig, seed: int, progress: Progress, *, replace: bool = False
) -> dict[str, Any]:
    """Trains a scheduler on rounds of a whole log and writes the bundle of what won.

    Args:
        archive: Of the log.
        out: Folder of the bundle.
        config: How.
        seed: Of everything drawn.
        progress: Where to show how far it is.
        replace: Whether an older bundle may be replaced.

    Returns:
        Plain JSON: `bundle`, `content_hash`, `edges` (fitted computing times), `notes` (what the log lacks), `tried`
        (the ladder), `chosen` (what the bundle holds), `words` for a person.

    Raises:
        ConfigError: The log lacks what is needed.
        ProductError: `out` is taken.
    """
    days = Archive(archive).days("requests")
    window = DaysConfig(first_day=days[0], last_day=days[-1]) if days else DaysConfig()
    everything = RunConfig(seed=seed, assign=config, days=window)
    kit = ASSIGNMENT_KIT
    with tempfile.TemporaryDirectory(prefix="schedtwin-") as folder:
        twin, policy = Path(folder) / "twin", Path(folder) / "policy"
        fitted = _make(kit.fit(everything), twin, {"archive": archive}, progress)
        trained = _make(kit.need(kit.train, "training")(everything), policy, {"twin": twin}, progress)
        kit.need(kit.export, "export")(out, policy, ExportOptions(replace=replace))
    kept = ("size", "num_rows", "edges", "notes")
    of_training = ("num_requests", "num_edges", "chosen", "tried", "search_s")
    return {
        "bundle": str(out),
        "content_hash": read_manifest(out).content_hash,
        **{name: fitted[name] for name in kept},
        **{name: trained[name] for name in of_training},
        "words": [*kit.fitted(fitted), *kit.trained(trained)],
    }


def _make(plan: StepPlan, out: Path, inputs: dict[str, Path], progress: Progress) -> dict[str, Any]:
    hashes = {name: content_hash_of(path) for name, path in inputs.items()}
    facts: dict[str, Any] = {}
    with writing(
        out, plan.kind, made_from=hashes, config=to_plain(plan.settings), seed=plan.seed, extra=facts
    ) as folder:
        facts.update(plan.build(folder, inputs, progress))
    return facts
