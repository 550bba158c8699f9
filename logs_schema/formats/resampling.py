"""Series that are measured more often than intervals pass, as one number an interval: `resample = true` in a mapping.

What lies in an interval is one number: the mean of gauges and rates, the sum of counts, the first reading of a counter.
"""

from datetime import UTC, datetime

import numpy as np
from numpy.typing import ArrayLike

from logs_schema.errors import FormatError
from logs_schema.formats.metric_series import MetricSeries


def resampled(
    metric: MetricSeries, deployment: str, times_s: ArrayLike, numbers: ArrayLike, interval_s: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Beginnings of intervals, a number for each, and the place of its first sample.

    Args:
        metric: What is measured.
        deployment: Of which, for messages.
        times_s: Instants, in any order.
        numbers: Those at the instants; what is not finite is left out.
        interval_s: Length of an interval.

    Raises:
        FormatError: There are two numbers of one instant: they are of several series.
    """
    known = np.flatnonzero(np.isfinite(np.asarray(numbers, float)))
    order = known[np.argsort(np.asarray(times_s, float)[known], kind="stable")]
    instants_s, values = np.asarray(times_s, float)[order], np.asarray(numbers, float)[order]
    if len(again := np.flatnonzero(np.diff(instants_s) == 0.0)):
        at = datetime.fromtimestamp(float(instants_s[again[0]]), UTC)
        raise FormatError(
            f"a series of '{deployment}' has two numbers of {metric.column} at one instant",
            where=f"{metric.where} at {at:%Y-%m-%d %H:%M:%S} UTC".strip(),
            allowed="one number a series and instant",
            advice="name the column that tells its series apart, such as that of the pod, as series_column, and how "
            "they are combined (combine)",
        )
    places, begins, counts = np.unique(
        np.floor(instants_s / interval_s), return_index=True, return_counts=True
    )
    if metric.counter:
        merged = values[begins]
    else:
        merged = np.add.reduceat(values, begins) if len(begins) else values
        merged = merged if metric.counts else merged / counts
    return places * interval_s, merged, order[begins]
