"""The tables of CoRaiS: one command, all solvers on the same instances, resumed where it was."""

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

from evaluation.commands.cli import main
from evaluation.reproduction.corais import CoraisConfig, table
from evaluation.reproduction.corais_learning import NetworksConfig, networks
from evaluation.reproduction.corais_scales import EMPTY, TABLE_3, TABLE_4, TABLE_5, Scale
from evaluation.reproduction.corais_solvers import takes
from logs_schema.errors import ConfigError
from offline_rl.assignment.config import LearningConfig
from offline_rl.assignment.corais import CoraisNetwork, corais_params

SHORT = LearningConfig(num_updates=2, batch=2, num_samples=2)
TINY = NetworksConfig(
    (Scale(4, 2, 6),),
    1,
    CoraisNetwork(8, 8, 1, 1),
    SHORT,
    replace(SHORT, imitation_updates=2, imitation_instances=2),
)


@pytest.mark.slow
def test_the_command_writes_its_table(tmp_path, capsys, monkeypatch):
    from evaluation.reproduction import corais

    tiny = CoraisConfig(
        (Scale(4, 2, 6),),
        num_instances=2,
        exact_s=1.0,
        search_s=0.01,
        networks=TINY,
        round_requests=40,
        round_seeds=2,
        num_experiments=1,
    )
    monkeypatch.setattr(corais, "quick", lambda config: tiny)
    asked = ["reproduce", "corais", "--quick", "--json", "--no-progress", "--out", str(tmp_path / "out")]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["solver"]: row for row in found["rows"]}
    wanted = {
        "local",
        "predicted",
        "random_1000",
        "insertion",
        "insertion_local_search",
        "lp_rounding",
        "exact",
    }
    assert wanted <= rows.keys()
    for row in found["rows"]:
        assert row["gap_to_bound"] >= row["gap_to_best"] >= 1.0
        assert row["seconds"] > 0.0
    assert rows["exact"]["gap_to_best"] == pytest.approx(1.0, abs=1e-3)
    assert rows["ours"]["num_seeds"] == 1
    assert len(found["rounds"]) == 48
    tests = {(row["solver"], row["seed"], row["test"]): row for row in found["characteristics"]}
    assert tests["insertion", None, "HA"]["spread"] < 0.2 * tests["local", None, "HA"]["spread"]
    assert not tests["local", None, "WP"]["holds"]
    assert {name for name, seed, _ in tests if seed == 0} >= {"ours", "corais_fc3", "corais_greedy"}
    assert min(row["mean_over_at_once"] for row in found["rounds"]) > 0.0
    assert rows["corais"]["gap_to_best"] <= rows["corais_greedy"]["gap_to_best"]
    assert rows["insertion_local_search"]["gap_to_best"] <= rows["insertion"]["gap_to_best"]
    assert json.loads((tmp_path / "out" / "corais.json").read_text()) == found
    assert main(asked) == 0  # nothing is solved again: the same seconds
    assert json.loads(capsys.readouterr().out) == found


def test_no_interval_of_a_makespan_over_the_best_one_begins_below_it():
    makespan_s = {"exact": [2.0, 4.0], "insertion": [2.0, 4.4], "local": [4.0, 8.4]}
    seconds = {name: [0.1, 0.1] for name in makespan_s}
    figures = {"best_s": [2.0, 4.0], "bound_s": [2.0, 4.0], "makespan_s": makespan_s, "seconds": seconds}
    found = table(CoraisConfig(), {TABLE_3[0]: figures}, [], [])
    rows = {
        row["solver"]: [row[f"gap_to_best{end}"] for end in ("_low", "", "_high")] for row in found["rows"]
    }
    half = 12.7062 * 0.05  # Student's quantile of one degree of freedom, and the deviation of the mean
    assert rows["exact"] == [1.0, 1.0, 1.0]
    assert rows["insertion"] == pytest.approx([1.0, 1.05, 1.05 + half], rel=1e-4)
    assert rows["local"] == pytest.approx([2.05 - half, 2.05, 2.05 + half], rel=1e-4)


def test_scales_have_their_solvers_instances_and_networks():
    large = TABLE_5[-1].num_edges * TABLE_5[-1].num_requests
    assert [
        name for name in ("exact", "lp_rounding", "corais_fc1_100", "ours", "insertion") if takes(name, large)
    ] == [
        "ours",
        "insertion",
    ]
    config = CoraisConfig()
    wanted = {TABLE_3[0]: 1000, TABLE_4[0]: 100, TABLE_5[-1]: 10, EMPTY[0]: 1000}
    assert {scale: config.instances_of(scale) for scale in wanted} == wanted
    assert config.networks.of(TABLE_3[2]) == TABLE_3[2]
    assert config.networks.of(TABLE_5[0]) == TABLE_3[1]
    assert EMPTY[0].instances.backlogs == (0, 0)


def test_ablations_have_as_many_parameters_as_the_papers_network():
    rng = np.random.default_rng(0)
    drawn = [corais_params(rng, one) for one in networks(NetworksConfig()).values() if one is not None]
    sizes = [sum(map(np.size, jax.tree.leaves(params))) for params in drawn]
    assert sizes[0] == pytest.approx(4e6, rel=0.1)  # the paper's: about 4 million
    assert max(sizes) <= 1.01 * min(sizes)


@pytest.mark.parametrize("wrong", [{"num_instances": 0}, {"exact_s": 0.0}, {"search_s": -1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match="reproduce corais"):
        CoraisConfig(**wrong)
