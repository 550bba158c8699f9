"""Orders under predicted run times in bundles: a plain loop that asks one starts jobs as exact replay does."""

import heapq
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from evaluation.problems.ordering.exporting import (
    QueueBundle,
    export_order,
    export_rule,
    index_scorer,
    policy_of_bundle,
)
from evaluation.problems.ordering.fixed_orders import EASY_PLUS_PLUS, fixed_order, name_of, order_of_setting
from evaluation.problems.ordering.order_candidates import INDICES, family
from logs_schema.calendar import DAY_S
from offline_rl.ordering.contract import weighted_setting
from offline_rl.ordering.index import SMITH, Index
from offline_rl.ordering.predicting import NETWORK, SEEN, TIME_UNIT_S
from offline_rl.ordering.programs import OrderTrainingConfig
from offline_rl.runner import QueuePolicy, RunningJob, UserPast, WaitingJob, load_network, load_queue
from tests.ordering.test_learning_weeks import busy_log
from twin.ordering.predicted import CORRECTIONS_S, PredictedOrder, replay_predicted
from twin.ordering.replay import replay
from twin.ordering.rules import SAF
from twin.ordering.types import Pool
from twin.ordering.user_history_replay import past_of, replay_with_user_history
from twin.ordering.windows import chosen

SIZE, MONDAY_S = 16.0, 345_600.0
DAYS = {"first_day": "2001-09-01", "last_day": "2001-09-28", "num_days": 28}
ORDER = "reserved(0.5,0.25,0.06)"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weighted") / "bundle"
    config, fallback = OrderTrainingConfig(num_judged=256), fixed_order("saf+easy")
    export_rule(fixed_order(ORDER), folder, QueueBundle(Pool(SIZE), config, DAYS, fallback=fallback))
    return folder


@pytest.fixture(scope="module")
def jobs():
    """Jobs of which no two come or end at one instant."""
    rng, log = np.random.default_rng(3), chosen(busy_log(), np.arange(250))
    arrival_s = log.arrival_s - log.arrival_s[0] + np.sort(rng.random(len(log.run_s)))
    return log._replace(arrival_s=arrival_s, run_s=np.maximum(log.run_s - rng.random(len(log.run_s)), 0.5))


class Loop:
    """A pool from empty, asked for what starts at every arrival, end and correction."""

    def __init__(self, jobs, policy, ask):
        self.jobs, self.policy, self.ask = jobs, policy, ask
        self.waiting, self.running, self.users = [], {}, {}
        self.predicted_s, self.start_s = {}, np.full(len(jobs.run_s), np.nan)
        self.events = [(arrival_s, "arrives", job) for job, arrival_s in enumerate(jobs.arrival_s.tolist())]

    def play(self):
        heapq.heapify(self.events)
        while self.events:
            now_s, what, job = heapq.heappop(self.events)
            if what == "arrives":
                past = self.users.get(self.user(job), UserPast())
                self.predicted_s[job] = self.policy.predicted_s(float(self.jobs.requested_s[job]), past)
                self.waiting.append(job)
            elif what == "ends":
                del self.running[job]
                past = self.users.get(self.user(job), UserPast())
                run_s = float(self.jobs.run_s[job])
                self.users[self.user(job)] = past.ended(run_s, float(self.jobs.requested_s[job]), 60.0)
            elif job not in self.running:
                continue
            else:
                self.expect(job, now_s)
            self.look(now_s)
        return self.start_s

    def user(self, job):
        return str(self.jobs.agent[job])

    def expect(self, job, now_s):
        asked_s = float(self.jobs.requested_s[job])
        end_s = self.policy.expected_end_s(self.start_s[job], self.predicted_s[job], asked_s, now_s)
        self.running[job] = end_s
        if now_s < end_s < self.start_s[job] + asked_s:
            heapq.heappush(self.events, (end_s, "runs on", job))

    def look(self, now_s):
        jobs = self.jobs
        waiting = [
            WaitingJob(
                MONDAY_S + jobs.arrival_s[job],
                jobs.processors[job],
                jobs.requested_s[job],
                self.user(job),
                self.predicted_s[job],
            )
            for job in self.waiting
        ]
        running = [
            RunningJob(jobs.processors[job], MONDAY_S + end_s, self.user(job))
            for job, end_s in self.running.items()
        ]
        started = [
            self.waiting[place]
            for place in self.ask(self.policy)(waiting, running, self.users, MONDAY_S + now_s)
        ]
        for job in started:
            self.waiting.remove(job)
            self.start_s[job] = now_s
            heapq.heappush(self.events, (now_s + jobs.run_s[job], "ends", job))
            self.expect(job, now_s)


