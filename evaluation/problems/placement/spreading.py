"""Description of the corrected widths of a twin's waits and run times (see `twin.placement.spread`)."""

from collections.abc import Mapping

import numpy as np

from twin.placement.fit import FitReport

DURATIONS = ("waits", "run_times")
"""What the two factors of `FitReport.spread` are of."""


def spread_of(report: FitReport) -> dict[str, float]:
    """The factors by name: above 1 widened, below 1 narrowed."""
    return dict(zip(DURATIONS, (float(factor) for factor in np.asarray(report.spread)), strict=True))


def spread_in_words(factors: Mapping[str, float]) -> str:
    """For example "scales of durations times 0.82 for waits, 1.00 for run times, settled on held-out rows"."""
    each = ", ".join(f"{factors[name]:.2f} for {name.replace('_', ' ')}" for name in DURATIONS)
    return f"scales of durations times {each}, settled on held-out rows"
