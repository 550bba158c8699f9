"""Trains orders of a queue: a clone of the logged order, an index of predicted run times, and policies in the twin.

The index learns from the training days what jobs' run times are like (see `predicting`); as a scorer (see
`index_scorer`) it is improved by PPO in the twin. Every few updates the greedy policy is played through generated weeks
that neither has seen; the parameters with the least mean bounded slowdown are kept, those before the first update among
them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.progress import Stage
from offline_rl.ordering.index import SMITH, Index
from offline_rl.ordering.predicting import RunTimeSamples, fit_predictor, samples_of
from offline_rl.ordering.programs import OrderTrainingConfig, Programs, problem_config
from twin.contracts import PyTree
from twin.fitting_loop import Checkpoint, FitProgress, fit_keeping_best
from twin.ordering.generated import generated_days
from twin.ordering.job_windows import JobWindows, cut_job_windows, standing_order
from twin.ordering.population import JobPopulation
from twin.ordering.population_cutoff import known_by
from twin.ordering.replay import replay
from twin.ordering.rules import LOGGED_ORDER
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.states import NEVER, JobRequests
from twin.ordering.types import Jobs, Pool
from twin.ordering.windows import chosen

MONTH_DAYS, SETTLE_DAYS = 28, 3
WEEK_DAYS = 5
HELD_OUT_SEED = 1_000
PADDED_TO = 512


class AnchorData(NamedTuple):
    """What one anchor's policies are trained on.

    Attributes:
        train: generated windows to roll out in.
        held_out: generated weeks that choose the parameters.
        logged: windows of the training days, in the order in which the log started their jobs.
        samples: features and labels of the training days' jobs, and of some held out: what run times are learned from.
    """

    train: JobWindows
    held_out: JobWindows
    logged: JobWindows
    samples: RunTimeSamples


class TrainedOrder(NamedTuple):
    """One trained policy.

    Attributes:
        params: of the scorer.
        slowdown: [evaluations + 1] mean bounded slowdown of the greedy policy in the held-out weeks, before the
            first update and at every evaluation; the least is that of `params`.
        reward: [updates] mean reward of a decision.
    """

    params: PyTree
    slowdown: np.ndarray
    reward: np.ndarray


def anchor_data(
    jobs: Jobs,
    population: JobPopulation,
    pool: Pool,
    anchor: int,
    config: OrderTrainingConfig,
    num_train_days: int,
) -> AnchorData:
    """Generates what an anchor's policies learn from; nothing from the anchor on is looked at.

    Args:
        jobs: of the archive.
        population: of the training days.
        pool: the processors.
        anchor: days since 1970 (UTC): the first day after the training days.
        config: how to train.
        num_train_days: training days before the anchor.
    """
    begin_s = anchor * DAY_S - jobs.origin_us / 1e6
    seeds = range(config.num_episodes), range(HELD_OUT_SEED, HELD_OUT_SEED + config.num_held_out)
    months, unseen = (
        [generated_days(jobs, population, pool, seed, anchor, SETTLE_DAYS + MONTH_DAYS) for seed in part]
        for part in seeds
    )

    def windows(months: list[tuple[Jobs, np.ndarray]], span_days: float) -> JobWindows:
        spans_s = _spans_of(begin_s + SETTLE_DAYS * DAY_S, MONTH_DAYS, span_days)
        settings = problem_config(config)
        cut = [
            cut_job_windows(whole, pool, settings, start_s, _with_jobs(whole, start_s, spans_s))[0]
            for whole, start_s in months
        ]
        return joined(cut)

    before = known_by(jobs, begin_s)
    return AnchorData(
        windows(months, config.span_days),
        windows(unseen, WEEK_DAYS),
        logged_windows(before, pool, anchor, num_train_days, config),
        samples_before(jobs, pool, anchor, num_train_days),
    )


def logged_windows(
    jobs: Jobs, pool: Pool, anchor: int, num_train_days: int, config: OrderTrainingConfig
) -> JobWindows:
    """The training days, cut into windows, with the logged order as every job's priority.

    Args:
        jobs: as they were known at the anchor.
        pool, anchor, num_train_days, config: as in `anchor_data`.
    """
    pool, begin_s = Pool(pool.processors, easy=True), anchor * DAY_S - jobs.origin_us / 1e6
    start_s = replay(jobs, pool, LOGGED_ORDER).start_s
    spans_s = _spans_of(begin_s - num_train_days * DAY_S, num_train_days, config.span_days)
    priority = standing_order(jobs, LOGGED_ORDER)
    settings = problem_config(config)
    spans_s = _with_jobs(jobs, start_s, spans_s)
    return joined([cut_job_windows(jobs, pool, settings, start_s, spans_s, priority=priority)[0]])


def _spans_of(begin_s: float, num_days: int, span_days: float) -> np.ndarray:
    """[spans, 2] beginnings and ends of spans that divide some days; a single span where they are fewer than one."""
    span_days = min(span_days, num_days)
    first_s = begin_s + span_days * DAY_S * np.arange(num_days // span_days)
    return np.stack([first_s, first_s + span_days * DAY_S], axis=1)


def _with_jobs(jobs: Jobs, start_s: np.ndarray, spans_s: np.ndarray) -> np.ndarray:
    """The spans in which a job waits or arrives."""
    some = [
        np.any((jobs.arrival_s < end_s) & (np.fmax(jobs.arrival_s, start_s) >= begin_s))
        for begin_s, end_s in spans_s
    ]
    return spans_s[np.array(some, bool)]


def joined(parts: Sequence[JobWindows]) -> JobWindows:
    """Windows side by side, padded to few different lengths, so that programs are compiled but a few times."""
    longest = max(part.run.shape[0] for part in parts)
    longest = -(-longest // PADDED_TO) * PADDED_TO

    def padded(leaf: np.ndarray, empty: int) -> np.ndarray:
        return np.pad(leaf, ((0, longest - leaf.shape[0]), (0, 0)), constant_values=empty)

    def long(part: JobWindows) -> JobWindows:
        requests = JobRequests(
            *(
                padded(leaf, NEVER if name == "arrival" else 0)
                for name, leaf in part.requests._asdict().items()
            )
        )
        return part._replace(requests=requests, run=padded(part.run, 1))

    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *map(long, parts))


def mean_slowdown(windows: JobWindows, start_s: np.ndarray, tick_s: float = 1.0) -> float:
    """Mean bounded slowdown of the jobs that arrive in some windows and start.

    Args:
        windows: the jobs.
        start_s: [N, W] seconds after the beginnings of the windows; NaN for jobs that never start.
        tick_s: length of a tick.
    """
    started = np.isfinite(start_s) & (windows.requests.arrival >= 0)
    wait_s = start_s[started] - windows.requests.arrival[started] * tick_s
    return float(np.mean(bounded_slowdown(wait_s, windows.run[started] * tick_s)))


def clone_log(seed: int, programs: Programs, data: AnchorData) -> tuple[PyTree, float]:
    """A clone of the logged order, and its agreement with it at the end."""
    key_follow, key_clone = jax.random.split(jax.random.key(seed))
    samples = programs.follow_log(key_follow, jax.tree.map(jnp.asarray, data.logged))
    params, agreement = programs.clone(key_clone, samples)
    return jax.tree.map(np.asarray, params), float(np.mean(np.asarray(agreement)[-20:]))


def samples_before(jobs: Jobs, pool: Pool, anchor: int, num_train_days: int) -> RunTimeSamples:
    """What an anchor's training days teach of run times; the arguments are those of `anchor_data`."""
    begin_s = anchor * DAY_S - jobs.origin_us / 1e6
    jobs = chosen(jobs, np.flatnonzero(jobs.arrival_s < begin_s))
    return samples_of(jobs, jobs.logged_start_s, (begin_s - num_train_days * DAY_S, begin_s), pool)


