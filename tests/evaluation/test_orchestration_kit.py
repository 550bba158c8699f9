"""The orchestration problem through the commands: a log of slots, its twin, a certificate, a comparison, new days."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.commands.cli import main
from evaluation.comparison.products import train_days_in
from evaluation.comparison.shifts import ShiftConfig
from evaluation.comparison.training_days import plan_of
from evaluation.jobs import unfinished
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.problems.orchestration import training
from evaluation.problems.orchestration.bench import Pair
from evaluation.problems.orchestration.comparing import COMPARED, PlayConfig, compare_pairs, play_pairs
from evaluation.problems.orchestration.kit import ORCHESTRATION_KIT
from evaluation.problems.orchestration.rivals import CENTRAL_RULE, central_rivals, rivals
from evaluation.problems.orchestration.simulating import simulate_slots
from logs_schema import Archive
from logs_schema.product import read_manifest
from logs_schema.progress import SilentProgress
from offline_rl import load_network
from offline_rl.rules.orchestration.tuned_plan import with_numbers
from offline_rl.runner.orchestrator import load_orchestrator
from tests.evaluation.test_slot_logs import LOG, WORLD
from twin.contracts import PyTree
from twin.orchestration.fit import fit_orchestration
from twin.orchestration.learned import learned_chance
from twin.orchestration.persistence import load_fitted

pytestmark = pytest.mark.slow
CONFIG = """
[days]
num_days = 1
[shifts]
shifts = "1d"
[orchestration]
num_updates = 1
num_streams = 8
num_frames = 2
num_slots = 40
num_warm_up_slots = 10
num_trial_frames = 2
num_plans = 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of four days, and the twin of its first."""
    folder = tmp_path_factory.mktemp("orchestration")
    simulate_slots(WORLD, 4, LOG, 0, folder / "log")
    (folder / "settings.toml").write_text(CONFIG)
    words = ["fit", "--problem", "orchestration", str(folder / "log"), "--out", str(folder / "twin")]
    assert main([*words, "--config", str(folder / "settings.toml")]) == 0
    return folder


def test_a_certificate_holds_the_twin_against_later_days(folder: Path) -> None:
    certifier = ORCHESTRATION_KIT.certifier(folder / "twin", None)
    found = certifier.certify(Archive(folder / "log"), None, CertifyConfig(), SilentProgress(), NOTHING_KEPT)
    lines = {line.name: line for line in found.lines}
    assert {"closed_loop", "arrivals", "runs"} == {line.section for line in found.lines}
    off = lines["share on time, off by"].value.value
    assert off is not None
    assert abs(off) < 0.06  # the twin under the cloned dispatcher and the logged changes


def test_a_comparison_holds_pairs_against_each_other_in_twin_and_truth(folder: Path) -> None:
    words = ["compare", str(folder / "log"), str(folder / "twin"), "--out", str(folder / "comparison")]
    assert main([*words, "--config", str(folder / "settings.toml")]) == 0
    told = json.loads((folder / "comparison" / "comparison.json").read_text())
    assert {cell["judge"] for cell in told["cells"]} == {"twin of shifted days", "truth"}
    assert "expected_on_time+lookahead" in {cell["policy"] for cell in told["cells"]}


def test_what_is_killed_loses_one_unit_and_ends_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days of a certificate's closed loop, pairs of a comparison."""
    archive, quiet, fitted = Archive(folder / "log"), SilentProgress(), load_fitted(folder / "twin")
    certifier = ORCHESTRATION_KIT.certifier(folder / "twin", None)
    plan = plan_of(archive, train_days_in(folder / "twin"), ShiftConfig("1d"))
    play = PlayConfig(num_frames=2, num_runs=2)
    made: list[Path] = []
    save = unfinished.save_arrays

    def dying(path: Path, tree: PyTree) -> None:
        made.append(path)
        if len(made) == 2:
            raise KeyboardInterrupt
        save(path, tree)

    def certified(keep: Unfinished) -> str:
        return str(certifier.certify(archive, None, CertifyConfig(), quiet, keep).to_json())

    def compared(keep: Unfinished) -> str:
        found = compare_pairs({}, fitted, archive, plan, quiet, play=play, pairs=COMPARED[:2], keep=keep)
        return str(found.to_json())

    monkeypatch.setattr(unfinished, "save_arrays", dying)
    for run, num_units in ((certified, 2), (compared, 4)):
        made.clear()
        keep = Unfinished(tmp_path / run.__name__)
        with pytest.raises(KeyboardInterrupt):
            run(keep)
        assert run(keep) == run(NOTHING_KEPT)
        assert len(made) == num_units + 1  # the one that died was made again


def test_a_twin_makes_up_days_that_are_a_log_again(folder: Path) -> None:
    out = folder / "generated"
    words = ["generate", str(folder / "twin"), "--days", "1", "--out", str(out)]
    assert main(words) == 0
    archive = Archive(out)
    again = fit_orchestration(archive, archive.days("requests"))
    assert again.edge.num_nodes == len(WORLD.nodes)
    assert main([*words, "--policy", "nobody+hpa", "--replace"]) != 0


