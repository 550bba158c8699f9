"""Patterns of arrival: days of a simulated world made of the requests of a log.

`logged` keeps the log's days and instants. All others keep the world's mean number of requests a day, so the preset's
load: `P4` is the log itself, cut into consecutive pieces of so many requests, each stretched over a day; `P1` to `P3`
sample it by service, so that the requested resources vary periodically; `fitted` draws from the log's marginals,
independently of each other.

Swings. Service s is requested at rate `rate_s * (1 + swing_s * sin(2 pi f t / day))`. With `weight_s` the mean work
(P1, P3) or the memory (P2) of a request, the swings maximise `sum rate_s weight_s swing_s` within [-1, 1] while the
other sum, memory or work, is constant; then all are scaled until the first sum varies by `SWING` of its mean, or by
the largest possible amount.

Source: KaiS, section V-A: P1 periodically fluctuating CPU sum load, P2 memory sum load, P3 as P1 with twice the
frequency, P4 raw stochastic arrivals clipped from the trace. Periods and swings are not published; ours are below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from evaluation.simulator.pool import ArrivalPool, day_requests_of
from evaluation.simulator.request_lists import DayRequests
from evaluation.simulator.world import CALENDAR_DAY_S, World
from logs_schema.errors import ConfigError

PERIODS = 6
"""Periods of P1 and P2 in a nominal day; P3 has twice as many."""
SWING = 0.4
"""How far the sum swings to either side, as a share of its mean."""
HOURS = 24
QUANTILES = np.linspace(0.0, 1.0, 201)
_LAW_SEED = 0xA55E


@dataclass(frozen=True)
class Pattern:
    """A way to make days of a log.

    Attributes:
        name: As on the command line.
        description: One sentence.
        days: (pool, world, number of days, seed) -> the lists of at most so many days; later days begin again.
    """

    name: str
    description: str
    days: Callable[[ArrivalPool, World, int, int], list[DayRequests]]


def _random(seed: int, day: int) -> np.random.Generator:
    return np.random.default_rng([seed, day, _LAW_SEED])


def _logged(pool: ArrivalPool, world: World, num_days: int, seed: int) -> list[DayRequests]:
    """The log's days that hold requests, in turn; squeezed into the nominal day if that is shorter than they are."""
    day = (pool.clock_s // CALENDAR_DAY_S).astype(int)
    time_s = pool.clock_s - day * CALENDAR_DAY_S
    stretch = 1.0 if time_s.max() < world.day_s else world.day_s / CALENDAR_DAY_S
    found = np.unique(day)[:num_days]
    pieces = [np.flatnonzero(day == one) for one in found]
    return [
        day_requests_of(pool, rows, time_s[rows] * stretch, world, _random(seed, index))
        for index, rows in enumerate(pieces)
    ]


def _clipped(pool: ArrivalPool, world: World, num_days: int, seed: int) -> list[DayRequests]:
    """Consecutive pieces of the log, which begins again after its end, each stretched over a nominal day."""
    num_rows, total = max(round(world.requests_per_day), 1), len(pool.clock_s)
    clock_s = pool.clock_s - pool.clock_s[0]
    lap_s = clock_s[-1] * total / max(total - 1, 1) or 1.0
    days = []
    for day in range(num_days):
        place = day * num_rows + np.arange(num_rows + 1)
        time_s = clock_s[place % total] + place // total * lap_s
        span_s = max(time_s[-1] - time_s[0], 1e-9)
        arrival_s = (time_s[:-1] - time_s[0]) / span_s * world.day_s
        days.append(day_requests_of(pool, place[:-1] % total, arrival_s, world, _random(seed, day)))
    return days


def _swinging(
    pool: ArrivalPool, world: World, num_days: int, seed: int, *, of_memory: bool, periods: int
) -> list[DayRequests]:
    """Requests sampled by service at rates that swing; which request of a service comes is chosen at random."""
    num_services = len(world.services)
    share = np.bincount(pool.service, minlength=num_services) / len(pool.service)
    swing = swings(share, *loads(pool, world), of_memory=of_memory)
    rows_of = [np.flatnonzero(pool.service == service) for service in range(num_services)]
    days = []
    for day in range(num_days):
        random = _random(seed, day)
        num_each = random.poisson(share * world.requests_per_day)
        time_s = [swinging_times(random, *of, periods) for of in zip(num_each, swing, strict=True)]
        row = [
            random.choice(rows, num) if num else rows[:0] for rows, num in zip(rows_of, num_each, strict=True)
        ]
        arrival_s = np.concatenate(time_s) * world.day_s
        order = np.argsort(arrival_s, kind="stable")
        days.append(day_requests_of(pool, np.concatenate(row)[order], arrival_s[order], world, random))
    return days


def loads(pool: ArrivalPool, world: World) -> tuple[np.ndarray, np.ndarray]:
    """[services] mean work (s) and memory (GiB) of a request of each service; 0 where the log has none."""
    count = np.bincount(pool.service, minlength=len(world.services))
    work_s = np.bincount(pool.service, pool.run_s, len(world.services)) / np.maximum(count, 1)
    return work_s, np.array([one.memory_gib for one in world.services])


def swings(share: np.ndarray, work: np.ndarray, memory: np.ndarray, *, of_memory: bool) -> np.ndarray:
    """[services] swing of every service's rate in [-1, 1], see the module's description.

    Args:
        share: [services] share of the requests, summing to 1.
        work: [services] mean work of a request.
        memory: [services] memory of a request.
        of_memory: The memory sum varies and the work sum is constant, else the other way round.

    Raises:
        ConfigError: one sum cannot vary without the other (a single service, or equal services).
    """
    from scipy.optimize import linprog

    moving, still = (share * memory, share * work) if of_memory else (share * work, share * memory)
    solved = linprog(-moving, A_eq=still[None], b_eq=[0.0], bounds=(-1.0, 1.0))
    reach = float(moving @ solved.x) / float(moving.sum())
    if reach < 1e-6:
        raise ConfigError(
            "the sums of work and memory cannot vary independently: the requested services are all equal",
            where="patterns P1, P2, P3",
            allowed="a log and a world of services with unlike work and memory",
            advice="take pattern P4 or logged",
        )
    return solved.x * min(SWING / reach, 1.0)


def swinging_times(random: np.random.Generator, num: int, swing: float, periods: int) -> np.ndarray:
    """[num] instants in [0, 1) of density `1 + swing * sin(2 pi periods t)`, by rejection; unsorted."""
    times = np.empty(0)
    while len(times) < num:
        tried = random.uniform(size=2 * (num - len(times)) + 8)
        height = (1.0 + swing * np.sin(2.0 * np.pi * periods * tried)) / (1.0 + abs(swing))
        times = np.concatenate([times, tried[random.uniform(size=len(tried)) < height]])
    return times[:num]


def _fitted(pool: ArrivalPool, world: World, num_days: int, seed: int) -> list[DayRequests]:
    """Days drawn from the log's marginals: rate by hour, mix of services, and each service's laws of size."""
    num_services = len(world.services)
    hour = (pool.clock_s % CALENDAR_DAY_S) / CALENDAR_DAY_S * HOURS
    rate = np.bincount(hour.astype(int), minlength=HOURS) / len(hour)
    share = np.bincount(pool.service, minlength=num_services) / len(pool.service)
    days = []
    for day in range(num_days):
        random = _random(seed, day)
        num = max(int(random.poisson(world.requests_per_day)), 1)
        edges = np.concatenate([[0.0], np.cumsum(rate)])
        time = np.interp(
            np.sort(random.uniform(size=num)), edges / edges[-1], np.linspace(0.0, 1.0, HOURS + 1)
        )
        service = random.choice(num_services, num, p=share)
        drawn = ArrivalPool(
            time * world.day_s,
            service,
            np.full(num, -1),
            *(
                _from_law(random, leaf, pool.service, service)
                for leaf in (pool.run_s, pool.input_factor, pool.deadline_factor)
            ),
        )
        days.append(day_requests_of(drawn, np.arange(num), drawn.clock_s, world, random))
    return days


def _from_law(
    random: np.random.Generator, value: np.ndarray, service: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Draws from every service's empirical distribution, interpolated between quantiles; NaN where unknown."""
    uniform, drawn = random.uniform(size=len(wanted)), np.full(len(wanted), np.nan)
    for one in np.unique(wanted):
        known = value[(service == one) & np.isfinite(value)]
        here = wanted == one
        if len(known):
            drawn[here] = np.interp(uniform[here], QUANTILES, np.quantile(known, QUANTILES))
    return drawn


PATTERNS = (
    Pattern("logged", "the log's own days and instants, however many requests they hold", _logged),
    Pattern("fitted", "drawn from the log's rate by hour, mix and sizes, at the preset's load", _fitted),
    Pattern(
        "P1",
        "requested work varies periodically (KaiS, V-A)",
        partial(_swinging, of_memory=False, periods=PERIODS),
    ),
    Pattern(
        "P2", "requested memory varies periodically", partial(_swinging, of_memory=True, periods=PERIODS)
    ),
    Pattern("P3", "as P1, twice as fast", partial(_swinging, of_memory=False, periods=2 * PERIODS)),
    Pattern("P4", "the log itself, clipped and stretched to the preset's load", _clipped),
)


def pattern(name: str) -> Pattern:
    """The pattern called `name`, capitals or not.

    Raises:
        ConfigError: there is none; names those there are.
    """
    for one in PATTERNS:
        if one.name.lower() == name.lower():
            return one
    raise ConfigError(
        f"there is no pattern of arrivals {name!r}",
        where="--pattern",
        allowed=", ".join(one.name for one in PATTERNS),
        advice="choose one of these",
    )
