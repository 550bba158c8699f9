"""The public interface of certificates: a twin compared with held-out days.

validate(twin, Archive("log")).table()
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.certify.certificate import Certificate
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, Verdict
from evaluation.certify.page import as_table
from evaluation.comparison.report.plots import chart_plot
from evaluation.comparison.tabulation import printed
from evaluation.problems.placement.certifying import certify
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.options import checked_days, checked_progress, refuse_type
from logs_schema.progress import Progress
from twin.placement.model import PlacementTwin


@dataclass(frozen=True)
class Certified:
    """A twin's certificate, and ways to look at it."""

    certificate: Certificate

    @property
    def passed(self) -> bool:
        """Whether the twin may be relied on."""
        return self.certificate.verdict is Verdict.PASS

    def table(self) -> str:
        """The lines: measure, value, noise floor, threshold and verdict."""
        return printed(as_table(self.certificate))

    def pictures(self) -> dict[str, str]:
        """Section and title of every chart -> SVG."""
        return {
            f"{section.name}: {chart.title}": chart_plot(chart)
            for section in self.certificate.sections
            for chart in section.charts
        }

    def line(self, name: str) -> Line:
        """The line of that name; ConfigError where there is none."""
        for line in self.certificate.lines:
            if line.name == name:
                return line
        raise ConfigError(
            f"the certificate has no line {name!r}",
            allowed=", ".join(one.name for one in self.certificate.lines),
        )


def validate(
    twin: PlacementTwin,
    archive: Archive,
    *,
    days: Sequence[dt.date] | None = None,
    config: CertifyConfig | None = None,
    progress: Progress | None = None,
) -> Certified:
    """Compares a twin with held-out days, as `schedtwin certify` does with a twin in a folder.

    Args:
        twin: Of `twin.fit`.
        archive: Archive of the log it was fitted on, with later days.
        days: The held-out days; the first ones after training if None.
        config: Sizes and thresholds.
        progress: Progress display.

    Returns:
        The certificate. It covers the answers; a population is certified on the command line.

    Raises:
        ConfigError: Arguments of other types, no later days, or too few requests in them.
    """
    refuse_type("twin", twin, PlacementTwin, "validate", 'give it the twin of twin.fit("placement", days)')
    refuse_type("archive", archive, Archive, "validate", 'open it first: Archive("log")')
    config = CertifyConfig() if config is None else config
    refuse_type("config", config, CertifyConfig, "validate", "leave it out, or give it a CertifyConfig")
    held_out = None if days is None else sorted(checked_days(days, "validate"))
    shown = checked_progress(progress, "validate")
    return Certified(certify(twin, archive, held_out, config, shown, twin_hash="not kept"))
