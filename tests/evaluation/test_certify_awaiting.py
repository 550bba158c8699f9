"""Whether agents await their answers is found where the twin has it otherwise, and only there."""

import numpy as np
import pytest

from evaluation.certify.awaiting import awaiting_line
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from tests.evaluation.test_certify_forecasts import made
from tests.twin.closed_logs import log_of


def told_of(kind: str, seed: int):
    """A day of forecasts whose rows are those of a made log."""
    told, random = made(seed), np.random.default_rng(seed)
    num_rows = len(told.arrival_s)
    arrival_s, finish_s, status, agent = log_of(random, kind, per_agent=1 + num_rows // 20)
    return told._replace(
        arrival_s=arrival_s[:num_rows],
        agent=agent[:num_rows],
        status=status[:num_rows],
        accepted=np.ones(num_rows, bool),
        known=np.ones(num_rows, bool),
        wait_s=np.zeros(num_rows),
        run_s=(finish_s - arrival_s)[:num_rows],
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "awaits", "verdict"), [
    ("awaiting", False, Verdict.FAIL), ("awaiting", True, Verdict.PASS), ("open", False, Verdict.PASS),
    ("open", True, Verdict.FAIL), ("timer", False, Verdict.NOT_APPLICABLE),
])  # fmt: skip
def test_who_awaits_an_answer_is_told_from_who_does_not(kind, awaits, verdict, seed):
    line = awaiting_line(told_of(kind, seed), CertifyConfig(), awaits=awaits)
    assert line.verdict is verdict, line


def test_of_hidden_agents_nothing_can_be_said():
    told = told_of("awaiting", 0)
    hidden = told._replace(agent=np.full(len(told.agent), -1))
    assert awaiting_line(hidden, CertifyConfig()).verdict is Verdict.NOT_APPLICABLE
