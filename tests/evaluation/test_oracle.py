"""The oracle: trained in the world itself, kept as a product, and scored beside the baselines."""

import json

import jax
import numpy as np
import pytest

from evaluation import cli
from evaluation.oracle import OracleConfig, load_oracle, train_oracle, write_oracle
from evaluation.simulator.presets import preset
from evaluation.truth_bench import ORACLE, TruthBenchConfig, bench_truth
from logs_schema.errors import ConfigError, ProductError

SMALL = preset("small")
TINY = OracleConfig(clone_updates=100, num_updates=20, num_streams=8, turnovers=10.0)
BENCH = TruthBenchConfig(num_seeds=2, num_episodes=6, num_steps=200)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("oracle") / "day-0"
    return out, write_oracle(SMALL, 0, TINY, out)


def test_the_same_seed_trains_the_same_oracle_and_the_product_keeps_it(written):
    out, facts = written
    kept = load_oracle(out, SMALL, TINY.depth)
    again, curve = train_oracle(SMALL, 0, TINY)
    assert (kept.preset, kept.day) == ("small", 0)
    jax.tree.map(np.testing.assert_array_equal, kept.params, again.params)
    assert facts["on_time_in_training"] == [round(float(value), 4) for value in curve]
    assert len(curve) == TINY.num_updates


def test_an_oracle_is_named_for_its_day_and_beats_chance(written):
    oracle = load_oracle(written[0], SMALL, TINY.depth)
    scores = bench_truth(SMALL, [0, 30], BENCH, policies=("random",), oracles=[oracle])
    named = {(score.policy, score.day): score.on_time.value for score in scores}
    assert list(named) == [("random", 0), (ORACLE, 0), ("random", 30), (f"{ORACLE}_of_day_0", 30)]
    assert named[ORACLE, 0] > named["random", 0]


def test_oracles_of_other_worlds_and_impossible_days_are_refused(written, tmp_path):
    with pytest.raises(ConfigError, match="not in 'kmps'"):
        load_oracle(written[0], preset("kmps"), TINY.depth)
    with pytest.raises(ProductError):
        load_oracle(tmp_path / "none", SMALL, TINY.depth)
    with pytest.raises(ConfigError, match="day -1"):
        write_oracle(SMALL, -1, TINY, tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_the_bench_shows_the_oracle_it_is_given(written, capsys):
    words = [
        "bench",
        "truth",
        "--preset",
        "small",
        "--days",
        "0",
        "--seeds",
        "1",
        "--policies",
        "least-loaded",
    ]
    assert cli.main([*words, "--oracle", str(written[0]), "--json", "--no-progress"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in told["rows"]] == ["least_loaded", ORACLE]
    assert all(row["low"] <= row["on_time"] <= row["high"] for row in told["rows"])
    assert [check["worse"] for check in told["checks"]] == ["least_loaded"]
    assert told["notes"] == []
