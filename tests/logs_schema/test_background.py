"""Work beside the main thread: its result, its error, its notes."""

import threading
from io import StringIO

import pytest

from evaluation.jobs.progress import LineProgress
from logs_schema.background import Background, NotesAlone


def test_the_main_thread_goes_on_and_takes_the_result_later():
    go_on = threading.Event()
    work = Background(lambda: go_on.wait(60) and threading.current_thread().name)
    go_on.set()
    assert work.result() == "background"
    assert work.result() == "background"


def test_an_error_is_raised_where_the_result_is_wanted():
    work = Background(lambda: [][0])
    with pytest.raises(IndexError):
        work.result()


def test_notes_are_shown_and_stages_are_not():
    shown = StringIO()
    progress = NotesAlone(LineProgress(shown))
    with progress.stage("hidden", total=2) as stage:
        stage(1, text="hidden as well")
        progress.note("worth reading")
    assert shown.getvalue() == "worth reading\n"
