"""What is said of twins of shifted days that are fitted in few steps, and of a log without requests."""

from pathlib import Path

from evaluation.commands import cli
from evaluation.judges.config import JudgeConfig
from evaluation.problems.placement.shifted import notes_on_fits


def test_twins_of_shifted_days_fitted_in_few_steps_are_named() -> None:
    assert notes_on_fits(JudgeConfig()) == []
    (note,) = notes_on_fits(JudgeConfig(num_fit_steps=20))
    assert "in 20 steps ([judge] num_fit_steps)" in note


def test_a_simulated_day_without_requests_is_summed_up(tmp_path: Path, capsys) -> None:
    (tmp_path / "quiet.toml").write_text('like = "small"\nrequests_per_day = 1\n')
    words = ["simulate", "--world", str(tmp_path / "quiet.toml"), "--days", "1", "--seed", "1"]
    assert cli.main([*words, "--out", str(tmp_path / "log")]) == 0
    assert "0 requests on 1 days" in capsys.readouterr().out
