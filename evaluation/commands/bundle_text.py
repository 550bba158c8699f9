"""Description of an exported policy: its decisions, inputs, provenance and limits.

Works in an installation that only runs policies: without rich the same rows are printed as plain text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from logs_schema.product import read_manifest
from offline_rl.bundle import ARRAYS, GOLDEN, read_arrays, read_golden, read_network
from offline_rl.contract import RULES, PolicyContract
from offline_rl.numpy_rules import MEANINGS, standing_in
from offline_rl.runner import queue_rules
from offline_rl.runner.cold_starts import ALWAYS_THERE
from offline_rl.runner.frame_plan import PlanNumbers
from offline_rl.runner.loading import Backend, load_network
from offline_rl.runner.orchestrator import FACTS, NUM_FRAMES, load_orchestrator

Section = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Title, column heads, rows."""
NOT_KNOWN = "not known"
_MEANINGS = {**MEANINGS, **queue_rules.MEANINGS}
NUM_NAMED = 12
"""Largest number of labels of a vocabulary that are listed; flags of one kind are one row."""


def bundle_facts(
    folder: Path, backend: Backend = "numpy", *, expect: str | None = None, trust: Path | None = None
) -> dict[str, Any]:
    """Facts of a bundle, after its checksums are verified and its golden decisions replayed.

    Args:
        folder: The bundle.
        backend: Backend that replays the golden decisions.
        expect: The required content hash; None accepts any.
        trust: Public key that the bundle must be signed with; None accepts any bundle.

    Returns:
        `contract`, `manifest` and `checked`, of a rule its `numbers`, and of an orchestrator beside it `orchestrator`,
        as plain JSON.

    Raises:
        ProductError: It is no bundle, or it was changed, or does not decide as the original.
    """
    policy = load_network(folder, backend, expect=expect, trust=trust)
    manifest = read_manifest(folder)
    golden = read_golden(folder, policy.contract)
    numbers: dict[str, Any] = {}
    if (rule := standing_in(policy.contract)) is not None:
        arrays = read_network(folder, policy.contract)
        own = {name: array.tolist() for name, array in arrays.items() if name.startswith(f"{rule}/")}
        numbers = {"numbers": {name.rpartition("/")[2]: value for name, value in own.items()}}
    if "numbers" in policy.contract.setting:
        numbers = {"numbers": policy.contract.setting["numbers"]}
    beside: dict[str, Any] = {}
    if (folder / FACTS).is_file():
        orchestrator = load_orchestrator(folder)
        plan = {"lead_s": orchestrator.tables.lead_s, **PlanNumbers(*orchestrator.tables.plan)._asdict()}
        beside = {
            "orchestrator": asdict(orchestrator.facts)
            | {"plan": {name: float(value) for name, value in plan.items()}, "num_golden": NUM_FRAMES}
        }
    return {
        "bundle": str(folder),
        "contract": asdict(policy.contract),
        "manifest": asdict(manifest),
        "checked": {
            "num_files": len(manifest.files),
            "num_golden": len(golden["action"]),
            "backend": backend,
            "num_parameters": num_parameters(policy.contract),
        },
        **numbers,
        **beside,
    }


def facts_of_setting(folder: Path, setting: Any, golden: str, backend: Backend) -> dict[str, Any]:
    """`setting`, `manifest` and `checked` of a verified bundle without a contract, as plain JSON; `golden` names one of
    the arrays of its golden decisions."""
    manifest = read_manifest(folder)
    numbers = read_arrays(folder / ARRAYS).values() if (folder / ARRAYS).is_file() else ()
    return {
        "bundle": str(folder),
        "setting": asdict(setting),
        "manifest": asdict(manifest),
        "checked": {
            "num_files": len(manifest.files),
            "num_golden": len(read_arrays(folder / GOLDEN)[golden]),
            "backend": backend,
            "num_parameters": sum(one.size for one in numbers),
        },
    }


def num_parameters(contract: PolicyContract) -> int:
    """Number of parameters of the network."""
    from math import prod

    from offline_rl.numpy_networks import wanted_shapes

    return sum(prod(shape) for shape in wanted_shapes(contract).values())


def bundle_text(facts: dict[str, Any]) -> str:
    """The facts of `bundle_facts` as tables."""
    sections = [_what(facts), _provenance(facts), _features(facts), _vocabularies(facts), _rules(facts)]
    if "numbers" in facts:
        sections.insert(1, _numbers(facts))
    if "orchestrator" in facts:
        sections.insert(1, _orchestrator(facts["orchestrator"]))
    return shown(sections)


def shown(sections: Sequence[Section]) -> str:
    """Sections as tables; without rich as plain text."""
    try:
        return _in_rich(sections)
    except ModuleNotFoundError:
        return _plain(sections)


