"""Rules for scaling: the plan of the model-predictive one against all plans there are, and the others by hand."""

from dataclasses import replace
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.rules.autoscaling.autoscaler import Autoscaler
from offline_rl.rules.autoscaling.calibration import repeated
from offline_rl.rules.autoscaling.horizontal_pod import PodAutoscalerConfig, horizontal_pod
from offline_rl.rules.autoscaling.lookahead import Candidates, LookaheadConfig, plan
from offline_rl.rules.autoscaling.quartile_q import MOVES, NUM_STATES, moved, quartile_q, state_index
from offline_rl.rules.autoscaling.rate_target import rate_target, static
from offline_rl.rules.autoscaling.vertical_pod import vertical_pod
from tests.autoscaling.test_problem import CONFIG, limits, state_of
from twin.autoscaling.config import AutoscalingConfig, GrantLimits
from twin.autoscaling.laws import Laws, law_s, tail_features
from twin.autoscaling.rewards import CORE_GIB
from twin.autoscaling.types import Grants
from twin.autoscaling.workload import LoadModel

KEY = jax.random.key(0)
LOAD = LoadModel(np.zeros(48), np.zeros((1, 120)), np.asarray(30.0))


def laws(work_s, weight):
    ones = jnp.ones(len(work_s))
    work = jnp.asarray(work_s)
    return Laws(
        calls_per_request=ones, work_s=work, log_floor=jnp.log(work), gamma=ones, log_beta=0.0 * ones,
        log_power=0.0 * ones, most_cores=2.0 * ones, start_up_s=30.0 * ones,
        cold_work=0.0 * ones, cold_s=60.0 * ones, connections=50.0 * ones,
        memory_gib=0.2 * ones, memory_per_call_gib=0.001 * ones,
        memory_margin_gib=0.0 * ones, weight=jnp.asarray(weight),
        tail_weight=jnp.asarray(weight),
        tail=jnp.asarray([0.9, 0.0, 0.0, 0.1, 0.0]), tail_spread=jnp.zeros(1), spread=0.05 * ones,
        rate_scatter=0.0 * ones, work_scatter=0.0 * ones,
    )  # fmt: skip


def of_plan(known, rate, cores, replicas):
    """Quantile of the response time, and cost, of grants [deployments]; inf where they are too few."""
    rho = rate * known.work_s / (replicas * cores)
    own = law_s(known.log_floor, known.gamma, known.log_beta, known.log_power, rho, cores)
    time_s = known.weight * own
    ratio = jnp.exp(
        jnp.clip(jnp.sum(known.tail * tail_features(time_s, known.tail_weight * own, rho)), 0.3, 1.4)
    )
    cost = jnp.sum(replicas * (cores + known.memory_gib / CORE_GIB))
    return jnp.where(jnp.max(rho) > 0.9, jnp.inf, ratio * jnp.sum(time_s)), cost


@pytest.mark.parametrize("rate", [20.0, 60.0, 150.0])
def test_the_plan_is_nearly_the_cheapest_that_keeps_the_objective(rate):
    known, config = laws([0.008, 0.004], [1.0, 2.0]), replace(CONFIG, violation_cores=1e6)
    choices = np.array(list(product(range(1, 9), (0.5, 1.0, 1.5))))
    candidates = Candidates(*(jnp.asarray(np.repeat(choices[:, [column]], 2, axis=1)) for column in (1, 0)))
    both = np.array(list(product(range(len(choices)), repeat=2)))
    evaluate = jax.jit(jax.vmap(lambda cores, replicas: of_plan(known, rate, cores, replicas)))
    quantile_s, cost = evaluate(jnp.asarray(choices[both][:, :, 1]), jnp.asarray(choices[both][:, :, 0]))
    goal_s = 0.2 * float(config.slo_s)
    cheapest = float(np.min(np.where(np.asarray(quantile_s) <= goal_s, cost, np.inf)))
    found = plan(config, known, candidates, jnp.full(2, rate), jnp.ones(2), LookaheadConfig(0.2))
    kept_s, paid = of_plan(known, rate, *found)
    assert float(kept_s) <= 1.01 * goal_s
    assert float(paid) <= 1.25 * cheapest


