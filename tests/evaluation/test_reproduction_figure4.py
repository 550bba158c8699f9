"""Figure 4: ratios by hand, simulator and log alike, parts that share their shapes, errors over one day's noise."""

import datetime as dt
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.commands.cli import main
from evaluation.problems.configuration import AnswerConfig
from evaluation.reproduction import day_twins, figure4
from evaluation.reproduction.day_twins import PART_WINDOWS, prepare, read_day, simulate_parts
from evaluation.reproduction.figure4 import FLOOR, ONE, PER_PART, Curves, Figure4Config, curves, quick, table
from evaluation.reproduction.offload import (
    DayParts,
    correlation,
    logged_ratios,
    mean_error,
    ratios,
    simulated_ratios,
)
from evaluation.reproduction.showing_figure4 import as_table, plot
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.history import play
from evaluation.simulator.logs import DAYS_AT_ONCE, FIRST_DAY, day_of, simulate
from evaluation.simulator.presets import preset
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from offline_rl.recipes.config import TrainingConfig
from twin.placement.encode import cut_windows
from twin.placement.learned import AnswerModel, answer_network, num_inputs

TINY = Figure4Config(
    "small",
    num_seeds=1,
    num_parts=2,
    num_replications=2,
    num_steps=64,
    twin=AnswerConfig(num_members=2, hidden=(8,), num_steps=20, evaluate_every=10),
    training=TrainingConfig(clone_updates=2, clone_streams=4, network="narrow_scorer"),
)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("figure4") / "log"
    simulate("small", 2, "mix", 0, path)
    return Archive(path)


@pytest.fixture(scope="module")
def how(log):
    return prepare(log, FIRST_DAY, TINY.twin, TINY.training, TINY.num_steps)


def test_curves_of_older_code_are_made_again(tmp_path, monkeypatch):
    seen = []

    def made(steps, *_):
        seen.append([step.code_version for step in steps[1:]])
        raise KeyboardInterrupt

    monkeypatch.setattr(figure4, "run_job", made)
    for code in (1000, 1001):
        monkeypatch.setattr(figure4, "TWIN_CODE", code)
        with pytest.raises(KeyboardInterrupt):
            curves(TINY, tmp_path, SilentProgress())
    assert seen == [[1000] * 4, [1001] * 4]


def test_ratios_count_what_started():
    part = np.array([0, 0, 0, 1, 1])
    found = ratios(
        part, np.array([True, True, False, False, False]), np.array([True, False, True, True, False]), 3
    )
    np.testing.assert_array_equal(found, [0.5, np.nan, np.nan])
    assert DayParts(1200.0, 12).of(np.array([0.0, 99.9, 100.0, 1199.9, 1200.0])).tolist() == [0, 0, 1, 11, 11]
    known = np.array([0.1, 0.3, np.nan])
    assert mean_error(known, np.array([0.2, 0.1, 0.9])) == pytest.approx(0.15)
    assert correlation(known, np.array([3.0, 4.0, 0.0])) == pytest.approx(1.0)
    assert np.isnan(correlation(known, np.array([0.5, 0.5, 0.1])))


@pytest.mark.slow
def test_simulator_and_log_tell_one_story(log, how):
    world = preset("small")
    simulated = play(world, behaviour("mix"), range(DAYS_AT_ONCE), 0)
    parts = DayParts(world.day_s, 12)
    for day in (0, 1):
        date = FIRST_DAY + dt.timedelta(days=day)
        logged = read_day(log, how.encoding, date)
        told = logged_ratios(logged.rows, how.encoding, parts, logged.midnight_s)
        np.testing.assert_array_equal(told, simulated_ratios(day_of(simulated, day), world, parts))
        assert np.all((told > 0.2) & (told < 0.9))
    later = logged_ratios(logged.rows, how.encoding, parts, logged.midnight_s + world.day_s / 12)
    np.testing.assert_array_equal(later[:11], told[1:])  # what came before is of another day
    assert np.isnan(later[11])


