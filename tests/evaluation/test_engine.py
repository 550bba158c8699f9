"""The engine: the same results wherever tasks run; what dies runs again, what hangs or differs is named."""

import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from evaluation.jobs.engine import ray_cluster
from evaluation.jobs.engine.config import EngineConfig, engine_of, tasks_on
from evaluation.jobs.engine.errors import EngineError
from evaluation.jobs.engine.ray_cluster import connected, refuse_other_versions, versions
from logs_schema.errors import ConfigError, FormatError
from logs_schema.progress import SilentProgress
from tests.evaluation.engine_tasks import (
    always_dies,
    dies_once,
    refuses,
    sleeps,
    square,
    takes_a_second,
    writes_aside,
)


@pytest.fixture(scope="module")
def two():
    """Two processes, shared by the tests that leave them alive."""
    with tasks_on(EngineConfig(workers=2), SilentProgress()) as tasks:
        yield tasks


def test_results_come_in_the_order_of_the_items(two) -> None:
    with tasks_on(EngineConfig(), SilentProgress()) as here:
        assert list(here(square, range(7))) == list(two(square, range(7))) == [n * n for n in range(7)]
    assert list(two(square, [])) == []


def test_an_error_of_a_task_says_all_that_it_said_there(two) -> None:
    with pytest.raises(FormatError) as caught:
        two(refuses, [0, 1, 2], "files")
    error = caught.value
    assert (error.what, error.where, error.allowed, error.advice) == (
        "not this one",
        "row 1",
        "others",
        "leave it out",
    )


