"""Archives whose nodes are of several classes: each class is a queue of its own, and one pool stays what it was."""

import json
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation.problems.configuration import OrderConfig
from evaluation.problems.ordering.config import as_settings
from evaluation.problems.ordering.replay_report import write_waits
from evaluation.problems.ordering.replaying import ReplayConfig, replay_archive
from logs_schema import Archive, import_log
from logs_schema.progress import SilentProgress
from logs_schema.records import to_plain
from tests.command import run_silently as run
from tests.ordering.making import jobs_of, use_peak
from tests.ordering.pool_archives import NODES, OF_CLASS, job, random_jobs, write
from twin.ordering.jobs import read_jobs
from twin.ordering.pools import pool_sizes
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, RULES
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.types import Pool

ALL_RULES = ReplayConfig(policies=tuple(rule.name for rule in RULES), easy=True)


def played(archive, config=ALL_RULES):
    return replay_archive(archive, config, SilentProgress())


def rows_of(tmp_path, report):
    """(pool, policy, request) -> (wait, start), as written."""
    write_waits(tmp_path / "waits.parquet", report, replace=True)
    rows = pq.read_table(tmp_path / "waits.parquet").to_pylist()
    return {
        (row.get("pool"), row["policy"], row["request_id"]): (row["wait_s"], row["start"]) for row in rows
    }


@pytest.fixture(scope="module")
def two_pools(tmp_path_factory):
    """An archive with two pools, and for each its jobs and nodes alone in an archive of their own."""
    folder, rows = tmp_path_factory.mktemp("pools"), random_jobs(0)
    own = {
        pool: write(
            folder / pool,
            [row for row in rows if row["ran_node"] in nodes],
            [node for node in NODES if node[1] == pool],
        )
        for pool, nodes in OF_CLASS.items()
    }
    return write(folder / "both", rows), own


@pytest.mark.parametrize(
    "config",
    [ALL_RULES, replace(ALL_RULES, easy=False, clairvoyant=True)],
    ids=["easy", "clairvoyant"],
)
def test_every_pool_is_replayed_as_if_it_were_alone(two_pools, tmp_path, config):
    both, own = two_pools
    expected, summaries = {}, {}
    for pool, archive in own.items():
        alone = played(archive, config)
        summaries[pool] = alone.queues[0].summaries
        expected |= {(pool, *key[1:]): value for key, value in rows_of(tmp_path, alone).items()}
    together = played(both, config)
    assert rows_of(tmp_path, together) == expected
    for queue in together.queues:
        for name, figures in queue.summaries.items():
            assert figures == pytest.approx(summaries[queue.pool.name][name], rel=1e-12)
    assert any(wait_s is None for wait_s, _ in expected.values())  # larger than its pool
    only = played(both, replace(config, pool="slim"))
    assert rows_of(tmp_path, only) == {
        (None, *key[1:]): value for key, value in expected.items() if key[0] == "slim"
    }


@pytest.mark.parametrize("warm", ["logged", "easy"])
def test_days_of_every_pool_are_replayed_as_if_it_were_alone(two_pools, tmp_path, warm):
    both, own = two_pools
    days = Archive(both).days("requests")
    config = replace(ALL_RULES, days=(days[1], days[1]), warm=warm)
    expected = {
        (pool, *key[1:]): value
        for pool, archive in own.items()
        for key, value in rows_of(tmp_path, played(archive, config)).items()
    }
    assert rows_of(tmp_path, played(both, config)) == expected


def test_all_pools_together_are_all_their_jobs(two_pools):
    report = played(two_pools[0])
    plain = report.to_json()
    for name, figures in plain["policies"].items():
        wait_s, run_s, used, slowdowns, begin, end = [], [], 0.0, defaultdict(list), [], []
        for queue in report.queues:
            start_s = queue.schedules[name].start_s
            ran = ~np.isnan(start_s)
            wait_s.extend((start_s - queue.jobs.arrival_s)[ran])
            run_s.extend(queue.jobs.run_s[ran])
            used += np.sum((queue.jobs.processors * queue.jobs.run_s)[ran])
            slowdown = bounded_slowdown((start_s - queue.jobs.arrival_s)[ran], queue.jobs.run_s[ran])
            for agent, value in zip(queue.jobs.agent[ran], slowdown, strict=True):
                slowdowns[agent].append(value)
            origin_s = queue.jobs.origin_us / 1e6
            begin.append(origin_s + queue.jobs.arrival_s[ran][0])
            end.append(origin_s + np.max((start_s + queue.jobs.run_s)[ran]))
        users = np.array([np.mean(values) for values in slowdowns.values()])
        assert figures["mean_wait_s"] == pytest.approx(np.mean(wait_s))
        assert figures["p99_wait_s"] == pytest.approx(np.quantile(wait_s, 0.99))
        expected = np.mean(bounded_slowdown(np.array(wait_s), np.array(run_s)))
        assert figures["mean_bounded_slowdown"] == pytest.approx(expected)
        assert figures["utilisation"] == pytest.approx(used / (22.0 * (max(end) - min(begin))))
        assert figures["jain_fairness"] == pytest.approx(np.sum(users) ** 2 / len(users) / np.sum(users**2))
    each = plain["pools"].values()
    assert plain["num_jobs"] == sum(one["num_jobs"] for one in each)
    for rule in ("too_large", "overrunning", "zero_run_time"):
        assert plain["counts"][rule] == sum(one["counts"][rule] for one in each) > 0


