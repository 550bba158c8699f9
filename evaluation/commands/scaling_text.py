"""An exported autoscaler for a person: what it grants, within which bounds, and where its numbers come from."""

from pathlib import Path
from typing import Any

from evaluation.commands.bundle_text import NOT_KNOWN, Section, facts_of_setting, shown
from logs_schema.errors import counted, first
from offline_rl.runner.scaling import POD_RULE, load_scaling


def scaling_facts(folder: Path, *, expect: str | None = None, trust: Path | None = None) -> dict[str, Any]:
    """What an autoscaler's bundle says of itself, after it is verified and replayed; arguments and errors as of
    `bundle_facts`."""
    policy = load_scaling(folder, expect=expect, trust=trust)
    return facts_of_setting(folder, policy.setting, "places", "numpy")


def scaling_text(facts: dict[str, Any]) -> str:
    """The facts of `scaling_facts` as tables."""
    return shown([_what(facts), _deployments(facts), _provenance(facts)])


def _what(facts: dict[str, Any]) -> Section:
    setting, checked, extra = facts["setting"], facts["checked"], facts["manifest"]["extra"]
    certification = extra.get("certification", "nothing is known of one")
    rows: list[tuple[str, ...]] = [
        (
            "decides",
            f"cores, memory and replicas of {counted(len(setting['deployments']), 'deployment')}, every "
            f"{setting['interval_s']:g} s",
        ),
        ("policy", _form(setting, checked)),
        ("objective", f"{setting['slo_share']:.0%} of the requests within {setting['slo_s']:.3g} s"),
        ("verified", f"{checked['num_files']} files by checksum"),
        ("replayed", f"{checked['num_golden']} golden decisions, by numpy: as the original"),
        ("certificate", extra.get("certificate") or f"not passed: {certification}"),
        ("licence", extra.get("licence") or "not stated by whoever exported it"),
    ]
    return f"bundle {facts['bundle']}", ("", ""), rows


def _form(setting: dict[str, Any], checked: dict[str, Any]) -> str:
    if setting["form"] == POD_RULE:
        return (
            f"the rule of Kubernetes' pod autoscaler, calibrated: tolerance {setting['tolerance']:g}, "
            f"removals after {setting['down_window_s']:g} s"
        )
    return f"{setting['form']}, a network of {checked['num_parameters']:,} numbers"


def _deployments(facts: dict[str, Any]) -> Section:
    rows: list[tuple[str, ...]] = [
        (
            one["name"],
            f"{one['min_replicas']} to {one['max_replicas']}",
            f"{one['min_cpu_cores']:.3g} to {one['max_cpu_cores']:.3g}",
            _memory(one["min_memory_gib"], one["max_memory_gib"]),
            f"{one['most_rate_per_s']:.4g}",
            f"{one['target']:.0%} of {_cores(one['rule_cpu_cores'])}",
        )
        for one in facts["setting"]["deployments"]
    ]
    heads = ("deployment", "replicas", "cores each", "GiB each", "most calls a second", "rule's target")
    return "within which bounds (calls: of the training days)", heads, rows


def _memory(least: float, most: float) -> str:
    return f"{least:.3g} to {most:.3g}" if least < most else "as granted"


def _cores(size: float) -> str:
    return f"{size:.3g} cores" if size else "its cores"


def _provenance(facts: dict[str, Any]) -> Section:
    manifest, extra = facts["manifest"], facts["manifest"]["extra"]
    rows: list[tuple[str, ...]] = [
        (f"made from {name}", value) for name, value in manifest["made_from"].items()
    ]
    rows += [
        (words, str(extra.get(name) or NOT_KNOWN))
        for words, name in (("policy", "chosen"), ("recommended", "recommended"))
    ]
    rows.append(("days", first(extra.get("train_days") or [NOT_KNOWN], num_shown=7)))
    if (low := extra.get("gain_low")) is not None and (best := extra.get("best_learned")):
        over = "over the calibrated pod autoscaler"
        rows.append(
            ("gain in the twin", f"{best} {over}: {extra['gain']:.2f} cores, {low:.2f} at least (95 %)")
        )
    if over := extra.get("over_log"):
        told = f"{over['gain']:.2f} cores, {over['least']:.2f} at least (95 %), in the twin under the load of the log"
        rows.append(("gain over the log", told))
    rows += [("seed", str(manifest["seed"])), ("created", manifest["created"])]
    return "where it comes from", ("", ""), [*rows, ("content hash", manifest["content_hash"])]
