"""What a scheduler can know about run times, as an index: the teacher that trained orders start from.

Minimising the sum of slowdowns is minimising the sum of waits weighted by `w = 1 / max(run, 10 s)`, and on one machine
the order that does so is by `w / run` (Smith 1956, "Various optimizers for single-stage production"); here by
processors too, since a job holds several. Run times are not known, so their expectations take their place, given what
was asked for and how the user's finished jobs compared with their requests:

    haste  = E[10 s / max(run, 10 s) | x]          share = E[min(run, requested) / requested | x]
    index  = a log haste + b log(share x requested) + c log requested + d log processors        highest first

Both expectations are in (0, 1), so one network with two logistic outputs learns them by cross-entropy with soft labels,
from the training days and from days that the twin generated. With weights (0, 0, -1, -1) the index is smallest area
first, with (0, 0, -1, 0) shortest first: the exponents are chosen among a few by playing them in the twin.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from offline_rl.networks import Actor, Example
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.networks import MLP
from twin.ordering.features import JOB_FEATURES
from twin.ordering.states import PoolObservation
from twin.ordering.types import Jobs, Pool
from twin.ordering.users import FADING

SEEN = ("requested", "user_run", "known_user", "user_ratio", "width")
"""Features of a job that the prediction reads: those that do not change while it waits, but for the user's news."""
TIME_UNIT_S = 60.0
HASTE_S = 10.0
HIDDEN = (16, 16)
NUM_LESSONS = 40_000
SHARPNESS = 3.0
"""Scores are this many times the index: twice as hasty a job is preferred eight to one."""
NETWORK = MLP(HIDDEN, 2)
WEIGHTS = (
    (0.0, 0.0, -1.0, -1.0),
    (0.0, 0.0, -1.0, 0.0),
    (0.0, -1.0, 0.0, 0.0),
    (0.0, -1.0, 0.0, -0.5),
    (1.0, 0.0, 0.0, -0.5),
    (1.0, 0.0, -1.0, -0.5),
    (1.0, -1.0, 0.0, -0.5),
    (1.0, -1.0, 0.0, -1.0),
)
"""Exponents (a, b, c, d) to choose among; the first two are smallest area and shortest request first."""


Distil = Callable[[Array, PyTree, Array, Array, Array], PyTree]
"""(key, first parameters, jobs [F, lessons], pools [R, lessons], wanted scores [lessons]) -> parameters."""


class Index(NamedTuple):
    """A teacher: predictions and exponents."""

    predictor: PyTree
    weights: Array  # [4]


def seen_at_arrival(jobs: Jobs, start_s: np.ndarray, pool: Pool) -> np.ndarray:
    """[SEEN, jobs] the features of `twin.ordering.features` as they stood when each job arrived.

    Args:
        jobs: in order of arrival.
        start_s: [jobs] when each started: it says whose jobs had finished by then.
        pool: the processors.
    """
    end_s = np.where(np.isnan(start_s), np.inf, start_s + jobs.run_s)
    ends = np.argsort(end_s, kind="stable")
    num_agents = int(jobs.agent.max()) + 1 if len(jobs.agent) else 0
    count, ratio, log_run = (np.zeros(max(num_agents, 1)) for _ in range(3))
    history, done = np.zeros((3, len(end_s))), 0
    for job, arrival_s in enumerate(jobs.arrival_s):
        while done < len(ends) and end_s[ends[done]] <= arrival_s:
            ended = ends[done]
            agent = jobs.agent[ended]
            done += 1
            if agent < 0:
                continue
            count[agent] += 1.0
            weight = max(1.0 / count[agent], FADING)
            ratio[agent] += weight * (jobs.run_s[ended] / jobs.requested_s[ended] - ratio[agent])
            log_run[agent] += weight * (np.log1p(jobs.run_s[ended] / TIME_UNIT_S) - log_run[agent])
        agent = jobs.agent[job]
        if agent >= 0 and count[agent] > 0:
            history[:, job] = log_run[agent], 1.0 - 1.0 / (1.0 + count[agent]), ratio[agent]
        else:
            history[:, job] = 0.0, 0.0, 1.0
    requested = np.log1p(jobs.requested_s / TIME_UNIT_S)
    width = np.log1p(jobs.processors) / np.log1p(pool.processors)
    return np.stack([requested, *history, width]).astype(np.float32)


def labels_of(jobs: Jobs) -> np.ndarray:
    """[2, jobs] haste and share, in (0, 1]."""
    haste = HASTE_S / np.maximum(jobs.run_s, HASTE_S)
    return np.stack([haste, np.minimum(jobs.run_s / jobs.requested_s, 1.0)]).astype(np.float32)


