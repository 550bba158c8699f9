"""An exported order at work in a plain loop: the starts are those of the index it was made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.commands.bundle_text import bundle_facts, bundle_text
from evaluation.problems.ordering.exporting import QueueBundle, export_order, load_order
from logs_schema.calendar import DAY_S
from logs_schema.errors import ProductError
from offline_rl.errors import PolicyInputError
from offline_rl.ordering.index import Index
from offline_rl.ordering.index_scorer import index_of, scorer_of
from offline_rl.ordering.predicting import NETWORK, SEEN, TIME_UNIT_S
from offline_rl.ordering.programs import OrderTrainingConfig
from offline_rl.runner import RunningJob, UserPast, WaitingJob, load, load_queue
from tests.ordering.pooling import columns_of
from tests.ordering.test_learning_weeks import busy_log
from tests.reference.ordering_policy_loop import PolicyLoop
from twin.ordering.types import Pool
from twin.ordering.user_history_replay import past_of, replay_with_user_history
from twin.ordering.windows import chosen

SIZE, AGEING = 16, 0.2
SMALL = OrderTrainingConfig(num_judged=256)
MONDAY_S = 345_600.0


@pytest.fixture(scope="module")
def index():
    predictor = NETWORK.init(jax.random.key(4), jnp.zeros((len(SEEN), 1)))
    return Index(jax.tree.map(np.asarray, predictor), np.array([2.0, 0.8, 0.3, 0.9, AGEING]))


@pytest.fixture(scope="module")
def bundle(index, tmp_path_factory):
    folder = tmp_path_factory.mktemp("order") / "bundle"
    days = {"first_day": "2001-09-01", "last_day": "2001-09-28", "num_days": 28}
    export_order(scorer_of(index, Pool(SIZE)), folder, QueueBundle(Pool(SIZE), SMALL, days, licence="ours"))
    return folder


class Served(PolicyLoop):
    """The loop, with the exported policy asked by plain descriptions."""

    def __init__(self, columns, size, queue):
        super().__init__(columns, size, False, self.ask, num_visible=256, queue_size=256, unit=TIME_UNIT_S)
        self.policy, self.users, self.now = queue, {}, 0

    def end(self, job):
        super().end(job)
        user = str(self.user[job])
        past = self.users.get(user, UserPast())
        self.users[user] = past.ended(float(self.run[job]), float(self.asked[job]), TIME_UNIT_S)

    def observe(self, now):
        self.now = MONDAY_S + now
        return None, None

    def ask(self, _job, _pool):
        waiting = [
            WaitingJob(MONDAY_S + self.arrival[job], self.width[job], self.asked[job], str(self.user[job]))
            for job in self.queue
        ]
        running = [
            RunningJob(self.width[job], MONDAY_S + end, str(self.user[job]))
            for job, end in self.running.items()
        ]
        return self.policy.decide(waiting, running, self.users, self.now)


def test_a_plain_loop_that_asks_the_bundle_starts_jobs_as_the_index(index, bundle):
    jobs = chosen(busy_log(), np.arange(250))
    jobs = jobs._replace(arrival_s=jobs.arrival_s - jobs.arrival_s[0])
    past = past_of(jobs, np.full(len(jobs.run_s), np.nan), 0.0, TIME_UNIT_S)
    pool = Pool(SIZE)
    expected = replay_with_user_history(
        jobs, pool, index.score(jobs, pool), past, time_unit_s=TIME_UNIT_S, ageing_per_s=AGEING / DAY_S
    )
    loop = Served(columns_of(jobs), SIZE, load_queue(bundle))
    found = np.array(loop.play(), float)
    np.testing.assert_array_equal(found, expected.start_s)
    assert np.max(found - jobs.arrival_s) > 3600.0  # a queue there was


def test_of_many_waiting_jobs_the_index_takes_the_same_wherever_they_stand(bundle):
    policy, rng = load_queue(bundle), np.random.default_rng(5)
    drawn = zip(2.0 ** rng.integers(0, 4, 700), rng.uniform(60.0, 90_000.0, 700), strict=True)
    jobs = [WaitingJob(MONDAY_S, processors, requested_s) for processors, requested_s in drawn]
    asked = [], {}, MONDAY_S + 3600.0
    assert len(policy.policy.contract.choices) < 350
    assert jobs[policy.decide(jobs, *asked)] == jobs[::-1][policy.decide(jobs[::-1], *asked)]
    one, two = ([queue[place] for place in policy.starting(queue, *asked)] for queue in (jobs, jobs[::-1]))
    assert one == two
    assert one[0] == jobs[policy.decide(jobs, *asked)]


def test_a_bundle_gives_its_index_back(index, bundle):
    jobs = chosen(busy_log(), np.arange(400))
    again, pool = load_order(bundle)
    assert (pool.processors, pool.easy) == (SIZE, True)
    np.testing.assert_allclose(again.exponents, index.exponents, rtol=1e-6)
    past = past_of(jobs, np.full(len(jobs.run_s), np.nan), 0.0, TIME_UNIT_S)
    starts = [
        replay_with_user_history(
            jobs, pool, one.score(jobs, pool), past, time_unit_s=TIME_UNIT_S, ageing_per_s=AGEING / DAY_S
        ).start_s
        for one in (index, again)
    ]
    np.testing.assert_array_equal(*starts)
    for layer, part in (("context", "kernel"), ("layer_0", "kernel"), ("score", "bias")):
        other = scorer_of(index, pool)
        other["params"][layer][part][-1] += 0.1
        assert index_of(other, pool) is None, layer


def test_a_bundle_says_what_it_orders(bundle):
    facts = bundle_facts(bundle)
    assert facts["contract"]["setting"]["backfill"] == "by_area"
    text = bundle_text(facts)
    for words in ("ordering", "2001-09-28", "waited", "any number of them", "wider by half at either end"):
        assert words in text


def test_what_cannot_be_asked_is_refused(bundle):
    policy = load_queue(bundle)
    job = WaitingJob(0.0, 4.0, 60.0)
    assert policy.decide([], [], {}, 0.0) is None
    assert policy.decide([job], [], {}, 10.0) == 0
    with pytest.raises(PolicyInputError, match="in order of arrival"):
        policy.decide([WaitingJob(5.0, 1.0, 1.0), job], [], {}, 10.0)
    with pytest.raises(PolicyInputError, match="has not arrived"):
        policy.decide([job], [], {}, -1.0)
    with pytest.raises(PolicyInputError, match="cannot be like this"):
        policy.decide([WaitingJob(0.0, 0.0, 60.0)], [], {}, 10.0)
    with pytest.raises(PolicyInputError, match="cannot run like this"):
        policy.decide([job], [RunningJob(float("nan"), 5.0)], {}, 10.0)
    with pytest.raises(PolicyInputError, match="more processors run"):
        policy.decide([job], [RunningJob(SIZE + 1.0, 5.0)], {}, -0.0)
    with pytest.raises(ProductError):
        load(bundle)


def test_nothing_starts_where_more_runs_than_the_machine_has(bundle):
    policy = load_queue(bundle)
    running = [RunningJob(SIZE + 1.0, 5.0)]
    assert policy.starting([WaitingJob(0.0, 4.0, 60.0)], running, {}, 1.0) == []
    assert policy.starting([WaitingJob(0.0, 4.0, 60.0)], [], {}, 1.0) == [0]
