"""Hands a trained autoscaler over: which of a training's policies, and what its bundle says of the application."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.comparison.products import trained_in
from evaluation.problems.kit import ExportOptions
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from offline_rl.autoscaling.export import export_scaling
from offline_rl.recipes.scaling_training import policy_of, read_policies
from offline_rl.runner.scaling import (
    STUDENTS,
    STUDENTS_DISCRETE,
    TEACHER,
    read_setting,
)

FORMS = {
    "teacher": TEACHER,
    "teacher_lookahead": TEACHER,
    "students": STUDENTS,
    "students_lookahead": STUDENTS,
    "students_discrete": STUDENTS_DISCRETE,
}
"""Trained policy -> its form in a bundle."""


def export_policy(out: Path, policy: Path, options: ExportOptions) -> dict[str, Any]:
    """Writes one of a training's policies as a bundle: the one asked for, else the best in the twin that is learned.

    Raises:
        ConfigError: No such policy, a rule is asked for, or nothing was learned.
    """
    manifest = read_manifest(policy, "policy")
    tried: dict[str, dict[str, float]] = manifest.extra["tried"]
    trained = {name: found for name, found in tried.items() if name.rsplit("-", 1)[0] in FORMS}
    if options.policy is not None:
        trained = {name: one for name, one in trained.items() if name.rsplit("-", 1)[0] == options.policy}
    if options.seed is not None:
        trained = {name: one for name, one in trained.items() if name.endswith(f"-{options.seed}")}
    if options.rule is not None or options.comparison is not None or not trained:
        raise ConfigError(
            "there is no such autoscaler to export",
            where=f"{policy}: --policy {options.policy}, --seed {options.seed}",
            allowed=f"--policy {', '.join(FORMS)}; --seed {', '.join(map(str, manifest.extra['seeds']))}; no rule",
            advice="calibrated rules stand in every bundle as its fallback",
        )  # fmt: skip
    chosen = max(trained, key=lambda name: trained[name]["reward"])
    name, text = chosen.rsplit("-", 1)
    params = read_policies(policy, int(text))[name]
    setting = replace(read_setting(policy), form=FORMS[name])
    facts = {
        "chosen": chosen, "in_twin": tried[chosen], "recommended": manifest.extra["recommended"],
        "licence": options.licence, "seed": int(text), "train_days": manifest.extra.get("train_days"),
        "certificate": manifest.extra.get("certificate"), **trained_in(manifest),
    }  # fmt: skip
    export_scaling(
        params, policy_of(name, params), out, setting, seed=int(text),
        made_from={"policy": manifest.content_hash}, extra=facts, replace=options.replace,
    )  # fmt: skip
    return facts
