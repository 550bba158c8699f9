"""Learned orders: what the index knows, that scorers can be taught it, and that they are judged on the right jobs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.ordering.generated import lived
from evaluation.ordering.learned import Learned, learned_policies
from evaluation.ordering.learning import joined, mean_slowdown
from evaluation.ordering.playing import rule_policies
from evaluation.ordering.predicting import (
    SEEN,
    Index,
    fit_predictor,
    index_of,
    labels_of,
    lessons_of,
    seen_at_arrival,
)
from evaluation.ordering.programs import OrderTrainingConfig, Programs, problem_config
from evaluation.ordering.weeks import plan_weeks
from logs_schema.errors import ConfigError
from tests.ordering.making import jobs_of
from tests.ordering.test_learning_weeks import MONDAY, POOL, SHORT, busy_log
from twin.environment import environment
from twin.ordering.job_windows import cut_job_windows, replayed_jobs
from twin.ordering.orders import by_area
from twin.ordering.play import by_order, play
from twin.ordering.population import fit_population
from twin.ordering.problem import ordering
from twin.ordering.responses import queue_response, starts_of
from twin.ordering.types import Pool

SMALL = OrderTrainingConfig(num_visible=32, queue_size=64, running_size=16)
EASY = Pool(16.0, easy=True)


def test_histories_at_arrival_are_those_of_finished_jobs():
    jobs = jobs_of(
        (0, 1, 100, 50), (60, 1, 100, 100), (300, 3, 100, 25), (400, 1, 100, 1), agent=[0, 0, 0, -1]
    )
    seen = dict(zip(SEEN, seen_at_arrival(jobs, jobs.arrival_s, POOL), strict=True))
    np.testing.assert_allclose(seen["requested"], np.log1p(100 / 60), rtol=1e-6)
    np.testing.assert_allclose(seen["user_ratio"], [1.0, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(seen["known_user"], [0.0, 0.5, 2 / 3, 0.0], rtol=1e-6)
    mean = (np.log1p(50 / 60) + np.log1p(100 / 60)) / 2
    np.testing.assert_allclose(seen["user_run"], [0.0, np.log1p(50 / 60), mean, 0.0], rtol=1e-6)
    np.testing.assert_allclose(seen["width"][2], np.log(4) / np.log(17), rtol=1e-6)
    np.testing.assert_allclose(labels_of(jobs), [[0.2, 0.1, 0.4, 1.0], [0.5, 1.0, 0.25, 0.01]], rtol=1e-6)


@pytest.mark.parametrize(("weights", "power"), [((0.0, 0.0, -1.0, -1.0), 1.0), ((0.0, 0.0, -1.0, 0.0), 0.0)])
def test_the_first_indices_are_the_rules_they_stand_for(weights, power):
    jobs = busy_log()
    seen = seen_at_arrival(jobs, jobs.logged_start_s, POOL)
    nothing = fit_predictor(0, (seen, labels_of(jobs)), (seen, labels_of(jobs)), num_looks=1)[0]
    score = np.asarray(index_of(Index(nothing, jnp.array(weights)), jnp.asarray(seen), POOL))
    expected = -np.log(jobs.requested_s / 60.0 * jobs.processors**power)
    np.testing.assert_allclose(score, expected, atol=1e-3)


def liars_and_honest(*, num_jobs=800):
    """One user asks for ten hours and runs ten seconds, another asks for half an hour and takes it all."""
    rng = np.random.default_rng(3)
    arrival_s = np.sort(rng.integers(0, 28 * 86_400, num_jobs)).astype(float)
    liar = rng.uniform(size=num_jobs) < 0.5
    rows = np.stack(
        [arrival_s, np.full(num_jobs, 8.0), np.where(liar, 36_000, 1800), np.where(liar, 10, 1800)], axis=1
    )
    return jobs_of(*rows, agent=liar.astype(int))._replace(origin_us=MONDAY * 86_400 * 10**6)


def test_the_index_learns_whose_requests_mean_nothing():
    jobs = liars_and_honest()
    months = [lived(jobs, fit_population(jobs, MONDAY, 21), EASY, seed, MONDAY + 21, 14) for seed in (0, 1)]
    begin_s = 21 * 86_400.0
    predictor, curve = fit_predictor(
        0, *(lessons_of([month], begin_s, EASY) for month in months), num_looks=10
    )
    assert curve[-1] < curve[0]
    jobs, start_s = months[1]
    seen = seen_at_arrival(jobs, start_s, EASY)
    known = (jobs.arrival_s >= begin_s) & (seen[SEEN.index("known_user")] > 0.5)
    score = np.asarray(index_of(Index(predictor, jnp.array([1.0, 0.0, 0.0, -0.5])), jnp.asarray(seen), EASY))
    hasty = jobs.agent == 1
    assert score[known & hasty].min() > score[known & ~hasty].max()


def by_area_programs():
    """Programs that play smallest area first, whatever the parameters: to see where starts are put."""
    settings = problem_config(SMALL)

    @jax.jit
    def finish(key, _params, windows, _sampled):
        system = environment(ordering(EASY, settings), queue_response(EASY, settings, replayed_jobs(windows)))
        last = play(key, system, by_order(system, by_area), (windows.length.shape[0],))
        return starts_of(last, settings), jnp.sum(last.problem.num_late)

    return Programs(*[None] * 7, finish)


def test_learned_orders_are_judged_on_the_jobs_of_their_weeks():
    jobs = busy_log()
    plan = plan_weeks(jobs, POOL, SHORT)
    learned = [Learned(0, 0, (0, 1)) for _ in plan.anchors]
    policies, num_late = learned_policies(by_area_programs(), learned, plan.weeks, POOL, SMALL)
    assert num_late == 0
    assert [(policy.name, len(policy.plays)) for policy in policies] == [
        ("bc", 1), ("bc_greedy", 1), ("index", 1), ("twin", 2)
    ]  # fmt: skip
    weeks = [week for week in plan.weeks if week.shift_days == 1]
    rule = next(policy for policy in rule_policies(POOL) if policy.name == "saf+easy")
    for ours, theirs in zip(policies[-1].plays[1](weeks), rule.plays[0](weeks), strict=True):
        assert np.isfinite(theirs).all()
        np.testing.assert_allclose(ours, theirs, atol=1.0)


def test_windows_of_different_lengths_stand_side_by_side():
    jobs = busy_log()
    settings = problem_config(SMALL)
    spans = [np.array([[86_400.0 * day, 86_400.0 * (day + length)]]) for day, length in ((3, 1), (9, 3))]
    cut = [cut_job_windows(jobs, EASY, settings, jobs.logged_start_s, span)[0] for span in spans]
    both = joined(cut)
    assert both.run.shape == (512, 2)
    assert both.length.tolist() == [int(one.length[0]) for one in cut]
    starts = np.where(both.asked.arrival < 2**30, both.asked.arrival + 30.0, np.nan)
    new = np.concatenate([one.run[one.asked.arrival >= 0] for one in cut])
    assert mean_slowdown(both, starts) == pytest.approx(
        np.mean(np.maximum(1.0, (30.0 + new) / np.maximum(new, 10.0)))
    )


def test_training_refuses_what_cannot_be():
    with pytest.raises(ConfigError, match="seeds"):
        OrderTrainingConfig(seeds=(1, 1))
    with pytest.raises(ConfigError, match="must be positive"):
        OrderTrainingConfig(num_updates=0)
