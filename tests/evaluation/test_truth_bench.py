"""The bench of the truth: paired, in agreement with history, and a proof that presets tell policies apart."""

import json
from dataclasses import replace

import numpy as np
import pytest

from evaluation.commands import cli
from evaluation.comparison.bootstrap import Estimate
from evaluation.reproduction.benches.truth_bench import STALE, PolicyScore, TruthBenchConfig, bench_truth
from evaluation.reproduction.benches.truth_proof import Wanted, as_json, as_table, checks, paired
from evaluation.simulator.conditions import longest_day
from evaluation.simulator.logs import day_of, on_time
from evaluation.simulator.parts import at_peak_load
from evaluation.simulator.presets import preset
from evaluation.simulator.world import Drift
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import interval, simulated

SMALL = preset("small")
TINY = TruthBenchConfig(num_seeds=2, days_per_seed=3, num_steps=60, depth=40)
QUIET = replace(SMALL, requests_per_day=500.0, day_s=20_000.0)
WHOLE_DAYS = TruthBenchConfig(num_seeds=8, days_per_seed=2, depth=64)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "least_expected_delay"])
def test_a_policy_scores_in_the_bench_what_it_scores_in_the_history(name):
    """Over whole days, from an empty midnight to the last request."""
    (score,) = bench_truth(QUIET, [0], WHOLE_DAYS, policies=(name,))
    mean, error = interval(score.per_day.ravel())
    rows = simulated(QUIET, name, num_streams=16)
    shares = [on_time(day_of(rows, column)).mean() for column in range(16)]
    expected, other_error = interval(np.array(shares))
    assert abs(mean - expected) < 3.5 * np.hypot(error, other_error)
    assert error < 0.03
    assert longest_day(QUIET) == 500 + int(6 * 500**0.5) + 1


@pytest.mark.slow
def test_all_policies_live_the_same_requests():
    """Without drift the tables of day 0 are those of day 30, so whoever knows either decides alike, to the bit."""
    still = replace(SMALL, drift=Drift())
    scores = bench_truth(still, [0, 30], TINY, policies=("least_expected_delay",))
    assert [(score.policy, score.day) for score in scores] == [
        ("least_expected_delay", 0),
        ("least_expected_delay", 30),
        (STALE, 30),
    ]
    np.testing.assert_array_equal(scores[1].per_day, scores[2].per_day)
    assert not np.array_equal(scores[0].per_day, scores[1].per_day)


def score(policy, day, shares):
    return PolicyScore(policy, day, Estimate(0.0, 0.0, 0.0, 8), np.reshape(shares, (2, 4)))


def test_checks_compare_pairs_of_the_same_day_and_say_by_how_much():
    base = np.linspace(0.3, 0.8, 8)
    scores = [score("good", 0, base + 0.05), score("bad", 0, base), score("good", 30, base + 0.02)]
    wanted = (Wanted("good", "bad", 0.04), Wanted("good", "bad", 0.06), Wanted("good", "bad", 0.0, since=1))
    met, missed = checks(scores, wanted)
    assert (met.met, met.sure) == (True, True)
    assert met.difference.value == pytest.approx(0.05)
    assert (missed.met, missed.sure) == (False, False)
    assert paired(scores[1], scores[0]).value == pytest.approx(-0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["edge", "kmps"])
def test_presets_tell_policies_apart_over_whole_days(name):
    """Of what is wanted, all that needs no reference; the references take minutes: schedtwin bench truth."""
    scores = bench_truth(preset(name), [0, 30], TruthBenchConfig(num_seeds=3, days_per_seed=2))
    found = checks(scores)
    assert len(found) == 7
    assert [check for check in found if not check.sure] == []


@pytest.mark.parametrize(
    ("name", "num_sites", "num_edge", "num_cloud", "num_services"),
    [("kais", 5, 40, 15, 30), ("kmps", 3, 18, 6, 12), ("large", 10, 100, 30, 40)],
)
def test_presets_have_the_sizes_of_the_papers(name, num_sites, num_edge, num_cloud, num_services):
    world = preset(name)
    tiers = [node.tier for node in world.nodes]
    assert (len(world.sites), tiers.count("edge"), tiers.count("cloud")) == (num_sites, num_edge, num_cloud)
    assert len(world.services) == num_services


@pytest.mark.parametrize("load", [0.0, 1.0, float("nan")])
def test_a_load_that_nothing_keeps_up_with_is_refused(load):
    with pytest.raises(ConfigError, match="small") as refusal:
        at_peak_load(SMALL, load)
    assert f"{load:g}" in refusal.value.what


def test_impossible_benches_are_refused():
    with pytest.raises(ConfigError, match="ghost") as refusal:
        bench_truth(SMALL, [0], TINY, policies=("ghost",))
    assert "least_loaded" in refusal.value.allowed
    with pytest.raises(ConfigError, match="-1"):
        bench_truth(SMALL, [-1], TINY)
    with pytest.raises(ConfigError, match="seeds=0"):
        replace(TINY, num_seeds=0)


def test_the_result_is_plain_and_the_table_names_every_policy():
    base = np.linspace(0.3, 0.8, 8)
    scores = [score("least_loaded", 0, base), score("home", 0, base - 0.02)]
    plain = json.loads(json.dumps(as_json(SMALL, TINY, scores), allow_nan=False))
    assert [row["policy"] for row in plain["rows"]] == ["least_loaded", "home"]
    assert [check["met"] for check in plain["checks"]] == [False]
    assert "NOT MET: least_loaded - home on day 0" in str(
        [str(part) for part in as_table(SMALL, scores).renderables]
    )


def test_the_command_refuses_what_there_is_not(capsys):
    assert cli.main(["bench", "truth", "--preset", "ghost", "--no-progress"]) == 2
    assert "there is no preset 'ghost'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["bench", "truth", "--days", "soon"])
    assert "'soon' is no list of whole numbers" in capsys.readouterr().err
