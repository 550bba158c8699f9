"""Golden observations of rules: where rounding decides there are none, as no copy could be held against them."""

import numpy as np
import pytest

from offline_rl.export import export_policy, named_arrays, network_facts
from offline_rl.numpy_networks import numpy_network
from offline_rl.placement_contract import placement_contract
from offline_rl.questions import drawn_questions, steady_rows
from offline_rl.rules import rule_params
from offline_rl.runner import load_network
from offline_rl.runner.network import ExportedPolicy
from offline_rl.runner.placement_form import PLACEMENT_FORM
from tests.offline_rl.bundles import made_system
from twin.placement.features import NODE_FEATURES

PARAMS = rule_params("expected_on_time", price=0.05, behind_scale=0.5)


def exported_rule() -> ExportedPolicy:
    contract = placement_contract(made_system(num_steps=32, num_windows=2)[0], network_facts(PARAMS))
    return ExportedPolicy(contract, "", numpy_network(named_arrays(PARAMS), contract))


def observed(exported: ExportedPolicy, free: float) -> list[np.ndarray]:
    """A request of no cores, whose first node has this share of them free and work to do."""
    num_choices, num_features, num_context = exported.contract.widths
    row = {feature.name: number for number, feature in enumerate(NODE_FEATURES)}
    choices = np.zeros((1, num_choices, num_features), np.float32)
    for name, value in {"free_cpu_cores": free, "backlog": 3.0, "usual_run": 2.0, "acceptance": 1.0}.items():
        choices[0, 0, row[name]] = value
    return [choices, np.zeros((1, num_context), np.float32), np.ones((1, num_choices), bool)]


def test_a_node_that_is_a_thousandth_short_of_cores_is_at_a_step() -> None:
    exported = exported_rule()
    rows = [
        np.concatenate(rows) for rows in zip(*(observed(exported, at) for at in (-1e-3, 0.0)), strict=True)
    ]
    assert steady_rows(exported, *rows).tolist() == [False, True]


@pytest.mark.slow
def test_a_rule_is_exported_though_an_observation_is_at_a_step(tmp_path) -> None:
    exported = exported_rule()
    flat = [np.concatenate([choices[0].T.ravel(), context[0]]) for choices, context, _ in
            (observed(exported, at) for at in (-1e-3, 0.0))]  # fmt: skip
    export_policy(PARAMS, tmp_path / "bundle", exported.contract, observed=np.stack(flat))
    load_network(tmp_path / "bundle")
    with np.load(tmp_path / "bundle/golden.npz") as golden:
        assert 200 < len(golden["action"]) < 256 + 2 + 32
        steady = steady_rows(exported, golden["choices"], golden["context"], golden["legal"])
    questions, _ = drawn_questions(exported, PLACEMENT_FORM, np.random.default_rng(0))
    assert steady.all()
    assert len(questions) > 8