def test_neither_the_order_of_rows_and_nodes_nor_the_names_of_pools_matter(two_pools, tmp_path):
    rows, nodes = random_jobs(0), list(NODES)
    rng = np.random.default_rng(1)
    other = {"wide": "a", "slim": "z", None: None}
    shuffled = write(
        tmp_path / "other",
        [rows[place] for place in rng.permutation(len(rows))],
        [(node, other[name], cores) for node, name, cores in reversed(nodes)],
    )
    expected = rows_of(tmp_path, played(two_pools[0]))
    found = rows_of(tmp_path, played(shuffled))
    assert found == {(other[pool], *key): value for (pool, *key), value in expected.items()}


OUTSIDE = (
    job("no node", 0),
    job("unknown node", 0, ran_node="x9"),
    job("without class", 0, ran_node="c1"),
    job("partly unknown", 0, ran_node="a1", ran_nodes=["a1", "c1"]),
    job("both", 0, ran_node="b1", ran_nodes=["b1", "a1", "a1"]),
)


def test_every_row_is_in_one_pool_or_counted(tmp_path):
    inside = (
        job("offered", 5, offered_node="b2"),
        job("ran elsewhere", 6, offered_node="a1", ran_node="b1"),
        job("two nodes", 7, ran_node="a1", ran_nodes=["a1", "a2"]),
        job("all nodes, no first", 8, ran_nodes=["a1", "a2"]),
        job("all nodes, offered elsewhere", 9, ran_nodes=["a2", "a1"], offered_node="b1"),
    )
    archive = Archive(write(tmp_path / "archive", [*OUTSIDE, *inside]))
    assert pool_sizes(archive) == {"slim": 6.0, "wide": 16.0}  # the node without a class is nobody's
    jobs = {pool: read_jobs(archive, pool=pool) for pool in ("slim", "wide")}
    assert jobs["slim"].request_id.tolist() == ["offered", "ran elsewhere"]
    assert jobs["wide"].request_id.tolist() == [
        "two nodes",
        "all nodes, no first",
        "all nodes, offered elsewhere",
    ]
    for one in jobs.values():
        assert {"no_pool": 4, "several_pools": 1}.items() <= dict(one.counts).items()
    counts = played(tmp_path / "archive").to_json()["counts"]
    assert (counts["no_pool"], counts["several_pools"]) == (4, 1)  # once, though both pools say so


def test_sizes_are_known_from_the_first_day_that_names_a_node(tmp_path, monkeypatch):
    archive = Archive(
        write(tmp_path / "archive", [job("a", 0), *(job(str(day), day * 86_400) for day in (1, 3))])
    )
    assert pool_sizes(archive) == {}  # no row names one: one pool
    archive = Archive(write(tmp_path / "named", random_jobs(0)))
    whole, seen = archive.scan, []
    monkeypatch.setattr(
        archive,
        "scan",
        lambda *words, **more: map(lambda one: seen.append(one) or one, whole(*words, **more)),
    )
    assert pool_sizes(archive) == {"slim": 6.0, "wide": 16.0}
    assert len(archive.days("requests")) > len(seen) == 1


def test_one_pool_has_all_nodes_also_under_its_name(tmp_path):
    """A node without a class beside the only class: all jobs are the pool's, so all processors are."""
    archive = write(tmp_path / "archive", random_jobs(3, 20), [("a1", "wide", 8.0), ("c1", None, 5.0)])
    assert pool_sizes(Archive(archive)) == {"wide": 13.0}
    named, unnamed = (played(archive, replace(ALL_RULES, pool=pool)).queues[0] for pool in ("wide", None))
    assert (named.pool.processors, named.summaries) == (unnamed.pool.processors, unnamed.summaries)