def test_an_objective_out_of_reach_costs_no_more_than_to_miss_it():
    known, rate = laws([0.008, 0.004], [1.0, 2.0]), jnp.full(2, 60.0)
    choices = np.array(list(product(range(1, 21), (0.5, 1.0, 1.5))))
    candidates = Candidates(*(jnp.asarray(np.repeat(choices[:, [column]], 2, axis=1)) for column in (1, 0)))
    planned = [
        of_plan(
            known,
            60.0,
            *plan(
                replace(CONFIG, violation_cores=price),
                known,
                candidates,
                rate,
                jnp.ones(2),
                LookaheadConfig(0.05),
            ),
        )
        for price in (1.0, 10.0, 1e6)
    ]
    quantile_s, cost = np.asarray(planned).T
    assert quantile_s.min() > 0.05 * CONFIG.slo_s
    assert cost[0] < cost[1] < 0.5 * cost[2]  # any price at all buys replicas that hardly help
    worth = 10.0 * np.log(quantile_s / (0.05 * CONFIG.slo_s)) + cost
    assert worth[1] < worth[0]
    assert worth[1] < worth[2]


def test_the_rate_rule_divides_by_what_a_replica_of_its_cores_takes():
    rule = rate_target(CONFIG, limits(1), jnp.asarray([0.6]))
    for cores, replicas in ((0.5, 4.0), (0.25, 7.0), (1.0, 2.0)):
        state = state_of(2.0, 2.0, 0.1, cores=cores)  # one call a second arrives
        _, wanted = rule.decide(KEY, rule.init(state.grants), state)
        assert float(wanted.replicas[0]) == replicas


@pytest.mark.parametrize(
    ("size", "now", "next_size", "replicas"),
    [
        (0.0, 0.45, 0.45, 3.0),  # left as it is: ceil(2 * .4 / .45 / .75)
        (0.75, 0.45, 0.70, 2.0),  # a step of .25, and as many of that size as are needed
        (99.0, 1.90, float(limits(1).max_cpu_cores[0]), 1.0),
        (0.25, 0.45, 0.25, 5.0),
    ],
)
def test_the_pod_rule_moves_replicas_to_its_size_in_steps_within_the_limits(size, now, next_size, replicas):
    state = state_of(2.0, 2.0, 0.4, cores=now)
    rule = horizontal_pod(CONFIG, limits(1), PodAutoscalerConfig(cpu_cores=size, down_window_s=0.0))
    _, wanted = rule.decide(KEY, rule.init(state.grants), state)
    assert float(wanted.cpu_cores[0]) == pytest.approx(next_size)
    assert float(wanted.replicas[0]) == replicas


def test_static_grants_never_change():
    peak = Grants(jnp.asarray([1.0]), jnp.asarray([0.5]), jnp.asarray([7.0]))
    _, wanted = static(peak).decide(KEY, (), state_of(2.0, 2.0, 0.1))
    assert [float(leaf[0]) for leaf in wanted] == [1.0, 0.5, 7.0]


def test_the_vertical_rule_leaves_what_lies_in_its_band_and_else_gives_the_quantile():
    """Used from .1 to 1 core, evenly: the band is from 1.15 of the median to 1.15 of the 95th percentile."""
    rule, memory = vertical_pod(CONFIG, limits(1)), None
    decide = jax.jit(rule.decide)
    for used in np.random.default_rng(0).permutation(np.linspace(0.1, 1.0, 40)):
        state = state_of(2.0, 2.0, float(used), cores=1.0)
        memory, _ = decide(KEY, rule.init(state.grants) if memory is None else memory, state)
    for cores, changes in ((0.5, True), (0.7, False), (1.05, False), (1.3, True)):
        _, wanted = decide(KEY, memory, state_of(2.0, 2.0, 0.5, cores=cores))
        if changes:
            assert (
                1.15 * 0.9 <= float(wanted.cpu_cores[0]) <= 1.15 * 0.99
            )  # a bucket is 10 % wide, and its upper end counts
        else:
            assert float(wanted.cpu_cores[0]) == pytest.approx(cores, rel=1e-6)
        assert float(wanted.replicas[0]) == 2.0