@pytest.mark.slow
def test_parts_share_their_shapes_and_hold_every_request_once(how):
    part = how.learned.in_part(DayParts(preset("small").day_s, 5))
    longest = int(np.bincount(part).max())
    windows = [day_twins._part_windows(how, part == one, longest) for one in range(5)]
    assert {one.arrival_s.shape for one in windows} == {(-(-longest // PART_WINDOWS), PART_WINDOWS)}
    rows = np.concatenate([one.row[one.valid()] for one in windows])
    assert sorted(rows) == list(range(len(how.learned.rows.arrival_s)))
    assert not np.any(windows[0].carried.node[:, 0] >= 0)  # the day begins empty, its parts do not
    assert all(np.isfinite(one.carried.fate.finish_s[:, 0]).any() for one in windows[1:])


@pytest.mark.slow
def test_a_part_with_too_few_requests_is_named(log, how):
    held = read_day(log, how.encoding, TINY.simulated_day)
    with pytest.raises(ConfigError, match="of 40 of the day holds"):
        simulate_parts(None, how, None, held, DayParts(preset("small").day_s, 40), 2, SilentProgress())


@pytest.mark.slow
def test_what_is_simulated_has_the_arguments_that_its_program_takes(how):
    """The program is traced, not compiled: everything in it is 1, so all requests start, and off their site."""

    def traced(*given):
        return jax.tree.map(
            lambda leaf: np.ones(leaf.shape, leaf.dtype), jax.eval_shape(how.program.run, *given)
        )

    cluster, key, seen = (
        how.encoding.cluster,
        jax.random.key(0),
        jnp.zeros((num_inputs(how.encoding.cluster), 1)),
    )
    members = jax.vmap(answer_network(TINY.twin).init, (0, None))(jax.random.split(key), seen)
    model = AnswerModel(members, 1.0, 1.0, np.ones(cluster.num_nodes))
    rows, wanted = how.learned.rows, how.learned.wanted
    day = cut_windows(rows, wanted, how.encoding, num_steps=int(wanted.sum()))
    alone = how._replace(program=how.program._replace(run=traced))
    found = day_twins._simulate(
        key, alone, how.network.init(key), model, day, DayParts(preset("small").day_s, 3), 2
    )
    np.testing.assert_array_equal(found, np.ones((2, 3)))


def made(one_twin: float, per_part: float, noise: float, num_seeds: int = 3) -> list[Curves]:
    """Days whose ratio falls from .7 to .6, twins that are wrong by so much everywhere, and one day's noise."""
    trend, sign = np.linspace(0.7, 0.6, 12), np.where(np.arange(12) % 2, 1.0, -1.0)
    found = []
    for seed in range(num_seeds):
        own = trend + 0.001 * seed
        floor = np.stack([own + noise * sign, own - noise * sign])
        replications = {ONE: floor + one_twin, PER_PART: floor + per_part, FLOOR: floor}
        found.append(Curves(own, replications))
    return found


def test_errors_stand_over_the_noise_of_one_day():
    found = table(Figure4Config(), made(0.004, 0.02, 0.002))
    rows = {row["way"]: row for row in found["rows"]}
    assert rows[FLOOR]["error"] == pytest.approx(0.002)
    assert rows[ONE]["error"] == pytest.approx(0.004)  # once .002 and once .006
    assert rows[ONE]["error_over_floor"] == pytest.approx(0.002)
    assert (rows[ONE]["error_verdict"], rows[PER_PART]["error_verdict"]) == ("pass", "fail")
    assert rows[ONE]["mean_replication_error"] == pytest.approx(0.004)
    assert rows[ONE]["mean_replication_correlation"] == pytest.approx(1.0)
    assert rows[ONE]["correlation_verdict"] == "pass"
    noisy = {row["way"]: row for row in table(Figure4Config(), made(0.0, 0.0, 0.05))["rows"]}
    assert noisy[ONE]["correlation_high"] < 0.95
    assert noisy[ONE]["correlation_verdict"] == "cannot tell"  # nor is one real day like another


def test_a_twin_that_misses_the_trend_fails_and_one_seed_decides_nothing():
    days = [
        day._replace(replications=day.replications | {ONE: day.replications[FLOOR][:, ::-1]})
        for day in made(0, 0, 0.001)
    ]
    rows = {row["way"]: row for row in table(Figure4Config(), days)["rows"]}
    assert rows[ONE]["correlation_verdict"] == rows[ONE]["error_verdict"] == "fail"
    alone = table(Figure4Config(), days[:1])["rows"]
    assert {row.get("error_verdict") for row in alone} == {"cannot tell", None}


def test_the_picture_and_the_table_bear_parts_without_requests(tmp_path):
    days = made(0.004, 0.02, 0.002)
    for day in days:
        day.truth[3] = day.replications[PER_PART][:, 3] = np.nan
    found = table(Figure4Config(), days)
    json.dumps(found, allow_nan=False)
    assert found["curves"][3][PER_PART] is None
    plot(found, tmp_path / "figure4.png")
    assert (tmp_path / "figure4.png").read_bytes().startswith(b"\x89PNG")
    assert as_table(found)


def test_impossible_figures_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="1 parts of the day"):
        Figure4Config(num_parts=1)
    with pytest.raises(ConfigError, match="7 replications cannot be dealt to 5 members"):
        Figure4Config(num_replications=7)
    with pytest.raises(ConfigError, match="1 replications cannot be dealt"):  # the floor needs two halves
        Figure4Config(num_replications=1, twin=AnswerConfig(num_members=1))
    with pytest.raises(ConfigError, match="about 167 requests"):
        Figure4Config("small", num_parts=15)
    assert quick(Figure4Config(behaviour="random")).behaviour == "random"
    assert main(["reproduce", "figure4", "--behaviour", "nobody", "--out", str(tmp_path)]) == 2


@pytest.mark.slow
def test_the_whole_figure_from_nothing(tmp_path):
    (found,) = curves(TINY, tmp_path, SilentProgress())
    assert {name: replications.shape for name, replications in found.replications.items()} == dict.fromkeys(
        (ONE, PER_PART, FLOOR), (2, 2)
    )
    for replications in found.replications.values():
        assert np.all((replications > 0.2) & (replications < 0.9))
    assert not np.array_equal(found.replications[FLOOR][0], found.replications[FLOOR][1])
    again = replace(TINY, twin=replace(TINY.twin, num_steps=30))  # floor and engine stand
    stamps = {
        name: (tmp_path / "seed-0" / name / "manifest.json").stat().st_mtime_ns
        for name in (FLOOR, "engine", ONE)
    }
    curves(again, tmp_path, SilentProgress())
    now = {name: (tmp_path / "seed-0" / name / "manifest.json").stat().st_mtime_ns for name in stamps}
    assert {name for name in stamps if now[name] != stamps[name]} == {ONE}
