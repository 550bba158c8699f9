"""Judges judged: the gap to the log and to the truth, by hand."""

import numpy as np

from evaluation.comparison import Run
from evaluation.metrics import ON_TIME
from evaluation.trust import judges_notes
from tests.evaluation.made import made_decisions


def run(judge: str, policy: str, share: float) -> Run:
    num_on_time = round(100 * share)
    finish_s = np.where(np.arange(100) < num_on_time, 1.0, 100.0)
    return Run(
        judge,
        0,
        policy,
        made_decisions(100, arrival_s=np.zeros(100), finish_s=finish_s, deadline_s=np.full(100, 10.0)),
    )


def test_the_gap_to_the_log_and_to_the_truth_are_told() -> None:
    true = {"history": 0.5, "a": 0.6, "b": 0.7, "c": 0.8}
    runs = [run("truth", policy, value) for policy, value in true.items()]
    runs += [run("replay", policy, value) for policy, value in true.items()]
    runs += [run("twin of shifted days", policy, value - 0.1) for policy, value in true.items()]
    notes = judges_notes(runs, ON_TIME)
    assert any(
        "twin of shifted days" in note and "0.400" in note and "0.500 (-0.100)" in note for note in notes
    )
    assert any(
        "twin of shifted days" in note and "(-0.100 bias), rank correlation 1.00" in note for note in notes
    )
    assert any(note.startswith("replay") and "off by 0.000" in note for note in notes)


def test_two_policies_are_no_ranking() -> None:
    runs = [run(judge, policy, 0.5) for judge in ("truth", "replay") for policy in ("history", "a")]
    assert not any("rank" in note for note in judges_notes(runs, ON_TIME))
