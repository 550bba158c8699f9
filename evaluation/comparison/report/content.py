"""The contents of a report: the comparison, and plain data from fit, training and checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluation.comparison.comparison import Comparison

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Fact:
    """One measured number about the twin or the training: name, formatted value, unit, meaning."""

    name: str
    value: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Curve:
    """One line of a chart: `x` and `y` of equal length; NaN breaks the line."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """A chart of curves.

    Attributes:
        title: Title of the chart.
        x_label, y_label: Axis labels with units.
        curves: At least one.
        note: Explanation below the chart.
        diagonal: Draw the line y = x, on which a calibrated model lies.
        logarithmic: Whether the x axis is logarithmic above 1 and linear below.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    note: str = ""
    diagonal: bool = False
    logarithmic: bool = False


@dataclass(frozen=True)
class CapabilityRow:
    """A row of the archive's capability matrix; `supported` is "yes", "partly" or "no", `share` in [0, 1]."""

    name: str
    supported: str
    share: float | None
    reason: str


@dataclass(frozen=True)
class Rejected:
    """Number of rows of a table that a rule put into quarantine."""

    table: str
    rule: str
    num_rows: int


@dataclass(frozen=True)
class Report:
    """The contents of the page; round-trips through JSON.

    Attributes:
        title: Title of the page.
        comparison: The comparison.
        fit: Facts about the twin's fit, such as the held-out likelihood.
        calibration: Charts of the twin's calibration.
        learning: Learning curves.
        capabilities: What the archive supports.
        quarantine: Rows that were not imported into the archive; None where this was not checked.
        configuration: Sections of settings.
        hashes: Content hash of every product.
        seeds: Seed of every step.
        limits: Limits of the numbers, as sentences.
        warnings: Warnings about the whole report, as sentences; the page begins with them.
    """

    title: str
    comparison: Comparison
    fit: tuple[Fact, ...] = ()
    calibration: tuple[Chart, ...] = ()
    learning: tuple[Chart, ...] = ()
    capabilities: tuple[CapabilityRow, ...] = ()
    quarantine: tuple[Rejected, ...] | None = None
    configuration: Mapping[str, Any] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
