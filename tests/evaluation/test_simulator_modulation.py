"""What changes by itself within a day, against theory and by hand: slow periods, regimes, bursts, a full beginning."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.reproduction.benches.truth_bench import TruthBenchConfig, bench_truth
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import conditions, longest_day
from evaluation.simulator.history import play, with_hidden
from evaluation.simulator.laws import constant, exponential
from evaluation.simulator.logs import day_of, on_time
from evaluation.simulator.mechanics import unfolding
from evaluation.simulator.modulation import (
    Path,
    draw_hidden,
    draw_rate,
    next_change_s,
    product,
    time_for,
    value_at,
)
from evaluation.simulator.options import Periods
from evaluation.simulator.presets import preset
from evaluation.simulator.unfolding import in_order_of
from evaluation.simulator.world import validate
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import agree_on_fates, interval, queue, simulated

SMALL = preset("small")
REPLICATIONS = 400
PERIODS = Periods(factor=0.25, usual_s=3_000.0, other_s=1_000.0)
CHANGING = replace(
    SMALL,
    requests_per_day=600.0,
    day_s=SMALL.day_s * 600.0 / SMALL.requests_per_day,
    slow_nodes=Periods(0.3, 900.0, 600.0),
    slow_sites=Periods(0.5, 2_000.0, 700.0),
    regimes=Periods(3.0, 1_500.0, 500.0),
    bursts=Periods(4.0, 1_200.0, 300.0),
    taken_cores=0.8,
    taken_mean_s=200.0,
)


def random_path(random, num_chains=3, num_ends=6):
    ends_s = np.sort(random.uniform(0.0, 100.0, (num_ends, num_chains)), axis=0)
    return Path(
        jnp.asarray(ends_s, jnp.float32), jnp.asarray(random.uniform(0.2, 3.0, (num_ends + 1, num_chains)))
    )


def by_small_steps(path, chain, begin_s, amount):
    """The integral written as a loop over a fine grid."""
    step_s, now_s, done = 2e-3, begin_s, 0.0
    ends, values = np.asarray(path.ends_s)[:, chain], np.asarray(path.value)[:, chain]
    while done < amount:
        done += step_s * values[np.sum(ends <= now_s)]
        now_s += step_s
    return now_s - begin_s


def test_work_at_a_changing_speed_takes_as_long_as_in_small_steps():
    path = random_path(np.random.default_rng(0))
    for begin_s, amount in ((0.0, 1.0), (20.0, 40.0), (95.0, 30.0), (120.0, 5.0)):
        taken_s = time_for(path, jnp.full(3, begin_s), jnp.full(3, amount))
        expected_s = [by_small_steps(path, chain, begin_s, amount) for chain in range(3)]
        np.testing.assert_allclose(taken_s, expected_s, atol=0.02)


def test_the_product_of_two_paths_is_the_product_of_their_values():
    random = np.random.default_rng(1)
    one, two = random_path(random), random_path(random, num_ends=9)
    both = product(one, two)
    for time_s in random.uniform(0.0, 120.0, 40):
        now = jnp.full(3, time_s, jnp.float32)
        np.testing.assert_allclose(value_at(both, now), value_at(one, now) * value_at(two, now), rtol=1e-5)
        earlier = jnp.minimum(next_change_s(one, now), next_change_s(two, now))
        np.testing.assert_array_equal(next_change_s(both, now), earlier)


def test_chains_are_stationary_and_forget_as_exponentials_do():
    """Share of other periods, and the covariance over a lag: `share (1 - share) exp(-lag (1/usual + 1/other))`."""
    world = replace(SMALL, slow_nodes=PERIODS)
    path = draw_hidden(jax.random.key(0), world, conditions(world, 0), (REPLICATIONS,)).speed
    share, lag_s = 0.25, 750.0
    for begin_s in (0.0, 40_000.0, 85_000.0):
        slow = [
            np.asarray(value_at(path, jnp.full(path.value.shape[1:], begin_s + shift))) == 0.25
            for shift in (0.0, lag_s)
        ]
        mean, error = interval(slow[0].mean(axis=0))
        assert abs(mean - share) < 3.5 * error < 0.06
        mean, error = interval((slow[0] & slow[1]).mean(axis=0) - share**2)
        assert abs(mean - share * (1.0 - share) * np.exp(-1.0)) < 3.5 * error


def test_nodes_of_a_site_are_slow_together_and_sites_are_not():
    world = replace(SMALL, slow_sites=PERIODS)
    path = draw_hidden(jax.random.key(0), world, conditions(world, 0), (REPLICATIONS,)).speed
    slow = np.asarray(value_at(path, jnp.full(path.value.shape[1:], 5_000.0))) < 1.0
    site = [node.site for node in world.nodes]
    for one in range(len(site)):
        for other in range(one):
            alike = np.mean(slow[one] == slow[other])
            assert alike == 1.0 if site[one] == site[other] else 0.5 < alike < 0.75  # .625 by chance


@pytest.mark.slow
def test_fates_drawn_at_once_and_fates_that_unfold_change_alike():
    """Two implementations of slow periods, regimes, bursts and a full beginning, request by request."""
    drawn = simulated(CHANGING, "random", num_streams=2, chunk_steps=1_000)
    played = simulated(CHANGING, "random", num_streams=2, chunk_steps=1_000, mechanics=unfolding)
    assert agree_on_fates(drawn, played, 0.1).sum() > 600


@pytest.mark.slow
def test_a_queue_that_is_slow_now_and_then_waits_as_the_chain_of_both_says():
    """M/M/1 whose rate of service is modulated: the number in the system by its balance equations."""
    world = queue(1, 0.4, exponential(), requests_per_day=2_880.0)
    slow = replace(world, slow_nodes=Periods(0.25, 600.0, 200.0))
    arrive, serve = 2_880.0 / 86_400.0, 1.0 / world.services[0].work_s
    most = 150
    rates = np.zeros((2 * most, 2 * most))
    for number in range(most):
        for state, (factor, change_s) in enumerate(((1.0, 600.0), (0.25, 200.0))):
            here = 2 * number + state
            rates[here, 2 * number + 1 - state] += 1.0 / change_s
            if number + 1 < most:
                rates[here, here + 2] += arrive
            if number:
                rates[here, here - 2] += serve * factor
    rates -= np.diag(rates.sum(axis=1))
    system = np.vstack([rates.T, np.ones(2 * most)])
    share = np.linalg.lstsq(system, np.append(np.zeros(2 * most), 1.0), rcond=None)[0]
    expected_s = float(share @ np.repeat(np.arange(most), 2)) / arrive  # Little
    rows = simulated(slow, "random", num_streams=48, seed=3)
    counted = rows.live & (rows.arrival_s > 8_000.0)
    response_s = np.where(counted, rows.fate.finish_s - rows.arrival_s, 0.0).sum(axis=0) / counted.sum(axis=0)
    mean, error = interval(response_s)
    assert error < 0.06 * expected_s
    assert abs(mean - expected_s) < 3.5 * error
    assert expected_s > 1.5 / (serve - arrive), "the slow periods matter"


def test_the_rate_of_a_day_with_bursts_has_the_mean_and_the_variance_that_are_stated():
    world = replace(SMALL, bursts=Periods(6.0, 2_400.0, 600.0))
    path = draw_rate(jax.random.key(0), world, conditions(world, 0), (REPLICATIONS,))
    ends_s = np.minimum(
        np.concatenate([np.zeros((1, REPLICATIONS)), path.ends_s[:, 0], np.full((1, REPLICATIONS), 1e6)]),
        50_000.0,
    )
    mean_rate = np.sum(np.diff(ends_s, axis=0) * np.asarray(path.value[:, 0]), axis=0) / 50_000.0
    variance = world.bursts.variance_of_mean(50_000.0)
    assert abs(mean_rate.mean() - 1.0) < 3.5 * np.sqrt(variance / REPLICATIONS)
    assert mean_rate.var(ddof=1) == pytest.approx(variance, rel=0.28)  # 4 standard errors


@pytest.mark.slow
def test_bursts_keep_the_mean_number_and_add_the_variance_they_state():
    world = replace(queue(1, 0.3, constant(), requests_per_day=500.0), bursts=Periods(6.0, 2_400.0, 600.0))
    counts = simulated(world, "random", num_streams=REPLICATIONS, chunk_steps=1_000).live.sum(axis=0)
    variance = 500.0 + 500.0**2 * world.bursts.variance_of_mean(86_400.0)
    assert variance > 3.0 * 500.0
    assert abs(counts.mean() - 500.0) < 3.5 * np.sqrt(variance / REPLICATIONS)
    assert counts.var(ddof=1) == pytest.approx(variance, rel=0.3)  # 4 standard errors
    assert counts.max() < longest_day(world) == int(500 + 6 * variance**0.5) + 1
    steady = queue(1, 0.3, constant())
    assert draw_rate(jax.random.key(0), steady, conditions(steady, 0), ()) is None


@pytest.mark.slow
def test_regimes_multiply_the_hidden_work_of_who_arrives_meanwhile_and_keep_its_mean():
    world = queue(1, 0.001, constant(), requests_per_day=2_000.0)
    world = replace(world, regimes=Periods(5.0, 3_000.0, 1_000.0))
    rows = simulated(world, "random", num_streams=40)
    run_s = (rows.fate.finish_s - rows.fate.start_s)[rows.live]
    low_s = world.services[0].work_s / 2.0
    np.testing.assert_allclose(np.minimum(abs(run_s - low_s), abs(run_s - 5.0 * low_s)), 0.0, atol=0.02)
    np.testing.assert_array_equal(rows.request.expected_run_s[rows.live], np.float32(2.0 * low_s))
    long = np.where(rows.live, rows.fate.finish_s - rows.fate.start_s > 3.0 * low_s, 0.0)
    mean, error = interval(long.sum(axis=0) / rows.live.sum(axis=0))
    assert abs(mean - 0.25) < 3.5 * error < 0.1
    same = (long[1:] == long[:-1])[rows.live[1:]]
    assert same.mean() > 0.95, "neighbours share their regime"


@pytest.mark.slow
def test_a_logs_day_can_be_simulated_anew_with_its_own_hidden_changes():
    """They explain every run time and the bursts of the history, and are those of every stream that is given them."""
    world = queue(1, 0.001, constant(), requests_per_day=500.0)
    world = replace(world, regimes=Periods(5.0, 3_000.0, 1_000.0), bursts=Periods(20.0, 9_000.0, 900.0))
    rows = play(world, behaviour("random"), [0, 3], seed=9)
    today = [with_hidden(world, conditions(world, day), 9) for day in (0, 3)]
    low_s = world.services[0].work_s / 2.0
    for stream, one in enumerate(today):
        live = rows.live[:, stream]
        path = Path(*(leaf[..., None] for leaf in one.hidden.work))
        factor = value_at(path, jnp.asarray(rows.arrival_s[live, stream])[None])[0]
        run_s = (rows.fate.finish_s - rows.fate.start_s)[live, stream]
        np.testing.assert_allclose(run_s, 2.0 * low_s * np.asarray(factor), atol=0.02)
        assert 0.05 < np.mean(run_s > 3.0 * low_s) < 0.6
        rate = Path(*(leaf[..., None] for leaf in one.hidden.rate))
        is_burst = np.asarray(value_at(rate, jnp.asarray(rows.arrival_s[live, stream])[None])[0]) > 1.0
        lasts = np.mean(np.asarray(value_at(rate, jnp.arange(0.0, 86_400.0, 10.0)[None])[0]) > 1.0)
        assert is_burst.mean() > 0.7 * 20.0 * lasts / (1.0 + 19.0 * lasts)
    drawn_rate = draw_rate(jax.random.key(1), world, today[1], (3,))
    np.testing.assert_array_equal(drawn_rate.value[..., 2], today[1].hidden.rate.value)
    drawn = draw_hidden(jax.random.key(1), world, today[1], (3,))
    np.testing.assert_array_equal(drawn.work.value[..., 2], today[1].hidden.work.value)
    np.testing.assert_array_equal(drawn.work.ends_s[..., 0], today[1].hidden.work.ends_s)


def test_hidden_changes_that_are_given_stay_with_their_nodes():
    world = validate(replace(preset("small"), name="slow", slow_nodes=PERIODS, taken_cores=0.5))
    today, order = with_hidden(world, conditions(world, 0), seed=3), np.array([3, 0, 4, 2, 1])
    moved = in_order_of(today, order).hidden
    for speed, own in zip(moved.speed, today.hidden.speed, strict=True):
        np.testing.assert_array_equal(speed, np.asarray(own)[:, order])
    np.testing.assert_array_equal(moved.taken_s, np.asarray(today.hidden.taken_s)[:, order])
    assert len(np.unique(today.hidden.speed.ends_s[0])) == len(world.nodes)


@pytest.mark.slow
def test_days_that_begin_full_make_the_first_wait():
    world = replace(
        queue(4, 0.01, constant(), requests_per_day=400.0), taken_cores=1.0, taken_mean_s=40_000.0
    )
    rows = simulated(world, "random", num_streams=100, chunk_steps=1_000)
    free_s = rows.fate.start_s[0] - rows.arrival_s[0]
    mean, error = interval(free_s)
    assert abs(mean - 10_000.0) < 3.5 * error, "the first of four exponential ends"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"slow_nodes": Periods(2.0)}, "slow_nodes.factor"),
        ({"slow_sites": Periods(0.5, 1.0)}, "slow_sites.usual_s"),
        ({"regimes": Periods(0.0)}, "regimes.factor"),
        ({"bursts": Periods(2.0, 600.0, -1.0)}, "bursts.other_s"),
        ({"taken_cores": 1.5}, "taken_cores"),
        ({"bursts": Periods(usual_s=600.0)}, "nothing changes"),
    ],
)
def test_changes_that_cannot_be_are_refused_by_name(changes, named):
    with pytest.raises(ConfigError, match=named):
        validate(replace(SMALL, **changes))


PRESSED = replace(
    CHANGING,
    services=tuple(replace(one, pressure=0.4, sensitivity=0.6) for one in CHANGING.services),
    nodes=tuple(replace(node, discipline="ps") if node.speed < 0.8 else node for node in CHANGING.nodes),
)


@pytest.mark.slow
@pytest.mark.parametrize("world", [CHANGING, PRESSED], ids=["drawn", "unfolding"])
def test_the_truth_changes_as_the_history_does(world):
    """The environment that judges and the histories that logs are made of share no loop; their days must be alike."""
    config = TruthBenchConfig(num_seeds=16, days_per_seed=2, depth=64)
    (score,) = bench_truth(world, [0], config, policies=("random",))
    mean, error = interval(score.per_day.ravel())
    rows = simulated(world, "random", num_streams=32, chunk_steps=1_000)
    shares = [on_time(day_of(rows, column)).mean() for column in range(32)]
    expected, other_error = interval(np.array(shares))
    assert abs(mean - expected) < 3.5 * np.hypot(error, other_error) < 0.12
    sound = replace(world, slow_nodes=Periods(), slow_sites=Periods(), regimes=Periods(), bursts=Periods())
    rows = simulated(sound, "random", num_streams=32, chunk_steps=1_000)
    usual = np.mean([on_time(day_of(rows, column)).mean() for column in range(32)])
    assert usual - expected > 0.15, "what changes matters"
