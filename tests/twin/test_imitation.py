"""The discriminator, PPO's pieces and the guards, against closed forms and counts by hand."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from logs_schema.errors import ConfigError, ProductError
from tests.twin.imitation_world import CLUSTER, campaign_encoding, campaigns
from twin.imitation.config import DiscriminatorConfig, Guards, ImitationConfig, anchored, paper
from twin.imitation.decisions import NUM_ANSWER_FEATURES, LoggedDecisions, same_agent
from twin.imitation.discriminator import (
    discriminator_loss,
    discriminator_network,
    num_row_features,
    rows,
    scores_of,
)
from twin.imitation.errors import ImitationError
from twin.imitation.fidelity import earth_movers, state_distance
from twin.imitation.game import inputs_of, likelihood
from twin.imitation.generator import Limits, answers_given, choose, draw_again, init_generator
from twin.imitation.guards import ImitationEvaluation, refuse_divergence, stop_reason
from twin.imitation.proximal import returns_to_go
from twin.imitation.training import Fitted, fit_imitation
from twin.placement.availability import PendingFates
from twin.placement.features import NODE_FEATURES, one_hot, request_features
from twin.placement.outcome_model import (
    NUM_OUTPUTS,
    NUM_UNIFORMS,
    Observed,
    log_likelihood,
    sample_answer,
    split_outputs,
)
from twin.placement.types import Observation


def test_answers_drawn_again_are_the_same_and_have_gradients() -> None:
    random, limits = np.random.default_rng(1), Limits(1e4, 1e4)
    outputs = random.normal(size=(NUM_OUTPUTS, 40)).astype(np.float32)
    uniforms = random.uniform(1e-6, 1.0, (NUM_UNIFORMS, 40)).astype(np.float32)

    @jax.jit
    def ways(outputs):
        split = split_outputs(outputs)
        return sample_answer(split, uniforms, 2.0, limits), draw_again(split, uniforms, 2.0, limits)

    for one, two in zip(*ways(outputs), strict=True):
        np.testing.assert_allclose(np.asarray(one, np.float32), two, rtol=1e-6)

    def accepted(outputs: jax.Array) -> jax.Array:
        return jnp.sum(draw_again(split_outputs(outputs), uniforms, 2.0, limits).accepted)

    share = 1.0 / (1.0 + np.exp(-outputs[0]))
    gradient = np.asarray(jax.jit(jax.grad(accepted))(outputs))
    np.testing.assert_allclose(gradient[0], share * (1.0 - share), rtol=1e-5)


def test_runs_that_nodes_have_lost_are_cut_short_in_the_game_too() -> None:
    """Drawn again as the twin draws them, and in the likelihood at least so long, as in the fit."""
    random, limits = np.random.default_rng(2), Limits(1e4, 1e4)
    cluster = replace(CLUSTER, hazard=(0.0, 0.1))
    encoding, config = replace(campaign_encoding(), cluster=cluster), ImitationConfig(1, (4,), (4,))
    shape, num_request = (3, 2), len(request_features(cluster))
    sees = (len(NODE_FEATURES), cluster.num_nodes, *shape), (num_request, *shape)
    full = Observation(*(random.uniform(0.1, 1.0, one).astype(np.float32) for one in sees))
    yes, no, time_s = np.ones(shape, bool), np.zeros(shape, bool), np.full(shape, 5.0, np.float32)
    logged = LoggedDecisions(
        full, full, np.ones((cluster.num_nodes, *shape), bool), np.zeros(shape, np.int32),
        PendingFates(*np.ones((5, *shape), np.float32)), np.zeros(shape, np.int32), yes,
        Observed(yes, no, yes, time_s, yes, time_s, yes), yes,
    )  # fmt: skip

    @jax.jit
    def found(key: jax.Array) -> tuple:
        generator = init_generator(key, cluster, config)
        of_game = likelihood(encoding, config, generator, logged).answers
        chosen = one_hot(logged.node, cluster.num_nodes).astype(jnp.float32)
        inputs = inputs_of(encoding, logged.full, chosen, logged.pending)
        law = answers_given(encoding, config, generator.answers, inputs)
        of_fit = jnp.mean(log_likelihood(law, logged.observed, 5.0, cut_short=True))
        uniforms = jax.random.uniform(key, (NUM_UNIFORMS, *shape), minval=1e-6).at[2].multiply(1e-4)
        drawn = (draw(law, uniforms, 5.0, limits, cut_short=True) for draw in (sample_answer, draw_again))
        return of_game, of_fit, *drawn

    of_game, of_fit, one, two = found(jax.random.key(0))
    assert encoding.problem.time_unit_s == 5.0
    np.testing.assert_allclose(of_game, of_fit, rtol=1e-6)
    assert np.asarray(one.failed).all()
    np.testing.assert_allclose(one.run_s, two.run_s, rtol=1e-6)


def test_the_engine_draws_by_its_probabilities_and_only_what_is_legal() -> None:
    probability = np.array([0.5, 0.3, 0.2, 0.0], np.float32)
    logits = np.where(probability > 0, np.log(np.maximum(probability, 1e-9)), np.float32(-1e9))[:, None]

    @jax.jit
    def chosen(logits: jax.Array) -> jax.Array:
        drawn = jax.random.gumbel(jax.random.key(3), (4, 4000))
        return choose(jnp.broadcast_to(logits, (4, 4000)), drawn)

    counts = np.asarray(chosen(logits)).sum(axis=1).round()
    assert counts[3] == 0
    assert stats.chisquare(counts[:3], 4000 * np.array([0.5, 0.3, 0.2])).pvalue > 1e-3


def test_rows_show_the_past_of_the_agent_and_never_the_future() -> None:
    random = np.random.default_rng(4)
    seen = Observation(*(random.normal(size=shape).astype(np.float32) for shape in ((3, 2, 5, 1), (4, 5, 1))))
    chosen = np.eye(2, dtype=np.float32)[[0, 1, 1, 0, 1]].T[:, :, None]
    answers = random.normal(size=(NUM_ANSWER_FEATURES, 5, 1)).astype(np.float32)

    @jax.jit
    def rows_of(answers):
        same = same_agent(jnp.array([1, 2, 1, -1, 1])[:, None], jnp.ones((5, 1), bool))
        return rows(seen, chosen, answers, same, 3)

    shown = np.asarray(rows_of(answers))
    mean = shown[-1 - NUM_ANSWER_FEATURES : -1, :, 0]
    np.testing.assert_allclose(mean[:, 4], 0.5 * (answers[:, 0, 0] + answers[:, 2, 0]), rtol=1e-5)
    np.testing.assert_allclose(mean[:, 3], 0.0)
    assert np.expm1(shown[-1, 4, 0]) == pytest.approx(2.0, rel=1e-5)
    answers[:, 3] += 5.0
    changed = np.asarray(rows_of(answers))
    np.testing.assert_array_equal(changed[:, :3], shown[:, :3])
    assert (changed[:, 4] != shown[:, 4]).any()


def test_rows_have_the_width_that_is_promised() -> None:
    config = DiscriminatorConfig(window=3)
    num_request = len(request_features(CLUSTER))
    nodes = CLUSTER.num_nodes
    seen = Observation(np.zeros((len(NODE_FEATURES), nodes, 4, 2)), np.zeros((num_request, 4, 2)))
    others = (np.zeros((nodes, 4, 2)), np.zeros((NUM_ANSWER_FEATURES, 4, 2)), np.zeros((4, 4, 2)))
    shown = jax.eval_shape(lambda seen, *others: rows(seen, *others, 3), seen, *others)
    assert shown.shape[0] == num_row_features(CLUSTER, num_request, config)


@pytest.mark.slow
def test_the_judge_at_its_optimum() -> None:
    """Logged rows are standard normal, generated ones shifted by one: the best logit is x - 1/2 (log of the ratio)."""
    config = DiscriminatorConfig(hidden=(16,), gradient_penalty=0.0)
    network = discriminator_network(config)
    shown = np.linspace(-1.0, 2.0, 7, dtype=np.float32)

    @jax.jit
    def fitted():
        logged, generated = jax.random.normal(jax.random.key(5), (2, 1, 4000))
        generated = generated + 1.0
        all_count = jnp.ones(4000, bool)

        def loss(parameters):
            return discriminator_loss(config, parameters, logged, all_count, generated, all_count)[0]

        step = jax.value_and_grad(loss)
        parameters = network.init(jax.random.key(6), logged)
        parameters = jax.lax.fori_loop(
            0, 1500, lambda _, p: jax.tree.map(lambda a, g: a - 0.3 * g, p, step(p)[1]), parameters
        )
        return scores_of(config, parameters, shown[None])

    np.testing.assert_allclose(fitted(), shown - 0.5, atol=0.2)


def test_the_gradient_penalty_is_half_its_weight_times_the_squared_slope() -> None:
    config = DiscriminatorConfig(hidden=(), gradient_penalty=0.0)
    held_config = DiscriminatorConfig(hidden=(), gradient_penalty=0.6)

    @jax.jit
    def losses():
        steep = {"params": {"Dense_0": {"kernel": jnp.array([[2.0], [-1.0]]), "bias": jnp.zeros(1)}}}
        points, count = jax.random.normal(jax.random.key(0), (2, 9)), jnp.ones(9, bool)
        return [
            discriminator_loss(one, steep, points, count, points, count)[0] for one in (config, held_config)
        ]

    free, held = losses()
    assert float(held) - float(free) == pytest.approx(0.5 * 0.6 * 5.0, rel=1e-4)


def test_returns_to_go_by_hand() -> None:
    reward = np.array([[1.0], [2.0], [4.0]], np.float32)
    valid = np.array([[True], [False], [True]])
    told = np.asarray(returns_to_go(reward, valid, np.array([8.0], np.float32), 0.5))
    np.testing.assert_allclose(told[:, 0], [1.0 + 0.5 * 8.0, 8.0, 8.0])


def test_earth_movers_are_scipys() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(3, 20)), rng.normal(1.0, 2.0, size=(3, 60))
    expected = [stats.wasserstein_distance(a, b) for a, b in zip(one, two, strict=True)]
    np.testing.assert_allclose(earth_movers(one, two), expected, rtol=1e-9)
    assert state_distance(one, one) == 0.0
    assert state_distance(one, one + 3.0 * one.std(axis=1, keepdims=True)) == pytest.approx(3.0)
    assert state_distance(np.zeros((2, 5)), np.ones((2, 5))) == 0.0


def evaluations(config: ImitationConfig, distance: list[float], **columns: float) -> ImitationEvaluation:
    steps = config.num_warm + config.evaluate_every * (1.0 + np.arange(len(distance)))
    usual = {"accuracy_logged": 0.6, "accuracy_generated": 0.6, "refused": 0.0, **columns}
    filled = {name: np.full(len(steps), value) for name, value in usual.items()}
    none = np.full(len(steps), np.nan)
    return ImitationEvaluation(steps, none, none, none, np.array(distance), **filled)


def test_guards_stop_with_a_reason_and_only_then() -> None:
    config = anchored(num_warm=100, evaluate_every=10, guards=Guards((0.4, 0.9), 0.2, 3))
    assert stop_reason(evaluations(config, [3.0, 2.0, 1.0]), 130, config) == ""
    assert "fidelity" in stop_reason(evaluations(config, [1.0, 2.0, 3.0, 4.0]), 110, config)
    sharp = evaluations(config, [3.0, 2.0, 1.0], accuracy_logged=0.95, accuracy_generated=0.95)
    assert "gradient penalty" in stop_reason(sharp, 130, config)
    blind = evaluations(config, [3.0, 2.0, 1.0], accuracy_logged=0.3, accuracy_generated=0.3)
    assert "learning rate" in stop_reason(blind, 130, config)
    assert "anchor" in stop_reason(evaluations(config, [3.0, 2.0, 1.0], refused=0.4), 130, config)
    assert stop_reason(evaluations(config, [3.0, 2.0], refused=0.4), 120, config) == ""


def test_numbers_that_are_not_finite_are_refused() -> None:
    refuse_divergence({"a": np.ones(2)}, {"likelihood": np.float32(1.0)}, 0, 5)
    with pytest.raises(ImitationError, match="not finite"):
        refuse_divergence({"a": np.array([1.0, np.nan])}, {"likelihood": np.float32(1.0)}, 0, 5)


@pytest.mark.parametrize("change", [{"num_members": 3}, {"num_streams": 0}, {"held_out": 1.0}])
def test_impossible_configurations_are_refused(change: dict) -> None:
    with pytest.raises(ConfigError, match="ImitationConfig"):
        ImitationConfig(**change)


def test_too_few_windows_are_refused() -> None:
    with pytest.raises(ImitationError, match="at least 4"):
        fit_imitation(jax.random.key(0), campaigns(0, 3, 10), campaign_encoding(), ImitationConfig())


TINY = {"num_members": 1, "num_streams": 4, "hidden": (8,), "evaluate_every": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "begins_fitted"),
    [
        (anchored(num_warm=4, num_steps=6, memory=0.9, **TINY), True),
        (paper(num_steps=6, epochs=2, **TINY), False),
    ],
    ids=["anchored", "paper"],
)
def test_a_killed_run_resumes_to_the_same_bits(
    config: ImitationConfig, begins_fitted: bool, tmp_path
) -> None:
    class Killed(Exception):
        pass

    def kill_at(step: int):
        def on_evaluation(evaluation: ImitationEvaluation) -> None:
            if evaluation.step >= step:
                raise Killed

        return on_evaluation

    windows, encoding = campaigns(0, 8, 12), campaign_encoding()
    key = jax.random.key(2)
    answers = init_generator(jax.random.key(3), CLUSTER, config).answers
    fitted = Fitted(answers, Limits(100.0, 100.0), np.full(NUM_OUTPUTS, 0.1, np.float32))
    fit = partial(fit_imitation, windows=windows, encoding=encoding, config=config)
    fit = partial(fit, fitted=fitted if begins_fitted else None)
    whole, report = fit(key)
    steps = [evaluation.step for evaluation in report.evaluations]
    assert all(early < late for early, late in pairwise(steps))
    kept = tmp_path / "run.npz"
    with pytest.raises(Killed):
        fit(key, checkpoint=kept, on_evaluation=kill_at(steps[1]))
    resumed, again = fit(key, checkpoint=kept)
    for one, two in zip(jax.tree.leaves(whole), jax.tree.leaves(resumed), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(np.array(report.evaluations), np.array(again.evaluations))
    np.testing.assert_array_equal([report.start, report.kept], [again.start, again.kept])
    with pytest.raises(ProductError, match="another key"):
        fit(jax.random.key(3), checkpoint=kept)
