"""What training is told: impossible settings are refused, the best seed is the one that a look liked best."""

from pathlib import Path

import numpy as np
import pytest

from logs_schema.errors import ConfigError, ProductError
from offline_rl.recipes.config import TrainingConfig
from offline_rl.recipes.ladder import RungStep
from offline_rl.recipes.schedulers import Schedulers, best_row, best_rule, load_schedulers
from tests.twin.made import made_cluster, made_encoding


def test_the_best_seed_is_the_one_whose_kept_policy_did_best() -> None:
    none = np.zeros(0)
    curve = np.array([[0.1, 0.5, 0.2], [0.3, 0.4, 0.6]])
    assert best_row(Schedulers({}, {}, none, curve, none, curve, {}, {}, {}, {}), "twin") == 1


def test_a_tuned_rule_that_is_worth_the_same_stands_in_whatever_the_order_of_a_set() -> None:
    """Names in a set have another order in every process: of many pairs one or the other would come first."""
    none = np.zeros(0)
    step = RungStep(0.8, 0.0, 0.0, 0.0, True, 0, False)
    for number in range(16):
        names = f"rule {number}", f"rule {number} tuned"
        rules = {name: {"params": {name: {}}} for name in names}
        found = Schedulers({}, {}, none, none, none, none, {}, rules, dict.fromkeys(names, step), {})
        assert best_rule(found) == rules[names[1]]


@pytest.mark.parametrize(
    "stray", ["other", "ladder/rule/unfamiliar", "searches/cql/weights", "rules/expected_on_time/price"]
)
def test_schedulers_of_another_version_are_refused_by_what_differs(stray: str, tmp_path: Path) -> None:
    (tmp_path / "encoding.json").write_text(made_encoding(made_cluster()).to_json())
    arrays = {name: np.zeros(1) for name in Schedulers._fields[:6]}
    np.savez(tmp_path / "schedulers.npz", **arrays)
    assert load_schedulers(tmp_path)[0].ladder == {}
    np.savez(tmp_path / "schedulers.npz", **arrays, **{stray: np.zeros(1)})
    with pytest.raises(ProductError, match="not the schedulers of this version"):
        load_schedulers(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seeds": ()},
        {"seeds": (1, 1)},
        {"num_updates": -1},
        {"residual_updates": -1},
        {"tuning_streams": -1},
        {"network": "transformer"},
        {"from_logs": ("dqn",)},
        {"randomise_nodes": -1.0},
    ],
)
def test_impossible_training_is_refused(wrong: dict) -> None:
    with pytest.raises(ConfigError):
        TrainingConfig(**wrong)
