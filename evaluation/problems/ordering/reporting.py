"""The report of a comparison of orders: the comparison, the training and the log."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.report import Fact, Report, write_comparison
from evaluation.problems.ordering.comparing import TWIN
from evaluation.problems.placement.reporting import capabilities_of, quarantine_of
from logs_schema.archive import Archive

LIMITS = (
    "Replay is of an idealised machine: causes of waits in the log other than a lack of processors (hours of "
    "operation, partitions, failures) are not in it. The gap to the logged waits is in the notes.",
    "The judge called training twin is a model of the users of the training days; the table of the judges compares it "
    "with replay, which is the truth of this problem.",
)
LEARNED_WORDS = "trained on the days before each anchor; the notes under the limits give the quality"


def write_order_report(
    out: Path,
    archive: Archive,
    comparison: Comparison,
    title: str,
    configuration: Mapping[str, Any],
    hashes: Mapping[str, str],
    limits: Sequence[str],
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Writes `comparison.json`, `comparison.svg`, `report.html` and `report.json`; `limits` stand before those of every
    such report, and `warnings` before everything."""
    report = Report(
        title=title,
        comparison=comparison,
        fit=_learned_facts(comparison),
        capabilities=capabilities_of(archive),
        quarantine=quarantine_of(archive),
        configuration=dict(configuration),
        hashes=dict(hashes),
        limits=(*limits, *LIMITS),
        warnings=tuple(warnings),
    )
    return write_comparison(report, out)


def _learned_facts(comparison: Comparison) -> tuple[Fact, ...]:
    """What was fitted and trained for a comparison, as far as it has been judged."""
    learned = [one.name for one in comparison.policies if one.kind in ("imitation", "trained")]
    twins = [one.description for one in comparison.judges if one.name == TWIN]
    return (
        *(Fact("twins", "one for each end of training", "", words) for words in twins),
        *(Fact("learned orders", ", ".join(names), "", LEARNED_WORDS) for names in [learned] if names),
    )
