"""Reports: one self-contained HTML page, and the same as JSON."""

from evaluation.report.content import Capability, Chart, Curve, Fact, Rejected, Report
from evaluation.report.render import render, write_report

__all__ = ["Capability", "Chart", "Curve", "Fact", "Rejected", "Report", "render", "write_report"]
