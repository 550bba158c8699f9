"""Hands a trained autoscaler over: which of a training's policies, and what its bundle says of the application."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.comparison.products import trained_in
from evaluation.problems.kit import ExportOptions
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from offline_rl.autoscaling.export import export_scaling, network_places
from offline_rl.recipes.scaling_training import POD_RULES, policy_of, read_policies, with_rule
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, pod_places
from offline_rl.runner.scaling import (
    POD_RULE,
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
    """Writes one of a training's policies as a bundle: the one asked for, else what training recommends.

    Raises:
        ConfigError: No such policy, or another rule than a calibrated pod autoscaler is asked for.
    """
    manifest = read_manifest(policy, "policy")
    tried: dict[str, dict[str, float]] = manifest.extra["tried"]
    chosen = _chosen(tried, manifest.extra.get("recommended", ""), options)
    if chosen is None:
        raise ConfigError(
            "there is no such autoscaler to export",
            where=f"{policy}: --policy {options.policy}, --seed {options.seed}",
            allowed=f"--policy {', '.join((*FORMS, *POD_RULES))}; "
            f"--seed {', '.join(map(str, manifest.extra['seeds']))}",
            advice="other rules are for comparisons alone",
        )
    name, _, text = (chosen, "", "") if chosen in POD_RULES else chosen.rpartition("-")
    seed, setting = int(text or 0), read_setting(policy)
    setting = replace(setting, form=FORMS.get(name, POD_RULE))
    if name in POD_RULES:
        setting = with_rule(setting, PodAutoscalerConfig(**manifest.extra["chosen"][name]))
    params = read_policies(policy, seed)[name] if text else {}
    places_of = network_places(policy_of(name, params), setting) if text else pod_places(setting)
    facts = {
        "chosen": chosen, "in_twin": tried[chosen], "licence": options.licence, "seed": seed,
        "train_days": manifest.extra.get("train_days"), "certificate": manifest.extra.get("certificate"),
        **{word: manifest.extra.get(word) for word in ("recommended", "rule", "best_learned", "gain", "gain_low")},
        "over_log": manifest.extra.get("over_log", {}).get(chosen), **trained_in(manifest),
    }  # fmt: skip
    export_scaling(
        params,
        places_of,
        out,
        setting,
        seed=seed,
        made_from={"policy": manifest.content_hash},
        extra=facts,
        replace=options.replace,
    )
    return facts


def _chosen(tried: dict[str, dict[str, float]], recommended: str, options: ExportOptions) -> str | None:
    """The name in `tried` of what is to be exported; None where there is no such thing."""
    if options.rule is not None or options.comparison is not None:
        return None
    by_default = options.policy is None and options.seed is None
    if by_default and (recommended in POD_RULES or recommended.rsplit("-", 1)[0] in FORMS):
        return recommended
    if options.policy in POD_RULES:
        return options.policy if options.policy in tried and options.seed is None else None
    wanted = {
        name: found["reward"]
        for name, found in tried.items()
        if name.rsplit("-", 1)[0] in FORMS
        and options.policy in (None, name.rsplit("-", 1)[0])
        and (options.seed is None or name.endswith(f"-{options.seed}"))
    }
    return max(wanted, key=lambda name: wanted[name]) if wanted else None
