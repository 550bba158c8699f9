"""SIGTERM ends jobs as Ctrl-C does: nothing half written stays, no process goes on."""

import gc
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

from evaluation.commands import stopping
from evaluation.commands.statuses import DONE, INTERRUPTED, TERMINATED, USER_ERROR
from evaluation.commands.stopping import Terminated, leave_threads, sigterm_raises, stop_signals
from evaluation.jobs.engine import local
from evaluation.jobs.interrupting import AGAIN_S
from logs_schema.atomic_folders import locked_folder
from logs_schema.product import remove_once_in_place, verify, writing
from tests.evaluation.test_killed import started


def until(condition: Callable[[], object], process: "subprocess.Popen[bytes]") -> None:
    until_s = time.monotonic() + 600.0
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < until_s
        time.sleep(0.02)


def remains(folder: Path) -> list[Path]:
    return [*folder.rglob("*.writing"), *folder.rglob("*.replaced")]


def children(pid: int) -> list[int]:
    """The processes that a process started, with those that they started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    own = [int(word) for word in listed.read_text().split()] if listed.exists() else []
    return own + [one for child in own for one in children(child)]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.slow
def test_a_step_that_is_terminated_leaves_nothing_beside_its_product(tmp_path: Path) -> None:
    command = (
        sys.executable,
        "-m",
        "evaluation.commands.cli",
        "simulate",
        "--preset",
        "small",
        "--days",
        "900",
    )
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "log"), "--no-progress"], stderr=subprocess.PIPE
    )
    until(lambda: remains(tmp_path), process)
    process.terminate()
    with process:
        # What is compiled when the signal comes is compiled first
        _, errors = process.communicate(timeout=150)
    assert (process.returncode, errors.decode()) == (TERMINATED, "interrupted; run again to resume\n")
    assert not list(tmp_path.iterdir())


def swallow_and_clean_up(cleaned: list[bool]) -> None:
    """Work in which a library swallows SIGTERM, and whose end takes longer than until it is raised again."""
    with suppress(BaseException):
        signal.raise_signal(signal.SIGTERM)
    try:
        time.sleep(10.0)
    finally:
        time.sleep(1.5 * AGAIN_S)
        cleaned.append(True)


@pytest.mark.slow
def test_what_a_library_swallows_is_raised_again_and_not_while_cleaning_up() -> None:
    cleaned: list[bool] = []
    with pytest.raises(Terminated), sigterm_raises():
        swallow_and_clean_up(cleaned)
    assert cleaned


def test_a_task_of_a_worker_ends_too_where_a_library_swallows_the_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[bool] = []
    folder, lock = locked_folder(tmp_path / "goal")
    both = signal.SIGTERM, signal.SIGALRM

    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr("evaluation.jobs.engine.local.os._exit", leave)
    before = [signal.getsignal(one) for one in both]
    try:
        local._meet_sigterm()
        with pytest.raises(SystemExit, match=str(TERMINATED)):
            local._run_task(swallow_and_clean_up, cleaned)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for one, handler in zip(both, before, strict=True):
            signal.signal(one, handler)
    os.close(lock)
    assert cleaned
    assert not folder.exists()


def compute_for_long() -> None:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_500_000)  # of which Python sees nothing before its end
    time.sleep(10.0)


def test_what_does_not_come_back_from_compiled_code_is_ended_and_leaves_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    left: list[tuple[int, bool]] = []
    folder, lock = locked_folder(tmp_path / "goal")
    monkeypatch.setattr(stopping, "STUCK_S", 0.05)
    monkeypatch.setattr(stopping.os, "_exit", lambda status: left.append((status, folder.exists())))
    with pytest.raises(Terminated), sigterm_raises():
        compute_for_long()
    os.close(lock)
    assert left == [(TERMINATED, False)]
    assert "run again to resume" in capfd.readouterr().err
    assert not [one for one in threading.enumerate() if one.name.startswith("Thread-") and one.daemon]


CALLS = {"mkdir", "open", "flock", "stat", "fstat", "close", "scandir", "unlink", "rmdir", "rename", "fsync"}
"""System calls; Python handles a signal as such a call returns, and drops what it returned."""


def write_and_remove(goal: Path) -> None:
    """A product in the place of an older one, and a unit of it that is removed with that."""
    with writing(goal, "thing", replace=True) as folder:
        (folder / "file").write_text("new")
        remove_once_in_place(folder, goal.parent / "unit")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of what the calls returned
@pytest.mark.parametrize("has_older", [False, True])
def test_a_signal_at_any_system_call_leaves_a_whole_product_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_older: bool
) -> None:
    monkeypatch.setattr("evaluation.commands.stopping.os._exit", lambda _: None)
    gc.collect()
    gc.freeze()  # what other tests left is not looked through again at each of the signals
    num_met = 0

    def end_at(place: int) -> bool:
        """Writes, with SIGTERM at a call; whether there was one."""
        calls = count()

        def meet(frame: FrameType, event: str, called: object) -> None:
            is_one = event == "c_return" and getattr(called, "__name__", "") in CALLS
            if called is os.close and frame.f_code.co_filename == shutil.__file__:
                return  # it would close the descriptor again, and raise OSError
            if is_one and next(calls) == place:
                raise Terminated

        sys.setprofile(meet)
        try:
            write_and_remove(goal)
        except Terminated:
            return True
        finally:
            sys.setprofile(None)
        return False

    while True:
        goal = tmp_path / str(num_met) / "goal"
        (goal.parent / "unit").mkdir(parents=True)
        if has_older:
            with writing(goal, "thing") as folder:
                (folder / "file").write_text("old")
        if not end_at(num_met):
            break
        leave_threads(TERMINATED)
        assert remains(goal.parent) == []
        assert not goal.exists() or verify(goal).kind == "thing"
        assert goal.exists() or not has_older
        num_met += 1
    assert (goal / "file").read_text() == "new"
    assert num_met > 30


def test_who_meets_sigterm_otherwise_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(stopping, "STUCK_S", 0.05)
    monkeypatch.setattr(stopping.os, "_exit", left.append)
    with sigterm_raises(), stop_signals() as over:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert over.is_set()
    assert left == []


def test_a_signal_of_a_forked_child_is_not_its_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of forked processes, as a judge may use one, ends its workers by SIGTERM."""
    left: list[int] = []
    monkeypatch.setattr(stopping, "STUCK_S", 0.05)
    monkeypatch.setattr(stopping.os, "_exit", left.append)
    with sigterm_raises():
        script = "import time; time.sleep(30)"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads that the child has not
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, lambda *_: None)
            signal.raise_signal(signal.SIGTERM)
            os.execv(sys.executable, [sys.executable, "-c", script])
        time.sleep(0.3)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        time.sleep(0.2)
    assert left == []


