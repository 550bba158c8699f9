"""The decision log: read back by the import, never in a decision's way, whole after kill -9, honest about losses."""

import asyncio
import fcntl
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logs_schema import Archive, import_log
from logs_schema.tables import REQUESTS
from offline_rl.runner import Request
from offline_rl.serving import journal as journal_module
from offline_rl.serving.decision_log import DECISION_COLUMNS, REQUEST_COLUMNS, DecisionLog
from offline_rl.serving.journal import Journal, whole_lines
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.plain import RequestEvent
from offline_rl.serving.queries import PlacementQuery
from tests.serving.making import NAMES, made_service, metric, until

ROOT = Path(__file__).resolve().parents[2]


def lines_of(folder: Path) -> list[str]:
    """All rows of a journal's files, headers left out."""
    rows: list[str] = []
    for path in sorted(folder.iterdir()):
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        rows += text.splitlines()[1:]
    return rows


def test_the_columns_are_those_of_the_table_and_the_last_one_betrays_a_torn_line():
    assert set(REQUEST_COLUMNS) <= set(REQUESTS.names)
    assert {column.name for column in REQUESTS.columns if not column.nullable} <= set(REQUEST_COLUMNS)
    last = REQUESTS.column(REQUEST_COLUMNS[-1])
    assert not last.nullable
    assert not any(
        other.startswith(status) and other != status for status in last.allowed for other in last.allowed
    )


def test_a_day_of_decisions_becomes_an_archive_with_outcomes_and_propensities(tmp_path):
    now = [1_700_000_000.0]
    service = made_service(log=tmp_path / "log", clock=lambda: now[0])
    wanted = Request(cpu_cores=2.0, service='re"size,\n'.replace("\n", ""), site="zone-b", deadline_s=9.0)

    async def live() -> None:
        for number in range(6):
            await service.decide(
                PlacementQuery(
                    f"r{number}", now[0] - 1.0, wanted, NAMES[: 1 + number % 4], unspecified=frozenset()
                )
            )
            now[0] += 10.0
        service.report([RequestEvent("r1", now[0], None, None), RequestEvent("r2", now[0], "node-0", None)])
        service.report(
            [RequestEvent("r1", now[0] + 5.0, None, "failed"), RequestEvent("r3", now[0], None, "rejected")]
        )
        await service.decide(PlacementQuery("r5", now[0], wanted, NAMES))  # asked again
        await service.decide(
            PlacementQuery("late", now[0], wanted, ("node-3",), unspecified=frozenset({"cpu_cores"}))
        )

    asyncio.run(live())
    service.log.close()
    report = import_log("native", [tmp_path / "log" / "requests"], tmp_path / "archive")
    assert report.quarantined.get("requests", {}) == {}
    rows = {row["request_id"]: row for row in Archive(tmp_path / "archive").read("requests").to_pylist()}
    assert sorted(rows) == ["late", "r0", "r1", "r2", "r3", "r4", "r5"]
    statuses = {name: row["status"] for name, row in rows.items()}
    assert statuses == {
        "r0": "unknown",
        "r1": "failed",
        "r2": "running",
        "r3": "rejected",
        "r4": "unknown",
        "r5": "waiting",
        "late": "waiting",
    }
    first, ended = rows["r0"], rows["r1"]
    assert (first["offered_node"], first["propensity"], first["candidates"]) == ("node-0", 1.0, ["node-0"])
    assert (first["cpu_cores"], first["deadline_s"], first["site"], first["service"]) == (
        2.0,
        9.0,
        "zone-b",
        're"size,',
    )
    assert (first["arrival"].timestamp(), first["decided"].timestamp()) == (1_699_999_999.0, 1_700_000_000.0)
    assert (ended["start"].timestamp(), ended["finish"].timestamp()) == (1_700_000_060.0, 1_700_000_065.0)
    assert (ended["accepted"], ended["ran_node"]) == (True, ended["offered_node"])
    assert (rows["r2"]["ran_node"], rows["r3"]["accepted"], rows["late"]["cpu_cores"]) == (
        "node-0",
        False,
        None,
    )
    assert rows["r5"]["decided"] == rows["late"]["decided"]  # the later decision counts
    decisions = lines_of(tmp_path / "log" / "decisions")
    assert len(decisions) == 8
    assert dict(zip(DECISION_COLUMNS, decisions[0].split(","), strict=True))["arm"] == "policy"


