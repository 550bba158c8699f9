"""The bench of worlds: both systems meet the log's requests, policies keep to their streams, failures are counted."""

import datetime as dt
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.commands import cli
from evaluation.judges.players import PlayerInput
from evaluation.reproduction.benches.worlds_bench import WorldsBenchConfig, quick, shortened
from evaluation.reproduction.benches.worlds_table import as_json, as_table, counts, summary
from evaluation.reproduction.benches.worlds_values import Contestant, day_requests, side_by_side
from evaluation.simulator import pool
from evaluation.simulator.logs import FIRST_DAY, simulate
from evaluation.simulator.options import Outage, Reactions
from evaluation.simulator.presets import preset
from evaluation.simulator.world import validate
from evaluation.simulator.world_files import facts_of
from logs_schema import REQUESTS, Archive, ArchiveWriter
from logs_schema.errors import ConfigError
from logs_schema.formats.reading import tabulate

TINY = replace(preset("small"), name="tiny", requests_per_day=120.0, day_s=6_000.0)


def found(promised, certificate="pass", *, out_of_support=0.0, deciding="cannot tell"):
    """What the bench keeps of two policies whose true values are .5 and .9."""

    def values(one, two):
        return {
            name: {"on_time": [value] * 6, "response_s": [1.0] * 6, "out_of_support": [out_of_support] * 6}
            for name, value in (("worse", one), ("better", two))
        }

    lines = [
        {"name": "waits", "verdict": "fail" if certificate == "fail" else "pass", "deciding": True},
        {"name": "clone", "verdict": deciding, "deciding": True},
    ]
    return {
        "world": "w",
        "seed": 0,
        "shift_days": 1,
        "promised": values(*promised),
        "true": values(0.5, 0.9),
        "certificate": {"verdict": certificate, "lines": lines},
    }


def test_each_policy_decides_in_its_own_streams_whatever_the_members():
    def first(_params, _key, seen, _legal):
        return seen.observation.astype(jnp.int32) % 10

    def second(params, _key, seen, _legal):
        return params + jnp.zeros(seen.observation.shape, jnp.int32)

    both = side_by_side([Contestant(first), Contestant(second)], num_members=3)
    seen = jnp.arange(12.0)[None]  # [seats, streams]: member by member, two streams a policy
    action = both(
        [None, jnp.int32(-1)], jax.random.key(0), PlayerInput(seen, None), jnp.ones((4, 1, 12), bool)
    )
    np.testing.assert_array_equal(action[0], [0, 1, -1, -1, 4, 5, -1, -1, 8, 9, -1, -1])


@pytest.mark.slow
def test_the_world_is_asked_what_its_log_was_asked(tmp_path):
    simulate(TINY, 2, "mix", 0, tmp_path / "log")
    archive = Archive(tmp_path / "log")
    one, two = day_requests(archive, TINY, [FIRST_DAY + dt.timedelta(days=day) for day in (1, 0)])
    rows = archive.read("requests", days=[FIRST_DAY + dt.timedelta(days=1)])
    assert one.num_requests == len(rows)
    assert len(one.arrival_s) == len(two.arrival_s)
    whole = slice(0, one.num_requests)
    np.testing.assert_allclose(one.expected_run_s[whole], rows["requested_run_s"].to_numpy(), rtol=1e-5)
    np.testing.assert_allclose(one.deadline_s[whole], rows["deadline_s"].to_numpy(), rtol=1e-5)
    agents = [f"agent-{agent:03d}" for agent in one.agent[whole]]
    assert agents == rows["agent"].to_pylist()
    leaving = replace(TINY, reactions=Reactions(memory=0.5, leaving=0.1))
    assert day_requests(archive, leaving, [FIRST_DAY]) is None


def test_a_day_late_in_a_large_log_is_asked_what_it_was_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "POOL_REQUESTS", 2)  # of which workloads are made
    service, facts = TINY.services[0], {"ground_truth": facts_of(TINY)}
    with ArchiveWriter(tmp_path / "log", facts=facts) as writer:
        rows = [
            {"request_id": f"{day}-{row}", "arrival": day * 86_400.0 + 60.0 * (row + 1), "site": "north",
             "service": service.name, "agent": "agent-000", "requested_run_s": 1.0 + day, "input_mib": 1.0,
             "deadline_s": 5.0, "status": "unknown"}
            for day in range(5) for row in range(2 + day)
        ]  # fmt: skip
        writer.write("requests", tabulate(REQUESTS, rows), source="made")
    late, early = (dt.date(1970, 1, 1) + dt.timedelta(days=day) for day in (4, 2))
    found = day_requests(Archive(tmp_path / "log"), TINY, [late, early])
    assert [one.num_requests for one in found] == [6, 4]
    np.testing.assert_allclose(found[0].arrival_s[:6], 60.0 * np.arange(1, 7))
    np.testing.assert_allclose([one.expected_run_s[0] for one in found], [5.0, 3.0])


