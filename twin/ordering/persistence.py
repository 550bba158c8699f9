"""The twin of a queue on disk: the workload model, the pool, and what was known when training ended."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.errors import ProductError
from logs_schema.layout import date_of
from logs_schema.product import verify
from twin.arrays import load_structure, save_arrays
from twin.ordering.job_windows import fitting_tick_s
from twin.ordering.population import JobPopulation, fit_population
from twin.ordering.population_cutoff import known_by
from twin.ordering.types import Jobs, Pool
from twin.ordering.windows import chosen
from twin.problems import ORDERING, refuse_other_problem

QUEUE, POPULATION, PAST = "queue.json", "population.npz", "past.npz"
_COLUMNS = tuple(name for name in Jobs._fields if name not in ("origin_us", "counts", "withdrawn_s"))


class QueueTwin(NamedTuple):
    """A learned twin of a batch queue.

    Attributes:
        population: the workload model, learned from the training days.
        pool: the processors, without backfilling, which the player chooses.
        first_day: days since 1970 (UTC) of the first training day.
        num_days: training days.
        past: all jobs that had arrived by the end of the last of them, as far as they were known (`known_by`).
    """

    population: JobPopulation
    pool: Pool
    first_day: int
    num_days: int
    past: Jobs

    @property
    def anchor(self) -> int:
        """Days since 1970 (UTC): the first day after the training days."""
        return self.first_day + self.num_days

    @property
    def train_days(self) -> list[dt.date]:
        """The training days."""
        return [date_of(day) for day in range(self.first_day, self.anchor)]


def fit_queue(jobs: Jobs, pool: Pool, first_day: int, num_days: int) -> QueueTwin:
    """Learns a twin from some days of a log; what happened after the last of them is not looked at.

    Raises:
        OrderingError: fewer than three days, or no job in them.
    """
    end_s = (first_day + num_days) * DAY_S - jobs.origin_us / 1e6
    population = fit_population(jobs, first_day, num_days)
    return QueueTwin(population, replace(pool, easy=False), first_day, num_days, known_by(jobs, end_s))


def tick_of(twin: QueueTwin) -> float:
    """The tick that fits the jobs that had ended: what is guessed of the others need not fall on one."""
    past = twin.past
    end_s = twin.anchor * DAY_S - past.origin_us / 1e6
    return fitting_tick_s(chosen(past, np.flatnonzero(past.logged_start_s + past.run_s < end_s)))


def save_queue(twin: QueueTwin, folder: Path) -> None:
    """Writes the twin into an existing folder: JSON and npz, no pickle."""
    past = twin.past
    facts = {
        "processors": twin.pool.processors,
        "first_day": twin.first_day,
        "num_days": twin.num_days,
        "origin_us": past.origin_us,
        "counts": dict(past.counts),
        **twin.pool.described,
    }
    (folder / QUEUE).write_text(json.dumps(facts, indent=1))
    save_arrays(folder / POPULATION, twin.population)
    columns = {name: getattr(past, name) for name in _COLUMNS}
    save_arrays(folder / PAST, columns | {"request_id": past.request_id.astype(str)})


def load_queue_twin(folder: Path) -> QueueTwin:
    """Reads what `save_queue` wrote, once every file has been found to be as it was written.

    Raises:
        ProductError: this is no twin, one of another problem, or a damaged one.
    """
    refuse_other_problem(folder, ORDERING)
    verify(folder, "twin")
    try:
        facts: dict[str, Any] = json.loads((folder / QUEUE).read_text())
        pool = Pool(float(facts["processors"]), name=facts.get("pool"))
        days = int(facts["first_day"]), int(facts["num_days"])
        origin_us, counts = (
            int(facts["origin_us"]),
            tuple((str(k), int(v)) for k, v in facts["counts"].items()),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _other_version(folder / QUEUE, str(error)) from error
    population = JobPopulation(**load_structure(folder / POPULATION, dict.fromkeys(JobPopulation._fields, 0)))
    columns = load_structure(folder / PAST, dict.fromkeys(_COLUMNS, 0))
    columns["request_id"] = columns["request_id"].astype(object)
    _check(folder, population, columns, days[1])
    return QueueTwin(population, pool, *days, Jobs(**columns, origin_us=origin_us, counts=counts))


def _check(folder: Path, population: JobPopulation, columns: dict[str, np.ndarray], num_days: int) -> None:
    """Lengths that belong together, and places within them; ProductError."""
    num_jobs, num_users = len(population.run_s), len(population.user_agent)
    num_visits = len(population.visit_user)
    of_jobs = (population.offset_s, population.processors, population.requested_s)
    fits = (
        population.num_days == num_days
        and all(len(column) == num_jobs for column in of_jobs)
        and _places(population.day_visits, num_days, num_visits)
        and _places(population.visit_jobs, num_visits, num_jobs)
        and _places(population.user_jobs, num_users, num_jobs)
        and bool(np.all((population.visit_user >= 0) & (population.visit_user < num_users)))
    )
    if not fits:
        raise _other_version(folder / POPULATION, "its arrays do not belong together")
    if len({len(column) for column in columns.values()}) != 1:
        raise _other_version(folder / PAST, "its columns have different lengths")


def _places(begins: np.ndarray, num: int, end: int) -> bool:
    """Whether these are the beginnings of `num` pieces, and the end, of something `end` long."""
    return (
        len(begins) == num + 1 and begins[0] == 0 and begins[-1] == end and bool(np.all(np.diff(begins) >= 0))
    )


def _other_version(path: Path, why: str) -> ProductError:
    return ProductError(
        f"the twin cannot be read: {why}",
        where=str(path),
        allowed="what this version of schedtwin wrote",
        advice="fit the twin again",
    )
