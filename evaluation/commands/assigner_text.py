"""An exported scheduler of many requests at once for a person: its training, and where its numbers come from."""

from pathlib import Path
from typing import Any

from evaluation.commands.bundle_text import NOT_KNOWN, Section, facts_of_setting, shown
from logs_schema.errors import first
from offline_rl.assignment.assigner import ORDER, load_assigner
from offline_rl.runner.loading import Backend


def assigner_facts(
    folder: Path, backend: Backend = "numpy", *, expect: str | None = None, trust: Path | None = None
) -> dict[str, Any]:
    """Facts of a bundle that assigns, after its checksums are verified and its golden rounds replayed; arguments and
    errors as of `bundle_facts`."""
    assigner = load_assigner(folder, backend=backend, expect=expect, trust=trust)
    return facts_of_setting(folder, assigner.setting, "edge", backend)


def assigner_text(facts: dict[str, Any]) -> str:
    """The facts of `assigner_facts` as tables."""
    return shown([_what(facts), _provenance(facts)])


def _what(facts: dict[str, Any]) -> Section:
    setting, checked = facts["setting"], facts["checked"]
    rows: list[tuple[str, ...]] = [
        ("decides", "an edge for every request of a round; never worse than insertion"),
        (
            "network",
            f"{setting['network']}, {checked['num_parameters']:,} numbers"
            if checked["num_parameters"]
            else "none: insertion and local search, which no trained network beat in equal time",
        ),
        (
            "trained on",
            f"rounds of {setting['num_requests']:,} requests and {setting['num_edges']:,} edges; from a {ORDER:g}th "
            f"to {ORDER:g} times of each it is not outside its training",
        ),
        ("edges", _known(setting["edges"])),
        ("decoding", f"{setting['num_samples']} samples, edges of at least {setting['least_share']:.0%}"),
        ("verified", f"{checked['num_files']} files by checksum"),
        ("replayed", f"{checked['num_golden']} golden rounds, by {checked['backend']}: as the original"),
    ]
    return f"bundle {facts['bundle']}", ("", ""), rows


def _known(edges: dict[str, Any]) -> str:
    if not edges["edges"]:
        return "every question has to say how they compute"
    ways = "and the ways between them" if edges["latency_s"] else "no ways"
    return f"{first(sorted(edges['edges']))}: computing times of the log {ways}, where a question leaves them out"


def _provenance(facts: dict[str, Any]) -> Section:
    manifest, trained_on = facts["manifest"], facts["setting"]["trained_on"]
    rows: list[tuple[str, ...]] = [
        (f"made from {name}", value) for name, value in manifest["made_from"].items()
    ]
    rows += [
        ("size of a request", str(trained_on.get("size") or NOT_KNOWN)),
        ("requests of the log", f"{trained_on['num_rows']:,}" if "num_rows" in trained_on else NOT_KNOWN),
        *[("the log lacks", note) for note in trained_on.get("notes", ())],
        ("seed", str(manifest["seed"])),
        ("created", manifest["created"]),
    ]
    return "where it comes from", ("", ""), [*rows, ("content hash", manifest["content_hash"])]
