"""Learned orders as policies that the judge can play: every anchor with the parameters of its own training days."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.kept_runs import load_starts, save_starts
from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.ordering.index_orders import play_index
from evaluation.problems.ordering.playing import OrderPolicy, Play
from evaluation.problems.ordering.weeks import TestWeek
from offline_rl.ordering.index import Index
from offline_rl.ordering.learning import joined
from offline_rl.ordering.programs import OrderTrainingConfig, Programs, problem_config
from twin.contracts import PyTree
from twin.ordering.job_windows import JobWindows, cut_job_windows
from twin.ordering.types import Pool


class Learned(NamedTuple):
    """What one anchor's training days taught.

    Attributes:
        clone: the scorer that imitates the logged order.
        indices: one for each seed.
        trained: the scorers that PPO made of the first of them in the twin.
    """

    clone: PyTree
    indices: tuple[Index, ...]
    trained: tuple[PyTree, ...]


def learned_policies(
    programs: Programs,
    learned: Sequence[Learned],
    weeks: Sequence[TestWeek],
    pool: Pool,
    config: OrderTrainingConfig,
    keep: Unfinished | None = None,
) -> tuple[list[OrderPolicy], int]:
    """Simulates the learned orders in all weeks.

    Args:
        programs: of the pool.
        learned: one for each anchor.
        weeks: all weeks of the evaluation.
        pool: the processors.
        config: configuration of the training.
        keep: saves the starts of every policy, seed and anchor.

    Returns:
        The policies for these weeks, and the number of jobs that found the queue full and waited outside.
    """
    kinds = (
        ("bc", "imitation", "behaviour cloning of the logged order, sampled; EASY backfilling, smallest area first",
         [[one.clone for one in learned]], True),
        ("bc_greedy", "imitation", "the same, likeliest choice", [[one.clone for one in learned]], False),
        ("ppo", "trained", "PPO in the twin, from the index and near it; EASY backfilling, smallest area first",
         [list(params) for params in zip(*(one.trained for one in learned), strict=True)], False),
    )  # fmt: skip
    policies, num_late, keep = [], 0, keep or Unfinished()
    for name, kind, description, by_seed, sampled in kinds:
        plays: list[Play] = []
        for seed, by_anchor in enumerate(by_seed):
            starts: dict[str, np.ndarray] = {}
            for anchor, params in enumerate(by_anchor):
                own = [week for week in weeks if week.anchor == anchor]
                make = partial(_played, programs, anchor, params, own, pool, config, sampled=sampled)
                *found, late = keep.unit(f"{name} {seed}, anchor {anchor}", make, save_starts, load_starts)
                starts |= {week.label: start_s for week, start_s in zip(own, found, strict=True)}
                num_late += int(late)
            plays.append(partial(look_up, starts))
        if plays:
            policies.append(OrderPolicy(name, kind, description, tuple(plays)))
    return [*policies, index_policy([one.indices for one in learned], pool)], num_late


def index_policy(by_anchor: Sequence[Sequence[Index]], pool: Pool) -> OrderPolicy:
    """The indices, one a seed; each week under that of its anchor, by exact replay with the whole queue seen.

    Args:
        by_anchor: [anchors][seeds].
        pool: the processors; jobs are backfilled.
    """
    plays = tuple(partial(_play_index, indices, pool) for indices in zip(*by_anchor, strict=True))
    words = "index of predicted run times, with ageing; EASY backfilling, smallest area first"
    return OrderPolicy("index", "trained", words, plays)


def _play_index(indices: Sequence[Index], pool: Pool, weeks: Sequence[TestWeek]) -> list[np.ndarray]:
    return [play_index(indices[week.anchor], pool, week) for week in weeks]


def look_up(starts: dict[str, np.ndarray], weeks: Sequence[TestWeek]) -> list[np.ndarray]:
    """What was played already, by the labels of weeks."""
    return [starts[week.label] for week in weeks]


def windows_of(weeks: Sequence[TestWeek], pool: Pool, config: OrderTrainingConfig) -> JobWindows:
    """Some weeks side by side, as programs play them; the places of their jobs are those of `starts_of_weeks`."""
    return joined([windows for windows, _ in _cut(weeks, pool, config)])


def starts_of_weeks(
    start_s: np.ndarray, weeks: Sequence[TestWeek], pool: Pool, config: OrderTrainingConfig
) -> list[np.ndarray]:
    """For each week [jobs] the starts of its own jobs, from those [N, W] of its window."""
    starts = []
    for column, (week, (_, place)) in enumerate(zip(weeks, _cut(weeks, pool, config), strict=True)):
        of_all_jobs = np.full(len(week.whole.arrival_s), np.nan)
        rows = place[:, 0]
        of_all_jobs[rows[rows >= 0]] = start_s[: len(rows), column][rows >= 0]
        starts.append(of_all_jobs[week.place])
    return starts


def _cut(
    weeks: Sequence[TestWeek], pool: Pool, config: OrderTrainingConfig
) -> list[tuple[JobWindows, np.ndarray]]:
    settings = problem_config(config)
    return [
        cut_job_windows(week.whole, pool, settings, week.schedule_s, np.array([week.span_s]))
        for week in weeks
    ]


def _played(
    programs: Programs,
    anchor: int,
    params: PyTree,
    weeks: Sequence[TestWeek],
    pool: Pool,
    config: OrderTrainingConfig,
    *,
    sampled: bool,
) -> list[np.ndarray]:
    """The starts of every week's jobs, an anchor's weeks side by side; at the end how many found the queue full."""
    windows = jax.tree.map(jnp.asarray, windows_of(weeks, pool, config))
    start_s, late = programs.finish(jax.random.key(anchor), params, windows, jnp.array(sampled))
    return [*starts_of_weeks(np.asarray(start_s), weeks, pool, config), np.asarray(late)]