def test_shorter_days_keep_their_rate_and_their_planned_failures():
    world = validate(replace(TINY, outages=(Outage("north-1", (1,), 1_000.0, 2_000.0),), name="down"))
    short = validate(shortened(world, 60))
    assert short.requests_per_day / short.day_s == world.requests_per_day / world.day_s
    assert (short.outages[0].from_s, short.outages[0].to_s) == (500.0, 1_000.0)
    assert shortened(world, None) == world == shortened(world, 1_000)


def test_a_case_is_counted_by_what_its_certificate_should_have_said():
    good, wrong = found((0.51, 0.89)), found((0.6, 0.9))
    failed, marked = found((0.6, 0.9), "fail"), found((0.6, 0.9), out_of_support=0.5)
    assert summary(good)["deserves"]
    assert not summary(good)["unwarned"]
    assert summary(wrong)["unwarned"] == ["worse"]
    assert not summary(wrong)["deserves"]
    assert summary(failed)["unwarned"] == []
    assert summary(failed)["failed_lines"] == ["waits"]
    assert summary(marked)["unwarned"] == []
    assert summary(marked)["worst_unmarked_error"] == 0.0 < summary(wrong)["worst_unmarked_error"]
    assert not summary(marked)["deserves"]
    assert summary(found((0.9, 0.5)))["rank_correlation"] < -0.999
    told = counts([summary(one) for one in (good, wrong, failed, marked, found((0.51, 0.9), "fail"))])
    assert told == {
        "cases": 5,
        "passed": 3,
        "failed": 2,
        "deserving": 2,
        "deserving_passed": 1,
        "deserving_failed": 1,
        "passed_beyond_deserving": 2,
        "cases_with_unwarned_errors": 1,
    }
    rows = as_json([wrong], {})["rows"]
    assert {"world", "policy", "shift_days", "on_time", "low", "high", "promised", "certificate"} <= set(
        rows[0]
    )
    assert as_table([good, marked])


def test_days_certified_on_lie_after_training():
    config = WorldsBenchConfig(shifts=(0, 1, 30), train_days=3, played_days=1, certified_days=2)
    assert [*config.days_of(0)] == [*config.days_of(1)] == [3, 4]
    assert [*config.played(0)] == [2]
    assert [*config.played(30)] == [32]
    assert config.num_days == 34


@pytest.mark.parametrize(
    "changes",
    [
        {"shifts": ()},
        {"seeds": (-1,)},
        {"num_replications": 3},
        {"num_requests": 10},
        {"num_requests": 0},
        {"updates": -5},
        {"train_days": 0},
        {"certified_days": 1},
    ],
)
def test_impossible_benches_are_refused(changes):
    with pytest.raises(ConfigError, match="bench worlds"):
        replace(
            quick(WorldsBenchConfig()) if "num_replications" in changes else WorldsBenchConfig(), **changes
        )


def test_unknown_worlds_are_named(capsys):
    assert cli.main(["bench", "worlds", "--worlds", "no_such_world"]) != 0
    assert "slow_periods" in capsys.readouterr().err


@pytest.mark.slow
def test_a_world_is_measured_once(tmp_path, capsys):
    """From simulation to certificate and values, by the command; the second time nothing is made again."""
    command = ["bench", "worlds", "--quick", "--worlds", "own_family", "--shifts", "1", "--requests", "600",
               "--out", str(tmp_path / "work"), "--json"]  # fmt: skip
    assert cli.main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["summaries"]) == 1
    assert len(told["rows"]) > 12
    best = max(told["rows"], key=lambda row: row["on_time"])
    assert best["on_time"] > 0.6
    assert abs(best["promised"] - best["on_time"]) < 0.15
    assert cli.main(command) == 0
    again = capsys.readouterr()
    assert json.loads(again.out) == told
    assert "values-1: unchanged, reused" in again.err
