"""The certificate's null and its power: the truth as a twin of itself passes, planted faults fail their own line."""

import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation.certify.certificate import certificate_of
from evaluation.certify.cloned_behaviour import fit_behaviour
from evaluation.certify.config import CertifyConfig
from evaluation.certify.family import settled
from evaluation.certify.forecasting import Forecaster
from evaluation.certify.held_out import hold_out
from evaluation.certify.lines import Verdict
from evaluation.certify.logged_days import real_days
from evaluation.certify.measuring import measure
from evaluation.certify.simulating import Simulation
from evaluation.certify.since_training import CHANGED, WRONG_FORM, since_training
from evaluation.certify.tested_system import seen_in_full
from evaluation.commands.bench_worlds import EXAMPLES
from evaluation.problems.placement.certifying import ABOUT
from evaluation.simulator.logs import simulate, truth_folder
from evaluation.simulator.world import Drift
from evaluation.simulator.world_files import load_world, redrawn
from logs_schema import Archive
from logs_schema.progress import SilentProgress
from tests.evaluation.planted import acceptance_lowered, means_swapped, waits_halved
from tests.evaluation.test_certify_forecasts import ACCEPTANCE, BESIDE, PERSISTENCE, RUNS, WAITS
from tests.evaluation.true_twins import control_world, one_step_lines, true_twin
from twin.placement.encoding import fit_encoding
from twin.placement.log_windows import encode_days

# Simulates days of a world; what the lines say of known forecasts is tested quickly elsewhere
pytestmark = pytest.mark.slow

