"""What jobs waited for, where processors enough for them were free, is read off the log and said."""

import json

import numpy as np
import pytest

from evaluation.problems.ordering import doubts
from evaluation.problems.ordering.log_gaps import WITH_ROOM, head_in_words
from evaluation.problems.ordering.replay_report import as_lines
from evaluation.problems.ordering.replaying import ReplayConfig, replay_archive
from evaluation.problems.ordering.waits_with_room import HeldAmounts, waited, waits_in_words
from logs_schema.archive import Archive
from logs_schema.progress import SilentProgress
from tests.command import run
from tests.ordering.pool_archives import job, write
from twin.ordering.jobs import read_jobs
from twin.ordering.pools import pool_of

NODES = tuple((f"n{place}", "plain", 8.0) for place in range(4))
RUN_S = 600


def waves(at_once, **asked):
    """Jobs that come together and run so many at once, each with a node of its own in turn."""
    rows = []
    for number in range(40):
        wave, place = divmod(number, at_once)
        node = NODES[place % len(NODES)][0]
        rows.append(job(str(number), 0, asked=RUN_S, ran=RUN_S, waited=RUN_S * wave, ran_node=node) | asked)
    return rows


def found(folder, rows, nodes=NODES):
    archive = Archive(write(folder, rows, nodes))
    return waits_in_words(archive, read_jobs(archive), pool_of(archive, None))


def test_waiting_time_beside_room_is_what_a_count_second_by_second_finds():
    rng = np.random.default_rng(0)
    arrival, wait, run = (
        rng.integers(low, high, 60).astype(float) for low, high in ((0, 90), (0, 40), (1, 30))
    )
    held = HeldAmounts(arrival, arrival + wait, arrival + wait + run, rng.integers(1, 6, 60).astype(float))
    seconds = 0
    for begin, start, amount in zip(held.arrival_s, held.start_s, held.amount, strict=True):
        for second in np.arange(begin, start):
            used = held.amount[(held.start_s <= second) & (held.end_s > second)].sum()
            seconds += used + amount <= 30.0
    assert waited(held, 30.0) == (wait.sum(), seconds)
    assert 0 < seconds < wait.sum()
    assert waited(held._replace(start_s=np.full(60, np.nan)), 30.0) == (0.0, 0.0)


def test_a_queue_that_waits_for_processors_needs_no_word(tmp_path):
    assert found(tmp_path / "log", waves(4, cpu_cores=8.0)) == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"cpu_cores": 1.0, "gpus": 1.0}, "GPUs enough were free in 0% of the time"),
        ({"cpu_cores": 1.0, "memory_gib": 60.0}, "memory enough were free in 0% of the time"),
        ({"cpu_cores": 1.0}, "nodes are given whole"),
    ],
)
def test_what_jobs_wait_for_is_named_as_far_as_the_log_tells(tmp_path, asked, words):
    rows = waves(8 if len(asked) > 1 else 4, **asked)
    (note,) = found(tmp_path / "log", rows)
    assert f"100% of that time {WITH_ROOM}" in note
    assert words in note
    assert head_in_words([note])[0].startswith("The log's jobs waited")


def test_room_that_no_single_node_has_is_named(tmp_path):
    """Every other job asks for more memory than any node has left beside the small ones, which fit together."""
    rows = [
        job(
            f"small {place} {turn}",
            0,
            ran=80 * RUN_S,
            asked=80 * RUN_S,
            memory_gib=10.0,
            ran_node=f"n{place}",
        )
        for place in range(4)
        for turn in range(2)
    ]
    rows += [
        job(
            f"large {turn}",
            5,
            ran=RUN_S,
            asked=RUN_S,
            memory_gib=15.0,
            ran_node="n0",
            waited=(80 + turn) * RUN_S,
        )
        for turn in range(20)
    ]
    rows += [
        job(f"wide {turn}", 200 * RUN_S, ran=RUN_S, asked=RUN_S, memory_gib=20.0, ran_node=f"n{turn}")
        for turn in range(4)
    ]
    rows += [
        job(f"beside {turn}", 200 * RUN_S, ran=RUN_S, asked=RUN_S, memory_gib=5.0, ran_node=f"n{turn}")
        for turn in range(4)
    ]
    (note,) = found(tmp_path / "log", rows)
    assert "no single node had the processors, memory and GPUs" in note


def test_a_log_that_does_not_tell_what_jobs_wait_for_is_said_to_be_silent(tmp_path):
    rows = [row | {"ran_node": None, "ran_nodes": ["n0", "n1"]} for row in waves(4)]
    shared = [row | {"request_id": f"beside {row['request_id']}", "arrival": row["start"]} for row in rows]
    (note,) = found(tmp_path / "log", rows + shared)
    assert "the log does not tell what for" in note


def test_a_replay_of_the_whole_log_says_so(tmp_path):
    found(tmp_path / "log", waves(8, cpu_cores=1.0, gpus=1.0))
    day = Archive(tmp_path / "log").days("requests")[0]
    whole, part = (
        replay_archive(tmp_path / "log", ReplayConfig(days=days), SilentProgress())
        for days in (None, (day, day))
    )
    (doubt,) = [one for one in whole.to_json()["doubts"] if WITH_ROOM in one]
    assert "GPUs enough were free" in doubt
    assert doubt[1:] in as_lines(whole)
    assert part.to_json()["doubts"] == []


def test_the_check_of_an_archive_says_so_too(tmp_path, capsys):
    found(tmp_path / "log", waves(8, cpu_cores=1.0, gpus=1.0))
    replayed = replay_archive(tmp_path / "log", ReplayConfig(), SilentProgress()).to_json()["doubts"]
    replayed = [one for one in replayed if WITH_ROOM in one]
    assert run("check", tmp_path / "log", "--json", "--no-progress") == 0
    assert json.loads(capsys.readouterr().out)["doubts"] == [
        f"replayed as a queue: {one}" for one in replayed
    ]
    run("check", tmp_path / "log", "--no-progress")
    text = " ".join(capsys.readouterr().out.split())
    assert all(one in text for one in replayed)
    assert replayed


def test_of_a_log_of_many_jobs_the_check_looks_at_the_last_days(tmp_path, monkeypatch):
    """The jobs of its first day waited for nothing; those of its last day for GPUs."""
    day_s = 86_400
    early = [job(f"early {number}", number, ran_node="n0") for number in range(50)]
    late = [
        row | {name: row[name] + 3 * day_s for name in ("arrival", "start", "finish")}
        for row in waves(8, cpu_cores=1.0, gpus=1.0)
    ]
    archive = Archive(write(tmp_path / "log", early + late, NODES))
    monkeypatch.setattr(doubts, "MOST_JOBS", 60)
    (said,) = doubts.doubts_of_archive(archive)
    assert "its last 1 day of 2: " in said
    monkeypatch.setattr(doubts, "MOST_JOBS", 30)
    (said,) = doubts.doubts_of_archive(archive)
    assert "was not looked at" in said


def test_a_log_with_nodes_at_its_sites_is_none_of_queues(tmp_path):
    archive = Archive(write(tmp_path / "log", waves(8, cpu_cores=1.0, gpus=1.0), NODES, tier="edge"))
    assert doubts.doubts_of_archive(archive) == ()
