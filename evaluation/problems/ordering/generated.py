"""Weeks that the twin of a queue generates: to train in, and to see what it promises."""

from collections.abc import Sequence

import numpy as np

from evaluation.problems.ordering.weeks import TestWeek, WeeksConfig, cut_week
from twin.ordering.population import JobPopulation, JobPopulationConfig, continued
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, SAF, SJF, Rule
from twin.ordering.types import Jobs, Pool

LEAD_DAYS = 14
"""Generated days before a generated week, so that it begins as deep in the queue as any."""
AS_THEY_WERE = JobPopulationConfig(load_low=1.0, load_high=1.0)
"""As busy as the training days: how weeks are generated that policies are judged in."""
LEADS = (FCFS, SJF, SAF)
"""Rules, with EASY, that bring about the states in which generated weeks begin."""


def generated_days(
    jobs: Jobs,
    population: JobPopulation,
    pool: Pool,
    seed: int,
    first_day: int,
    num_days: int,
    config: JobPopulationConfig | None = None,
    *,
    rule: Rule | None = None,
) -> tuple[Jobs, np.ndarray]:
    """A generated stretch of days after real ones, generated under one of the simple rules.

    Args:
        jobs: of the archive; what arrived before `first_day` is kept.
        population: who submits from then on.
        pool: the processors.
        seed: of the generator; it also chooses the rule where none is given.
        first_day: days since 1970 (UTC).
        num_days: generated days.
        config: how far to depart from the training days.
        rule: under which the days are simulated through, with EASY.

    Returns:
        The jobs, and when each started.
    """
    whole = continued(jobs, population, seed, first_day, num_days, config)
    rule = LEADS[seed % len(LEADS)] if rule is None else rule
    return whole, replay(whole, Pool(pool.processors, easy=True), rule).start_s


def generated_weeks(
    jobs: Jobs,
    populations: Sequence[JobPopulation],
    anchors: Sequence[int],
    pool: Pool,
    seeds: Sequence[int],
    config: WeeksConfig,
) -> list[TestWeek]:
    """One week for each anchor and seed, from the population of the anchor's training days.

    Args:
        jobs: of the archive.
        populations: one for each anchor.
        anchors: days since 1970 (UTC).
        pool: the processors.
        seeds: of the weeks.
        config: lengths.
    """
    weeks: list[TestWeek] = []
    num_days = LEAD_DAYS + config.num_test_days + config.num_drain_days
    for number, (population, anchor) in enumerate(zip(populations, anchors, strict=True)):
        for seed in seeds:
            whole, start_s = generated_days(jobs, population, pool, seed, anchor, num_days, AS_THEY_WERE)
            week, _ = cut_week(whole, pool, start_s, anchor + LEAD_DAYS, config)
            label = f"anchor {number}, generated {seed}"
            weeks.append(week._replace(label=label, calendar=len(weeks), anchor=number))
    return weeks
