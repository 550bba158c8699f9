"""Reports: one self-contained HTML page, and the same as JSON."""

from evaluation.comparison.report.content import CapabilityRow, Chart, Curve, Fact, Rejected, Report
from evaluation.comparison.report.render import render, write_comparison, write_report

__all__ = [
    "CapabilityRow",
    "Chart",
    "Curve",
    "Fact",
    "Rejected",
    "Report",
    "render",
    "write_comparison",
    "write_report",
]
