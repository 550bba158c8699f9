"""The thread that asks the policy: results, errors, deadlines, and what was given up is not computed."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

from offline_rl.serving import worker as worker_module
from offline_rl.serving.worker import SIT_S, Worker


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def test_results_and_errors_come_back_quick_or_slow():
    worker = Worker()

    def slow():
        time.sleep(5 * SIT_S)
        return "slow"

    assert run(worker.run(lambda: "quick", 10.0)) == "quick"
    assert run(worker.run(slow, 10.0)) == "slow"
    with pytest.raises(ZeroDivisionError):
        run(worker.run(lambda: 1 // 0, 10.0))
    assert not worker.stalled(1.0)


def test_a_question_that_comes_just_after_another_thread_took_over_is_answered(monkeypatch):
    monkeypatch.setattr(worker_module, "LINGER_S", 0.3)
    worker = Worker()
    worker.stop()
    assert run(worker.run(lambda: "late", 5.0)) == "late"
    time.sleep(0.5)
    with pytest.raises(TimeoutError):
        run(worker.run(lambda: "too late", 0.1))


def test_other_work_goes_on_while_a_slow_job_is_waited_for():
    release = threading.Event()

    async def live() -> str:
        worker = Worker()
        waiting = asyncio.create_task(worker.run(lambda: release.wait(10) and "done", 10.0))
        while not worker.stalled(SIT_S / 2):
            await asyncio.sleep(SIT_S)
        release.set()  # this thread could only get here because nobody blocks it
        return await waiting

    assert run(live()) == "done"


def test_what_was_given_up_is_skipped():
    release, computed = threading.Event(), []

    async def live() -> None:
        worker = Worker()
        for number in range(3):
            with pytest.raises(TimeoutError):
                await worker.run(lambda number=number: release.wait(10) and computed.append(number), 0.3)
        release.set()
        await worker.run(lambda: None, 10.0)

    run(live())
    assert computed == [0]  # it had begun; the others' turn had not come


def test_a_thread_outlives_the_loop_that_asked_it():
    worker, release = Worker(), threading.Event()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await worker.run(lambda: release.wait(10), 0.01)

    run(leave())
    release.set()
    assert run(worker.run(lambda: 7, 10.0)) == 7


def test_a_thread_that_hangs_is_left_behind_and_the_next_waits_twice_as_long(monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(worker_module, "RETRY_S", 0.05)
    monkeypatch.setattr(worker_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    begun, release, left = threading.Event(), threading.Event(), []

    def hang() -> None:
        begun.set()
        release.wait(10)

    async def live() -> None:
        worker = Worker(left.append)
        for number in range(2):
            begun.clear()
            with pytest.raises(TimeoutError):
                await worker.run(hang, 0.01)
            assert begun.wait(10)
            now_s[0] += 0.02
            assert worker.stalled(0.01)
            now_s[0] += 0.05 * 2.0**number
            assert not worker.stalled(0.01)
            assert worker.retry_s == pytest.approx(0.05 * 2.0 ** (number + 1))
        assert await worker.run(lambda: "new", 10.0) == "new"
        assert worker.retry_s == 0.05

    run(live())
    assert [one > 0.05 for one in left] == [True, True]
    release.set()