def test_a_pool_without_jobs_is_named(tmp_path, capsys):
    write(tmp_path / "archive", [job("one", 0, ran_node="b1")])
    assert run("replay", tmp_path / "archive", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (list(found["pools"]), found["pools_without_jobs"]) == (["slim"], ["wide"])
    assert run("replay", tmp_path / "archive") == 0
    assert "no job in wide" in capsys.readouterr().out
    assert run("replay", tmp_path / "archive", "--pool", "wide") == 2
    assert "0 rows of the pool wide" in capsys.readouterr().err


def test_one_pool_is_what_it_was(tmp_path, capsys):
    """Of one class, of classes without decisions, or of no class at all: all nodes and jobs are one queue."""
    rows = [{**row, "ran_node": None, "ran_nodes": None} for row in random_jobs(2)]
    placed = [{**row, "ran_node": "x"} for row in rows]
    archives = {
        "undecided": write(tmp_path / "undecided", rows),
        "one class": write(tmp_path / "one", placed, [("x", "pool", 27.0)]),
        "no class": write(tmp_path / "none", placed, [("x", None, 20.0), ("y", None, 7.0)]),
    }
    found = {}
    for name, archive in archives.items():
        words = ("--policy", "fcfs", "--policy", "sjf", "--easy", "--out", tmp_path / "waits.parquet")
        assert run("replay", archive, *words, "--replace", "--json") == 0
        plain = json.loads(capsys.readouterr().out)
        waits = pq.read_table(tmp_path / "waits.parquet")
        assert waits.column_names == ["request_id", "wait_s", "start", "policy"]
        assert not {"pool", "pools"} & set(plain)
        assert set(plain["counts"]) == {
            "cancelled",
            "withdrawn",
            "no_run_time",
            "no_processors",
            "zero_run_time",
            "no_request",
            "too_large",
            "overrunning",
        }
        found[name] = (plain, waits)
        jobs = read_jobs(Archive(archive))
        expected = replay(jobs, Pool(27.0, easy=True), FCFS).start_s - jobs.arrival_s
        assert np.array_equal(waits["wait_s"].to_numpy()[: len(expected)], expected, equal_nan=True)
    assert found["undecided"] == found["one class"] == found["no class"]
    assert run("replay", archives["one class"], "--pool", "pool", "--policy", "fcfs", "--easy", "--json") == 0
    named = json.loads(capsys.readouterr().out)
    assert named.pop("pool") == "pool"
    assert named["policies"]["fcfs"] == found["one class"][0]["policies"]["fcfs"]
    assert as_settings(OrderConfig()) | {"pool": None} == to_plain(OrderConfig())
    assert as_settings(OrderConfig(pool="a"), "processors", "pool") == {"processors": None, "pool": "a"}


def test_where_a_pool_must_be_chosen_its_name_is_asked_for(two_pools, tmp_path, capsys):
    both, _ = two_pools
    sizes = "slim (6 processors), wide (16 processors)"
    for words in (
        ("replay", both, "--processors", 9),
        ("order", both),
        ("fit", both, "--problem", "ordering", "--out", tmp_path / "twin"),
    ):
        assert run(*words) == 2
        assert sizes in (said := capsys.readouterr().err)
        assert "--pool" in said
        assert run(*words, "--pool", "thick") == 2
        assert "no pool 'thick'" in (said := capsys.readouterr().err)
        assert "slim, wide" in said
    assert run("fit", both, "--problem", "placement", "--pool", "slim", "--out", tmp_path / "twin") == 2
    assert "--problem ordering" in capsys.readouterr().err
    write(tmp_path / "undecided", [{**row, "ran_node": None, "ran_nodes": None} for row in random_jobs(0, 9)])
    assert run("replay", tmp_path / "undecided", "--pool", "slim") == 2
    assert "leave the pool out" in capsys.readouterr().err


def test_text_shows_each_pool_and_all_together(two_pools, capsys):
    assert run("replay", two_pools[0], "--easy") == 0
    shown = capsys.readouterr().out
    heads = [line.split(":")[0] for line in shown.splitlines() if "processors, EASY" in line]
    assert heads == ["slim", "wide", "all pools together"]


@pytest.mark.slow  # the quick ones: made archives, above
def test_pools_of_a_real_log_are_those_of_the_raw_file(shared_data, tmp_path):
    """The file read anew: its nodes numbered below 1255 are of the 20 with 80 cores, the others of the 48 with 12."""
    import_log("wagap", [shared_data / "wagap-2013"], tmp_path / "archive")
    report = played(tmp_path / "archive", ALL_RULES)
    raw, num_both = defaultdict(list), 0
    for line in (shared_data / "wagap-2013" / "wagap-2013.swf").read_text().splitlines():
        fields = line.split()
        number, submit_s, wait_s, run_s, *_, width, asked_s = map(int, fields[:9])
        classes = {int(node) < 1255 for node in fields[18].strip("{}").split(",")}
        num_both += len(classes) == 2
        if len(classes) == 1 and run_s >= 0 and asked_s > 0:  # the two others are in quarantine
            raw["zewura" if classes.pop() else "zegox"].append(
                (submit_s, number, width, asked_s, max(run_s, 1), submit_s + wait_s)
            )
    assert num_both == dict(report.queues[0].jobs.counts)["several_pools"] == 31
    for queue, size in zip(report.queues, (48 * 12, 20 * 80), strict=True):
        arrival, number, width, asked, ran, started = np.array(sorted(raw[queue.pool.name])).T
        assert queue.jobs.request_id.tolist() == list(map(str, number))
        since = arrival - arrival[0]
        own = jobs_of(*zip(since, width, asked, ran, strict=True), logged_start_s=started - arrival[0])
        for rule in RULES:
            start_s = queue.schedules[rule.name].start_s
            np.testing.assert_array_equal(start_s, replay(own, Pool(size, easy=True), rule).start_s)
        assert use_peak(queue.jobs, queue.schedules["fcfs"].start_s) <= size == queue.pool.processors
