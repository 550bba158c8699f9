"""Orders that learn on the way of a replay, and waits of other schedulers beside them."""

import numpy as np
import pytest

from evaluation.commands import cli
from evaluation.problems.ordering import online
from evaluation.problems.ordering.online import ladder_at, online_starts
from evaluation.problems.ordering.order_candidates import candidates
from evaluation.problems.ordering.other_waits import read_waits
from logs_schema import Archive
from logs_schema.errors import ConfigError
from tests.ordering.test_learning_weeks import busy_log
from twin.ordering.jobs import read_jobs
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, SAF
from twin.ordering.types import Pool

POOL = Pool(16.0, easy=True)


@pytest.fixture(scope="module")
def jobs():
    """Ten weeks of jobs, none of which comes or ends at an instant of another."""
    log, rng = busy_log(num_days=70), np.random.default_rng(5)
    return log._replace(
        arrival_s=np.sort(log.arrival_s - log.arrival_s[0] + rng.random(len(log.run_s))),
        run_s=log.run_s + rng.random(len(log.run_s)),
        requested_s=log.requested_s + 1.0,
    )


@pytest.mark.parametrize("rule", [FCFS, SAF])
def test_a_replay_in_stretches_is_the_replay_of_the_whole(jobs, rule):
    """One rule in every stretch but the first, which is first come: from there on the whole replay's own starts."""
    play = {one.name: one.play for one in candidates(POOL)}[f"{rule.name}+easy"]
    found = online_starts(jobs, POOL, lambda *_: play)
    whole = replay(jobs, POOL, rule).start_s
    assert np.max(whole - jobs.arrival_s) > 3600.0
    if rule is FCFS:
        np.testing.assert_allclose(found, whole, atol=1e-6)
    else:
        first = jobs.arrival_s < (online.LEAST_DAYS - 4) * 86_400.0
        np.testing.assert_allclose(found[first], replay(jobs, POOL, FCFS).start_s[first], atol=1e-6)
        assert np.mean(np.abs(found - whole) < 1e-3) > 0.3  # the states meet again when the queue is empty


def test_an_order_is_made_of_what_was_known_when_its_stretch_began(jobs):
    seen = []

    def note(known, pool, day):
        seen.append((known, day))
        return candidates(pool)[0].play

    online_starts(jobs, POOL, note)
    assert [day - seen[0][1] for _, day in seen] == [0, 28]
    whole = replay(jobs, POOL, FCFS).start_s
    for known, day in seen:
        begin_s = day * 86_400.0 - jobs.origin_us / 1e6
        count = len(known.arrival_s)
        assert known.arrival_s.max() < begin_s <= jobs.arrival_s[count:].min()
        began, ended = whole[:count] < begin_s, whole[:count] + jobs.run_s[:count] <= begin_s
        np.testing.assert_allclose(known.logged_start_s[began], whole[:count][began], atol=1e-6)
        assert np.isnan(known.logged_start_s[~began]).all()
        np.testing.assert_array_equal(known.run_s[ended], jobs.run_s[:count][ended])
        assert not np.isin(known.run_s[~ended], jobs.run_s[:count][~ended]).any()


def test_the_ladder_has_no_order_without_a_known_week(jobs):
    assert ladder_at(jobs, POOL, 0) is None


@pytest.mark.slow
def test_waits_of_another_scheduler_stand_beside_replays(queue_made, tmp_path, capsys):
    """Waits written from our own first come, first served give its figures back; a file of other jobs is refused."""
    archive = queue_made[0] / "archive"
    jobs = read_jobs(Archive(archive))
    start_s = replay(jobs, Pool(16.0, easy=True), FCFS).start_s
    rows = [
        f"{name} 0 {wait:.6f} 1 1 -1 -1 1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1"
        for name, wait in zip(jobs.request_id, start_s - jobs.arrival_s, strict=True)
    ]
    (tmp_path / "other.swf").write_text(
        "\n".join(["; Computer: none", "7 0 broken", f"{rows[0][:-23]} 0 2", *rows])
    )
    np.testing.assert_allclose(read_waits(tmp_path / "other.swf", jobs).start_s, start_s, atol=1e-5)
    words = [
        "replay",
        archive,
        "--easy",
        "--processors",
        16,
        "--policy",
        "fcfs",
        "--policy",
        "predicted(0,0,0.06)",
    ]
    capsys.readouterr()
    assert cli.main([*map(str, [*words, "--waits", tmp_path / "other.swf", "--no-progress"])]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["other"][1:6] == lines["fcfs"][1:6]
    assert lines["other"][6] == "unknown"
    assert lines["predicted(0,0,0.06)"][1:4] != lines["fcfs"][1:4]
    (tmp_path / "short.swf").write_text("\n".join(rows[5:]))
    with pytest.raises(ConfigError, match="no waits of 5 of"):
        read_waits(tmp_path / "short.swf", jobs)


def test_orders_that_predict_are_refused_without_easy_and_unknown_ones_by_name(queue_made, capsys):
    words = ["replay", str(queue_made[0] / "archive"), "--processors", "16", "--no-progress", "--policy"]
    for name, said in (
        ("index", "index: orders that predict run times have their own backfilling"),
        ("predicted(1,1,0.06)", "predicted(1,1,0.06): orders that predict"),
        ("lottery", "there is no rule 'lottery'"),
        ("guessed(1,1,1)", "no rule that a bundle can hold"),
    ):
        assert cli.main([*words, name]) == 2
        assert said in capsys.readouterr().err
