"""The ordering problem under the contracts: features, rewards, streams, generated arrivals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offline_rl.contract import NetworkFacts
from offline_rl.export import decided, export_policy, original
from offline_rl.ordering.contract import ordering_contract
from offline_rl.runner import RunningJob, UserPast, WaitingJob, load_queue
from tests.ordering.making import jobs_of
from tests.ordering.pooling import KEY, columns_of, cut_whole, joined, system_of
from tests.reference.ordering_policy_loop import PolicyLoop
from twin.environment import environment
from twin.ordering.arrivals import Begun, Coming, JobArrivals
from twin.ordering.config import COSTS, OrderingConfig
from twin.ordering.costs import accrued
from twin.ordering.features import JOB_FEATURES, NUM_GLOBAL, POOL_FEATURES
from twin.ordering.job_windows import JobWindows
from twin.ordering.play import actions_of, by_order, by_policy, by_scorer, play
from twin.ordering.problem import ordering
from twin.ordering.responses import queue_response, starts_of
from twin.ordering.states import NEVER, JobRequests, Running
from twin.ordering.types import Pool
from twin.ordering.users import histories, users_without_history
from twin.rollout import follow

CAPACITY, NUM_STREAMS, NUM_JOBS, NUM_STEPS = 10, 4, 40, 60
POOL = Pool(CAPACITY, easy=True)
CONFIG = OrderingConfig(num_visible=6, queue_size=40, running_size=10, num_agents=4, time_unit_s=5.0)


def made_log(seed):
    """A crowded log; users 0 to 2, and nobody knows who."""
    generator = np.random.default_rng(seed)
    run = generator.integers(1, 30, NUM_JOBS)
    rows = np.stack(
        [
            np.sort(generator.integers(0, 120, NUM_JOBS)),
            generator.integers(1, CAPACITY + 1, NUM_JOBS),
            run * generator.integers(1, 4, NUM_JOBS),
            run,
        ]
    )
    return jobs_of(*rows.T, agent=generator.integers(0, 3, NUM_JOBS))


LOGS = [made_log(seed) for seed in range(NUM_STREAMS)]
WINDOWS = joined([cut_whole(log, POOL, CONFIG) for log in LOGS])
ACTIONS = np.random.default_rng(0).integers(0, 6, (NUM_STEPS, 1, NUM_STREAMS)).astype(np.int32)


@jax.jit
def run(windows, actions):
    """An episode along actions; what was illegal (a place that is empty) became place 0."""
    return follow(KEY, system_of(POOL, CONFIG, windows), actions, (NUM_STREAMS,))


@pytest.fixture(scope="module")
def trajectory():
    return jax.tree.map(np.asarray, run(WINDOWS, ACTIONS))


class Completions(PolicyLoop):
    """The loop, which also tells a runner's caller what it would know."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.told = []

    def observe(self, now):
        begun_s = 345_600.0 + self.week
        waiting = [
            WaitingJob(begun_s + self.arrival[job], self.width[job], self.asked[job], str(self.user[job]))
            for job in self.queue
        ]
        running = [
            RunningJob(self.width[job], begun_s + end, str(self.user[job]))
            for job, end in self.running.items()
        ]
        means = (self.finished, self.ratio, self.log_run, self.haste)
        pasts = zip(*(mean.tolist() for mean in means), strict=True)
        users = {str(user): UserPast(*past) for user, past in enumerate(pasts)}
        self.told.append((waiting, running, users, begun_s + now))
        return super().observe(now)


class Followed:
    """Decides in the loop as a stream of a trajectory did, and keeps what the loop saw."""

    def __init__(self, action):
        self.action, self.seen = action, []

    def __call__(self, job, pool):
        self.seen.append((job, pool))
        return int(self.action[len(self.seen) - 1])


@pytest.fixture(scope="module")
def loops(trajectory):
    found = []
    for stream, log in enumerate(LOGS):
        decide = Followed(trajectory.action[:, 0, stream])
        options = {"num_visible": 6, "queue_size": 40, "unit": 5.0, "week": int(WINDOWS.week[stream])}
        loop = Completions(columns_of(log), CAPACITY, True, decide, **options)
        loop.play()
        found.append(loop)
    return found


