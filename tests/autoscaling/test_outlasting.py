"""What an autoscaler outlasts: a disk that is full for a while, a clock that is set back."""

import csv
import json
import resource
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from evaluation.commands import autoscale
from offline_rl.runner.scaling import ScalingPolicy
from offline_rl.serving.scaling_controller import Controller
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from offline_rl.serving.scaling_journal import _append
from tests.autoscaling.guarded import INTERVAL_S, NAMES, policy_of
from tests.autoscaling.test_written_resources import NOW_S, KeptCluster, Monitored

BACK_S = 3_600.0


class Clock:
    """Seconds since 1970, that somebody sets."""

    def __init__(self, now_s=NOW_S):
        self.now_s = now_s

    def __call__(self):
        return self.now_s


@contextmanager
def disk_full_after(num_bytes):
    """No file of this process grows beyond so many bytes; its write is cut there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def controller(tmp_path):
    policy, arrays = policy_of(0.6)
    cluster = KeptCluster({"name": "main", "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}}})
    guard = Guard(ScalingPolicy(policy.setting, dict(arrays)), GuardConfig())
    return Controller(guard, Monitored(), cluster, "shop", (), tmp_path, Clock())


def logged(folder):
    """The rows of the log, by their instants; its files are whole."""
    rows = []
    for path in sorted((folder / "deployment_samples").glob("*.csv")):
        with path.open(newline="") as file:
            rows += list(csv.DictReader(file, strict=True))
    assert all(None not in row and None not in row.values() for row in rows)
    for path in (folder / "decisions").glob("*.jsonl"):
        assert all(json.loads(line) for line in path.read_text().splitlines())
    return [row["time"] for row in rows if row["deployment"] == NAMES[0]]


def test_a_disk_that_is_full_for_a_while_leaves_no_half_lines(tmp_path, controller):
    controller.clock.now_s -= INTERVAL_S
    assert "log_error" not in controller.step()
    (decisions,) = (tmp_path / "decisions").iterdir()
    with disk_full_after(decisions.stat().st_size + 20):
        assert "too large" in controller.step()["log_error"]
    controller.clock.now_s += INTERVAL_S
    assert "log_error" not in controller.step()
    assert len(logged(tmp_path)) == 2


def test_what_does_not_fit_is_not_written_at_all(tmp_path):
    path = tmp_path / "log.csv"
    for room, line, held in ((3, "one\n", ""), (100, "one\n", "head\none\n"), (12, "three\n", "head\none\n")):
        with disk_full_after(room), suppress(OSError):
            _append(path, line, head="head\n")
        assert path.read_text() == held


def test_a_clock_that_was_ahead_stops_the_log_for_no_longer_than_an_interval(tmp_path, controller):
    controller.clock.now_s += BACK_S
    controller.step()
    controller.clock.now_s -= BACK_S + INTERVAL_S
    controller.step()
    controller.clock.now_s += INTERVAL_S
    controller.step()
    assert len(logged(tmp_path)) == 2


def test_a_clock_that_is_set_back_prolongs_no_wait(monkeypatch):
    waits, clock = [], iter([NOW_S, NOW_S - BACK_S])
    monkeypatch.setattr(autoscale.time, "time", lambda: next(clock))
    setting = SimpleNamespace(interval_s=INTERVAL_S)
    controller = SimpleNamespace(
        step=lambda: {"time": "now", "deployments": []},
        guard=SimpleNamespace(policy=SimpleNamespace(setting=setting)),
    )
    over = SimpleNamespace(is_set=lambda: bool(waits), wait=waits.append)
    autoscale._decide(controller, SimpleNamespace(json=False, decisions=None), over)
    assert waits[0] <= INTERVAL_S