def test_a_torn_line_is_cut_off_by_whoever_comes_next(tmp_path):
    torn = tmp_path / "requests-20240101T000000-1.csv"
    torn.write_text("a,b\n1,2\n3,")
    Journal(tmp_path, "requests", ("a", "b"))
    assert not torn.exists()
    assert lines_of(tmp_path) == ["1,2"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".gz"]


@pytest.mark.parametrize("content", [b"", b"a,b", b"a,b\n"])
def test_a_file_without_rows_leaves_nothing(tmp_path, content):
    (tmp_path / "requests-20240101T000000-1.csv").write_bytes(content)
    Journal(tmp_path, "requests", ("a", "b"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_use_is_left_alone(tmp_path):
    used = Journal(tmp_path, "requests", ("a",))
    used.write([["1"]])
    other = Journal(tmp_path, "requests", ("a",))
    other.write([["2"]])
    used.write([["3"]])
    used.close()
    other.close()
    assert sorted(lines_of(tmp_path)) == ["1", "2", "3"]


def test_a_kill_while_compressing_loses_and_doubles_nothing(tmp_path):
    plain, packed = tmp_path / "requests-1.csv", tmp_path / "requests-1.csv.gz"
    plain.write_text("a\n1\n")
    packed.write_bytes(gzip.compress(b"a\n1\n"))  # renamed, but the plain one not removed yet
    (tmp_path / ".requests-2.csv.gz.writing").write_bytes(b"half")
    Journal(tmp_path, "requests", ("a",))
    assert [path.name for path in tmp_path.iterdir()] == ["requests-1.csv.gz"]
    assert lines_of(tmp_path) == ["1"]


def test_files_are_closed_when_they_are_large(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "CLOSE_AFTER_BYTES", 100)
    journal = Journal(tmp_path, "requests", ("a",))
    for number in range(10):
        journal.write([["x" * 60, number]])
    assert len(list(tmp_path.glob("*.gz"))) == 5
    assert len(lines_of(tmp_path)) == 10


def test_a_write_that_fails_half_way_is_taken_back(tmp_path, monkeypatch):
    journal = Journal(tmp_path, "requests", ("a",))
    journal.write([["1"]])
    write = os.write

    def full(descriptor: int, content: bytes) -> int:
        write(descriptor, bytes(content)[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        journal.write([["22222"]])
    monkeypatch.undo()
    journal.write([["3"]])
    journal.close()
    assert lines_of(tmp_path) == ["1", "3"]


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def moved(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


@pytest.mark.parametrize(("how", "kept"), [(removed, ["1", "2", "3"]), (moved, ["3"])])
def test_a_folder_that_is_gone_is_made_again_with_the_rows_of_the_open_file(tmp_path, how, kept):
    folder = tmp_path / "requests"
    journal = Journal(folder, "requests", ("a",))
    journal.write([["1"]])
    journal.write([["2"]])
    how(folder)
    journal.write([["3"]])
    journal.close()
    assert lines_of(folder) == kept
    assert journal.num_rewritten == (how is removed)
    if how is moved:
        assert lines_of(tmp_path / "elsewhere") == ["1", "2"]


def test_a_file_deleted_before_it_is_closed_is_compressed_all_the_same(tmp_path):
    journal = Journal(tmp_path / "log", "requests", ("a",))
    journal.write([["1"]])
    shutil.rmtree(tmp_path / "log")
    journal.close()
    assert lines_of(tmp_path / "log") == ["1"]


def test_rows_of_a_deleted_file_wait_for_a_disk_that_can_be_written(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "log", "requests", ("a",))
    journal.write([["1"]])
    shutil.rmtree(tmp_path / "log")
    write, parts = os.write, iter([3, 0])

    def full(descriptor: int, content: bytes) -> int:
        if left := next(parts, 0):
            return write(descriptor, bytes(content)[:left])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            journal.write([["2"]])
    monkeypatch.undo()
    journal.write([["3"]])
    journal.close()
    assert lines_of(tmp_path / "log") == ["1", "3"]


def test_a_folder_deleted_while_serving_loses_no_row_and_is_counted(tmp_path, capsys):
    service = made_service(log=tmp_path / "log")

    def decide(first: int) -> None:
        for number in range(first, first + 20):
            asyncio.run(service.decide(PlacementQuery(f"r{number}", 0.0, Request(), NAMES)))

    decide(0)
    assert until(lambda: metric(service, "log_rows_written_total") == 40)
    shutil.rmtree(tmp_path / "log")
    decide(20)
    assert until(lambda: metric(service, "log_rows_written_total") == 80)
    service.log.close()
    assert len(lines_of(tmp_path / "log" / "requests")) == len(lines_of(tmp_path / "log" / "decisions")) == 40
    assert metric(service, "log_files_rewritten_total") == 2
    assert metric(service, "log_errors_total") == 0
    assert "has been written again" in capsys.readouterr().err


def test_logs_are_for_the_owner_and_the_group(tmp_path):
    journal = Journal(tmp_path / "log", "requests", ("a",))
    journal.write([["1"]])
    (plain,) = (tmp_path / "log").iterdir()
    modes = [plain.stat().st_mode]
    journal.close()
    modes += [path.stat().st_mode for path in (tmp_path / "log", *(tmp_path / "log").iterdir())]
    assert [mode & 0o137 for mode in modes] == [0, 0o110, 0]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_whoever_mends_between_a_files_beginning_and_its_lock_costs_no_row(tmp_path, monkeypatch, moment):
    lock, mended = fcntl.flock, []

    def racing(descriptor: int, operation: int) -> None:
        if mended:
            lock(descriptor, operation)
            return
        mended.append(True)
        path = next(tmp_path.glob("*.csv"))
        if moment == "before":  # another process takes the file for that of a dead one, and is done with it
            Journal(tmp_path, "requests", ("a",))
            lock(descriptor, operation)
            return
        other = os.open(path, os.O_RDWR)  # it is at it this very moment
        lock(other, operation)
        path.unlink()
        try:
            lock(descriptor, operation)
        finally:
            os.close(other)

    journal = Journal(tmp_path, "requests", ("a",))
    monkeypatch.setattr(fcntl, "flock", racing)
    journal.write([["1"]])
    journal.write([["2"]])
    journal.close()
    assert mended
    assert lines_of(tmp_path) == ["1", "2"]


def test_two_who_mend_one_folder_do_not_hinder_each_other(tmp_path, monkeypatch):
    (tmp_path / "requests-1.csv").write_text("a\n1\n")
    lock, mended = fcntl.flock, []

    def racing(descriptor: int, operation: int) -> None:
        if not mended:
            mended.append(True)
            Journal(tmp_path, "requests", ("a",))
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", racing)
    Journal(tmp_path, "requests", ("a",))
    assert lines_of(tmp_path) == ["1"]


def test_whole_lines_of_large_files(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a\n" + b"b" * 200_000)
    assert whole_lines(path) == 2


def test_a_disk_that_cannot_be_written_loses_no_decision_and_says_so(tmp_path, monkeypatch, capsys):
    fsync, broken = os.fsync, [True]

    def failing(descriptor: int) -> None:
        if broken[0]:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    service = made_service(log=tmp_path / "log")
    answer = asyncio.run(service.decide(PlacementQuery("r", 0.0, Request(), NAMES)))
    assert answer.node == NAMES[-1]
    assert until(lambda: metric(service, "log_errors_total") >= 1)
    assert metric(service, "log_writable") == 0
    assert "cannot be written, decisions go on" in capsys.readouterr().err
    broken[0] = False
    assert until(lambda: metric(service, "log_rows_written_total") == 2)
    assert metric(service, "log_writable") == 1
    assert metric(service, "log_rows_lost_total") == 0
    service.log.close()
    assert len(lines_of(tmp_path / "log" / "requests")) == 1


def test_rows_of_a_file_that_cannot_be_compressed_are_written_once(tmp_path, monkeypatch, capsys):
    def full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_module, "CLOSE_AFTER_BYTES", 10)
    monkeypatch.setattr(journal_module, "compress", full)
    metrics = Metrics()
    log = DecisionLog(tmp_path, metrics)
    log.decision(["r1"] + [None] * (len(DECISION_COLUMNS) - 1))
    assert until(lambda: metrics.registry.get_sample_value("schedtwin_log_rows_written_total") == 1)
    assert until(lambda: metrics.registry.get_sample_value("schedtwin_log_errors_total") == 1)
    assert metrics.registry.get_sample_value("schedtwin_log_writable") == 1
    monkeypatch.undo()
    log.decision(["r2"] + [None] * (len(DECISION_COLUMNS) - 1))
    log.close()
    assert sorted(line.split(",")[0] for line in lines_of(tmp_path / "decisions")) == ["r1", "r2"]
    assert "could not be closed and compressed, and stays as it is" in capsys.readouterr().err
    Journal(tmp_path / "decisions", "decisions", DECISION_COLUMNS)
    assert {path.suffix for path in (tmp_path / "decisions").iterdir()} == {".gz"}


def test_what_waits_for_a_broken_disk_is_bounded_and_what_is_lost_is_counted(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    metrics = Metrics()
    log = DecisionLog(blocked / "log", metrics, max_pending=10)
    for number in range(50):
        log.request([str(number)] * len(REQUEST_COLUMNS))
    log.close()
    assert metrics.log_rows_lost._value.get() == 50
    assert metrics.log_writable._value.get() == 0


def test_kill_9_while_writing_leaves_whole_rows_and_loses_the_last_moment_only(tmp_path):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from offline_rl.serving.decision_log import DecisionLog, REQUEST_COLUMNS\n"
        "from offline_rl.serving.metrics import Metrics\n"
        "log = DecisionLog(Path(sys.argv[1]), Metrics())\n"
        "number = 0\n"
        "while True:\n"
        "    row = dict.fromkeys(REQUEST_COLUMNS) | {'request_id': str(number), 'arrival': str(number), 'site': 's'}\n"
        "    log.request([*(row | {'status': 'unknown', 'candidates': ['n'] * 200}).values()])\n"
        "    number += 1\n"
        "    if number % 200 == 0:\n"
        "        print(number, time.monotonic(), flush=True)\n"
        "        time.sleep(0.01)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        submitted = [process.stdout.readline().split() for _ in range(60)]
        killed_s = time.monotonic()
        process.send_signal(signal.SIGKILL)
        process.wait()
        submitted += [
            line.split() for line in process.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")
        ]
    report = import_log("native", [tmp_path / "requests"], tmp_path / "archive")  # as it was left, unmended
    assert report.rows["requests"] > 0
    Journal(tmp_path / "requests", "requests", REQUEST_COLUMNS)
    kept = [line.split(",")[0] for line in lines_of(tmp_path / "requests")]
    assert kept == [str(number) for number in range(len(kept))]  # no hole, no torn row
    long_before = [int(number) for number, told_s in submitted if float(told_s) < killed_s - 2.0]
    assert len(kept) >= max(long_before, default=0)
