"""`schedtwin replay` from the outside."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

from tests.command import run

LOG = """; UnixStartTime: 1000000000
; MaxProcs: 6
0 0 0 10 4 -1 -1 4 10 -1 1 1 1 -1 1 -1 -1 -1
1 1 0 5 6 -1 -1 6 5 -1 1 2 1 -1 1 -1 -1 -1
2 2 0 8 2 -1 -1 2 8 -1 1 1 1 -1 1 -1 -1 -1
3 3 0 8 9 -1 -1 9 8 -1 1 1 1 -1 1 -1 -1 -1
"""
START = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)


@pytest.fixture
def archive(tmp_path, capsys):
    (tmp_path / "log.swf").write_text(LOG)
    assert run("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "archive") == 0
    capsys.readouterr()
    return tmp_path / "archive"


def rows(path):
    return pq.read_table(path).to_pylist()


def test_waits_of_every_job_and_figures(archive, tmp_path, capsys):
    out = tmp_path / "waits.parquet"
    words = ("replay", archive, "--problem", "ordering", "--policy", "fcfs", "--easy", "--processors", 6)
    assert run(*words, "--out", out, "--json", "--no-progress") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert [(row["request_id"], row["wait_s"]) for row in rows(out)] == [
        ("0", 0.0),
        ("1", 9.0),
        ("2", 0.0),
        ("3", None),  # larger than the machine
    ]
    assert rows(out)[1]["start"] == START + timedelta(seconds=10)
    found = json.loads(shown.out)
    assert found["counts"]["too_large"] == 1
    assert found["policies"]["fcfs"]["mean_wait_s"] == 3.0
    assert found["policies"]["fcfs"]["num_backfilled"] == 1


def test_several_policies_share_a_file_and_a_table(archive, tmp_path, capsys):
    out = tmp_path / "waits.parquet"
    assert run("replay", archive, "--policy", "fcfs", "--policy", "sjf", "--out", out) == 0
    assert [row["policy"] for row in rows(out)] == ["fcfs"] * 4 + ["sjf"] * 4
    assert [row["wait_s"] for row in rows(out)] == [0.0, 9.0, 13.0, None, 0.0, 9.0, 13.0, None]
    text = capsys.readouterr().out
    assert {"fcfs", "sjf"} <= {line.split()[0] for line in text.splitlines() if line.strip()}
    assert "6 processors" in text  # the archive's own
    assert "1 x too_large (larger than the pool: they never start)" in text


def test_an_older_file_is_replaced_only_when_asked(archive, tmp_path, capsys):
    words = ("replay", archive, "--out", tmp_path / "waits.parquet")
    assert run(*words) == 0
    assert run(*words) == 2
    assert "--replace" in capsys.readouterr().err
    assert run(*words, "--replace") == 0


def test_cancelled_jobs_are_left_out_or_withdrawn_and_said(tmp_path, capsys):
    (tmp_path / "log.swf").write_text(LOG + "4 4 5 0 6 -1 -1 6 9 -1 5 1 1 -1 1 -1 -1 -1\n")
    assert run("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "archive") == 0
    words = ("replay", tmp_path / "archive", "--policy", "sjf")
    capsys.readouterr()
    assert run(*words) == 0
    assert "1 x cancelled (before they started: left out)" in capsys.readouterr().out
    assert run(*words, "--withdraw", "--out", tmp_path / "waits.parquet") == 0
    shown = capsys.readouterr().out
    assert "1 x withdrawn (cancelled before they started: in the queue until then, in no figure)" in shown
    assert "4 jobs on 6 processors" in shown
    assert [row["wait_s"] for row in rows(tmp_path / "waits.parquet")][-1] is None


def test_a_log_without_waits_says_so_and_large_pools_are_written_in_full(tmp_path, capsys):
    lines = [line.split() for line in LOG.replace("MaxProcs: 6", "MaxProcs: 1572864").splitlines()]
    unknown = [line if line[0] == ";" else [*line[:2], "-1", *line[3:]] for line in lines]
    (tmp_path / "log.swf").write_text("\n".join(map(" ".join, unknown)) + "\n")
    assert run("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "archive") == 0
    assert run("replay", tmp_path / "archive", "--policy", "sjf") == 0
    text = capsys.readouterr().out
    assert "4 jobs on 1,572,864 processors" in text
    assert "the log has no waits\n" in text
    assert "n/a" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--backfill", "sjf"), "--easy"),
        (("--processors", "0"), "more than 0"),
        (("--out", "absent/waits.parquet"), "no folder"),
        (("--policy", "sjf", "--waits", "elsewhere/sjf.swf.gz"), "rename the file"),
        (("--waits", "a/easy.swf", "--waits", "b/easy.swf"), "rename the file"),
    ],
)
def test_what_cannot_be_is_refused(archive, capsys, words, message):
    assert run("replay", archive, *words) == 2
    assert message in capsys.readouterr().err


def test_help_lists_the_rules(capsys):
    with pytest.raises(SystemExit, match="0"):
        run("replay", "--help")
    shown = capsys.readouterr().out
    assert all(
        name in shown for name in ("fcfs", "sjf", "saf", "ljf", "wfp3", "unicef", "f1", "logged_order")
    )
