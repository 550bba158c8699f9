"""Whether requests come again because others failed is found, and crowds in which more fail do not pass for it."""

import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.certify.retries import FEWEST, repeat_line
from tests.evaluation.test_certify_forecasts import made
from twin.placement.types import COMPLETED, DROPPED, FAILED

NUM_PAIRS = 5


def with_failures(seed: int, share_again: float = 0.0):
    """A day in which more arrives, and much more fails, every second hour; some failed requests come again soon."""
    told, random = made(seed), np.random.default_rng(seed + 100)
    num_rows = len(told.arrival_s)
    busy_s = np.sort(random.uniform(0.0, 43_200.0, num_rows))
    keep = random.random(num_rows) < 0.7
    arrival_s = np.where(keep, busy_s // 3600 * 7200 + busy_s % 3600, told.arrival_s)
    busy = arrival_s // 3600 % 2 == 0
    failed = random.random(num_rows) < np.where(busy, 0.3, 0.02)
    agent, service = random.integers(NUM_PAIRS, size=num_rows), random.integers(2, size=num_rows)
    ended_s = arrival_s + np.nan_to_num(told.wait_s + told.run_s, nan=30.0)
    first, second = np.flatnonzero(failed)[::2], np.flatnonzero(failed)[1::2][: (failed.sum() + 1) // 2]
    again = random.random(len(second)) < share_again
    # The second of such a pair is the first one, once more
    one, two = (
        first[: len(second)][again],
        second[again],
    )
    arrival_s[two], agent[two], service[two] = ended_s[one] + 20.0, agent[one], service[one]
    failed[two] = False
    order = np.argsort(arrival_s)
    status = np.where(failed, np.where(random.random(num_rows) < 0.5, FAILED, DROPPED), COMPLETED)[order]
    wait_s, run_s = (np.nan_to_num(column, nan=10.0)[order] for column in (told.wait_s, told.run_s))
    return told._replace(
        arrival_s=arrival_s[order],
        agent=agent[order],
        service=service[order],
        status=status,
        wait_s=np.where(status == DROPPED, np.nan, wait_s),
        run_s=np.where(status == DROPPED, np.nan, run_s),
    )


@pytest.mark.parametrize("seed", range(4))
def test_failures_in_busy_hours_do_not_pass_for_repeats(seed):
    line = repeat_line(with_failures(seed), CertifyConfig())
    assert line.verdict is Verdict.PASS
    assert abs(line.value.value) < 0.015


@pytest.mark.parametrize("seed", range(4))
def test_clients_who_try_again_are_found(seed):
    line = repeat_line(with_failures(seed, 0.9), CertifyConfig())
    assert line.verdict is Verdict.FAIL
    assert "came again" in line.reason


def test_without_failures_or_known_agents_nothing_can_be_said():
    told = with_failures(0)
    few = np.cumsum(told.status != COMPLETED) < FEWEST
    for changed in (
        told._replace(status=np.where(few, told.status, COMPLETED)),
        told._replace(agent=np.full(len(told.agent), -1)),
    ):
        assert repeat_line(changed, CertifyConfig()).verdict is Verdict.NOT_APPLICABLE
