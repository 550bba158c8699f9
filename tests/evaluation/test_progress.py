"""Displays of progress: what is shown where, and that stages are plain functions."""

import re
import time
from io import StringIO

import pytest

from evaluation.jobs.progress import LineProgress, amount, shown_progress, time_left


class Terminal(StringIO):
    def isatty(self):
        return True


def work(progress):
    with progress.stage("fit", unit="rows") as fit:
        fit(5)
        with progress.stage("answers", total=4, unit="steps") as answers:
            answers(2, text="member 1")
        fit(10, total=20)
        progress.note("odd row")


def test_lines_say_what_begins_runs_and_ends():
    stream = StringIO()
    work(LineProgress(stream, every_s=0.0))
    lines = [line.split(" after ")[0] for line in stream.getvalue().splitlines()]
    assert lines == [
        "fit ...",
        "fit: 5 rows, 0 s",
        "  answers ...",
        "  answers: 50 % of 4 steps, 0 s, member 1",
        "  answers: done",
        "fit: 50 % of 20 rows, 0 s",
        "odd row",
        "fit: done",
    ]


def test_the_time_left_is_that_of_the_pace_so_far():
    assert time_left(1, 4, 30.0) == ", about 90 s left"
    assert time_left(10, 100, 60.0) == ", about 9 min left"
    for nothing in ((0, 4, 30.0), (4, 4, 30.0), (5, 4, 30.0), (1, None, 30.0), (1, 4, 1.0)):
        assert time_left(*nothing) == ""


def test_what_comes_before_the_first_report_is_no_pace(monkeypatch):
    """A minute of compilation, then one of ten updates every two seconds: 12 s are left after the fourth."""
    now = [0.0]
    monkeypatch.setattr("evaluation.jobs.progress.time.monotonic", lambda: now[0])
    stream = StringIO()
    with LineProgress(stream, every_s=1.0, silent_s=1e6).stage("train", total=10, unit="updates") as train:
        for now[0], done in ((60.0, 1), (66.0, 4)):
            train(done)
    assert stream.getvalue().splitlines()[1:3] == [
        "train: 10 % of 10 updates, 60 s",
        "train: 40 % of 10 updates, 66 s, about 12 s left",
    ]


def test_lines_are_not_more_frequent_than_asked():
    stream = StringIO()
    with LineProgress(stream, every_s=3600).stage("fit") as fit:
        for done in range(100):
            fit(done)
    assert len(stream.getvalue().splitlines()) == 2


def test_long_work_in_one_piece_is_told_by_what_it_said_last():
    stream = StringIO()
    progress = LineProgress(stream, every_s=3600, silent_s=0.05)
    with progress.stage("judge", total=4, unit="shifts") as judge:
        judge(1, text="shift 1d, replay: twin")
        with progress.stage("fit"):
            time.sleep(0.2)
        time.sleep(0.2)
    time.sleep(0.2)
    lines = stream.getvalue().splitlines()
    fitting, judging = (
        next(number for number, line in enumerate(lines) if re.fullmatch(form, line))
        for form in (r"  fit: \d s", r"judge: 25 % of 4 shifts, \d s, shift 1d, replay: twin")
    )
    assert 1 < fitting < judging < len(lines) - 1
    assert lines[-1].startswith("judge: done")  # nothing is said when all is over


@pytest.mark.parametrize("stream", [StringIO, Terminal])
def test_a_stage_that_fails_says_stopped(stream):
    output = stream()
    with (
        pytest.raises(RuntimeError, match="broken"),
        shown_progress(stream=output) as progress,
        progress.stage("fit"),
    ):
        raise RuntimeError("broken")
    assert "fit: stopped" in output.getvalue()


def test_a_terminal_gets_bars_and_keeps_the_finished_stages():
    stream = Terminal()
    with shown_progress(stream=stream) as progress:
        work(progress)
    shown = stream.getvalue()
    assert "\x1b[" in shown  # the live display moves the cursor
    for line in ("  answers: done after", "fit: done after", "odd row"):
        assert line in shown


def test_silence_keeps_the_notes():
    stream = StringIO()
    with shown_progress(shown=False, stream=stream) as progress:
        work(progress)
    assert stream.getvalue() == "odd row\n"


def test_amount_of_an_unknown_total_has_no_percentage():
    assert (amount(1200, None, "rows"), amount(1, 8), amount(0, 0)) == ("1,200 rows", "12 % of 8", "0")