@pytest.mark.parametrize(
    "order",
    [
        PredictedOrder(0.5, 0.25, 0.06),
        PredictedOrder(1.0, 1.0, 0.5, reserves=False),
        PredictedOrder(predicts=False, reserves=False, short_first=False),
    ],
)
def test_a_plain_loop_that_asks_the_bundle_starts_jobs_as_exact_replay(bundle, jobs, order):
    network = load_network(bundle)
    setting = network.contract.setting | weighted_setting(order)
    policy = QueuePolicy(replace(network, contract=replace(network.contract, setting=setting)))
    found = Loop(jobs, policy, lambda policy: policy.starting).play()
    expected = replay_predicted(jobs, Pool(SIZE, easy=True), order)
    np.testing.assert_allclose(found, expected.start_s, atol=1e-3)
    assert expected.num_backfilled > 10
    assert np.max(found - jobs.arrival_s) > 3600.0  # a queue there was


def test_an_index_of_the_ladder_starts_jobs_as_its_replay_backfilling_included(jobs, tmp_path):
    pool, predictor = Pool(SIZE, easy=True), NETWORK.init(jax.random.key(4), jnp.zeros((len(SEEN), 1)))
    index = Index(jax.tree.map(np.asarray, predictor), SMITH)
    scorer, usual = index_scorer(index, pool, INDICES[0]), index._replace(exponents=INDICES[0])
    export_order(scorer, tmp_path / "bundle", QueueBundle(pool, OrderTrainingConfig(num_judged=256), DAYS))
    found = Loop(jobs, load_queue(tmp_path / "bundle"), lambda policy: policy.starting).play()
    past = past_of(jobs, np.full(len(jobs.run_s), np.nan), 0.0, TIME_UNIT_S)
    expected = replay_with_user_history(
        jobs,
        pool,
        usual.score(jobs, pool),
        past,
        time_unit_s=TIME_UNIT_S,
        ageing_per_s=INDICES[0][-1] / DAY_S,
        backfill=SAF,
    )
    np.testing.assert_allclose(found, expected.start_s, atol=1e-3)
    assert expected.num_backfilled > 10
    played, _ = policy_of_bundle(tmp_path / "bundle")
    assert played.name == "index"


def test_the_rule_that_stands_in_starts_jobs_as_its_replay(bundle, jobs):
    policy = load_queue(bundle)
    believing = QueuePolicy(
        replace(
            policy.policy,
            contract=replace(policy.policy.contract, setting=policy.setting | {"reserves": False}),
        )
    )
    found = Loop(jobs, believing, lambda policy: policy.starting_by_rule).play()
    np.testing.assert_allclose(found, replay(jobs, Pool(SIZE, easy=True), SAF).start_s, atol=1e-3)


def test_who_outruns_a_prediction_is_expected_later_by_one_correction_after_the_other(bundle):
    policy = load_queue(bundle)
    ends_s = [
        policy.expected_end_s(0.0, 100.0, 900.0, clock_s) for clock_s in (99.0, 100.0, 160.0, 460.0, 2e3)
    ]
    assert ends_s == [100.0, 100.0 + CORRECTIONS_S[0], 460.0, 900.0, 900.0]
    past = UserPast().ended(30.0, 60.0, 60.0).ended(51.0, 60.0, 60.0)
    assert [policy.predicted_s(asked_s, past) for asked_s in (900.0, 20.0)] == [40.0, 20.0]
    assert policy.predicted_s(900.0, UserPast().ended(30.0, 60.0, 60.0)) == 900.0


def test_a_bundle_gives_its_order_back_and_shows_its_numbers(bundle):
    policy, pool = policy_of_bundle(bundle)
    assert (policy.name, pool.processors, pool.easy) == (ORDER, SIZE, True)
    facts = bundle_facts(bundle)
    assert facts["numbers"] == {"run_weight": 0.5, "width_weight": 0.25, "ageing": 0.06}
    text = bundle_text(facts)
    for words in ("run_weight", "0.25", "last two", "by_predicted_run", "day of waiting"):
        assert words in text


def test_every_member_of_the_family_has_a_name_that_gives_it_back():
    for order in (EASY_PLUS_PLUS, *family()):
        assert fixed_order(name_of(order)).rule == order
    setting = fixed_order("easy++").setting() | {"easy": True}
    assert order_of_setting(setting) == fixed_order("easy++")


def test_a_job_larger_than_the_pool_keeps_nobody_waiting(bundle):
    policy = load_queue(bundle)
    large, small = WaitingJob(0.0, 2.0 * SIZE, 60.0), WaitingJob(1.0, 1.0, 60.0)
    for ask in (policy.starting, policy.starting_by_rule):
        assert ask([large, small], [], {}, 10.0) == [1]
        assert ask([], [], {}, 10.0) == []