def test_every_feature_is_what_a_loop_in_numpy_sees(trajectory, loops):
    num_places = 0
    for stream, loop in enumerate(loops):
        num_decisions = int(trajectory.active[:, 0, stream].sum())
        assert len(loop.decided_at) == num_decisions
        for step, (job, pool) in enumerate(loop.decide.seen):
            width = job.shape[1]
            ours = trajectory.observation.job[step, :, :, 0, stream]
            np.testing.assert_allclose(ours[:, :width], job, rtol=1e-4, atol=1e-5)
            assert not ours[:, width:].any()
            np.testing.assert_allclose(
                trajectory.observation.pool[step, :, 0, stream], pool, rtol=1e-4, atol=1e-5
            )
            np.testing.assert_array_equal(trajectory.legal[step, :, 0, stream], np.arange(6) < width)
            num_places += width
    assert num_places > 500
    assert trajectory.observation.pool[:, 0].min() >= 0.0  # what is free: never less than nothing
    assert trajectory.observation.job.shape[1] == len(JOB_FEATURES)
    assert trajectory.observation.pool.shape[1] == len(POOL_FEATURES)
    assert trajectory.global_observation.shape[1] == NUM_GLOBAL
    spread = np.std(trajectory.observation.job[:20], axis=(0, 2, 3, 4))
    assert [feature.name for feature, one in zip(JOB_FEATURES, spread, strict=True) if one == 0.0] == []