def learn_index(seed: int, samples: RunTimeSamples) -> tuple[Index, float]:
    """An index, and the least cross-entropy of its predictions on the held-out jobs, in nats."""
    predictor, curve = fit_predictor(seed, *samples)
    return Index(jax.tree.map(np.asarray, predictor), SMITH), float(curve.min())


def train_order(
    seed: int,
    programs: Programs,
    data: AnchorData,
    first: PyTree,
    config: OrderTrainingConfig,
    stage: Stage,
    done: int,
    checkpoint: Path | None = None,
) -> TrainedOrder:
    """Trains one policy in the twin.

    Args:
        seed: of rollouts and updates.
        programs: of the pool.
        data: where to train.
        first: the scorer to start from and stay near.
        config: how.
        stage: where to show how far it is.
        done: updates that the stage has behind it.
        checkpoint: file (.npz) that keeps everything after every evaluation; resumed from where it exists.
    """
    windows, held_out = (jax.tree.map(jnp.asarray, one) for one in (data.train, data.held_out))
    key_begin, key_updates, key_play = jax.random.split(jax.random.key(seed), 3)

    def evaluate(params: PyTree) -> float:
        start_s, _ = programs.finish(key_play, params, held_out, jnp.array(False))
        return mean_slowdown(data.held_out, np.asarray(start_s), config.tick_s)

    def advance(state: PyTree, update: int, _: int) -> tuple[PyTree, np.ndarray, float]:
        state, info = programs.improve(key_updates, state, first, windows, jnp.int32(update))
        return state, np.asarray(info.reward), evaluate(state.params.actor)

    def show(fit: FitProgress) -> None:
        text = f"seed {seed}: slowdown in the twin {fit.losses[0]:.2f}, now {fit.losses[-1]:.2f}"
        stage(done + int(fit.done), text=text)

    fit = fit_keeping_best(
        programs.begin(key_begin, first),
        advance,
        config.num_updates,
        config.look_every,
        curves=np.zeros(0, np.float32),
        kept=lambda state: state.params.actor,
        first_evaluation=lambda: evaluate(first),
        last_of_equals=True,
        checkpoint=Checkpoint(checkpoint, jax.random.key(seed)),
        on_evaluation=show,
    )
    return TrainedOrder(jax.tree.map(np.asarray, fit.best), fit.losses, fit.curves)
