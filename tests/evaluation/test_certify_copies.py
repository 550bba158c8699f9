"""Whether requests are copies, of which the slower one is cancelled, is found where it is so, and only there."""

import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.copies import copies_line
from evaluation.certify.forecasting import Forecast
from evaluation.certify.lines import Verdict
from tests.evaluation.test_certify_forecasts import made
from twin.placement.types import COMPLETED, FAILED


def told_of(share: float, *, hedged: bool) -> Forecast:
    """A day of which a share fails: at the end of the agent's next request, a copy, or when they would have ended."""
    told, random = made(1), np.random.default_rng(0)
    count = len(told.arrival_s)
    first = np.flatnonzero((np.arange(count) % 2 == 0) & (random.random(count) < 2.0 * share))
    agent, status = told.agent.copy(), np.full(count, COMPLETED)
    agent[first + 1], status[first] = agent[first], FAILED
    ended_s = told.arrival_s + random.exponential(60.0, count)
    if hedged:
        ended_s[first] = ended_s[first + 1]
    return told._replace(agent=agent, status=status, ended_s=ended_s)


@pytest.mark.parametrize(
    ("share", "hedged", "verdict"),
    [(0.2, True, Verdict.FAIL), (0.2, False, Verdict.PASS), (0.005, True, Verdict.NOT_APPLICABLE)],
)
def test_copies_are_told_from_failures(share: float, hedged: bool, verdict: Verdict) -> None:
    assert copies_line(told_of(share, hedged=hedged), CertifyConfig()).verdict is verdict