def test_a_trained_pair_is_exported_and_decides_without_jax(folder: Path) -> None:
    words = ["train", str(folder / "twin"), "--force", "--out", str(folder / "policy")]
    assert main([*words, "--config", str(folder / "settings.toml")]) == 0
    assert main(["export", str(folder / "policy"), "--out", str(folder / "bundle")]) == 0
    chosen = read_manifest(folder / "policy").extra["chosen"]
    words = ["compare", str(folder / "log"), str(folder / "twin"), str(folder / "policy"), "--shifts", "0d"]
    assert main([*words, "--out", str(folder / "with"), "--config", str(folder / "settings.toml")]) == 0
    told = json.loads((folder / "with" / "comparison.json").read_text())
    assert {cell["judge"] for cell in told["cells"] if cell["policy"] == chosen} == {
        "twin of shifted days",
        "truth",
    }
    script = (
        "import sys, numpy as np; from offline_rl import load_network;"
        "from offline_rl.runner.frame_view import FrameView;"
        "from offline_rl.runner.orchestrator import load_orchestrator;"
        f"bundle = {str(folder / 'bundle')!r}; one = load_orchestrator(bundle); load_network(bundle);"
        "shape = len(one.facts.services), len(one.facts.nodes); zero = np.zeros(shape, np.float32);"
        "queued = np.zeros((shape[0], len(one.facts.points)), np.float32);"
        "print(one.decide(FrameView(0.0, np.ones(shape[1], bool), zero, zero, zero, zero, zero, queued)).change.min());"
        "sys.exit('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0  # nothing is deployed: replicas are added
    assert main(["export", str(folder / "policy"), "--rule", "f1", "--out", str(folder / "other")]) != 0


@pytest.mark.parametrize("way", ["joint", "alternating"])
def test_both_sides_are_trained_in_one_trajectory_where_it_is_asked_for(
    way: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, config = "residual+gpg", tmp_path / "settings.toml"
    config.write_text(CONFIG + f'training = "{way}"\n')
    monkeypatch.setattr(training, "chosen_pair", lambda tried: next(one for one in tried if one == chosen))
    words = ["train", str(folder / "twin"), "--force", "--out", str(tmp_path / "policy")]
    assert main([*words, "--config", str(config)]) == 0
    found = read_manifest(tmp_path / "policy")
    assert (found.config["budget"]["training"], found.extra["chosen"]) == (way, chosen)
    assert main(["export", str(tmp_path / "policy"), "--out", str(tmp_path / "bundle")]) == 0
    load_network(tmp_path / "bundle")


def test_what_dispatches_in_one_place_is_handed_over_as_that_and_compared_with_its_like(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And with a plan that was tuned."""
    chosen, config = "residual_central+planned_tuned", tmp_path / "settings.toml"
    config.write_text(CONFIG + "delay_s = 0.5\n")
    monkeypatch.setattr(training, "tuned_plan", lambda *_: with_numbers({"safety": 1.75}))
    monkeypatch.setattr(training, "chosen_pair", lambda tried: next(one for one in tried if one == chosen))
    words = ["train", str(folder / "twin"), "--force", "--out", str(tmp_path / "policy")]
    assert main([*words, "--config", str(config)]) == 0
    tried = read_manifest(tmp_path / "policy").extra["tried"]
    assert {one.split("+")[0] for one in tried} == {
        "expected_on_time",
        "expected_on_time_central",
        "residual_central",
    }
    assert main(["export", str(tmp_path / "policy"), "--out", str(tmp_path / "bundle")]) == 0
    setting = load_network(tmp_path / "bundle").contract.setting
    assert (setting["view"], setting["delay_s"]) == ("full", 0.5)
    assert load_orchestrator(tmp_path / "bundle").tables.plan[1] == 1.75
    assert main(["inspect", str(tmp_path / "bundle")]) == 0
    assert "1.75 sqrt(busy)" in " ".join(capsys.readouterr().out.split())
    words = ["compare", str(folder / "log"), str(folder / "twin"), str(tmp_path / "policy"), "--shifts", "0d"]
    assert main([*words, "--out", str(tmp_path / "with"), "--config", str(config)]) == 0
    told = json.loads((tmp_path / "with" / "comparison.json").read_text())
    assert {chosen, "expected_on_time_central+planned", "firmament_central+static"} <= {
        cell["policy"] for cell in told["cells"]
    }


def test_decisions_of_one_place_come_late_in_a_comparison(folder: Path) -> None:
    fitted, config = load_fitted(folder / "twin"), PlayConfig(num_frames=4, num_runs=2)
    pair, chance = Pair(CENTRAL_RULE, "static"), learned_chance(fitted.edge, fitted.tables)
    at_once, late = (
        play_pairs(
            fitted.edge,
            chance,
            fitted,
            [pair],
            config,
            rivals(fitted).joined(central_rivals(fitted, delay_s)),
        )[pair]
        for delay_s in (0.0, 3.0)
    )
    np.testing.assert_array_equal(at_once[0], late[0])  # the same requests arrive
    assert late[1].sum() < at_once[1].sum()
