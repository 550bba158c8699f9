"""The twin of an application: laws recovered from a log made by known ones, queues that lose nothing, new load."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ConfigError, ProductError
from twin.autoscaling import answers, fitting
from twin.autoscaling.answers import twin_response
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.fitting import LawsConfig, coverage_of, fit_laws
from twin.autoscaling.laws import MIX_SPREAD, Laws, drifting, gamma_share_below, histogram, law_s, shape_of
from twin.autoscaling.persistence import ApplicationTwin, load_application_twin, save_application_twin
from twin.autoscaling.problem import ScalingAction, autoscaling_problem
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.scaling_log import ScalingLog
from twin.autoscaling.types import Grants, quantile_s
from twin.autoscaling.workload import fit_load, known_profile, made_rates
from twin.environment import environment
from twin.rollout import rollout

CALLS, WORK_S, START_S = np.array([1.0, 2.0]), np.array([0.004, 0.01]), 45.0
FLOOR_S, BETA = np.array([0.005, 0.012]), np.array([1.0, 2.0])
NO_CHANCE = answers.IntervalChance(*(jnp.ones(2),) * 3, tail=jnp.float32(1.0))


def made_log(num_days=2, seed=0):
    """A log whose every row follows a law; replicas that are ordered are ready after 45 s."""
    random = np.random.default_rng(seed)
    rows = num_days * 2880
    time_s = np.arange(rows) * 30.0
    asked = 60.0 * (1.3 - np.cos(2 * np.pi * time_s / 86400.0)) * np.exp(random.normal(0, 0.1, rows))
    rate = asked[:, None] * CALLS
    cores = np.repeat(random.choice([0.5, 1.0], (rows // 60, 2)), 60, axis=0)
    use = np.repeat(random.uniform(0.3, 0.9, (rows // 20, 2)), 20, axis=0)
    replicas = np.ceil(rate * WORK_S / cores / use)
    new = np.maximum(np.diff(replicas, axis=0, prepend=replicas[:1]), 0.0)
    # None in the first 30 s, half of the next 30 s without
    ready = replicas - new - 0.5 * np.roll(new, 1, axis=0)
    ready = np.maximum(np.minimum(ready, replicas), 0.5)
    rho = rate * WORK_S / ready / cores
    own = FLOOR_S / cores * (1.0 + BETA * rho**2 / np.maximum(1.0 - rho, 0.02))
    own *= np.exp(random.normal(0, 0.02, own.shape))
    mean_s = own @ CALLS
    return ScalingLog(
        ("a", "b"), 30.0, time_s,
        {
            "cpu_cores": cores, "memory_gib": np.full((rows, 2), 0.5), "num_replicas": replicas,
            "ready_replicas": ready,
            "cpu_cores_used": np.minimum(rate * WORK_S / ready, cores),
            "request_rate_per_s": rate, "response_s": own,
            "memory_gib_used": 0.1 + 0.01 * rate / ready * own, "num_failures": np.zeros((rows, 2)),
        },
        {
            "request_rate_per_s": asked, "response_s": mean_s, "response_p95_s": 2.5 * mean_s,
            "response_p99_s": 4.0 * mean_s, "num_failures": np.zeros(rows),
        },
    )  # fmt: skip


LOG = made_log()


@pytest.fixture(scope="module")
def laws():
    return fit_laws(LOG, LawsConfig(members=2))


def test_a_straight_line_of_few_points_is_found_exactly():
    """With n - 1 above the fraction and n below it, the slope of ten points came out a ninth too steep."""
    x = np.append(np.arange(10.0), np.nan)
    np.testing.assert_allclose(fitting._line(x, 1.5 + 0.25 * x), (1.5, 0.25), rtol=1e-12)
    assert fitting._line(x, 3.0 - x) == (-1.5, 0.0)


def test_what_a_log_says_is_recovered(laws):
    np.testing.assert_allclose(laws.calls_per_request, [CALLS, CALLS], rtol=1e-3)
    np.testing.assert_allclose(laws.work_s, [WORK_S, WORK_S], rtol=2e-2)
    np.testing.assert_allclose(laws.start_up_s, START_S, rtol=0.15)
    np.testing.assert_allclose(laws.memory_gib, 0.1, rtol=2e-2)
    np.testing.assert_allclose(laws.memory_per_call_gib, 0.01, rtol=5e-2)
    np.testing.assert_allclose(laws.weight, [CALLS, CALLS], rtol=0.15)
    for rho in (0.3, 0.6, 0.85):
        for cores in (0.5, 1.0):
            true = FLOOR_S / cores * (1.0 + BETA * rho**2 / (1.0 - rho))
            found = law_s(
                laws.log_floor,
                laws.gamma,
                laws.log_beta,
                laws.log_power,
                jnp.float32(rho),
                jnp.float32(cores),
            )
            np.testing.assert_allclose(found, [true, true], rtol=0.08)


@pytest.mark.parametrize(("waits_s", "quickest_s"), [(0.0, (0.8, 2.0)), (0.1, (0.85, 1.1))])
def test_cores_that_were_never_granted_save_processor_time_and_no_other(waits_s, quickest_s):
    """Of calls at a quarter of a core the law at a whole one is the time that they wait, and that of the processor."""
    cores, use = np.full((len(LOG.time_s), 2), 0.25), LOG.columns["request_rate_per_s"] * WORK_S
    rho = np.clip(np.random.default_rng(1).uniform(0.2, 0.9, use.shape), 0.2, 0.9)
    own = (waits_s + WORK_S / cores) / (1.0 - rho)
    ready = use / cores / rho
    columns = {
        **LOG.columns,
        "cpu_cores": cores,
        "ready_replicas": ready,
        "num_replicas": ready,
        "response_s": own,
    }
    columns["cpu_cores_used"] = rho * cores
    gateway = {**LOG.gateway, "response_s": own @ CALLS, "response_p95_s": 2.5 * own @ CALLS}
    laws = fit_laws(replace(LOG, columns=columns, gateway=gateway), LawsConfig(members=2))
    np.testing.assert_array_equal(laws.most_cores, 1.0)
    for rho in (0.3, 0.6, 0.8):
        found = law_s(
            laws.log_floor, laws.gamma, laws.log_beta, laws.log_power, jnp.float32(rho), jnp.float32(1.0)
        )
        ratio = np.asarray(found) * (1.0 - rho) / (waits_s + WORK_S)
        assert quickest_s[0] < ratio.min() <= ratio.max() < quickest_s[1]


@pytest.mark.parametrize("column", ["cpu_cores_used", "request_rate_per_s", "ready_replicas", "num_replicas"])
def test_gaps_in_one_metric_change_no_ratio(column):
    gaps = np.random.default_rng(0).random(len(LOG.time_s)) < 0.3
    holed = np.where(gaps[:, None], np.nan, LOG.columns[column])
    found = fit_laws(
        replace(LOG, columns={**LOG.columns, column: holed}), LawsConfig(members=2, rows=100, updates=1)
    )
    np.testing.assert_allclose(found.calls_per_request, [CALLS, CALLS], rtol=1e-3)
    np.testing.assert_allclose(found.work_s, [WORK_S, WORK_S], rtol=2e-2)
    np.testing.assert_allclose(found.start_up_s, START_S, rtol=0.15)


def test_a_log_that_never_kept_up_is_refused():
    always = {**LOG.gateway, "num_failures": LOG.gateway["request_rate_per_s"] * 10.0}
    with pytest.raises(ConfigError, match="0 intervals show how the application answers"):
        fit_laws(ScalingLog(LOG.deployments, LOG.interval_s, LOG.time_s, LOG.columns, always))


def test_the_gamma_tail_is_that_of_its_ratio():
    for shape in (0.5, 1.0, 4.0):
        times = np.random.default_rng(0).gamma(shape, 1.0 / shape, 400_000)
        ratio = np.quantile(times, 0.95)
        assert float(shape_of(jnp.float32(ratio))) == pytest.approx(shape, rel=0.1)
        below = gamma_share_below(jnp.asarray([0.5, 1.0, 3.0]), jnp.float32(1.0), jnp.float32(shape))
        np.testing.assert_allclose(below, [np.mean(times < edge) for edge in (0.5, 1.0, 3.0)], atol=0.015)
    counts = histogram(jnp.float32(0.1), jnp.float32(0.3), jnp.float32(1000.0))
    assert float(counts.sum()) == pytest.approx(1000.0, rel=1e-5)
    assert float(quantile_s(counts, 0.95)) == pytest.approx(0.3, rel=0.05)


LIMITS = GrantLimits(*(jnp.full(2, value) for value in (0.25, 2.0, 0.125, 1.0, 1.0, 20.0)))
CONFIG = AutoscalingConfig(slo_s=0.1)


def begin(replicas):
    return Grants(jnp.full(2, 0.5), jnp.full(2, 0.5), jnp.asarray(replicas))


def hold(_key, _observation, legal):
    return ScalingAction(*(0.0 * one.low for one in legal))


def at_rest(grants):
    return answers.TwinApplicationState(
        jnp.zeros(2),
        grants.replicas,
        jnp.zeros(2),
        jnp.zeros((24, 2)),
        jnp.int32(0),
        jnp.int32(0),
        jnp.int32(9),
    )


def test_replicas_whose_calls_need_more_memory_than_granted_restart(laws):
    """The first has memory for itself but not for its calls; it comes back once started; the other never left."""
    law = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], laws)
    grants = begin([4.0, 4.0])._replace(memory_gib=jnp.asarray([0.1, 0.5]))
    state, seen = answers._step(law, at_rest(grants), grants, jnp.float32(60.0), NO_CHANCE, 10.0)
    np.testing.assert_allclose(state.ready, [2.0, 4.0])
    assert float(seen.measured.num_failures[0]) > 0.0
    assert float(seen.measured.num_failures[1]) == 0.0
    enough = grants._replace(memory_gib=jnp.full(2, 0.5))
    for _ in range(6):
        state, seen = answers._step(law, state, enough, jnp.float32(60.0), NO_CHANCE, 10.0)
    np.testing.assert_allclose(state.ready, 4.0, rtol=1e-5)


def test_a_log_that_ran_with_less_memory_than_it_used_knows_no_need_of_it():
    """Use of memory as full as its limit, of caches: nothing restarted there, and nothing does in the twin."""
    full = {**LOG.columns, "memory_gib": LOG.columns["memory_gib_used"].copy()}
    log = ScalingLog(LOG.deployments, LOG.interval_s, LOG.time_s, full, LOG.gateway)
    law = fit_laws(log, LawsConfig(members=1, updates=1))
    number = LOG.columns["request_rate_per_s"] * LOG.columns["response_s"] / LOG.columns["ready_replicas"]
    needed = law.memory_gib + law.memory_per_call_gib * number + law.memory_margin_gib
    well = ~log.censored
    assert np.all(needed[well] <= full["memory_gib"][well] + 1e-5)


def test_queues_keep_what_was_not_done(laws):
    """Without refusals the calls that arrived are those that were done and those that wait."""
    wide = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], laws._replace(connections=laws.connections * 1e6))
    grants, dt_s = begin([1.0, 1.0])._replace(memory_gib=jnp.full(2, 1e6)), 10.0
    state = at_rest(grants)
    came = done = 0.0
    for asked in (150.0, 150.0, 20.0, 20.0):
        state, seen = answers._step(wide, state, grants, jnp.float32(asked), NO_CHANCE, dt_s)
        came += dt_s * seen.measured.rate_per_s
        done += dt_s * seen.measured.cpu_cores_used / wide.work_s
    np.testing.assert_allclose(done + state.queue, came, rtol=1e-4)
    assert float(state.queue[1]) > 0.0


def test_more_replicas_answer_faster_after_they_have_started(laws):
    rates = np.full(200, 100.0, np.float32)
    problem = autoscaling_problem(CONFIG, LIMITS, cost_under_slo())

    @jax.jit
    def mean_s(replicas):
        system = environment(problem, twin_response(laws, CONFIG, LIMITS, rates, 20, begin(replicas)))
        return rollout(jax.random.key(0), system, hold, 20, (4,)).outcome.gateway_response_s[:, 0].mean()

    few, enough, many = (float(mean_s(jnp.asarray(one))) for one in ([1.0, 4.0], [2.0, 6.0], [4.0, 12.0]))
    assert many < enough < few


@pytest.mark.parametrize(("interval_s", "start_up_s"), [(15.0, 400.0), (30.0, 45.0), (300.0, 20.0)])
def test_a_replica_starts_as_long_as_in_the_log_whatever_the_interval(laws, interval_s, start_up_s):
    law = jax.tree.map(
        lambda leaf: jnp.asarray(leaf)[0], laws._replace(start_up_s=0 * laws.start_up_s + start_up_s)
    )
    dt_s = interval_s / answers.NUM_STEPS
    kept = answers.num_starts(law, interval_s)
    state, late_s = at_rest(begin([2.0, 2.0]))._replace(starting=jnp.zeros((kept, 2))), 0.0
    for _ in range(kept + 1):
        state = answers._replicas(law, state, begin([3.0, 3.0]), dt_s)
        late_s += dt_s * float(3.0 - state.ready[0])
    assert late_s == pytest.approx(start_up_s, rel=1e-3)
    assert float(state.ready[0]) == pytest.approx(3.0)


def test_new_days_ask_as_the_logged_ones_did():
    load = fit_load(LOG)
    rates = made_rates(load, 4, 0)
    assert len(rates) == 4 * 2880
    hours = rates.reshape(4, 24, -1).mean(axis=(0, 2))
    logged = LOG.gateway["request_rate_per_s"].reshape(2, 24, -1).mean(axis=(0, 2))
    np.testing.assert_allclose(hours, logged, rtol=0.12)
    assert not np.array_equal(rates, made_rates(load, 4, 1))


def test_new_days_have_the_hours_and_the_intervals_in_which_nobody_asked():
    random, asked = np.random.default_rng(2), LOG.gateway["request_rate_per_s"].copy()
    night, seldom = (LOG.time_s % 86400.0) < 6 * 3600.0, random.random(len(asked)) < 0.8
    asked[night | seldom] = 0.0
    load = fit_load(replace(LOG, gateway=LOG.gateway | {"request_rate_per_s": asked}))
    made = made_rates(load, 40, 0).reshape(40, 2880)
    assert np.isfinite(made).all()
    assert made[:, :720].max() == 0.0
    assert made.mean() == pytest.approx(asked.mean(), rel=0.1)
    assert (made[:, 720:] == 0.0).mean() == pytest.approx(0.8, abs=0.02)
    assert np.isfinite(known_profile(load)).all()
    np.testing.assert_allclose(known_profile(load)[12:], load.log_rate[12:])


def test_new_days_have_the_bursts_that_overloaded_the_application():
    asked, failures = LOG.gateway["request_rate_per_s"].copy(), LOG.gateway["num_failures"].copy()
    burst = np.arange(len(asked)) % 240 < 12
    asked[burst] *= 3.0
    failures[burst] = asked[burst] * 30.0  # nobody was answered: censored
    log = replace(LOG, gateway=LOG.gateway | {"request_rate_per_s": asked, "num_failures": failures})
    assert log.censored[burst].all()
    made = made_rates(fit_load(log), 40, 0).reshape(40, -1)
    away = made / made_rates(fit_load(LOG), 1, 0).reshape(1, -1)
    assert (away > 2.0).mean() == pytest.approx(0.05, abs=0.01)


def test_days_to_learn_in_are_busier_and_quieter_as_a_whole():
    load = fit_load(LOG)
    usual, varied = (made_rates(load, 40, 0, spread).reshape(40, -1) for spread in (0.0, 0.5))
    level = np.log(varied / usual)
    np.testing.assert_allclose(level, level[:, :1] + 0 * level, atol=1e-4)  # a day is scaled whole
    assert np.abs(level).max() <= 0.5 + 1e-4
    assert level[:, 0].std() == pytest.approx(0.5 / np.sqrt(3.0), rel=0.25)


def test_in_drifting_worlds_calls_and_their_weights_move_alike_and_all_else_stays(laws):
    worlds = drifting(laws, 3)
    calls, weight = (
        getattr(worlds, name) / np.tile(getattr(laws, name), (3, 1))
        for name in ("calls_per_request", "weight")
    )
    np.testing.assert_allclose(calls, weight, rtol=1e-5)
    assert np.exp(-MIX_SPREAD) <= calls.min() < 1.0 < calls.max() <= np.exp(MIX_SPREAD)
    assert len(np.unique(calls)) == calls.size == 12
    np.testing.assert_array_equal(worlds.tail, np.tile(laws.tail, (3, 1)))
    np.testing.assert_array_equal(worlds.weight, drifting(laws, 3).weight)


def test_a_twin_comes_back_as_it_was_kept(tmp_path, laws):
    twin = ApplicationTwin(("a", "b"), 30.0, Laws(*laws), fit_load(LOG), coverage_of(LOG, laws))
    save_application_twin(tmp_path, twin)
    found = load_application_twin(tmp_path)
    assert found.deployments == twin.deployments
    jax.tree.map(np.testing.assert_array_equal, found[2:], twin[2:])
    with pytest.raises(ProductError, match="no twin of an application"):
        load_application_twin(tmp_path / "nowhere")


def test_replicas_full_of_calls_need_no_more_memory_than_the_log_has_seen():
    """A line through noise lies above it there, and above what is granted: replicas that restart stay full of calls."""
    line, most_gib, connections = (0.3, 0.00225), 0.42, 64.0
    used = np.array([0.3, np.nan, most_gib])
    alone_gib, call_gib = fitting._seen(*line, used, connections)
    assert alone_gib + call_gib * connections == pytest.approx(most_gib)
    assert fitting._seen(0.3, 0.001, used, connections) == (0.3, 0.001)
    assert fitting._seen(*line, np.full(3, np.nan), connections) == line
    assert fitting._seen(0.5, 0.001, used, connections) == (0.5, 0.0)