def _orchestrator(facts: Mapping[str, Any]) -> Section:
    rows: list[tuple[str, ...]] = [
        ("decides", f"which replicas change, {facts['num_changes']} at most every {facts['frame_s']:g} s"),
        ("nodes", _some(facts["nodes"])),
        ("services", _some(facts["services"])),
        ("access points", _some(facts["points"])),
        ("plans", _plan(facts["plan"])),
        ("replayed", f"{facts['num_golden']} golden frames, by numpy: as the original"),
    ]
    return "the orchestrator beside it", ("", ""), rows


def _plan(plan: Mapping[str, float]) -> str:
    """The numbers of `offline_rl.rules.orchestration.planned.PlannedConfig`."""
    return (
        f"{plan['lead_s']:g} s ahead: busy / {plan['target']:.3g} + {plan['safety']:.3g} sqrt(busy) replicas, at most "
        f"{plan['most_gib']:.4g} GiB of all; a request that waits counts {plan['backlog']:.2g}, "
        f"the forecast as {plan['prior']:.2g} replicas times frames"
    )


def _what(facts: dict[str, Any]) -> Section:
    contract, checked = facts["contract"], facts["checked"]
    network = contract["network"]
    hidden = f", hidden {'-'.join(map(str, network['hidden']))}" if network["hidden"] else ", a rule"
    kind = f"{network['kind']}{hidden}, {checked['num_parameters']:,} numbers"
    bound = network["kind"] not in RULES and (network["kind"] == "mlp" or network["identity"])
    rows: list[tuple[str, ...]] = [
        ("decides", f"{contract['problem']}: {contract['action']}"),
        ("network", kind),
        (
            "choices",
            "only those it was trained on" if bound else "any number of them, also ones not in training",
        ),
        ("verified", f"{checked['num_files']} files by checksum"),
        ("replayed", f"{checked['num_golden']} golden decisions, by {checked['backend']}: as the original"),
        ("certificate", _certificate(contract)),
        ("alarm", _alarm(contract["alarm"])),
        *_kinds(contract["setting"].get("kinds_by")),
        *_run_labels(contract["setting"]),
        *_run_habits(contract["setting"].get("run_habits")),
        *_requested_runs(contract["setting"].get("requested_runs")),
        *_cold_starts(contract["setting"].get("cold_starts")),
        *_pool(contract["setting"]),
        ("licence", contract["licence"]),
    ]
    return f"bundle {facts['bundle']}", ("", ""), rows


def _kinds(by: str | None) -> list[tuple[str, ...]]:
    return [("services", f"told apart by their {by}: it decides on which nodes they run long")] if by else []


def _run_labels(setting: Mapping[str, Any]) -> list[tuple[str, ...]]:
    labels = setting.get("run_labels")
    if labels is None:
        return []
    tables = {"scenario": labels["of_scenario"], "queue": labels["of_queue"]}
    names = [
        "service",
        *(name for name, table in tables.items() if any(max(row) > min(row) for row in table)),
    ]
    usual = f"{', '.join(names[:-1])} and {names[-1]}"
    return [("run times", f"as usual of {usual}, where none is requested")]


