"""What is said of twins of shifted days that are fitted in few steps or in none, and of a log without requests."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from evaluation.commands import cli
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.shifts import ShiftPlan, TestDays
from evaluation.judges.config import JudgeConfig
from evaluation.judges.descriptions import REPLAY, SHIFTED_TWIN, TRAINING_TWIN
from evaluation.problems.placement.case import Case
from evaluation.problems.placement.shifted import notes_on_fits
from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.placement.model import PlacementTwin


def test_twins_of_shifted_days_fitted_in_few_steps_are_named() -> None:
    assert notes_on_fits(JudgeConfig()) == []
    (note,) = notes_on_fits(JudgeConfig(num_fit_steps=20))
    assert "in 20 steps ([judge] num_fit_steps)" in note


def test_without_a_step_that_judge_alone_is_left_out() -> None:
    none = JudgeConfig(num_fit_steps=0)
    assert notes_on_fits(none) == []
    unread = cast(Archive, None), cast(PlacementTwin, None), None, ShiftPlan((), ())
    case, shift = Case(*unread, none, IntervalConfig()), TestDays(1, (), None)
    judges = (REPLAY, SHIFTED_TWIN, TRAINING_TWIN)
    assert [case.wants(judge, shift) for judge in judges] == [True, False, True]
    assert replace(case, config=JudgeConfig()).wants(SHIFTED_TWIN, shift)
    with pytest.raises(ConfigError, match="num_fit_steps = -1"):
        JudgeConfig(num_fit_steps=-1)


@pytest.mark.slow
def test_a_simulated_day_without_requests_is_summed_up(tmp_path: Path, capsys) -> None:
    (tmp_path / "quiet.toml").write_text('like = "small"\nrequests_per_day = 1\n')
    words = ["simulate", "--world", str(tmp_path / "quiet.toml"), "--days", "1", "--seed", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "log")]) == 0
    assert "0 requests on 1 day from" in capsys.readouterr().out
