"""Test of the workload: whether requests come again because others failed.

Clients that try again make more requests where more of them fail. A twin that replays the requests of the log whatever
a policy does undersells policies that fail less, and oversells those that fail more.

    share = mean of  failed * (asked again - expected),    of all requests

with *asked again* and *expected* as in `twin.placement.repeats`. Of a twin that repeats what fails in it, what it
repeats is expected as well.
"""

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.certify.resampled import mean_of
from twin.placement.repeats import FEWEST, expected_again, is_failed, longest_wait_s, next_of_pair, pairs_of
from twin.placement.types import COMPLETED, Repeats

SECTION = "what arrivals depend on"
NAME = "requests that repeat failed ones, beyond chance"


def repeat_line(forecast: Forecast, config: CertifyConfig, repeats: Repeats | None = None) -> Line:
    """The line; it is deciding."""
    known = forecast.known & (forecast.agent >= 0)
    failed = known & is_failed(forecast.status)
    completed = known & (forecast.status == COMPLETED) & np.isfinite(forecast.finish_s)
    fewest = min(int(failed.sum()), int(completed.sum()))
    if fewest < FEWEST:
        return not_applicable(
            SECTION,
            NAME,
            f"{int(failed.sum())} requests of known agents failed and {int(completed.sum())} completed, "
            f"fewer than {FEWEST}",
        )
    within_s = longest_wait_s(forecast.arrival_s, forecast.finish_s, completed)
    pair = pairs_of(forecast.day, forecast.agent, forecast.service)
    ended_s = forecast.ended_s if len(forecast.ended_s) else forecast.finish_s
    again = (next_of_pair(pair, forecast.arrival_s, ended_s)[0] <= within_s).astype(float)
    expected = expected_again(pair, again, completed)
    if repeats is not None:
        expected = expected + (1.0 - expected) * repeats.chance
    measured = mean_of(np.where(failed, again - expected, 0.0), forecast.unit, forecast.num_units)
    return about_zero(
        SECTION, NAME, "share", measured, forecast.num_units, config.thresholds.repeats, config.intervals(),
        one_sided=repeats is None, deciding=True,
        reason=f"within {within_s:.3g} s {again[failed].mean():.0%} of {int(failed.sum())} failed requests came again, "
        f"{expected[failed].mean():.0%} expected",
    )  # fmt: skip
