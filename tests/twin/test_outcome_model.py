"""The distribution of one answer against closed forms, quadrature and its own samples."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from tests.twin.made import made_cluster, made_encoding
from twin.contracts import Array, PyTree
from twin.fitting_loop import Checkpoint
from twin.placement.availability import PendingFates
from twin.placement.fit import fit_answers, fit_program
from twin.placement.history import Offers
from twin.placement.learned import (
    ACCEPTANCE,
    TIDE,
    USUAL_RUN,
    AnswerConfig,
    AnswerModel,
    answer_network,
    answer_parameters,
    num_inputs,
)
from twin.placement.outcome_model import (
    FROM_USUAL,
    MIN_PROBABILITY,
    NUM_OUTPUTS,
    NUM_UNIFORMS,
    RUN_PLACES,
    WAIT_PLACES,
    WAIT_RESOLUTION,
    Mixture,
    Observed,
    log_likelihood,
    log_wait,
    mixture_log_density,
    mixture_log_survival,
    mixture_sample,
    sample_answer,
    split_outputs,
)
from twin.placement.tides import Tide

GRID = np.linspace(0.0, 80.0, 200_001)


@pytest.fixture(scope="module")
def mixture() -> Mixture:
    weight = jnp.log(jnp.array([[0.1], [0.2], [0.3], [0.4]]))
    location = jnp.array([[-1.0], [0.5], [2.0], [6.0]])
    return Mixture(weight, location, jnp.log(jnp.array([[0.3], [0.1], [1.0], [2.0]])))


def test_density_integrates_to_one(mixture: Mixture) -> None:
    density = np.exp(np.asarray(mixture_log_density(mixture, jnp.asarray(GRID, jnp.float32)), np.float64))
    assert np.trapezoid(density, GRID) == pytest.approx(1.0, abs=1e-4)


def test_survival_is_the_integral_of_the_density(mixture: Mixture) -> None:
    density = np.exp(np.asarray(mixture_log_density(mixture, jnp.asarray(GRID, jnp.float32)), np.float64))
    for edge in (0.0, 0.5, 3.0, 9.0):
        above = edge <= GRID
        told = float(jnp.exp(mixture_log_survival(mixture, jnp.array([edge]))[0]))
        assert told == pytest.approx(np.trapezoid(density[above], GRID[above]), abs=1e-3)


def test_one_component_is_scipys_normal_truncated_to_positive_values() -> None:
    weight = jnp.array([[0.0], [-1e9], [-1e9], [-1e9]])
    one = Mixture(weight, jnp.full((4, 1), 1.5), jnp.full((4, 1), jnp.log(0.7)))
    values = jnp.array([0.0, 0.3, 1.5, 4.0])
    law = stats.norm(1.5, 0.7)
    np.testing.assert_allclose(mixture_log_density(one, values), law.logpdf(values) - law.logsf(0), atol=1e-5)
    np.testing.assert_allclose(mixture_log_survival(one, values), law.logsf(values) - law.logsf(0), atol=1e-5)


def test_samples_follow_the_distribution_function(mixture: Mixture) -> None:
    uniforms = jax.random.uniform(jax.random.key(0), (2, 4000), minval=1e-30)
    drawn = np.asarray(mixture_sample(mixture, uniforms[0], uniforms[1]))

    def below(values: np.ndarray) -> np.ndarray:
        return 1.0 - np.exp(np.asarray(mixture_log_survival(mixture, jnp.asarray(values, jnp.float32))))

    assert drawn.min() > 0.0
    assert stats.kstest(drawn, below).pvalue > 0.01
    assert stats.kstest(drawn + 0.3, below).pvalue < 1e-6


def test_what_lies_far_below_zero_is_drawn_there() -> None:
    far = Mixture(jnp.zeros((4, 1)), jnp.full((4, 1), -3.0), jnp.full((4, 1), -5.0))
    for uniform in (1e-30, 0.5, 1.0):
        assert float(mixture_sample(far, jnp.full(1, 0.5), jnp.full(1, uniform))[0]) == 0.0


def outputs_of(accept: float, drop: float, fail: float, at_once: float) -> np.ndarray:
    """Outputs with these chances; waits and runs are normal around 8 and 1 with deviation 0.5, on their scales."""
    outputs = np.zeros(NUM_OUTPUTS, np.float32)
    chances = np.array([accept, drop, fail, at_once])
    outputs[:4] = np.log(chances / (1 - chances))
    for first, location in ((4, 8.0 - WAIT_PLACES[0]), (16, 1.0 - RUN_PLACES[0])):
        outputs[first : first + 4] = [40.0, 0.0, 0.0, 0.0]
        outputs[first + 4 : first + 8] = location
        outputs[first + 8 : first + 12] = np.log(0.5)
    return outputs


def test_sampled_answers_have_the_stated_chances() -> None:
    count = 20_000
    uniforms = jax.random.uniform(jax.random.key(1), (NUM_UNIFORMS, count), minval=1e-30)
    parameters = split_outputs(jnp.asarray(outputs_of(0.7, 0.2, 0.1, 0.4))[:, None])
    drawn = sample_answer(parameters, uniforms, 2.0, (8.0, 30.0))
    for name, chance in {"accepted": 0.7, "dropped": 0.2, "failed": 0.1}.items():
        assert np.mean(getattr(drawn, name)) == pytest.approx(chance, abs=0.015)
    wait_s, run_s = np.asarray(drawn.wait_s), np.asarray(drawn.run_s)
    assert np.mean(wait_s == 0.0) == pytest.approx(0.4, abs=0.015)
    median_s = 2.0 * WAIT_RESOLUTION * np.expm1(8.0)
    assert np.mean(wait_s[wait_s > 0.0] <= median_s) == pytest.approx(0.5, abs=0.015)
    assert wait_s.max() == pytest.approx(8.0, rel=1e-5)
    assert run_s.max() == pytest.approx(30.0, rel=1e-5)
    law = stats.norm(1.0, 0.5)
    above = law.sf(1.0) / law.sf(0.0)
    assert np.mean(run_s > 2.0 * np.expm1(1.0)) == pytest.approx(above, abs=0.015)


def test_an_untrained_network_accepts_what_is_usually_accepted() -> None:
    usual = np.array([0.0, 0.3, 0.5, 0.9, 1.0])
    told = split_outputs(jnp.zeros((NUM_OUTPUTS, 5)), acceptance=jnp.asarray(usual))
    chances = np.asarray(jax.nn.sigmoid(told.accept_logit))
    np.testing.assert_allclose(chances, np.clip(usual, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY), rtol=1e-5)


def test_an_untrained_network_runs_as_long_as_is_usual() -> None:
    usual = jnp.array([0.5, 2.0, 5.0])
    told = split_outputs(jnp.zeros((NUM_OUTPUTS, 3)), usual=usual).run
    from_usual = np.array(FROM_USUAL, bool)
    assert from_usual.any()
    assert not from_usual.all()  # one is free, for runs that are like no other
    moved = np.asarray(told.location - split_outputs(jnp.zeros((NUM_OUTPUTS, 3))).run.location)
    np.testing.assert_allclose(moved, np.where(from_usual[:, None], usual[None], 0.0), rtol=1e-6)


def test_runs_count_from_what_is_usual_in_the_tide() -> None:
    """A tide of `log 2` is twice the usual run, before a network has learned anything; a log without tides has none."""
    calm, tided = (made_encoding(replace(made_cluster(), tide=Tide(variance=one))) for one in (0.0, 0.3))
    inputs = jnp.zeros((num_inputs(calm.cluster), 2)).at[USUAL_RUN].set(np.log1p(5.0))
    inputs = inputs.at[TIDE, 1].set(2.0 * np.log(2.0))  # tides are doubled as inputs
    for encoding, second in ((calm, 5.0), (tided, 10.0)):
        run = answer_parameters(jnp.zeros((NUM_OUTPUTS, 2)), inputs, encoding).run
        np.testing.assert_allclose(np.expm1(run.location[1]), [5.0, second], rtol=1e-5)


def test_likelihood_of_discrete_parts_sums_to_one() -> None:
    """Refused, or accepted and dropped, or ran and failed or not: with durations integrated out, all of it is one."""
    parameters = split_outputs(jnp.asarray(outputs_of(0.7, 0.2, 0.1, 0.4))[:, None])

    def chance(accepted: bool, dropped: bool, failed: bool) -> float:
        ran = accepted and not dropped
        seen = Observed(*(jnp.array([x]) for x in (accepted, dropped, failed, 0.0, ran, 0.0, ran)))
        total = float(log_likelihood(parameters, seen, 2.0)[0])
        if ran:
            total -= np.log(0.4) + float(mixture_log_density(parameters.run, jnp.zeros(1))[0])
        return float(np.exp(total))

    whole = chance(False, False, False) + chance(True, True, False)
    whole += chance(True, False, False) + chance(True, False, True)
    assert whole == pytest.approx(1.0, abs=1e-5)


def observed_runs(run_s: np.ndarray, limit_s: float) -> Observed:
    """Requests that ran at once; those longer than the limit are censored there."""
    yes, no = np.ones(len(run_s), bool), np.zeros(len(run_s), bool)
    finished = run_s <= limit_s
    return Observed(yes, no, no, np.zeros(len(run_s), np.float32), yes, np.minimum(run_s, limit_s), finished)


def fitted_runs(observed: Observed, unit_s: float) -> Mixture:
    """The maximum-likelihood mixture of run times, fitted without any input."""

    def loss(outputs: jax.Array) -> jax.Array:
        return -jnp.mean(log_likelihood(split_outputs(outputs[:, None]), observed, unit_s))

    optimiser = optax.adam(0.05)

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        outputs, state = carry
        updates, state = optimiser.update(jax.grad(loss)(outputs), state)
        return (optax.apply_updates(outputs, updates), state), None

    first = jnp.zeros(NUM_OUTPUTS)
    run = jax.jit(lambda: jax.lax.scan(step, (first, optimiser.init(first)), None, length=400)[0][0])
    return split_outputs(run()[:, None]).run


def fitted_median(observed: Observed, unit_s: float) -> float:
    """Median run time of that mixture."""
    fitted, grid = fitted_runs(observed, unit_s), jnp.linspace(0.0, 8.0, 4001)
    survival = jnp.exp(mixture_log_survival(fitted, grid))
    return unit_s * float(np.expm1(grid[int(jnp.argmin(jnp.abs(survival - 0.5)))]))


@pytest.mark.slow
def test_censored_rows_are_worth_more_than_dropping_them() -> None:
    """Half of the run times end after the log does; their lower bounds bring the median back."""
    rng, unit_s = np.random.default_rng(2), 2.0
    run_s = (unit_s * np.expm1(np.maximum(stats.norm.rvs(2.5, 0.7, 2000, random_state=rng), 0.0))).astype(
        np.float32
    )
    true = unit_s * np.expm1(2.5)
    limit_s = float(np.quantile(run_s, 0.55))
    observed = observed_runs(run_s, limit_s)
    kept = Observed(*(leaf[observed.finished] for leaf in observed))
    with_bounds, without = fitted_median(observed, unit_s), fitted_median(kept, unit_s)
    assert with_bounds == pytest.approx(true, rel=0.1)
    assert abs(with_bounds - true) < 0.3 * abs(without - true)


@pytest.mark.slow
def test_runs_with_a_tail_that_is_no_power_law_get_none() -> None:
    """What queues behind a run grows with the mean square: by wide logistics it was half as large again."""
    run_s = np.random.default_rng(5).weibull(0.6, 8000).astype(np.float32)
    unit_s = float(np.median(run_s))
    fitted = fitted_runs(observed_runs(run_s, np.inf), unit_s)
    uniforms = jax.random.uniform(jax.random.key(6), (2, 400_000), minval=1e-30)
    alike = Mixture(*(jnp.broadcast_to(leaf, (leaf.shape[0], uniforms.shape[1])) for leaf in fitted))
    drawn_s = unit_s * np.expm1(np.asarray(mixture_sample(alike, *uniforms), np.float64))
    assert drawn_s.mean() == pytest.approx(run_s.mean(), rel=0.1)
    assert np.mean(drawn_s**2) == pytest.approx(np.mean(run_s.astype(np.float64) ** 2), rel=0.3)


@pytest.mark.slow
def test_fit_recovers_known_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of offers, told apart by one input: the fitted chances and medians are those of each kind; of a fit
    that was killed after its first looks, too."""
    rng, encoding = np.random.default_rng(3), made_encoding(made_cluster())
    count, unit_s = 3000, encoding.problem.time_unit_s
    kind = rng.integers(0, 2, count)
    inputs = np.zeros((num_inputs(encoding.cluster), count), np.float32)
    inputs[0] = kind
    inputs[ACCEPTANCE] = 0.65
    accepted = rng.random(count) < np.where(kind, 0.9, 0.4)
    centre = np.where(kind, 2.0, 3.0)
    run_s = unit_s * np.expm1(np.maximum(centre + 0.5 * rng.normal(size=count), 0.0)).astype(np.float32)
    no = np.zeros(count, bool)
    observed = Observed(accepted, no, no, np.zeros(count, np.float32), accepted, run_s, accepted)
    offers = Offers(inputs, observed, np.arange(count) // 100)
    config = AnswerConfig(num_members=2, hidden=(32,), num_steps=400, batch_size=256, learning_rate=1e-2)
    program = fit_program(encoding, config)
    model, report = fit_answers(jax.random.key(4), offers, encoding, config, program)
    kept, save = tmp_path / "answers.npz", Checkpoint.save

    def save_and_die(checkpoint: Checkpoint, record: NamedTuple) -> None:
        save(checkpoint, record)
        raise KeyboardInterrupt

    monkeypatch.setattr("twin.placement.fit.LOOKS_PER_SAVE", 3)
    for saving in (save_and_die, save_and_die, save):
        monkeypatch.setattr(Checkpoint, "save", saving)
        with suppress(KeyboardInterrupt):
            again, _ = fit_answers(jax.random.key(4), offers, encoding, config, program, kept)
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (model, again)), strict=True))
    assert report.num_train + report.num_held_out == count

    @jax.jit
    def found(parameters: PyTree) -> tuple[Array, Array]:
        example = jnp.zeros((inputs.shape[0], 2)).at[0, 1].set(1.0).at[ACCEPTANCE].set(0.65)
        fitted = answer_parameters(answer_network(config).apply(parameters, example), example, encoding)
        above = jnp.exp(mixture_log_survival(fitted.run, jnp.array([3.0, 2.0])))
        return jax.nn.sigmoid(fitted.accept_logit), above

    for member in range(2):
        chance, above = found(jax.tree.map(lambda leaf: leaf[member], model.parameters))  # noqa: B023
        np.testing.assert_allclose(chance, [0.4, 0.9], atol=0.08)
        np.testing.assert_allclose(above, [0.5, 0.5], atol=0.12)


def test_a_queue_longer_than_any_logged_means_a_longer_wait() -> None:
    """What is fated is no guess: only what is added to it is bounded by the log."""
    unit_s, availability_s = 2.0, jnp.array([0.0, 5_000.0])
    outputs = jnp.zeros((NUM_OUTPUTS, 2)).at[4 + 2].set(20.0)  # waits begin where there is room
    parameters = split_outputs(outputs, log_wait(availability_s, unit_s))
    uniforms = jnp.full((NUM_UNIFORMS, 2), 0.3)
    model = AnswerModel(None, 40.0, 60.0, np.zeros(1))
    limits_s = model.limits_s(PendingFates(availability_s, *jnp.zeros((4, 2))))
    drawn = sample_answer(parameters, uniforms.at[3].set(0.99), unit_s, limits_s)
    assert float(drawn.wait_s[0]) <= 40.001
    assert 5_000.0 <= float(drawn.wait_s[1]) <= 5_040.1