TRAIN = [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]
HELD = [dt.date(2024, 1, 3), dt.date(2024, 1, 4)]
QUICK = CertifyConfig(
    max_days=2,
    enough_rows=1,
    num_steps=128,
    max_rows=500,
    num_replicates=200,
    rankings=False,
    clone_updates=400,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Logs of the control world and of the same world with shared nodes; the first one's truth, and a clone."""
    folder = tmp_path_factory.mktemp("null")
    worlds = control_world(), control_world("ps")
    archives = []
    for index, world in enumerate(worlds):
        simulate(world, 6, "mix", 0, folder / str(index))
        archives.append(Archive(folder / str(index)))
    tested = true_twin(archives[0], worlds[0], TRAIN)
    clone = fit_behaviour(tested, QUICK, SilentProgress())
    return SimpleNamespace(worlds=worlds, archives=archives, tested=tested, clone=clone)


def one_step(made, tested, archive) -> dict[str, Verdict]:
    lines = one_step_lines(tested, made.clone, archive, HELD, QUICK)
    return {line.name: line.verdict for line in lines}


def test_the_truth_as_a_twin_of_itself_passes(made):
    chosen = hold_out(made.archives[0], TRAIN, None, QUICK)
    found = measure(made.tested, made.archives[0], chosen, QUICK, SilentProgress())
    told = certificate_of(
        found.lines, ABOUT, {}, QUICK, twin="", archive="", train_days=TRAIN, days=chosen.days
    )
    failed = [line.name for line in told.lines if line.verdict is Verdict.FAIL]
    assert not failed
    assert told.verdict is Verdict.PASS
    closed = [line for line in told.lines if line.section == "closed loop" and line.deciding]
    # The clone decides as the log did, and levels agree
    assert {line.verdict for line in closed} == {Verdict.PASS}


@pytest.mark.parametrize("name", ["sharing", "contention"])
def test_the_truth_passes_where_runs_slow_each_other(name, tmp_path):
    world = redrawn(replace(load_world(EXAMPLES / f"{name}.toml"), stubbornness=0.0, drift=Drift()), 5)
    simulate(world, 4, "mix", 5, tmp_path / "log")
    archive = Archive(tmp_path / "log")
    tested = true_twin(archive, world, TRAIN)
    assert fit_encoding(archive, TRAIN).cluster.pace.shares == tested.encoding.cluster.pace.shares
    chosen = hold_out(archive, TRAIN, None, QUICK)
    lines = measure(tested, archive, chosen, QUICK, SilentProgress()).lines
    told = certificate_of(lines, ABOUT, {}, QUICK, twin="", archive="", train_days=TRAIN, days=chosen.days)
    assert told.verdict is Verdict.PASS


def test_the_clone_is_as_sure_of_the_log_as_the_behaviour_was(made):
    """Shown other sites in summary, it is right on average and surer of nothing."""
    drawn = pq.read_table(truth_folder(made.archives[0].path) / "propensities.parquet")
    true = -np.log(drawn["propensity"].to_numpy()).mean()  # of all six days: they are alike
    shown = seen_in_full(made.tested)
    parts = [encode_days(made.archives[0], shown.encoding, [day], num_steps=128) for day in HELD]
    clones = (made.tested, made.clone), (shown, fit_behaviour(shown, QUICK, SilentProgress()))
    excess = [
        Forecaster(tested, clone, seed=0).forecast(parts).surprise.mean() - true for tested, clone in clones
    ]
    assert excess[1] < 0.6 * excess[0]


def test_with_the_logged_luck_the_truth_repeats_the_log(made):
    (day,) = real_days(made.archives[0], made.tested.encoding, HELD[:1], num_steps=128).values()
    (states,) = Simulation(made.tested, made.clone, [day], seed=0).states_with_logged_luck()
    np.testing.assert_allclose(states, day.states, atol=0.02)
    slow = waits_halved(made.tested)
    (halved,) = Simulation(slow, made.clone, [day], seed=0).states_with_logged_luck()
    assert np.abs(halved - day.states).max() > 0.1


@pytest.mark.parametrize(
    ("fault", "line", "passes"),
    [
        (lambda tested: tested, None, (RUNS, WAITS, ACCEPTANCE, PERSISTENCE, BESIDE)),
        (waits_halved, WAITS, (RUNS, ACCEPTANCE, PERSISTENCE, BESIDE)),
        (acceptance_lowered, ACCEPTANCE, (RUNS, WAITS, PERSISTENCE, BESIDE)),
        (lambda tested: means_swapped(tested, 0, 1), RUNS, (WAITS, ACCEPTANCE)),
    ],
)
def test_planted_faults_fail_their_line(made, fault, line, passes):
    found = one_step(made, fault(made.tested), made.archives[0])
    assert line is None or found[line] is Verdict.FAIL
    assert {found[name] for name in passes} == {Verdict.PASS}


def test_sharing_taken_for_queueing_fails_its_line(made):
    assert one_step(made, made.tested, made.archives[1])[BESIDE] is Verdict.FAIL


def said_since_training(tested, archive) -> str:
    chosen = hold_out(archive, TRAIN, None, replace(QUICK, max_days=4))
    found = measure(tested, archive, chosen, QUICK, SilentProgress())
    return since_training(settled(found.lines, len(chosen.days)), found.in_training)


def test_a_change_since_training_is_told_from_a_wrong_form(made, tmp_path):
    assert said_since_training(means_swapped(made.tested, 0, 1), made.archives[0]) == WRONG_FORM
    world = made.worlds[0]
    nodes = tuple(node.name for node in world.nodes)
    slowing = replace(world, drift=Drift(slowing=0.99, slowing_node=nodes))
    simulate(slowing, 6, "mix", 0, tmp_path / "slowing")
    archive = Archive(tmp_path / "slowing")
    assert said_since_training(true_twin(archive, slowing, TRAIN), archive) == CHANGED


def test_the_system_under_test_gives_the_same_forecasts_for_the_same_seed(made):
    parts = [encode_days(made.archives[0], made.tested.encoding, HELD[:1], num_steps=128)]
    once, again = (Forecaster(made.tested, made.clone, seed=3).forecast(parts) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, once, again)


def test_windows_forecast_in_turn_are_those_forecast_together(made, monkeypatch):
    parts = [encode_days(made.archives[0], made.tested.encoding, HELD[:1], num_steps=128)]
    once = Forecaster(made.tested, made.clone, seed=3).forecast(parts)
    nodes, members = made.tested.encoding.cluster.num_nodes, made.tested.num_members
    monkeypatch.setattr("evaluation.certify.forecasting.MOST_ANSWERS", 6 * 128 * nodes * members)
    turns = Forecaster(made.tested, made.clone, seed=3).forecast(parts)
    for name in ("arrival_s", "node", "wait_s", "run_s", "surprise"):
        np.testing.assert_allclose(getattr(once, name), getattr(turns, name), rtol=1e-5)
    error = np.nanmean(np.log(turns.draws_run_s), axis=1) - np.nanmean(np.log(once.draws_run_s), axis=1)
    assert abs(np.nanmean(error)) < 0.01
