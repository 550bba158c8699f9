"""The workload model of a batch queue, learned from training days: its users' submissions, resampled.

A *visit* is what one user submits on one day. Visits are the bursts that a Poisson process would miss (people submit in
batches), and the jobs of one user resemble each other, all the more those that follow one another. So whole pieces of
history are drawn, never single jobs. Where the log names no users, what is submitted within an hour is a visit:

    day         each generated day takes the visits of a training day of the same kind (working day, weekend)
    load        every visit is kept with probability min(1, r), or doubled with probability r - 1, where r is
                drawn for the episode: the next month is not as busy as this one
    arrivals    the visit's own instants, all shifted by one jitter
    jobs        a run of as many consecutive jobs from the user's own sequence, from a random place on, cyclic
                (circular block bootstrap: Politis and Romano 1992): processors, request and run time together.
                With probability `continued` a visit goes on where the user's last one stopped
    run times   multiplied by log-normal noise, but for those that used up their request; with probability
                `resampled`, the ratio of run time to request is another one of the same user's (of any user where
                the user has one job only)

Nothing here is fitted by gradient, and nothing is invented that no user did; what the future brings that the training
days lack (a new user, a holiday) it cannot have. `twin.ordering.population_check` compares it with later weeks.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from twin.ordering.population_cutoff import MIN_RUN_S, known_by
from twin.ordering.types import Jobs, OrderingError
from twin.ordering.windows import chosen

EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday
MIN_DAYS, HOURS = 3, 24
NUM_DAYS_BEFORE = 28
"""Days of the log that generated ones continue."""
USED_UP = 0.95
"""A job that ran for so much of its request was, most likely, ended by it."""


@dataclass(frozen=True)
class JobPopulationConfig:
    """How far generated weeks may depart from the training days.

    Attributes:
        load_low, load_high: the load factor of an episode is drawn log-uniformly between these.
        jitter_s: largest shift of a visit, either way.
        run_noise: standard deviation of the logarithm of run times about the drawn ones.
        resampled: probability that a job's run time is another of its user's, relative to the request.
        continued: probability that a visit goes on where its user's last one stopped.
    """

    load_low: float = 0.8
    load_high: float = 1.25
    jitter_s: float = 1800.0
    run_noise: float = 0.1
    resampled: float = 0.1
    continued: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 < self.load_low <= self.load_high <= 2.0:
            raise ConfigError(
                f"load factors from {self.load_low:g} to {self.load_high:g}",
                where="population",
                allowed="0 < load_low <= load_high <= 2",
            )
        shares = (self.resampled, self.continued)
        if not 0.0 <= min(shares) <= max(shares) <= 1.0 or min(self.jitter_s, self.run_noise) < 0.0:
            raise ConfigError(
                f"jitter_s={self.jitter_s:g}, run_noise={self.run_noise:g}, resampled={self.resampled:g}, "
                f"continued={self.continued:g}",
                where="population",
                allowed="jitter_s and run_noise at least 0, resampled and continued between 0 and 1",
            )


class JobPopulation(NamedTuple):
    """Visits by day, and every user's jobs in order.

    Attributes:
        day_weekend: [days] bool: the training day was a Saturday or a Sunday.
        day_visits: [days + 1] where each day's visits begin.
        visit_user: [visits] index of the user.
        visit_jobs: [visits + 1] where each visit's instants begin.
        offset_s: [jobs] instants of submission, seconds after midnight (UTC).
        user_jobs: [users + 1] where each user's jobs begin.
        user_agent: [users] the log's code of the user, -1 for hidden ones (which count as one user).
        processors, requested_s, run_s: [jobs] by user, then in order of arrival.
    """

    day_weekend: np.ndarray
    day_visits: np.ndarray
    visit_user: np.ndarray
    visit_jobs: np.ndarray
    offset_s: np.ndarray
    user_jobs: np.ndarray
    user_agent: np.ndarray
    processors: np.ndarray
    requested_s: np.ndarray
    run_s: np.ndarray

    @property
    def num_days(self) -> int:
        """Number of training days."""
        return len(self.day_weekend)


def day_of(jobs: Jobs, time_s: np.ndarray | float) -> np.ndarray:
    """Days since 1970 (UTC) of instants given in the jobs' seconds."""
    return np.asarray(np.floor((np.asarray(time_s) + jobs.origin_us / 1e6) / DAY_S), np.int64)