def _run_habits(habits: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    if not habits:
        return []
    return [("habits", f"of {len(habits)} agents: what each usually takes of what it requests")]


def _requested_runs(requested: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    if requested is None:
        return []
    share = 2.0 ** requested["exponent"]
    return [("requests", f"who asks for twice as long is expected to take {share:.2f} times as long")]


def _cold_starts(cold: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    if cold is None:
        return []
    longest_s = max(cold["startup_s"]) * max(cold.get("slowness") or [1.0])
    most, memory = f"{longest_s:.4g} s", f"{cold['memory_s']:.4g} s"
    if room := cold.get("room"):
        since = f"{min(room):.3g} to {max(room):.3g} other services have run"
        always = sum(one < ALWAYS_THERE for row in cold.get("part") or () for one in row)
        but = f"; hardly any for {always} pairs of service and node" if always else ""
        return [("start-ups", f"up to {most}, where {since} on a node since the service did{but}")]
    return [("start-ups", f"up to {most}, where a service has not run on a node for some {memory}")]


def _pool(setting: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The machine of a queue's bundle: jobs that ask for more never start there."""
    if "processors" not in setting:
        return []
    filled = "with EASY backfilling" if setting["easy"] else "without backfilling"
    return [("pool", f"{setting['processors']:,.9g} processors, {filled}")]


def _alarm(alarm: Mapping[str, Any] | None) -> str:
    if alarm is None:
        return "none: the bundle has no statistics of the training days"
    about = "" if alarm["run_limit"] is None else ", or runs take twice or half as long on a node"
    share = f"{alarm['unlike_share']:.2%} on training days"
    return f"raised when more requests than usual are out of distribution ({share}){about}"


def _certificate(contract: Mapping[str, Any]) -> str:
    words = contract["trained_on"].get("certification", "no certificate is recorded")
    return f"{contract['certificate']}: {words}" if contract["certificate"] else f"not passed: {words}"


def _numbers(facts: dict[str, Any]) -> Section:
    unit_s = facts["contract"]["setting"].get("time_unit_s")
    rows: list[tuple[str, ...]] = []
    for name, value in facts["numbers"].items():
        values = value if isinstance(value, list) else [value]
        rows.append((name, ", ".join(f"{one:.4g}" for one in values), _MEANINGS[name]))
    rows += _of_queue(facts["contract"]["setting"])
    by = "parameters of the rule"
    if facts["contract"]["network"]["corrects"] is not None:
        by = f"the rule that it corrects, {facts['contract']['network']['corrects']}"
    if facts["contract"]["network"]["stand_in"] is not None:
        by = f"the fallback rule where it has no answer, {facts['contract']['network']['stand_in']}"
    title = by + ("" if unit_s is None else f" (a time unit is {unit_s:.4g} s)")
    return title, ("number", "value", "meaning"), rows


def _of_queue(setting: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Further rows of an order under predicted run times."""
    if "predicts" not in setting:
        return []
    known = "user's last two finished jobs, at most the requested time" if setting["predicts"] else "requests"
    ends = "predictions, corrected when they are exceeded" if setting["reserves"] else "requests"
    return [
        ("run times", known, "run times used for the order and for backfilling"),
        ("reservations", ends, "expected ends of running jobs"),
        ("backfilling", setting["backfill"] if setting["easy"] else "none", "order in which gaps are filled"),
    ]


def _provenance(facts: dict[str, Any]) -> Section:
    manifest = facts["manifest"]
    rows: list[tuple[str, ...]] = [
        (name.replace("_", " "), _shown(value)) for name, value in facts["contract"]["trained_on"].items()
    ]
    rows += [(f"made from {name}", value) for name, value in manifest["made_from"].items()]
    chosen = (("policy", "policy"), ("chosen from the ladder", "ladder"))
    rows += [(words, _shown(manifest["extra"][name])) for words, name in chosen if name in manifest["extra"]]
    rows += [("seed", _shown(manifest["seed"])), ("created", manifest["created"])]
    rows += [
        ("content hash", manifest["content_hash"]),
        ("format", f"version {facts['contract']['schema_version']}"),
    ]
    return "provenance", ("", ""), rows


def _features(facts: dict[str, Any]) -> Section:
    rows: list[tuple[str, ...]] = []
    for of, name in (("choice", "choice_features"), ("context", "context_features")):
        flags: dict[str, int] = {}
        for one in facts["contract"][name]:
            kind, is_flag, _ = one["name"].partition("=")
            if is_flag:
                flags[kind] = flags.get(kind, 0) + 1
                continue
            rows.append((of, one["name"], one["unit"], _range(one["low"], one["high"]), one["description"]))
        rows += [(of, f"{kind}=...", "flag", "", f"one of {count} labels") for kind, count in flags.items()]
    columns = ("of", "feature", "unit", "range", "meaning")
    return "features (ranges: usual in the training days, wider by half at either end)", columns, rows


def _vocabularies(facts: dict[str, Any]) -> Section:
    contract = facts["contract"]
    rows = [("choices", str(len(contract["choices"])), _some(contract["choices"]))]
    for name in ("sites", "services", "scenarios", "queues"):
        labels = contract["setting"].get(name)
        if labels:
            rows.append((name, str(len(labels)), _some(labels)))
    if agents := list(contract["setting"].get("acceptance_of_agent", ())):
        rows.append(("agents, by their answers", str(len(agents)), _some(agents)))
    return "vocabularies", ("kind", "number", "names"), list(rows)


def _rules(facts: dict[str, Any]) -> Section:
    contract = facts["contract"]
    rows = [("legality", contract["legality"]), ("normalisation", contract["normalisation"])]
    rows += [(f"if unknown: {kind}", what) for kind, what in contract["unknown"].items()]
    return "rules of use", ("", ""), list(rows)


def _some(labels: Sequence[str]) -> str:
    more = len(labels) - NUM_NAMED
    return ", ".join(labels[:NUM_NAMED]) + (f" and {more} more" if more > 0 else "")


def _range(low: float | None, high: float | None) -> str:
    return NOT_KNOWN if low is None or high is None else f"{low:.3g} to {high:.3g}"


def _shown(value: Any) -> str:
    return NOT_KNOWN if value is None else str(value)


def _in_rich(sections: Sequence[Section]) -> str:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from evaluation.commands.output import as_text

    tables = []
    for title, heads, rows in sections:
        shown = Table(title=Text(title), title_justify="left", show_header=any(heads), expand=False)
        for head in heads:
            shown.add_column(Text(head), overflow="fold")
        for row in rows:
            shown.add_row(*map(Text, row))
        tables.append(shown)
    return as_text(Group(*tables))


def _plain(sections: Sequence[Section]) -> str:
    lines: list[str] = []
    for title, heads, rows in sections:
        every = [heads, *rows] if any(heads) else rows
        widths = [max(len(row[column]) for row in every) for column in range(len(heads))]
        lines += ["", title]
        for row in every:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines[1:])
