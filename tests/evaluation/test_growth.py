"""What commands take on more and more days: figures of the processes, exponents by hand, refusals."""

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from evaluation.reproduction.benches import growth
from evaluation.reproduction.benches.growth import Cost, GrowthConfig, _exponents, _measured, measure_growth
from evaluation.simulator.logs import simulate
from logs_schema import REQUESTS, ArchiveWriter, ConfigError
from logs_schema.formats.reading import tabulate
from logs_schema.progress import SilentProgress

ONE_DAY = {"steps": ("survey",), "days": (1,)}


def test_exponents_by_hand() -> None:
    costs = [Cost("fit", n, 1000 * n, 500.0, 2.0 * n, 1.0) for n in (1, 4, 16)]
    assert _exponents(costs, "peak_mib")["fit"] == pytest.approx(0.0, abs=1e-9)
    assert _exponents(costs, "processor_s")["fit"] == pytest.approx(1.0)


def test_a_process_is_measured_and_a_failed_one_told() -> None:
    small, large = (_measured([sys.executable, "-c", f"x = bytearray({size} << 20)"])[0] for size in (1, 200))
    assert 150 < large - small < 260
    with pytest.raises(ConfigError, match="status 3"):
        _measured([sys.executable, "-c", "import sys; sys.exit(3)"])


@pytest.mark.slow
def test_a_command_that_is_measured_ends_with_the_measurement(tmp_path: Path) -> None:
    program = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    words = [sys.executable, "-c", program, str(tmp_path / "pid")]
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    measuring = f"{heeds}; from {growth.__name__} import _measured; _measured({words!r})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", measuring], env=environment, stderr=subprocess.DEVNULL
    ) as bench:
        until_s = time.monotonic() + 60.0
        while not (file := tmp_path / "pid").exists() or not file.read_text():
            assert time.monotonic() < until_s
            time.sleep(0.02)
        measured = psutil.Process(int(file.read_text()))
        bench.send_signal(signal.SIGINT)
        bench.wait(20.0)
        try:
            assert not psutil.wait_procs([measured], timeout=10.0)[1]
        finally:
            with suppress(psutil.NoSuchProcess):
                measured.kill()


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    for given in ({"steps": ("fly",)}, {"steps": ("train",)}, {"days": (7, 1)}, {"days": ()}, ONE_DAY):
        with pytest.raises(ConfigError):
            GrowthConfig(**given)
    with ArchiveWriter(tmp_path / "archive") as writer:
        row = {"request_id": "1", "arrival": 0.0, "site": "s", "status": "unknown"}
        writer.write("requests", tabulate(REQUESTS, [row]), source="made")
    with pytest.raises(ConfigError, match="1 days"):
        measure_growth(tmp_path / "archive", GrowthConfig(days=(2,)), tmp_path, SilentProgress())


def test_what_was_measured_of_another_log_or_with_other_settings_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(growth, "_measured", lambda words, _: measured.append(words[4]) or (1.0, 1.0, 1.0))
    for name in ("one", "other"):
        with ArchiveWriter(tmp_path / name) as writer:
            row = {"request_id": name, "arrival": 0.0, "site": "s", "status": "unknown"}
            writer.write("requests", tabulate(REQUESTS, [row]), source="made")
    cases = (("one", ""), ("one", ""), ("one", "[twin]\nnum_steps = 9\n"), ("other", ""), ("one", ""))
    for name, settings in cases:
        config = GrowthConfig(days=(1,), settings=settings)
        measure_growth(tmp_path / name, config, tmp_path, SilentProgress())
    assert [Path(one).name for one in measured] == ["one", "one", "other"]


def test_figures_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_measured", lambda *_: (1.0, 1.0, 1.0))
    with ArchiveWriter(tmp_path / "archive") as writer:
        row = {"request_id": "1", "arrival": 0.0, "site": "s", "status": "unknown"}
        writer.write("requests", tabulate(REQUESTS, [row]), source="made")

    def full_disk(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    config = GrowthConfig(days=(1,))
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space"):
            measure_growth(tmp_path / "archive", config, tmp_path, SilentProgress())
    (cost,) = measure_growth(tmp_path / "archive", config, tmp_path, SilentProgress()).costs
    assert cost.peak_mib == 1.0


@pytest.mark.slow
def test_the_memory_of_a_fit_does_not_grow_with_what_it_cannot_use(tmp_path: Path) -> None:
    simulate("kais", 12, "mix", 0, tmp_path / "archive")
    config = GrowthConfig((4, 12), ("fit",), '[twin]\nnum_steps = 100\n[population]\nkind = "none"\n')
    found = measure_growth(tmp_path / "archive", config, tmp_path, SilentProgress())
    assert found.memory_exponent["fit"] < 0.3
    assert found.time_exponent["fit"] < 0.5
