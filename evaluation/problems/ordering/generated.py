"""Weeks that the twin of a queue generates: for training, and for in-model values."""

from collections.abc import Sequence

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.weeks import TestWeek, cut_week
from twin.ordering.generated import AS_THEY_WERE, LEAD_DAYS, generated_days
from twin.ordering.population import JobPopulation
from twin.ordering.types import Jobs, Pool


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