def test_tasks_of_a_worker_that_was_killed_run_again(two, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    assert list(two(dies_once, files)) == ["a", "b", "c"]


def test_processes_that_died_between_calls_are_started_again(two) -> None:
    assert list(two(square, [1, 2])) == [1, 4]
    for process in two._pool._processes.values():
        process.kill()
    until_s = time.monotonic() + 60.0
    while not two._pool._broken and time.monotonic() < until_s:
        time.sleep(0.01)
    assert list(two(square, [3, 4, 5])) == [9, 16, 25]


def test_a_task_that_always_kills_its_worker_is_named(two) -> None:
    with pytest.raises(EngineError, match="days: a worker died 3 times") as caught:
        two(always_dies, [17], "days")
    assert "17" in caught.value.where


@pytest.fixture
def heeds_sigint():
    """SIGINT interrupts, as it does not in what a shell has started in the background."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.usefixtures("heeds_sigint")
def test_tasks_that_are_interrupted_remove_what_they_write_aside(tmp_path: Path) -> None:
    def interrupts() -> None:
        until_s = time.monotonic() + 120.0
        while time.monotonic() < until_s and len(list(tmp_path.glob(".*.writing/begun"))) < 2:
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupts, daemon=True).start()
    with pytest.raises(KeyboardInterrupt), tasks_on(EngineConfig(workers=2), SilentProgress()) as tasks:
        tasks(writes_aside, [tmp_path / "one", tmp_path / "two"])
    assert not list(tmp_path.iterdir())


ORPHANED = """
import sys
from pathlib import Path
from evaluation.jobs.engine.config import EngineConfig, tasks_on
from logs_schema.progress import SilentProgress
from tests.evaluation.engine_tasks import writes_aside
if __name__ == "__main__":
    with tasks_on(EngineConfig(workers=2), SilentProgress()) as tasks:
        tasks(writes_aside, [Path(sys.argv[1]) / name for name in ("one", "two")])
"""


def test_workers_of_a_command_that_was_killed_end_too(tmp_path: Path) -> None:
    (tmp_path / "command.py").write_text(ORPHANED)
    (tmp_path / "out").mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, str(tmp_path / "command.py"), str(tmp_path / "out")]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as command:
        until_s = time.monotonic() + 60.0
        while len(list((tmp_path / "out").glob(".*.writing/begun"))) < 2 and time.monotonic() < until_s:
            time.sleep(0.02)
        workers = [
            one for one in psutil.Process(command.pid).children() if "spawn_main" in " ".join(one.cmdline())
        ]
        assert len(workers) == 2
        command.kill()
        try:
            assert not psutil.wait_procs(workers, timeout=20.0)[1]
        finally:
            for worker in workers:
                with suppress(psutil.NoSuchProcess):
                    worker.kill()
    assert not list((tmp_path / "out").iterdir())


def test_a_task_that_does_not_end_is_named() -> None:
    with (
        tasks_on(EngineConfig(workers=2, deadline_s=2.0), SilentProgress()) as tasks,
        pytest.raises(EngineError, match="days: a task did not end within 2 s") as caught,
    ):
        tasks(sleeps, [0.0, 600.0], "days")
    assert caught.value.where == "600.0"


def test_a_deadline_that_never_comes_is_no_error() -> None:
    with tasks_on(EngineConfig(workers=2, deadline_s=math.inf), SilentProgress()) as tasks:
        assert list(tasks(sleeps, [0.0, 0.0], "days")) == [0.0, 0.0]


@pytest.mark.parametrize("address", ["ray://", "ray://:10001", "ray://host:port", "ray://host:99999"])
def test_an_address_that_names_no_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="not reachable"):
        ray_cluster._refuse_unreachable(address)


@pytest.mark.parametrize(
    ("on", "workers", "deadline_s"),
    [("mars", None, None), (None, 0, None), (None, 2, 0.0), ("ray://", -1, None)],
)
def test_no_such_place(on, workers, deadline_s) -> None:
    with pytest.raises(ConfigError):
        engine_of(on, workers, deadline_s)
    with pytest.raises(ConfigError):
        EngineConfig(kind="ray")


def test_the_command_line_speaks_before_the_configuration() -> None:
    configured = EngineConfig("ray", address="ray://a:1", deadline_s=9.0)
    assert engine_of(None, None, None, configured) == configured
    assert engine_of("local-cluster", None, None, configured) == EngineConfig(
        "local-cluster", 2, deadline_s=9.0
    )
    assert engine_of("ray://b:2", 3, 1.0, configured) == EngineConfig("ray", 3, "ray://b:2", 1.0)
    assert engine_of(None, 2, None, EngineConfig()) == EngineConfig(workers=2)


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(ConfigError, match="not installed") as caught,
        tasks_on(engine_of("local-cluster", None, None), SilentProgress()),
    ):
        pass
    assert "WHEEL[ray]" in caught.value.advice


def test_other_versions_are_named() -> None:
    refuse_other_versions(versions(), versions(), "a")
    with pytest.raises(ConfigError, match=r"python 3\.9 there") as caught:
        refuse_other_versions(versions(), versions() | {"python": "3.9"}, "a")
    assert caught.value.where == "node a"


def test_no_cluster_answers() -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"ray://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ConfigError, match="the cluster is not reachable"), connected(address, 1, []):
            pass


@pytest.mark.slow
def test_two_nodes_give_the_same_and_outlive_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    with tasks_on(engine_of("local-cluster", 2, 60.0), SilentProgress(), [tmp_path / "out"]) as tasks:
        assert list(tasks(square, range(20))) == [n * n for n in range(20)]
        files = [tmp_path / name for name in ("a", "b", "c")]
        assert list(tasks(dies_once, files)) == ["a", "b", "c"]
        with pytest.raises(FormatError) as caught:
            tasks(refuses, [0, 1, 2], "files")
        assert caught.value.advice == "leave it out"
        with pytest.raises(EngineError, match="days: a worker died"):
            tasks(always_dies, [17], "days")
    with (
        tasks_on(engine_of("local-cluster", 2, 5.0), SilentProgress()) as tasks,
        pytest.raises(EngineError, match="did not end within 5 s"),
    ):
        tasks(sleeps, [0.0, 600.0], "days")


@pytest.mark.slow
@pytest.mark.parametrize("lost_after", [3, 7])
def test_what_ran_on_a_node_that_is_lost_runs_on_the_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lost_after: int
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    begun = []
    start = ray_cluster._started
    monkeypatch.setattr(ray_cluster, "_started", lambda workers: begun.append(start(workers)) or begun[0])
    files = [tmp_path / f"{number}" for number in range(10)]
    with tasks_on(engine_of("local-cluster", 2, 60.0), SilentProgress(), [tmp_path]) as tasks:
        assert list(tasks(square, range(4))) == [0, 1, 4, 9]  # workers of both nodes are up

        def lose_a_node() -> None:
            while sum(file.exists() for file in files) < lost_after:
                time.sleep(0.05)
            begun[0].remove_node(*begun[0].worker_nodes, allow_graceful=False)

        losing = threading.Thread(target=lose_a_node)
        losing.start()
        assert list(tasks(takes_a_second, files)) == [file.name for file in files]
        losing.join()
        assert not begun[0].worker_nodes


SUMS = """
import sys
from evaluation.commands.cli import main
main(["check", sys.argv[1]])
import numpy as np
weights, values = np.random.default_rng(0).random((2, 1, 100_000))
print(float((weights @ values[0])[0]).hex())
"""


def test_numbers_do_not_depend_on_the_threads_that_a_worker_is_given(tmp_path: Path) -> None:
    """Ray sets OMP_NUM_THREADS to a task's processors; on one processor this test cannot fail."""
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    call = [sys.executable, "-c", SUMS, str(tmp_path / "nothing")]
    numbers = [
        subprocess.run(call, env=inherited | given, capture_output=True, text=True, check=True).stdout
        for given in ({}, {"OMP_NUM_THREADS": "1"})
    ]
    assert numbers[0]
    assert numbers[0] == numbers[1]