def granted_memory(rule, *used_gib):
    """Memory granted after every interval, of what replicas used in them."""
    state, found = state_of(2.0, 2.0, 0.1), []
    memory, decide = rule.init(state.grants), jax.jit(rule.decide)
    for gib in used_gib:
        measured = state.window.measured._replace(memory_gib_used=jnp.full((CONFIG.window, 1), gib))
        state = state._replace(window=state.window._replace(measured=measured))
        memory, wanted = decide(KEY, memory, state)
        state, found = state._replace(grants=wanted), [*found, float(wanted.memory_gib[0])]
    return found


def test_the_vertical_rule_recommends_no_less_than_the_recommender():
    free = GrantLimits(*(jnp.full(1, value) for value in (0.001, 2.0, 0.001, 8.0, 1.0, 10.0)))
    assert granted_memory(vertical_pod(CONFIG, free), 0.05) == pytest.approx([250 / 1024])
    rule, state = vertical_pod(CONFIG, free), state_of(2.0, 2.0, 0.005)
    _, wanted = rule.decide(KEY, rule.init(state.grants), state)
    assert float(wanted.cpu_cores[0]) == pytest.approx(0.025)


def test_the_vertical_rule_remembers_the_peaks_of_memory_by_days():
    config = AutoscalingConfig(interval_s=3600.0, window=CONFIG.window)
    wide = GrantLimits(*(jnp.full(1, value) for value in (0.25, 2.0, 0.125, 64.0, 1.0, 10.0)))
    peak, *later = granted_memory(vertical_pod(config, wide), 6.0, *[0.5] * (24 * 14))
    assert 1.15 * 6.0 <= peak <= 1.15 * 1.1 * 6.0 + 1e-4  # the upper end of a bucket
    # Until it is less than a twentieth of what is remembered
    np.testing.assert_allclose(later[: 24 * 3], peak)
    assert later[-1] == pytest.approx(1.15 * 0.5, rel=0.1)


def test_the_table_of_quartiles_is_read_at_the_state_met():
    state = state_of(4.0, 4.0, 0.45)  # nine tenths of the cores in use
    met = state_index(CONFIG, LOAD, state)
    assert 0 <= int(met[0]) < NUM_STATES
    assert int(met[0]) != int(state_index(CONFIG, LOAD, state_of(4.0, 4.0, 0.05))[0])
    for action, move in enumerate(MOVES):
        table = jnp.zeros((1, NUM_STATES, len(MOVES))).at[0, met[0], action].set(1.0)
        scaler: Autoscaler = quartile_q(CONFIG, limits(1), LOAD, table)
        _, wanted = scaler.decide(KEY, (), state)
        assert float(wanted.replicas[0]) == 4.0 + move[0]
        assert float(wanted.cpu_cores[0]) == pytest.approx(0.5 + 0.25 * move[1])
    least = moved(CONFIG, limits(1), state_of(1.0, 1.0, 0.1, cores=0.25).grants, jnp.asarray([2]))
    assert float(least.replicas[0]) == 1.0


def test_a_grid_is_the_outer_part_of_the_streams():
    grid = [PodAutoscalerConfig(target=0.5), PodAutoscalerConfig(target=0.7)]
    settings = repeated(grid, 3, with_seats=True)
    np.testing.assert_allclose(settings.target, [[0.5, 0.5, 0.5, 0.7, 0.7, 0.7]])
    assert settings.tolerance.shape == (1, 6)


def test_a_grid_of_pod_rules_decides_in_compiled_code_as_each_of_them_alone():
    grid = [
        PodAutoscalerConfig(target=0.3, down_window_s=60.0),
        PodAutoscalerConfig(target=0.6, down_window_s=300.0, cpu_cores=0.75),
    ]
    alone = state_of(6.0, 6.0, 0.4)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(grid), axis=-1), alone)

    rules = horizontal_pod(CONFIG, limits(1), repeated(grid, 1, with_seats=True))

    @jax.jit
    def decided(state):
        return rules.decide(KEY, rules.init(state.grants), state)[1]

    def one(settings):
        rule = horizontal_pod(CONFIG, limits(1), settings)
        return rule.decide(KEY, rule.init(alone.grants), alone)[1]

    each = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-1), *map(one, grid))
    jax.tree.map(np.testing.assert_allclose, decided(both), each)