def fit_population(jobs: Jobs, first_day: int, num_days: int) -> JobPopulation:
    """Cuts training days into visits; what became of jobs after the last of them is not looked at (`known_by`).

    Args:
        jobs: in order of arrival.
        first_day: days since 1970 (UTC) of the first training day.
        num_days: whole days, those without a job counted.

    Raises:
        OrderingError: fewer than three days, or no job in them.
    """
    jobs = known_by(jobs, (first_day + num_days) * DAY_S - jobs.origin_us / 1e6)
    day = day_of(jobs, jobs.arrival_s) - first_day
    index = np.flatnonzero((day >= 0) & (day < num_days))
    if num_days < MIN_DAYS or not len(index):
        raise OrderingError(
            f"{len(index):,} jobs on {num_days} training days are too few to generate weeks from",
            where=f"{date_of(first_day)} to {date_of(first_day + num_days - 1)}",
            allowed=f"at least {MIN_DAYS} days, and a job",
            advice="train on more days",
        )
    agent, user = np.unique(jobs.agent[index], return_inverse=True)
    second = (jobs.arrival_s[index] + jobs.origin_us / 1e6) % DAY_S
    # Without users, by the hour
    hour = (second // 3600.0).astype(np.int64) * (not np.any(jobs.agent[index] >= 0))
    key = (day[index] * HOURS + hour) * len(agent) + user
    by_visit = np.argsort(key, kind="stable")
    keys, visit_first = np.unique(key[by_visit], return_index=True)
    by_user = np.argsort(user, kind="stable")
    chosen = index[by_user]
    weekday = (first_day + np.arange(num_days) + EPOCH_WEEKDAY) % 7
    return JobPopulation(
        day_weekend=weekday >= 5,
        day_visits=np.searchsorted(keys // (HOURS * len(agent)), np.arange(num_days + 1)),
        visit_user=keys % len(agent),
        visit_jobs=np.append(visit_first, len(index)),
        offset_s=second[by_visit],
        user_jobs=np.searchsorted(user[by_user], np.arange(len(agent) + 1)),
        user_agent=agent,
        processors=jobs.processors[chosen],
        requested_s=jobs.requested_s[chosen],
        run_s=jobs.run_s[chosen],
    )


def generate(
    population: JobPopulation,
    seed: int,
    first_day: int,
    num_days: int,
    config: JobPopulationConfig | None = None,
) -> Jobs:
    """Jobs of days that never were.

    Args:
        population: the workload model.
        seed: the same seed gives the same jobs.
        first_day: days since 1970 (UTC) of the first generated day: it decides which days are weekends, and second
            0 of the jobs is its midnight.
        num_days: how many.
        config: how far to depart from the training days.

    Returns:
        The jobs in order of arrival; a job is logged to start when it arrives, since nothing is decided yet.

    Raises:
        OrderingError: not one job was drawn.
    """
    config = config or JobPopulationConfig()
    generator = np.random.default_rng(seed)
    load = float(np.exp(generator.uniform(np.log(config.load_low), np.log(config.load_high))))
    arrival, source, user = [], [], []
    next_row: dict[int, int] = {}
    for day, visits in enumerate(_visits_by_day(population, generator, first_day, num_days)):
        for visit in _at_load(visits, load, generator):
            offset_s, jobs = _one_visit(population, int(visit), next_row, generator, config)
            arrival.append(day * DAY_S + offset_s)
            source.append(jobs)
            user.append(np.full(len(jobs), population.visit_user[visit]))
    if not arrival:
        raise OrderingError(
            f"no job in {num_days} generated days", advice="generate more days, or train on busier ones"
        )
    arrival_s, rows, users = (np.concatenate(parts) for parts in (arrival, source, user))
    order = np.argsort(arrival_s, kind="stable")
    return _as_jobs(population, arrival_s[order], rows[order], users[order], first_day, generator, config)


def continued(
    jobs: Jobs,
    population: JobPopulation,
    seed: int,
    first_day: int,
    num_days: int,
    config: JobPopulationConfig | None = None,
) -> Jobs:
    """What happened before a day, and then generated days: so that generated jobs have users with a past.

    Args:
        jobs: of the archive.
        population: the workload model from `first_day` on.
        seed: of the generator.
        first_day: days since 1970 (UTC): the first generated day.
        num_days: generated days.
        config: how far to depart from the training days.

    Returns:
        The jobs that arrived in the days before `first_day`, as far as known by then, then the generated ones, all
        on the clock of the archive.
    """
    begin_s = first_day * DAY_S - jobs.origin_us / 1e6
    jobs = known_by(jobs, begin_s)
    before = chosen(jobs, np.flatnonzero(jobs.arrival_s >= begin_s - NUM_DAYS_BEFORE * DAY_S))
    drawn = generate(population, seed, first_day, num_days, config)
    drawn = drawn._replace(arrival_s=drawn.arrival_s + begin_s, logged_start_s=drawn.logged_start_s + begin_s)
    joined: dict[str, Any] = {
        name: np.concatenate([values, getattr(drawn, name)])
        for name, values in before._asdict().items()
        if isinstance(values, np.ndarray)
    }
    return before._replace(**joined)


def _visits_by_day(
    population: JobPopulation, generator: np.random.Generator, first_day: int, num_days: int
) -> list[np.ndarray]:
    """Indices of the visits of each generated day, before the load."""
    weekend = (first_day + np.arange(num_days) + EPOCH_WEEKDAY) % 7 >= 5
    drawn = []
    for is_weekend in weekend:
        alike = np.flatnonzero(population.day_weekend == is_weekend)
        day = generator.choice(alike if len(alike) else population.num_days)
        drawn.append(np.arange(population.day_visits[day], population.day_visits[day + 1]))
    return drawn


def _at_load(visits: np.ndarray, load: float, generator: np.random.Generator) -> np.ndarray:
    uniform = generator.uniform(size=len(visits))
    return np.repeat(visits, (uniform < load).astype(int) + (uniform < load - 1.0))


def _one_visit(
    population: JobPopulation,
    visit: int,
    next_row: dict[int, int],
    generator: np.random.Generator,
    config: JobPopulationConfig,
) -> tuple[np.ndarray, np.ndarray]:
    """Instants of submission within the day, and rows of the user's jobs; remembers where the user stopped."""
    first, end = population.visit_jobs[visit], population.visit_jobs[visit + 1]
    user = int(population.visit_user[visit])
    own, num_own = population.user_jobs[user], population.user_jobs[user + 1] - population.user_jobs[user]
    place, goes_on = int(generator.integers(num_own)), generator.uniform() < config.continued
    place = next_row.get(user, place) if goes_on else place
    next_row[user] = int((place + end - first) % num_own)
    shift_s = generator.uniform(-config.jitter_s, config.jitter_s)
    offset_s = np.floor(np.clip(population.offset_s[first:end] + shift_s, 0.0, DAY_S - 1.0))
    return offset_s, own + (place + np.arange(end - first)) % num_own


def _as_jobs(
    population: JobPopulation,
    arrival_s: np.ndarray,
    rows: np.ndarray,
    users: np.ndarray,
    first_day: int,
    generator: np.random.Generator,
    config: JobPopulationConfig,
) -> Jobs:
    num_jobs = len(rows)
    requested_s = population.requested_s[rows]
    run_s = population.run_s[rows]
    num_own = population.user_jobs[users + 1] - population.user_jobs[users]
    lone = num_own < 2
    anyone = generator.integers(len(population.run_s), size=num_jobs)
    another = np.where(lone, anyone, population.user_jobs[users] + generator.integers(num_own))
    ratio = population.run_s[another] / population.requested_s[another]
    run_s = np.where(generator.uniform(size=num_jobs) < config.resampled, ratio * requested_s, run_s)
    noisy_s = run_s * np.exp(config.run_noise * generator.standard_normal(num_jobs))
    # a job that used up its request was ended by it: no noise there, and none that would lead there
    free = np.maximum(run_s, noisy_s) < USED_UP * requested_s
    return Jobs(
        request_id=np.arange(num_jobs).astype(str).astype(object),
        arrival_s=arrival_s,
        processors=population.processors[rows],
        requested_s=requested_s,
        run_s=np.maximum(np.rint(np.where(free, noisy_s, run_s)), MIN_RUN_S),
        logged_start_s=arrival_s.copy(),
        agent=population.user_agent[users],
        origin_us=round(first_day * DAY_S * 1e6),
    )