def fit_predictor(
    seed: int,
    train: tuple[np.ndarray, np.ndarray],
    held_out: tuple[np.ndarray, np.ndarray],
    num_looks: int = 30,
) -> tuple[PyTree, np.ndarray]:
    """Learns haste and share; the parameters that the held-out jobs like best are kept.

    Args:
        seed: of parameters and batches.
        train: features [SEEN, jobs] and labels [2, jobs].
        held_out: the same of other jobs.
        num_looks: looks at the held-out jobs, each after 50 gradient steps on 1,024 jobs.

    Returns:
        Parameters, and the held-out cross-entropy [looks] in nats.
    """
    optimizer = optax.adamw(3e-3, weight_decay=1e-3)
    features, labels = (jnp.asarray(one) for one in train)

    def loss_of(params: PyTree, features: Array, labels: Array) -> Array:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(_logits(params, features), labels))

    @jax.jit
    def some_steps(key: Array, params: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        def one(carry: tuple[PyTree, PyTree], key: Array) -> tuple[tuple[PyTree, PyTree], None]:
            params, memory = carry
            rows = jax.random.randint(key, (1024,), 0, features.shape[1])
            gradient = jax.grad(loss_of)(params, features[:, rows], labels[:, rows])
            change, memory = optimizer.update(gradient, memory, params)
            return (optax.apply_updates(params, change), memory), None

        return jax.lax.scan(one, (params, memory), jax.random.split(key, 50))[0]

    score = jax.jit(loss_of)
    key_init, key_steps = jax.random.split(jax.random.key(seed))
    params = NETWORK.init(key_init, features[:, :1])
    memory, best, curve = optimizer.init(params), params, []
    for look in range(num_looks):
        params, memory = some_steps(jax.random.fold_in(key_steps, look), params, memory)
        curve.append(float(score(params, *(jnp.asarray(one) for one in held_out))))
        best = params if curve[-1] <= min(curve) else best
    return best, np.array(curve)


def index_policy(index: Index, pool: Pool) -> Policy:
    """The policy that takes the job of the highest index; its key is not used."""
    rows = _rows_seen()

    def policy(_key: Array, observation: PoolObservation, legal: Array) -> Array:
        seen = jnp.stack([observation.job[row] for row in rows])
        score = index_of(index, seen, pool)
        return jnp.argmax(jnp.where(legal, score, -jnp.inf), axis=0).astype(jnp.int32)

    return policy


def index_of(index: Index, seen: Array, pool: Pool) -> Array:
    """[*batch] the index of jobs from their features [SEEN, *batch]."""
    log_haste, log_share = jax.nn.log_sigmoid(_logits(index.predictor, seen))
    log_requested = jnp.log(jnp.maximum(jnp.expm1(seen[0]), 1e-3))
    log_processors = jnp.log(jnp.maximum(jnp.expm1(seen[-1] * np.log1p(pool.processors)), 1e-3))
    parts = (log_haste, log_share + log_requested, log_requested, log_processors)
    return sum((weight * part for weight, part in zip(index.weights, parts, strict=True)), jnp.zeros(()))


def lessons_of(
    months: Sequence[tuple[Jobs, np.ndarray]], begin_s: float, pool: Pool
) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of the jobs that arrive from `begin_s` on, of several months with their schedules."""
    features, labels = [], []
    for jobs, start_s in months:
        new = jobs.arrival_s >= begin_s
        features.append(seen_at_arrival(jobs, start_s, pool)[:, new])
        labels.append(labels_of(jobs)[:, new])
    return np.concatenate(features, axis=1), np.concatenate(labels, axis=1)


def distilled(
    seed: int, distil: Distil, network: Actor, lessons: Trajectory, index: Index, pool: Pool
) -> PyTree:
    """A scorer whose scores are the index, sharpened: what PPO starts from and stays near.

    Args:
        seed: of parameters and lessons.
        distil: from `distiller`.
        network: the scorer.
        lessons: decisions in which the index led the way: what it saw is what is learned on.
        index: the teacher.
        pool: the processors.

    Returns:
        Parameters that minimise the mean square distance of scores over waiting jobs, up to a constant.
    """
    legal = np.asarray(lessons.legal)[:, :, 0]  # [T, K, B]
    step, place, stream = np.nonzero(legal)
    rows = np.random.default_rng(seed).choice(len(step), NUM_LESSONS)
    step, place, stream = step[rows], place[rows], stream[rows]
    job = jnp.asarray(np.asarray(lessons.observation.job)[step, :, place, 0, stream].T)
    whole = jnp.asarray(np.asarray(lessons.observation.pool)[step, :, 0, stream].T)
    target = SHARPNESS * index_of(index, job[jnp.array(_rows_seen())], pool)
    key_init, key_fit = jax.random.split(jax.random.key(seed))
    return distil(key_fit, network.init(key_init), job, whole, target)


def distiller(network: Actor, example: Example) -> Distil:
    """The program behind `distilled`: 1,200 steps of Adam on decisions made up of jobs of anywhere."""
    num_choices = jax.tree.leaves(example.legal)[0].shape[0]
    optimizer = optax.adam(optax.exponential_decay(1e-2, 200, 0.5))

    def loss_of(params: PyTree, job: Array, whole: Array, target: Array) -> Array:
        observation = PoolObservation(job[:, :, None], whole[:, None])
        mask = jnp.ones((num_choices, 1, target.shape[1]), bool)
        gap = network.logits(params, observation, mask)[:, 0] - target
        return jnp.mean((gap - jnp.mean(gap, axis=0)[None]) ** 2)

    @jax.jit
    def fit(key: Array, params: PyTree, job: Array, whole: Array, target: Array) -> PyTree:
        def one(carry: tuple[PyTree, PyTree], key: Array) -> tuple[tuple[PyTree, PyTree], None]:
            params, memory = carry
            several = jax.random.randint(key, (num_choices, 32), 0, target.shape[0])
            gradient = jax.grad(loss_of)(params, job[:, several], whole[:, several[0]], target[several])
            change, memory = optimizer.update(gradient, memory, params)
            return (optax.apply_updates(params, change), memory), None

        return jax.lax.scan(one, (params, optimizer.init(params)), jax.random.split(key, 1200))[0][0]

    return fit


def _rows_seen() -> list[int]:
    names = [feature.name for feature in JOB_FEATURES]
    return [names.index(name) for name in SEEN]


def _logits(params: PyTree, features: Array) -> Array:
    return cast(Array, NETWORK.apply(params, features))
