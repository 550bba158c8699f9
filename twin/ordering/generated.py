"""Days of jobs that the twin of a queue generates, after real ones and under a simple rule."""

import numpy as np

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
        population: the workload model from then on.
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
