"""Judges judged: the gap to the log and to the truth, by hand."""

import numpy as np
import pytest

from evaluation.comparison.entries import Run
from evaluation.comparison.metrics import ON_TIME
from evaluation.judges.trust import judges_trust
from tests.evaluation.made import made_decisions


def run(judge: str, policy: str, share: float, out_of_support: float | None = None) -> Run:
    num_on_time = round(100 * share)
    finish_s = np.where(np.arange(100) < num_on_time, 1.0, 100.0)
    return Run(
        judge,
        0,
        policy,
        made_decisions(100, arrival_s=np.zeros(100), finish_s=finish_s, deadline_s=np.full(100, 10.0)),
        out_of_support=out_of_support,
    )


def test_the_gap_to_the_log_and_to_the_truth_are_told() -> None:
    true = {"history": 0.5, "a": 0.6, "b": 0.7, "c": 0.8}
    runs = [run("truth", policy, value) for policy, value in true.items()]
    runs += [run("replay", policy, value) for policy, value in true.items()]
    runs += [run("twin of shifted days", policy, value - 0.1) for policy, value in true.items()]
    trust = {one.judge: one for one in judges_trust(runs, ON_TIME)}
    assert set(trust) == {"twin of shifted days", "replay"}
    twin, replay = trust["twin of shifted days"], trust["replay"]
    assert (twin.told, twin.logged) == pytest.approx((0.4, 0.5))
    assert (twin.error, twin.bias, twin.rank_correlation) == pytest.approx((0.1, -0.1, 1.0))
    assert (replay.error, replay.num_policies) == (0.0, 4)


def test_two_policies_are_no_ranking() -> None:
    runs = [run(judge, policy, 0.5) for judge in ("truth", "twin", "replay") for policy in ("history", "a")]
    (only,) = judges_trust(runs, ON_TIME)
    assert (only.judge, only.told, only.logged) == ("twin", 0.5, 0.5)
    assert only.rank_correlation is None
    assert only.error is None


def test_equal_values_have_no_ranking() -> None:
    runs = [run(judge, policy, 0.5) for judge in ("truth", "replay") for policy in ("history", "a", "b", "c")]
    (only,) = judges_trust(runs, ON_TIME)
    assert (only.rank_correlation, only.error) == (None, 0.0)


def test_the_error_over_policies_that_need_no_guess_is_told_apart() -> None:
    true = {"history": 0.5, "a": 0.6, "b": 0.7, "c": 0.8, "far": 0.1}
    runs = [run("truth", policy, value) for policy, value in true.items()]
    runs += [
        run("twin", policy, value, out_of_support=0.01) for policy, value in true.items() if policy != "far"
    ]
    runs.append(run("twin", "far", 0.6, out_of_support=0.3))
    (twin,) = judges_trust(runs, ON_TIME)
    assert (twin.error, twin.num_policies) == (pytest.approx(0.1), 5)
    assert (twin.error_near, twin.num_near) == (pytest.approx(0.0), 4)