class _Pool:
    itself: object = None


def test_what_worker_processes_held_is_freed_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors are cycles; of their semaphores that are left Python warns on standard error."""
    pool, left = _Pool(), []
    pool.itself, known = pool, weakref.ref(pool)
    monkeypatch.setattr("evaluation.commands.stopping.os._exit", lambda _: left.append(known()))
    del pool
    leave_threads(TERMINATED)
    assert left == [None]


def test_the_handler_before_is_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), sigterm_raises():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["beside", "processes"])
def test_a_job_that_is_terminated_leaves_no_process_and_no_remains(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """With a thread that trains beside the certificate, and with tasks in processes."""
    process = started(tmp_path, *options)
    until(lambda: list((tmp_path / "work").glob(".certificate.*.writing")), process)
    if options:
        until(lambda: len(children(process.pid)) >= 2, process)
    time.sleep(3.0)
    began = children(process.pid)
    assert bool(began) == bool(options)
    process.terminate()
    assert process.wait(60) == TERMINATED
    time.sleep(2.0)  # for a process that only tracks resources of others
    assert not [path for path in remains(tmp_path) if path.parent == tmp_path / "work"]
    assert not [pid for pid in began if is_alive(pid)]


def test_what_a_signal_has_ended_waits_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler's own threads are none that Python counts, and the interpreter would wait for them."""
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    for status in (DONE, USER_ERROR, INTERRUPTED, TERMINATED):
        leave_threads(status)
    assert left == [INTERRUPTED, TERMINATED]
