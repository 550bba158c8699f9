"""Learned orders: what an index knows, that scorers can be one, and that orders are judged on the right jobs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.problems.ordering.learned_orders import Learned, learned_policies
from evaluation.problems.ordering.playing import rule_policies
from evaluation.problems.ordering.weeks import plan_weeks
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from offline_rl.contract import NetworkFacts
from offline_rl.export import named_arrays
from offline_rl.numpy_networks import numpy_network
from offline_rl.ordering.contract import ordering_contract
from offline_rl.ordering.index import KNOTS, Index, log_logistic
from offline_rl.ordering.index_scorer import SCORER_HIDDEN, SHARPNESS, scorer_of
from offline_rl.ordering.learning import joined, mean_slowdown
from offline_rl.ordering.predicting import (
    HASTE_S,
    NETWORK,
    SEEN,
    fit_predictor,
    labels_of,
    samples_of,
    seen_at,
)
from offline_rl.ordering.programs import OrderTrainingConfig, Programs, problem_config
from tests.ordering.making import jobs_of
from tests.ordering.test_learning_weeks import MONDAY, POOL, SHORT, busy_log
from twin.environment import environment
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.job_windows import cut_job_windows, replayed_jobs
from twin.ordering.orders import by_area
from twin.ordering.play import by_order, play
from twin.ordering.problem import ordering
from twin.ordering.replay import replay
from twin.ordering.responses import queue_response, starts_of
from twin.ordering.rules import SAF, SJF
from twin.ordering.types import OrderingError, Pool
from twin.ordering.user_history_replay import past_of, replay_with_user_history

SMALL = OrderTrainingConfig(num_visible=32, queue_size=64, running_size=16)
EASY = Pool(16.0, easy=True)


def parts_of(predictor, seen, arrival_s, pool):
    """[5, jobs] what the exponents of an index multiply; the days waited up to a constant, as minus the arrival."""
    logits = np.asarray(NETWORK.apply(predictor, jnp.asarray(seen)), np.float64)
    log_haste, log_share = log_logistic(logits)
    requested, processors = seen[0].astype(float), seen[-1] * np.log1p(pool.processors)
    return np.stack([log_haste, -log_share - requested, -requested, -processors, -arrival_s / DAY_S])


def test_histories_at_arrival_are_those_of_finished_jobs():
    jobs = jobs_of(
        (0, 1, 100, 50), (60, 1, 100, 100), (300, 3, 100, 25), (400, 1, 100, 1), agent=[0, 0, 0, -1]
    )
    seen = dict(zip(SEEN, seen_at(jobs, jobs.arrival_s, POOL, jobs.arrival_s), strict=True))
    np.testing.assert_allclose(seen["requested"], np.log1p(100 / 60), rtol=1e-6)
    np.testing.assert_allclose(seen["user_ratio"], [1.0, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(seen["known_user"], [0.0, 0.5, 2 / 3, 0.0], rtol=1e-6)
    mean = (np.log1p(50 / 60) + np.log1p(100 / 60)) / 2
    np.testing.assert_allclose(seen["user_run"], [0.0, np.log1p(50 / 60), mean, 0.0], rtol=1e-6)
    np.testing.assert_allclose(seen["user_haste"], [0.0, 0.2, 0.15, 0.0], rtol=1e-6)
    np.testing.assert_allclose(seen["width"][2], np.log(4) / np.log(17), rtol=1e-6)
    later = seen_at(jobs, jobs.arrival_s, POOL, jobs.arrival_s + np.array([0.0, 0.0, 25.0, 0.0]))
    # Its own end tells of the user too
    assert later[SEEN.index("user_ratio")].tolist() == [
        1.0,
        0.5,
        0.5,
        1.0,
    ]
    np.testing.assert_allclose(labels_of(jobs), [[0.2, 0.1, 0.4, 1.0], [0.5, 1.0, 0.25, 0.01]], rtol=1e-6)


def any_index(*exponents, seed=0):
    """Exponents on predictions that know nothing."""
    predictor = NETWORK.init(jax.random.key(seed), jnp.zeros((len(SEEN), 1)))
    return Index(jax.tree.map(np.asarray, predictor), np.array(exponents))


def test_the_line_through_the_logistic_functions_logarithm():
    logit = np.linspace(-12.0, 12.0, 2001)
    exact = -np.logaddexp(0.0, -logit)
    assert np.abs(log_logistic(logit) - exact).max() < 0.05
    np.testing.assert_allclose(log_logistic(-KNOTS), -np.logaddexp(0.0, KNOTS), atol=0.02)


@pytest.mark.parametrize("power", [1.0, 0.0])
def test_without_predictions_an_index_is_the_rule_it_stands_for(power):
    jobs = busy_log()
    seen = seen_at(jobs, jobs.logged_start_s, POOL, jobs.arrival_s)
    index = any_index(0.0, 0.0, 1.0, power, 0.0)
    score = index.exponents @ parts_of(index.predictor, seen, jobs.arrival_s, POOL)
    expected = -np.log1p(jobs.requested_s / 60.0) - power * np.log1p(jobs.processors)
    np.testing.assert_allclose(score, expected, atol=1e-5)


def test_an_index_is_a_scorer():
    """The scores of the exported form of the network are the index, sharpened, up to a constant of the instant."""
    jobs, index = busy_log(num_days=7), any_index(2.0, 0.8, 0.3, 0.9, 0.2)
    seen = seen_at(jobs, jobs.logged_start_s, POOL, jobs.arrival_s)
    names = [feature.name for feature in JOB_FEATURES]
    features = np.random.default_rng(0).uniform(0.0, 2.0, (len(names), len(jobs.run_s))).astype(np.float32)
    features[[names.index(name) for name in SEEN]] = seen
    features[names.index("waited")] = (10.0 * DAY_S - jobs.arrival_s) / DAY_S
    network = NetworkFacts("scorer", SCORER_HIDDEN, identity=False, pooled=False)
    contract = ordering_contract(EASY, problem_config(SMALL), network)
    decide = numpy_network(named_arrays(scorer_of(index, POOL)), contract)
    context = np.random.default_rng(1).normal(size=(1, len(POOL_FEATURES))).astype(np.float32)
    scores = decide(features.T[None], context, np.ones((1, len(jobs.run_s)), bool))[0]
    expected = SHARPNESS * (
        index.exponents @ parts_of(index.predictor, seen, jobs.arrival_s, POOL) + 0.2 * 10.0
    )
    np.testing.assert_allclose(scores, expected, atol=1e-3)


def test_a_replay_that_remembers_nothing_is_the_rules_replay():
    jobs = busy_log()
    index, begin_s = any_index(0.0, 0.0, 1.0, 0.0, 0.0), float(jobs.arrival_s[0])
    past = past_of(jobs, jobs.logged_start_s, begin_s, 60.0)
    found = replay_with_user_history(jobs, EASY, index.score(jobs, POOL), past, time_unit_s=60.0)
    np.testing.assert_array_equal(found.start_s, replay(jobs, EASY, SJF).start_s)


def test_what_a_job_that_ends_tells_of_its_user_counts_at_once():
    """Two jobs of the user whose job ends first are alike those of another; then they go ahead."""
    rows = [(0, 6, 100, 10), (1, 6, 100, 50), (2, 6, 100, 50), (3, 6, 100, 50)]
    jobs, pool = jobs_of(*rows, agent=[0, 1, 0, 0]), Pool(6.0)
    past = past_of(jobs, np.full(4, np.nan), 0.0, 60.0)
    found = replay_with_user_history(jobs, pool, lambda rows, memory: memory[0], past, time_unit_s=60.0)
    assert found.start_s.tolist() == [0.0, 110.0, 10.0, 60.0]
    aged = replay_with_user_history(
        jobs, pool, lambda rows, memory: memory[0], past, time_unit_s=60.0, ageing_per_s=5.0
    )
    assert aged.start_s.tolist() == [0.0, 10.0, 60.0, 110.0]


def liars_and_honest(*, num_jobs=800):
    """One user asks for ten hours and runs ten seconds, another asks for half an hour and takes it all."""
    rng = np.random.default_rng(3)
    arrival_s = np.sort(rng.integers(0, 28 * 86_400, num_jobs)).astype(float)
    liar = rng.uniform(size=num_jobs) < 0.5
    rows = np.stack(
        [arrival_s, np.full(num_jobs, 8.0), np.where(liar, 36_000, 1800), np.where(liar, 10, 1800)], axis=1
    )
    return jobs_of(*rows, agent=liar.astype(int))._replace(origin_us=MONDAY * 86_400 * 10**6)


@pytest.mark.slow
def test_the_index_learns_whose_requests_mean_nothing():
    jobs = liars_and_honest()
    start_s, until_s = replay(jobs, EASY, SAF).start_s, 21 * DAY_S
    train, held_out = samples_of(jobs, start_s, (0.0, until_s), EASY)
    ended = np.sum(start_s + jobs.run_s < until_s)
    assert train[0].shape[1] + held_out[0].shape[1] == 2 * ended
    predictor, curve = fit_predictor(0, train, held_out)
    assert curve[-1] < curve[0]
    seen = seen_at(jobs, start_s, EASY, jobs.arrival_s)
    known = (jobs.arrival_s >= until_s) & (seen[SEEN.index("known_user")] > 0.5)
    score = np.array([1.0, 0.0, 0.0, 0.5, 0.0]) @ parts_of(predictor, seen, jobs.arrival_s, EASY)
    hasty = jobs.agent == 1
    assert score[known & hasty].min() > score[known & ~hasty].max()

    with pytest.raises(
        OrderingError, match=r"0 jobs .* of none of the [\d,]+ that arrived (.|\n)* schedtwin replay"
    ):
        samples_of(jobs, np.full(len(start_s), np.nan), (0.0, until_s), EASY)
    with pytest.raises(OrderingError, match="0 jobs arrived and ended on the training days\n"):
        samples_of(jobs, start_s, (-2.0, -1.0), EASY)


def test_haste_and_share_are_what_they_are_called():
    jobs = jobs_of((0, 1, 100, 50), (1, 1, 100, 5), (2, 1, 100, 500))
    np.testing.assert_allclose(labels_of(jobs), [[HASTE_S / 50, 1.0, HASTE_S / 500], [0.5, 0.05, 1.0]])


def by_area_programs():
    """Programs that play smallest area first, whatever the parameters: to see where starts are put."""
    settings = problem_config(SMALL)

    @jax.jit
    def finish(key, _params, windows, _sampled):
        system = environment(ordering(EASY, settings), queue_response(EASY, settings, replayed_jobs(windows)))
        last = play(key, system, by_order(system, by_area), (windows.length.shape[0],))
        return starts_of(last, settings), jnp.sum(last.problem.num_late)

    return Programs(*[None] * 5, finish)


@pytest.mark.slow
def test_learned_orders_are_judged_on_the_jobs_of_their_weeks():
    jobs = busy_log()
    plan = plan_weeks(jobs, POOL, SHORT)
    index = any_index(0.0, 0.0, 1.0, 1.0, 0.0)
    learned = [Learned(0, (index, index), (0, 1)) for _ in plan.anchors]
    policies, num_late = learned_policies(by_area_programs(), learned, plan.weeks, POOL, SMALL)
    assert num_late == 0
    assert [(policy.name, len(policy.plays)) for policy in policies] == [
        ("bc", 1),
        ("bc_greedy", 1),
        ("ppo", 2),
        ("index", 2),
    ]
    weeks = [week for week in plan.weeks if week.shift_days == 1]
    rule = next(policy for policy in rule_policies(POOL) if policy.name == "saf+easy")
    for ours, theirs in zip(policies[2].plays[1](weeks), rule.plays[0](weeks), strict=True):
        assert np.isfinite(theirs).all()
        np.testing.assert_allclose(ours, theirs, atol=1.0)
    assert all(np.isfinite(start_s).all() for start_s in policies[-1].plays[1](weeks))


def test_windows_of_different_lengths_stand_side_by_side():
    jobs = busy_log()
    settings = problem_config(SMALL)
    spans = [np.array([[86_400.0 * day, 86_400.0 * (day + length)]]) for day, length in ((3, 1), (9, 3))]
    cut = [cut_job_windows(jobs, EASY, settings, jobs.logged_start_s, span)[0] for span in spans]
    both = joined(cut)
    assert both.run.shape == (512, 2)
    assert both.length.tolist() == [int(one.length[0]) for one in cut]
    starts = np.where(both.requests.arrival < 2**30, both.requests.arrival + 30.0, np.nan)
    new = np.concatenate([one.run[one.requests.arrival >= 0] for one in cut])
    assert mean_slowdown(both, starts) == pytest.approx(
        np.mean(np.maximum(1.0, (30.0 + new) / np.maximum(new, 10.0)))
    )


def test_training_refuses_what_cannot_be():
    with pytest.raises(ConfigError, match="seeds"):
        OrderTrainingConfig(seeds=(1, 1))
    with pytest.raises(ConfigError, match="num_updates = 0"):
        OrderTrainingConfig(num_updates=0)
    with pytest.raises(ConfigError, match="divides"):
        OrderTrainingConfig(num_updates=5, look_every=2)