def test_the_runner_sees_the_same_and_decides_as_jax(trajectory, loops, tmp_path):
    facts = NetworkFacts("scorer", (16, 8), identity=False)
    contract = ordering_contract(POOL, CONFIG, facts)
    params = original(contract).init(jax.random.key(5))
    export_policy(params, tmp_path / "bundle", contract)
    policy = load_queue(tmp_path / "bundle")
    steps, streams = np.nonzero(trajectory.active[:, 0])
    job = trajectory.observation.job[steps, :, :, 0, streams].transpose(0, 2, 1)
    pool, legal = trajectory.observation.pool[steps, :, 0, streams], trajectory.legal[steps, :, 0, streams]
    logits, action = decided(params, contract, job, pool, legal)
    best = np.sort(logits, axis=1)[:, -2:]
    for row, (step, stream) in enumerate(zip(steps, streams, strict=True)):
        choices, context = policy.features(*loops[stream].told[step])
        num_places = choices.shape[1]
        np.testing.assert_allclose(choices[0], job[row, :num_places], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(context[0], pool[row], rtol=1e-4, atol=1e-5)
        if best[row, 1] - best[row, 0] > 1e-3:
            assert policy.decide(*loops[stream].told[step]) == action[row]
    assert len(steps) > 100


def test_rewards_sum_to_what_waiting_cost(trajectory, loops):
    """Minus the sum of bounded slowdowns, less what had accrued before there was anything to decide."""
    assert trajectory.done[-1].all()
    assert (
        trajectory.terminated.sum(axis=0) == 1
    ).all()  # nobody waits any more: nothing costs after the end
    assert trajectory.settled[trajectory.active].all()
    for stream, loop in enumerate(loops):
        start, floor = np.array(loop.start), np.maximum(loop.run, 10)
        waits = [
            np.maximum(np.minimum(start, until) - loop.arrival, 0) for until in (loop.decided_at[0], np.inf)
        ]
        before, after = (np.sum(np.maximum((wait + loop.run) / floor, 1.0)) for wait in waits)
        assert -trajectory.reward[:, 0, stream].sum() == pytest.approx(after - before, rel=1e-4)
        waited_s = np.nansum(trajectory.outcome.wait_s[:, 0, stream])
        assert waited_s == pytest.approx((waits[1] - waits[0]).sum(), rel=1e-5)


@pytest.mark.parametrize("cost", COSTS)
def test_costs_of_waiting_add_up_over_any_cut(cost):
    config = OrderingConfig(cost=cost, tick_s=0.5, time_unit_s=60.0)
    run, wait = np.array([2, 19, 20, 50, 4000]), np.array([30, 1, 0, 90, 100_000])
    cuts = [-5, 0, 1, 7, 20, 1000, 200_000]
    grown = [
        accrued(config, jnp.zeros(5, jnp.int32), run, *(jnp.minimum(end, wait) for end in step))[0]
        for step in itertools.pairwise(cuts)
    ]
    slowdown = np.maximum((wait + run) * 0.5 / np.maximum(run * 0.5, 10.0), 1.0)
    expected = {
        "bounded_slowdown": slowdown - 1.0,
        "log_bounded_slowdown": np.log(slowdown),
        "wait": wait * 0.5 / 60.0,
    }
    np.testing.assert_allclose(np.sum(grown, axis=0), expected[cost], rtol=1e-5)


def test_illegal_places_are_replaced_and_nothing_is_retraced(trajectory):
    assert trajectory.illegal.any()
    assert not trajectory.action[trajectory.illegal].any()
    size = run._cache_size()
    again = run(WINDOWS, np.array(ACTIONS[:, :, ::-1]))
    assert run._cache_size() == size
    assert np.all(np.asarray(again.done[-1]))


def test_nothing_observed_knows_how_long_a_running_job_will_run(trajectory, loops):
    """Jobs that are still to end at an instant run longer: whatever was seen up to then stays as it was."""
    instant, longer = 60, WINDOWS.run.copy()
    for stream, loop in enumerate(loops):
        still_to_end = np.array(loop.start) + loop.run > instant
        assert 0 < still_to_end.sum() < NUM_JOBS
        longer[still_to_end, stream] += 17
    other = run(WINDOWS._replace(run=longer), ACTIONS)
    for stream, loop in enumerate(loops):
        upto = int(np.sum(np.array(loop.decided_at) <= instant))
        for name in ("observation", "global_observation", "legal", "active", "illegal", "decision_info"):
            ours, theirs = (jax.tree.leaves(getattr(one, name)) for one in (other, trajectory))
            for one, two in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(one[:upto, ..., stream], two[:upto, ..., stream])
    assert not np.array_equal(other.observation.job, trajectory.observation.job)


def test_permuting_streams_permutes_results_bit_by_bit(trajectory):
    order = np.array([2, 0, 3, 1])
    windows = JobWindows(*jax.tree.map(lambda leaf: leaf[..., order], WINDOWS))
    permuted = run(windows, ACTIONS[..., order])
    for ours, theirs in zip(jax.tree.leaves(permuted), jax.tree.leaves(trajectory), strict=True):
        np.testing.assert_array_equal(ours, theirs[..., order])


def test_a_stream_that_is_done_stays_as_it_is(trajectory):
    over = trajectory.done[:-1]
    assert over.any()
    assert not trajectory.active[1:][over[:, None]].any()
    assert not trajectory.elapsed_s[1:][over].any()
    seen = np.moveaxis(trajectory.global_observation, 1, 0)
    np.testing.assert_array_equal(seen[:, 2:][:, over], seen[:, 1:-1][:, over])


@pytest.mark.slow
def test_one_stream_alone_mapped_or_padded_is_the_same(trajectory):
    @jax.jit
    def alone(windows, actions):
        one = JobWindows(*jax.tree.map(lambda leaf: leaf[..., None], windows))
        return follow(KEY, system_of(POOL, CONFIG, one), actions, ())

    mapped = jax.jit(jax.vmap(alone, in_axes=-1, out_axes=-1))(WINDOWS, ACTIONS)
    padded_windows = joined([cut_whole(log, POOL, CONFIG, num_jobs=NUM_JOBS + 9) for log in LOGS])
    padded = run(padded_windows, ACTIONS)
    first = JobWindows(*jax.tree.map(lambda leaf: leaf[..., 0], WINDOWS))
    for ours, theirs in zip(
        jax.tree.leaves(alone(first, ACTIONS[..., 0])), jax.tree.leaves(trajectory), strict=True
    ):
        np.testing.assert_allclose(ours, theirs[..., 0], rtol=1e-5, atol=1e-6)
    for other in (mapped, padded):
        for ours, theirs in zip(jax.tree.leaves(other), jax.tree.leaves(trajectory), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_policies_play_windows_and_rules_leave_actions_to_follow(trajectory):
    """Shortest of the visible first, as a policy and as a rule, a window for each stream."""
    system = system_of(POOL, CONFIG, WINDOWS)

    def policy(_key, observation, legal):
        return jnp.argmin(jnp.where(legal, observation.job[1], jnp.inf), axis=0).astype(jnp.int32)

    def logits(observation, legal):
        return jnp.where(legal, -observation.job[1], -1e9)

    @jax.jit
    def all_ways(key, sampled):
        ended = play(key, system, by_policy(system, policy), (NUM_STREAMS,))
        scored = play(key, system, by_scorer(POOL, CONFIG, logits, sampled), (NUM_STREAMS,))
        rule = by_order(system, lambda queue, _clock: queue.requested)
        return ended, starts_of(scored, CONFIG), actions_of(key, system, rule, NUM_STEPS, (NUM_STREAMS,))

    ended, scored, actions = all_ways(KEY, False)
    np.testing.assert_array_equal(scored, starts_of(ended, CONFIG))
    assert not np.array_equal(all_ways(KEY, True)[1], scored)
    followed = run(WINDOWS, actions)
    assert not np.any(followed.illegal)
    starts = np.asarray(starts_of(ended, CONFIG))
    for stream, log in enumerate(LOGS):
        for decide in (lambda job, _: int(np.argmin(job[1])), Followed(np.asarray(actions)[:, 0, stream])):
            options = {"num_visible": 6, "queue_size": 40, "unit": 5.0}
            loop = Completions(columns_of(log), CAPACITY, True, decide, **options)
            np.testing.assert_array_equal(starts[:, stream], loop.play())


def test_histories_are_what_had_ended_by_then(trajectory):
    """Means that fade, written again user by user; instants in any order."""
    for stream, log in enumerate(LOGS):
        decide = Followed(trajectory.action[:, 0, stream])
        options = {"num_visible": 6, "queue_size": 40, "unit": 5.0}
        loop = Completions(columns_of(log), CAPACITY, True, decide, **options)
        start_s = np.array(loop.play()) + log.arrival_s[0]
        at_s = np.array([30.0, 1e6, 70.0]) + log.arrival_s[0]
        users = histories(log, CONFIG, start_s, at_s)
        np.testing.assert_allclose(users.num_finished[:3, 1], np.bincount(log.agent, minlength=3))
        for column, instant in enumerate(at_s):
            for user in range(3):
                ended = np.flatnonzero((log.agent == user) & (start_s + log.run_s < instant))
                mean = 0.0
                for count, job in enumerate(
                    ended[np.argsort((start_s + log.run_s)[ended], kind="stable")], 1
                ):
                    mean += max(1 / count, 0.5) * (log.run_s[job] / log.requested_s[job] - mean)
                assert users.num_finished[user, column] == len(ended)
                assert users.ratio[user, column] == pytest.approx(mean, rel=1e-5)


def thinking_user(run_ticks, think_ticks, num_jobs):
    """One user who sends the next job some time after the last has ended: arrivals that react."""

    def coming(private):
        number, arrival = private
        one = jnp.ones_like(number)
        asked = JobRequests(arrival, 1000 * one, 2 * run_ticks * one, 0 * one, 0 * one)
        return Coming(asked, run_ticks * one, number)

    def init(_key, streams):
        zero, none = jnp.zeros(streams, jnp.int32), jnp.zeros((0, *streams), jnp.int32)
        users = jax.tree.map(jnp.asarray, users_without_history(CONFIG.num_agents, streams))
        return (zero, zero + 5), Begun(Running(*[none] * 5), none, users, zero)

    def move(_key, private, taken, ended):
        number, arrival = private
        arrival = jnp.where(taken, NEVER, arrival)
        return number + taken, jnp.where(ended.happened, ended.clock + think_ticks, arrival)

    return JobArrivals(num_jobs, init, coming, move, lambda private: private[0] >= num_jobs)


@pytest.mark.slow
def test_a_user_who_waits_for_results_sends_the_next_job_after_thinking():
    response = queue_response(POOL, CONFIG, thinking_user(7, 4, 6))
    state = jax.jit(lambda: environment(ordering(POOL, CONFIG), response).reset(KEY, (2,)))()
    assert np.all(state.done)  # each job waits alone and starts at once: there is nothing to decide
    expected = np.broadcast_to(5 + 11 * np.arange(6)[:, None], (6, 2))
    np.testing.assert_array_equal(starts_of(state, CONFIG), expected)
    users = state.problem.users
    np.testing.assert_array_equal(users.num_finished[0], [5, 5])
    np.testing.assert_allclose(users.ratio[0], 0.5)
