"""What a scheduler can know about run times: the expectations that an index (`offline_rl.ordering.index`) is made of.

    haste = E[10 s / max(run, 10 s) | x]          share = E[min(run, requested) / requested | x]

Given `x`: what was requested, and how the user's finished jobs compared with their requests. Both are in (0, 1), so one
network with two logistic outputs learns them by cross-entropy with soft labels, from the jobs of the training days,
each looked at twice: when it arrived and when it started, since what is known of its user has grown by then. Durations
count as log(1 + minutes), processors as log(1 + number), as in the features.
"""

from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from twin.contracts import Array, PyTree
from twin.descent import descend_in_batches
from twin.fitting_loop import fit_keeping_best
from twin.networks import MLP
from twin.ordering.types import Jobs, OrderingError, Pool
from twin.ordering.users import remember

SEEN = ("requested", "user_run", "known_user", "user_ratio", "user_haste", "width")
"""Features of a job that the prediction reads: those that do not change while it waits, but for the user's news."""
TIME_UNIT_S = 60.0
HASTE_S = 10.0
HIDDEN = (16, 16)
NETWORK = MLP(HIDDEN, 2)
OPTIMIZER = optax.adamw(3e-3, weight_decay=1e-3)
NUM_SAMPLES = 30_000
NUM_EVALUATIONS = 8
"""Evaluations on the held-out jobs, each after 50 gradient steps on 1,024 jobs."""
TRAIN_FRACTION = 0.8
"""Share of the training days' jobs, the first ones, that a prediction learns from; the others decide when to stop."""
RunTimeSamples = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Features [SEEN, observations] and labels [2, observations] to learn from, and the same to hold out."""


def seen_at(jobs: Jobs, start_s: np.ndarray, pool: Pool, at_s: np.ndarray) -> np.ndarray:
    """[SEEN, jobs] the features of `twin.ordering.features` as they stood for each job at some instant.

    Args:
        jobs: in order of arrival.
        start_s: [jobs] when each started: it gives which jobs had finished by then; NaN if never.
        pool: the processors.
        at_s: [jobs] the instants; none is NaN.
    """
    end_s = np.where(np.isnan(start_s), np.inf, start_s + jobs.run_s)
    ends = np.argsort(end_s, kind="stable")
    num_agents = int(jobs.agent.max()) + 1 if len(jobs.agent) else 0
    memory = np.zeros((max(num_agents, 1), 4))
    known, done = np.zeros((4, len(end_s))), 0
    for job in np.argsort(at_s, kind="stable"):
        while done < len(ends) and end_s[ends[done]] <= at_s[job]:
            ended = ends[done]
            agent = jobs.agent[ended]
            done += 1
            if agent >= 0:
                remember(memory[agent], jobs.run_s[ended], jobs.requested_s[ended], TIME_UNIT_S)
        if jobs.agent[job] >= 0:
            known[:, job] = memory[jobs.agent[job]]
    requested = np.log1p(jobs.requested_s / TIME_UNIT_S)
    width = np.log1p(jobs.processors) / np.log1p(pool.processors)
    return np.stack([requested, *history_of(known), width]).astype(np.float32)


def history_of(memory: np.ndarray) -> np.ndarray:
    """[4, jobs] the middle of `SEEN`, of the memories [4, jobs] of the submitting user (`remembering.Score`)."""
    count, ratio, log_run, haste = memory
    return np.stack([log_run, 1.0 - 1.0 / (1.0 + count), np.where(count > 0.0, ratio, 1.0), haste])


def labels_of(jobs: Jobs) -> np.ndarray:
    """[2, jobs] haste and share, in (0, 1]."""
    haste = HASTE_S / np.maximum(jobs.run_s, HASTE_S)
    return np.stack([haste, np.minimum(jobs.run_s / jobs.requested_s, 1.0)]).astype(np.float32)


def fit_predictor(
    seed: int, train: tuple[np.ndarray, np.ndarray], held_out: tuple[np.ndarray, np.ndarray]
) -> tuple[PyTree, np.ndarray]:
    """Learns haste and share; the parameters that the held-out jobs like best are kept.

    Args:
        seed: of parameters and batches.
        train: features [SEEN, jobs] and labels [2, jobs].
        held_out: the same of other jobs.

    Returns:
        Parameters, and the held-out cross-entropy [evaluations] in nats.
    """
    features, labels = _some_of(seed, *train)
    unseen = _some_of(seed, *held_out)
    key_init, key_steps = jax.random.split(jax.random.key(seed))
    params = jax.jit(NETWORK.init)(key_init, features[:, :1])

    def advance(state: PyTree, evaluation: int, _: int) -> tuple[PyTree, PyTree, float]:
        state = _some_steps(jax.random.fold_in(key_steps, evaluation), *state, features, labels)
        return state, (), float(_loss(state[0], unseen))

    start = params, OPTIMIZER.init(params)
    fit = fit_keeping_best(
        start, advance, NUM_EVALUATIONS, 1, kept=lambda state: state[0], last_of_equals=True
    )
    return fit.best, fit.losses


def _some_of(seed: int, features: np.ndarray, labels: np.ndarray) -> tuple[Array, Array]:
    """As many jobs as ever, so that the programs are compiled once."""
    rows = np.random.default_rng(seed).choice(features.shape[1], NUM_SAMPLES)
    return jnp.asarray(features[:, rows]), jnp.asarray(labels[:, rows])


@jax.jit
def _loss(params: PyTree, jobs: tuple[Array, Array]) -> Array:
    features, labels = jobs
    return jnp.mean(optax.sigmoid_binary_cross_entropy(_logits(params, features), labels))


@jax.jit
def _some_steps(
    key: Array, params: PyTree, memory: PyTree, features: Array, labels: Array
) -> tuple[PyTree, PyTree]:
    def some(key: Array) -> tuple[Array, Array]:
        rows = jax.random.randint(key, (1024,), 0, features.shape[1])
        return features[:, rows], labels[:, rows]

    keys = jax.random.split(key, 50)
    return descend_in_batches(OPTIMIZER, _loss, some, keys, params, memory)[:2]


def samples_of(jobs: Jobs, start_s: np.ndarray, span_s: tuple[float, float], pool: Pool) -> RunTimeSamples:
    """What `fit_predictor` learns from and holds out: jobs that arrived and ended within a span.

    Args:
        jobs: in order of arrival.
        start_s: [jobs] when each started; NaN if never.
        span_s: the span's beginning and end.
        pool: the processors.

    Returns:
        Features [SEEN, 2 jobs] and labels [2, 2 jobs] of the first jobs, and of the others.

    Raises:
        OrderingError: not two jobs arrived and ended.
    """
    within = np.flatnonzero((jobs.arrival_s >= span_s[0]) & (start_s + jobs.run_s < span_s[1]))
    if len(within) < 2:
        arrived = (jobs.arrival_s >= span_s[0]) & (jobs.arrival_s < span_s[1])
        no_start = bool(arrived.any()) and bool(np.isnan(start_s[arrived]).all())
        raise OrderingError(
            f"{len(within)} jobs arrived and ended on the training days"
            + (
                f": of none of the {arrived.sum():,} that arrived it is known when it started"
                if no_start
                else ""
            ),
            allowed="at least 2",
            advice="import the log with starts or waits; rules need none: schedtwin replay ARCHIVE --problem ordering"
            if no_start
            else "train on more days",
        )
    began_s = np.where(np.isnan(start_s), jobs.arrival_s, start_s)
    seen = [seen_at(jobs, start_s, pool, at_s)[:, within] for at_s in (jobs.arrival_s, began_s)]
    features = np.stack(seen, axis=-1).reshape(len(SEEN), -1)
    labels = np.repeat(labels_of(jobs)[:, within], 2, axis=1)
    cut = 2 * max(1, int(TRAIN_FRACTION * len(within)))
    return (features[:, :cut], labels[:, :cut]), (features[:, cut:], labels[:, cut:])


def _logits(params: PyTree, features: Array) -> Array:
    return cast(Array, NETWORK.apply(params, features))
