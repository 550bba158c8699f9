"""Do generated weeks look like weeks that came later? Figures of stretches of days, real and generated.

Each figure of a held-out stretch is set beside its range over generated stretches of the same length and the same
weekdays. A population that is right in distribution covers about as many held-out figures as its range says; what
lies outside is named, not averaged away.
"""

from typing import NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from twin.ordering.population import JobPopulation, day_of, generate
from twin.ordering.types import Jobs

LEVEL = 0.9
"""Width of the range of each generated figure."""


class StretchFigures(NamedTuple):
    """Figures of some days that matter to a scheduler; NaN where there are too few jobs.

    Attributes:
        jobs_per_day: submissions.
        dispersion: variance over mean of hourly submissions; 1 for a Poisson process.
        load: processor seconds requested, over those the pool has.
        processors_p50, processors_p95: quantiles of the jobs' processors.
        run_p25_s, run_p50_s, run_p95_s: quantiles of run times.
        used_share: mean of run time over request, at most 1.
        memory: correlation of used shares of consecutive jobs of one user (in ranks): how much histories predict.
        num_users: distinct users.
    """

    jobs_per_day: float
    dispersion: float
    load: float
    processors_p50: float
    processors_p95: float
    run_p25_s: float
    run_p50_s: float
    run_p95_s: float
    used_share: float
    memory: float
    num_users: float


class PopulationCheck(NamedTuple):
    """Held-out figures and the generated ranges they are held against."""

    held_out: StretchFigures
    low: StretchFigures
    high: StretchFigures

    def outside(self) -> tuple[str, ...]:
        """Names of the figures that lie outside their generated range; undefined ones are left out."""
        rows = zip(StretchFigures._fields, self.held_out, self.low, self.high, strict=True)
        return tuple(name for name, value, low, high in rows if value < low or value > high)


def stretch_figures(jobs: Jobs, first_day: int, num_days: int, processors: float) -> StretchFigures:
    """Figures of the jobs that arrive on some days.

    Args:
        jobs: in order of arrival.
        first_day: days since 1970 (UTC).
        num_days: how many.
        processors: of the pool.
    """
    day = day_of(jobs, jobs.arrival_s) - first_day
    index = np.flatnonzero((day >= 0) & (day < num_days))
    if len(index) < 2:
        return StretchFigures(len(index) / num_days, *[float("nan")] * 10)
    since_s = jobs.arrival_s[index] + jobs.origin_us / 1e6 - first_day * DAY_S
    hourly = np.bincount((since_s // 3600.0).astype(int), minlength=24 * num_days)
    width, run_s = jobs.processors[index], jobs.run_s[index]
    share = np.minimum(run_s / jobs.requested_s[index], 1.0)
    middle_width, wide = np.quantile(width, [0.5, 0.95])
    short_s, middle_s, long_s = np.quantile(run_s, [0.25, 0.5, 0.95])
    return StretchFigures(
        jobs_per_day=len(index) / num_days,
        dispersion=float(hourly.var() / hourly.mean()),
        load=float(np.sum(width * run_s) / (processors * num_days * DAY_S)),
        processors_p50=float(middle_width),
        processors_p95=float(wide),
        run_p25_s=float(short_s),
        run_p50_s=float(middle_s),
        run_p95_s=float(long_s),
        used_share=float(share.mean()),
        memory=_memory(share, jobs.agent[index]),
        num_users=float(len(np.unique(jobs.agent[index]))),
    )


def check_population(
    population: JobPopulation,
    held_out: Jobs,
    first_day: int,
    num_days: int,
    processors: float,
    *,
    num_generated: int = 100,
) -> PopulationCheck:
    """Sets days that the population has not seen beside days that it generates.

    Args:
        population: the workload model.
        held_out: jobs of an archive.
        first_day: days since 1970 (UTC) of the first held-out day.
        num_days: how many.
        processors: of the pool.
        num_generated: stretches to generate, from seeds 0, 1, ...
    """
    rows = [
        stretch_figures(generate(population, seed, first_day, num_days), first_day, num_days, processors)
        for seed in range(num_generated)
    ]
    values, ends = np.array(rows), np.full((2, len(StretchFigures._fields)), np.nan)
    known = ~np.isnan(values).all(axis=0)
    ends[:, known] = np.nanquantile(values[:, known], [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL], axis=0)
    real = stretch_figures(held_out, first_day, num_days, processors)
    return PopulationCheck(real, StretchFigures(*ends[0]), StretchFigures(*ends[1]))


def _memory(share: np.ndarray, agent: np.ndarray) -> float:
    by_user = np.argsort(agent, kind="stable")
    same = (agent[by_user][1:] == agent[by_user][:-1]) & (agent[by_user][1:] >= 0)
    if same.sum() < 3:
        return float("nan")
    rank = np.argsort(np.argsort(share, kind="stable")).astype(float)[by_user]
    before, after = rank[:-1][same], rank[1:][same]
    if before.std() == 0.0 or after.std() == 0.0:
        return float("nan")
    return float(np.corrcoef(before, after)[0, 1])
