"""A twin's ensemble in the adversarial game: the same draws, the same held-out windows, the start given back."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import load_certificate
from evaluation.comparison.shifts import ShiftConfig
from evaluation.comparison.training_days import DaysConfig
from evaluation.pipeline.fleet.holdings import UNITS
from evaluation.problems.certificates import build_certificate
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.steps import CURVES, NO_GAME, _play_game, build_twin
from evaluation.simulator.logs import simulate
from evaluation.simulator.presets import preset
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest, writing
from logs_schema.progress import SilentProgress
from logs_schema.settings import build
from tests.twin.imitation_world import campaign_encoding, campaigns
from twin.environment import environment
from twin.imitation.config import GameConfig, ImitationConfig, anchored
from twin.imitation.generator import Limits, Noise, imitated_answers, init_generator, widened
from twin.imitation.refining import MAX_WINDOWS, thinned
from twin.imitation.training import Fitted, fit_imitation
from twin.placement.availability import PendingFates
from twin.placement.bookkeeping import placement
from twin.placement.fit import MIN_WINDOWS, _shares, held_out_windows
from twin.placement.learned import AnswerConfig, AnswerModel, learned_answers
from twin.placement.model import PlacementTwin
from twin.placement.outcome_model import NUM_OUTPUTS, NUM_UNIFORMS, RUN_SCALES
from twin.placement.responses import drawn_response
from twin.placement.windows import replayed_arrivals, select
from twin.population import PopulationConfig

ENCODING = campaign_encoding()
ANSWERS = AnswerConfig(num_members=2, hidden=(8,))


@pytest.mark.slow
@pytest.mark.parametrize("hazard", [(), (0.01, 1.0)])
def test_the_game_draws_what_the_twin_draws(hazard: tuple[float, ...]) -> None:
    """By the same keys and by noise that was drawn from them, bit for bit; also where nodes lose what runs there."""
    encoding = replace(ENCODING, cluster=replace(ENCODING.cluster, hazard=hazard))
    config = ImitationConfig(num_members=2, hidden=(8,), engine_hidden=(4,))
    generator = init_generator(jax.random.key(0), encoding.cluster, config)
    model = AnswerModel(generator.answers, np.float64(100.0), np.float64(90.0), np.zeros(2))
    limits = Limits(model.longest_wait_s, model.longest_run_s)
    twin = learned_answers(encoding, ANSWERS, model)
    game = imitated_answers(encoding, config, generator.answers, limits)
    windows = campaigns(0, 4, 10)
    system = environment(
        placement(encoding.cluster, encoding.problem),
        drawn_response(encoding.cluster, encoding.problem.depth, replayed_arrivals(windows), twin),
    )
    state = jax.jit(lambda key: system.reset(key, (4,)).problem)(jax.random.key(1))
    node = jnp.array([[0, 1, 0, 1]])
    pending = PendingFates(
        jnp.array([[0.0, 3.0, 70.0, 0.2]]), jnp.array([[0.0, 0.5, -0.3, 0.0]]), *jnp.zeros((3, 1, 4))
    )
    key = jax.random.key(2)
    low = float(np.finfo(np.float32).tiny)
    uniforms = jax.random.uniform(key, (NUM_UNIFORMS, 1, 4), minval=low)
    noise = Noise(uniforms, jnp.zeros((2, 1, 4)))
    told = imitated_answers(encoding, config, generator.answers, limits, noise)

    @jax.jit
    def answered(state):
        each = (
            ways.answer(key, ways.init(key, (4,)), state, node, pending)[1] for ways in (twin, game, told)
        )
        return tuple(each), twin.response_aux(state, node), game.response_aux(state, node)

    (first, *others), *rooms = answered(state)
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, two)
    jax.tree.map(np.testing.assert_array_equal, *rooms)


def test_widths_are_widened_and_given_back() -> None:
    config = ImitationConfig(num_members=2, hidden=(8,))
    generator = init_generator(jax.random.key(0), ENCODING.cluster, config)
    widening = jnp.zeros(NUM_OUTPUTS).at[RUN_SCALES].set(0.25)
    wide = widened(config, generator, widening)
    before, after = (one.answers["params"]["Dense_1"]["bias"] for one in (generator, wide))
    np.testing.assert_allclose(after - before, jnp.broadcast_to(widening, (2, NUM_OUTPUTS)))
    for one, two in zip(*map(jax.tree.leaves, (generator, widened(config, wide, -widening))), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-7)


@pytest.mark.parametrize("num_windows", [MIN_WINDOWS - 1, 40])
def test_the_game_looks_at_the_windows_that_the_fit_held_out(num_windows: int) -> None:
    """And the bootstrap of the fit goes on from there as it always has: windows permuted, then drawn by member."""
    key, names = jax.random.key(5), np.arange(num_windows)
    window = np.repeat(names, 30)
    weights, held_out = _shares(jax.random.split(key)[0], window, ANSWERS)
    told = held_out_windows(key, names, ANSWERS)
    if num_windows < MIN_WINDOWS:
        assert len(told) == 0
        return
    np.testing.assert_array_equal(np.sort(told), np.unique(window[held_out]))
    generator = np.random.default_rng(np.asarray(jax.random.key_data(jax.random.split(key)[0])).tolist())
    aside = generator.permutation(names)[: round(ANSWERS.held_out * num_windows)]
    np.testing.assert_array_equal(np.sort(aside), np.sort(told))
    for weight in weights:
        count = np.bincount(generator.choice(names, num_windows), minlength=num_windows)
        np.testing.assert_array_equal(weight, np.where(held_out, 0.0, count[window]))


def test_a_long_log_is_thinned_evenly_and_keeps_who_was_held_out() -> None:
    few = campaigns(0, 6, 4)
    many = select(few, np.arange(2 * MAX_WINDOWS + 3) % 6)
    windows, aside = thinned(many, np.array([0, 1, 3, 300]))
    assert windows.num_windows <= MAX_WINDOWS
    np.testing.assert_array_equal(aside, [0, 1, 100])
    np.testing.assert_array_equal(windows.arrival_s[:, aside], many.arrival_s[:, [0, 3, 300]])


@pytest.mark.parametrize(("table", "said"), [({"kind": "gan"}, "anchored"), ({"num_steps": 0}, "1 or more")])
def test_impossible_games_are_refused_by_name(table: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        build(RunConfig, {"imitation": table}, "job.toml")
    assert "[imitation]" in str(caught.value)


def test_by_default_there_is_no_game_and_nothing_depends_on_it() -> None:
    assert RunConfig().imitation == NO_GAME == GameConfig()
    assert NO_GAME.as_settings() == {}
    with pytest.raises(ConfigError, match="no game"):
        NO_GAME.of_ensemble(ANSWERS)
    for kind in ("anchored", "paper"):
        game = GameConfig(kind).of_ensemble(AnswerConfig(num_members=5, hidden=(7,)))
        assert (game.num_members, game.hidden, game.num_streams) == (5, (7,), 20)
        assert game.use_ppo == (kind == "paper")


@pytest.mark.slow
def test_a_game_that_only_harms_gives_the_fitted_answers_back() -> None:
    config = anchored(
        num_members=2,
        hidden=(8,),
        num_warm=3,
        num_steps=3,
        num_streams=4,
        evaluate_every=3,
        game_learning_rate=10.0,
    )
    answers = init_generator(jax.random.key(3), ENCODING.cluster, config).answers
    widening = jnp.zeros(NUM_OUTPUTS).at[RUN_SCALES].set(-0.2)
    model, report = fit_imitation(
        jax.random.key(0),
        campaigns(0, 8, 12),
        ENCODING,
        config,
        fitted=Fitted(answers, Limits(100.0, 100.0), widening),
        held_out=np.array([2, 5]),
    )
    assert report.best_step <= config.num_warm
    assert report.kept == report.start
    warm, played = report.evaluations
    assert warm.held_out_answers == pytest.approx(report.start.likelihood)
    assert played.held_out_answers < report.start.likelihood - config.guards.likelihood_lost
    for one, two in zip(*map(jax.tree.leaves, (answers, model.generator.answers)), strict=True):
        np.testing.assert_array_equal(one, two)
    assert model.limits == Limits(100.0, 100.0)


def made_twin(folder: Path, name: str, game: GameConfig) -> Path:
    with writing(folder / name, "twin", extra=(extra := {})) as out:
        config = RunConfig(
            seed=1,
            days=DaysConfig(num_days=1, num_steps=64),
            twin=TINY,
            imitation=game,
            population=PopulationConfig("none"),
            shifts=ShiftConfig("0d"),
        )
        extra |= build_twin(out, folder / "archive", config, SilentProgress())
    return folder / name


TINY = AnswerConfig(num_members=2, hidden=(16,), num_steps=60, evaluate_every=20)


def test_an_unfinished_game_is_not_gone_on_with_in_another_encoding_or_by_other_code(
    tmp_path, monkeypatch
) -> None:
    begun = []

    def killed(*_: object, checkpoint: Path, **__: object) -> None:
        assert UNITS.fullmatch(checkpoint.parent.name)  # which `fleet prune` knows
        begun.append(checkpoint)
        raise KeyboardInterrupt

    monkeypatch.setattr("evaluation.problems.placement.steps.imitated_twin", killed)
    other = {"summary": "full", "full": "summary"}[ENCODING.problem.view]
    unlike = replace(ENCODING, problem=replace(ENCODING.problem, view=other))
    archive = SimpleNamespace(days_hash=lambda *_: "the same")
    for encoding, code in ((ENCODING, 20), (ENCODING, 20), (unlike, 20), (ENCODING, 21)):
        monkeypatch.setattr("evaluation.problems.placement.steps.TWIN_CODE", code)
        twin = SimpleNamespace(encoding=encoding, config=ANSWERS, windows=SimpleNamespace(num_steps=4))
        with pytest.raises(KeyboardInterrupt):
            _play_game(tmp_path / "twin", twin, archive, GameConfig("anchored"), 0, SilentProgress())
    assert begun[0] == begun[1]
    assert len(set(begun)) == 3


@pytest.mark.slow
def test_a_twin_is_made_by_the_game_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From configuration to certificate."""
    short = replace(preset("small"), requests_per_day=900.0)
    monkeypatch.setattr("evaluation.simulator.presets.PRESETS", (short,))
    simulate("small", 3, "mix", 0, tmp_path / "archive", progress=lambda *_, **__: None)
    monkeypatch.setattr("twin.imitation.config.WARM_STEPS", 5)
    plain = made_twin(tmp_path, "plain", NO_GAME)
    whole = made_twin(tmp_path, "whole", GameConfig("anchored", 30))
    facts = read_manifest(whole).extra["imitation"]
    assert "imitation" not in read_manifest(plain).extra
    assert facts["steps"] == 30
    assert 0 <= facts["kept_step"] <= 30
    least = facts["log_likelihood"]["start"] - 0.02
    assert facts["log_likelihood"]["kept"] >= least
    assert facts["state_distance"]["kept"] <= facts["state_distance"]["start"]
    assert (whole / CURVES).is_file()
    assert not list(tmp_path.glob(".unfinished*"))

    one, other = PlacementTwin.load(plain), PlacementTwin.load(whole)
    same = [
        np.array_equal(a, b)
        for a, b in zip(*map(jax.tree.leaves, (one.model.parameters, other.model.parameters)), strict=True)
    ]
    assert all(same) == (facts["kept_step"] == 0)
    assert (plain / "encoding.json").read_text() == (whole / "encoding.json").read_text()
    (tmp_path / "certificate").mkdir()
    build_certificate(
        tmp_path / "certificate",
        tmp_path / "archive",
        whole,
        None,
        CertifyConfig(
            max_days=1, enough_rows=1, num_steps=64, max_rows=300, num_replicates=200, rankings=False
        ),
        SilentProgress(),
    )
    assert facts["in_words"] in load_certificate(tmp_path / "certificate").notes
