"""Test of the workload: whether agents send their next request only when their last one has ended.

Of a closed system a quicker scheduler gets more requests, and a slower one fewer. A twin that replays the requests of
the log at their logged times undersells policies that are slower than the log's, whose queues no agent would have
built up, and oversells those that are quicker.

    share = mean of (expected overlaps - overlaps),    of all requests

with overlaps as in `twin.placement.think_times`. Of a twin whose agents await their answers none are expected.
"""

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.certify.resampled import mean_of
from evaluation.certify.retries import SECTION
from twin.placement.think_times import FEWEST, overlaps

NAME = "requests that await the end of the agent's last one, beyond chance"


def awaiting_line(forecast: Forecast, config: CertifyConfig, *, awaits: bool = False) -> Line:
    """The line; it is deciding. `awaits`: the twin's agents do (`Cluster.awaits`)."""
    ended_s = forecast.ended_s if len(forecast.ended_s) else forecast.finish_s
    response_s = np.where(forecast.accepted, ended_s - forecast.arrival_s, 0.0)
    overlap, expected = overlaps(forecast.arrival_s, response_s, forecast.agent, forecast.day)
    if expected.sum() < FEWEST:
        return not_applicable(
            SECTION,
            NAME,
            f"{expected.sum():.0f} requests would overlap the last one of their agent by chance, fewer than "
            f"{FEWEST:.0f}",
        )
    awaited = (0.0 if awaits else expected) - overlap
    measured = mean_of(awaited, forecast.unit, forecast.num_units)
    return about_zero(
        SECTION, NAME, "share", measured, forecast.num_units, config.thresholds.awaited, config.intervals(),
        one_sided=not awaits, deciding=True,
        reason=f"{overlap.mean():.1%} of the requests came before the last one of their agent had ended, "
        f"{expected.mean():.1%} would by chance",
    )  # fmt: skip
