"""The worked example goes from archive to bundle by the ordinary commands: one folder, and one line."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import add_problem
from evaluation.commands.cli import main
from evaluation.comparison.products import load_comparison
from evaluation.problems import kits
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import StepPlan
from logs_schema.errors import ProductError
from logs_schema.product import read_manifest
from notebooks.batches.kit import BATCHES_KIT
from notebooks.batches.log import CORES, DELAY_S, NAMES, S_PER_MIB, write_log
from notebooks.batches.problem import BatchEdges, expected_s
from offline_rl.runner import load, load_network
from twin.problems import KEY

CONFIG = """
seed = 0
[shifts]
shifts = "0d,7d"
[train]
seeds = [0, 1]
"""


def truth_by_name() -> dict[str, tuple[float, float]]:
    return dict(zip(NAMES, zip(DELAY_S, S_PER_MIB, strict=True), strict=True))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of everything from archive to bundle."""
    work = tmp_path_factory.mktemp("batches")
    write_log(work / "log")
    (work / "job.toml").write_text(CONFIG)
    (work / "mine.py").write_text(
        "import jax.numpy as jnp\ndef middle(key, seen, legal):\n    return jnp.ones(legal.shape[1:], int)\n"
    )
    told = f"--config {work}/job.toml --no-progress"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kits, "KITS", kits.KITS)
        add_problem(BATCHES_KIT)
        patch.chdir(work)
        for command in (
            f"fit log --problem batches --out twin {told}",
            f"certify twin log {told}",
            f"train twin --out policy {told}",
            f"compare log twin policy --out comparison --policy mine=mine:middle {told}",
            "export policy --out bundle --no-progress",
        ):
            assert main(command.split()) == 0, command
    return work


@pytest.mark.slow
def test_the_twin_learns_the_edges_and_passes(made: Path) -> None:
    with np.load(made / "twin" / "edges.npz") as found:
        for edge, name in enumerate(read_manifest(made / "twin").extra["nodes"]):
            delay_s, s_per_mib = truth_by_name()[name]
            assert found["delay_s"][edge] == pytest.approx(delay_s, rel=0.1)
            assert found["s_per_mib"][edge] == pytest.approx(s_per_mib, rel=0.1)
    assert read_manifest(made / "twin.certificate").extra["verdict"] == "pass"


@pytest.mark.slow
def test_the_trained_policy_is_near_the_known_best_and_better_than_the_log(made: Path) -> None:
    comparison = load_comparison(made / "comparison")
    assert {one.name for one in comparison.policies} == {"ppo", "mine", "history", "best"}
    for judge in ("twin of shifted days", "truth"):
        for shift in (0, 7):
            value = {
                name: comparison.cell(judge, shift, name, comparison.main_metric).value
                for name in ("ppo", "history", "best", "mine")
            }
            assert value["best"] <= value["ppo"] * 1.001
            assert value["ppo"] < 1.03 * value["best"] < 0.8 * value["history"]
            found = comparison.difference(judge, shift, "ppo", "history", comparison.main_metric)
            assert found.verdict.value == "better"


@pytest.mark.slow
def test_the_bundle_decides_as_the_best_does_away_from_where_edges_are_equal(made: Path) -> None:
    policy = load_network(made / "bundle")
    size_mib = np.array([0.3, 3.0, 30.0], np.float32)  # edges are equal at 1.1 and at 8 MiB
    cores = np.array(policy.contract.setting["cores"], np.float32)
    choices = np.broadcast_to(np.log(cores)[None, :, None], (3, 3, 1))
    chosen = policy.decide(choices, np.log(size_mib)[:, None], np.ones((3, 3), bool))
    assert [policy.contract.choices[one] for one in chosen] == ["near", "middle", "far"]
    with pytest.raises(ProductError, match="is of the problem 'batches', not 'placement'"):
        load(made / "bundle")


@pytest.mark.slow
def test_without_its_line_the_problem_is_not_known(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"train {made}/twin --out {made}/again".split()) == 2
    assert "of the unknown problem 'batches'" in capsys.readouterr().err
    assert main(f"fit {made}/log --problem batches --out {made}/again".split()) == 2
    assert "there is no problem 'batches'" in capsys.readouterr().err


@pytest.mark.slow
def test_parts_that_a_kit_lacks_are_named(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = kits.KITS
    monkeypatch.setattr(kits, "KITS", ours)
    add_problem(BATCHES_KIT)
    add_problem(BATCHES_KIT)  # once more is no other problem
    assert (*ours, BATCHES_KIT) == kits.KITS
    assert main(f"generate {made}/twin --out {made}/days".split()) == 2
    error = capsys.readouterr().err
    assert "'batches' does not take part in schedtwin generate" in error
    assert (
        "allowed: schedtwin fit, schedtwin certify, schedtwin train, schedtwin compare, schedtwin export, "
        "schedtwin run" in error
    )


@pytest.mark.slow
def test_training_does_not_point_to_a_comparison_that_is_not_there(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(_config: RunConfig) -> StepPlan:
        return StepPlan("policy", lambda _out, _inputs, _progress: {KEY: BATCHES_KIT.name}, {})

    monkeypatch.setattr(kits, "KITS", kits.KITS)
    add_problem(replace(BATCHES_KIT, train=train, trained=lambda _facts: []))
    assert main(f"train {made}/twin --out {tmp_path}/one".split()) == 0
    assert "no proof: schedtwin compare evaluates the policies\n" in capsys.readouterr().out
    add_problem(replace(BATCHES_KIT, train=train, trained=lambda _facts: [], compare=None, export=None))
    assert main(f"train {made}/twin --out {tmp_path}/other".split()) == 0
    assert capsys.readouterr().out.endswith("in-model values are no proof\n")
    for command in (f"compare {made}/log {made}/twin", f"export {tmp_path}/one"):
        assert main(f"{command} --out {tmp_path}/refused".split()) == 2
        assert f"'batches' does not take part in schedtwin {command.split()[0]}" in capsys.readouterr().err


def test_expected_responses_by_hand() -> None:
    edges = BatchEdges(
        jnp.array(DELAY_S), jnp.array(S_PER_MIB), jnp.zeros(()), jnp.array(CORES), jnp.ones(1), jnp.ones(1)
    )
    np.testing.assert_allclose(expected_s(edges, jnp.array([10.0]))[:, 0], [10.2, 4.0, 3.5], rtol=1e-6)
