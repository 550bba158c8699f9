"""A real log's requests as those of a simulated world, from which workloads are made.

A log that a world of the same name wrote is used unchanged. Any other log keeps its times, its mix and its variation,
and takes the world's scale, so that the declared load of a preset is kept:

* *Services.* Labels that are all services of the world are taken by name. Otherwise the log's requests are classified
  into as many classes as the world has services: every label gets at least one, the rest go where a label's requests
  per class are most (highest averages), and a label's classes are quantiles of its run times. Labels of less than a
  tenth of a class's fair share, or too many, share one. The k-th most frequent class is the k-th most popular service.
* *Sizes.* Declared run = the service's work * (run / mean run of the class), the ratio cut to `SIZES`; the deadline
  is the world's, times such a ratio of the log's own deadlines, and so is the input. Then all runs and deadlines are
  stretched alike until the mean work is the world's.
* *Agents.* By name, or the k-th busiest of the log is the world's k-th busiest (modulo its number); where the log has
  no agents, requests come from the world's agents at random, as KaiS and KMPS forward theirs to the access points.

Source: the request generator of KaiS, section IV-A (services from `task_type`, delay requirements from scaled
durations).
"""

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.simulator.conditions import WorldAgents, service_mix, world_draw
from evaluation.simulator.laws import SMALLEST_UNIFORM, Law
from evaluation.simulator.request_lists import DayRequests, distinct
from evaluation.simulator.world import CALENDAR_DAY_S, World
from evaluation.simulator.world_files import world_of
from logs_schema import Archive
from logs_schema.errors import ConfigError

POOL_REQUESTS = 1_000_000
"""Whole days are read from the beginning of a log until there are so many requests."""
SIZES = (0.25, 4.0)
"""Smallest and largest size of a request relative to its class: logs' tails would block a core for a day."""
RARE = 0.1
"""Labels with less than this share of a class's fair share of the requests have no class of their own."""
HIDDEN = -1
"""`ArrivalPool.agent` where the log does not name the requesting agent."""
_PIECE = 1 << 14
"""Values that go through a law at once."""
_COLUMNS = (
    "arrival",
    "service",
    "agent",
    "run_s",
    "start",
    "finish",
    "requested_run_s",
    "input_mib",
    "deadline_s",
)


class ArrivalPool(NamedTuple):
    """Requests of a log in order of arrival, in a world's indices and units; arrays [requests], NaN where unknown."""

    clock_s: np.ndarray  # float64, since midnight of the first day that was read
    service: np.ndarray  # int32
    agent: np.ndarray  # int32, HIDDEN where the log hides it
    run_s: np.ndarray  # float64, declared run on a reference core
    input_factor: np.ndarray  # over the service's mean input
    deadline_factor: np.ndarray  # over the deadline of service and scenario


def read_pool(archive: Archive, world: World, days: Sequence[dt.date] | None = None) -> ArrivalPool:
    """The requests of an archive as those of a world.

    Args:
        archive: Of the log.
        world: Whose services, agents and scale they take.
        days: Days of requests, ascending; the first ones of the log, of `POOL_REQUESTS` requests, where None.

    Raises:
        ConfigError: the archive holds no requests, or lacks columns that its simulated world writes.
    """
    days = _first_days(archive) if days is None else days
    if not days:
        raise ConfigError("the archive holds no requests", where=str(archive.path), allowed="at least one")
    rows = archive.read("requests", days=days, columns=_COLUMNS)
    arrival_s = _seconds(rows["arrival"])
    clock_s = arrival_s - np.floor(arrival_s[0] / CALENDAR_DAY_S) * CALENDAR_DAY_S
    population = world_draw(world)
    agent = _agents(rows["agent"], world, population)
    truth = archive.facts.get("ground_truth")
    if truth is not None and world_of(truth) == world:
        return _own_pool(rows, clock_s, agent, world, population, archive)
    run_s = _run_s(rows)
    service = _services(rows["service"], run_s, world, population)
    work_s = np.array([one.work_s for one in world.services])
    size = _relative(run_s, service)
    own_run_s = work_s[service] * np.where(np.isfinite(size), size, 1.0)
    stretch = mean_work_s(world, population) / np.mean(own_run_s)
    deadline = _relative(_numbers(rows["deadline_s"]), service)
    return ArrivalPool(
        clock_s,
        service,
        agent,
        own_run_s * stretch,
        input_factor=_relative(_numbers(rows["input_mib"]), service),
        deadline_factor=np.where(np.isfinite(deadline), deadline, 1.0) * stretch,
    )


def day_requests_of(
    pool: ArrivalPool, row: np.ndarray, arrival_s: np.ndarray, world: World, random: np.random.Generator
) -> DayRequests:
    """A day's list made of rows of a pool; values that are not in the log are drawn from the world's laws.

    Args:
        pool: The requests.
        row: [requests] rows of the pool.
        arrival_s: [requests] times of day, ascending.
        world: For its laws.
        random: Draws agents and inputs that are not in the log.
    """
    population = world_draw(world)
    drawn = random.choice(world.num_agents, len(row), p=population.share)
    agent = np.where(pool.agent[row] == HIDDEN, drawn, pool.agent[row])
    service = pool.service[row]
    law = _drawn(world.input, random, len(row))
    factor = np.where(np.isfinite(pool.input_factor[row]), pool.input_factor[row], law)
    input_mib = np.array([one.input_mib for one in world.services])[service] * factor
    deadline_s = _deadlines(world)[service, population.scenario[agent]] * pool.deadline_factor[row]
    return DayRequests(
        distinct(arrival_s),
        agent.astype(np.int32),
        service.astype(np.int32),
        *(leaf.astype(np.float32) for leaf in (pool.run_s[row], input_mib, deadline_s)),
    )


def _drawn(law: Law, random: np.random.Generator, num: int) -> np.ndarray:
    """[num] values of a law: a power of two of them is drawn, and all go through the law in pieces of one shape.

    Its operations are compiled for that shape alone, one by one: compiled together they would round otherwise.
    """
    uniform = random.uniform(SMALLEST_UNIFORM, 1.0 - SMALLEST_UNIFORM, 1 << max(num - 1, 0).bit_length())
    pieces = np.full((max(-(-num // _PIECE), 1), _PIECE), 0.5, np.float32)
    pieces.reshape(-1)[:num] = uniform[:num]
    return np.concatenate([np.asarray(law.quantile(jnp.asarray(piece))) for piece in pieces])[:num]


def mean_work_s(world: World, population: WorldAgents) -> float:
    """Mean work of a request on a reference core, by the mix of day 0."""
    scenario_share = np.bincount(population.scenario, population.share, len(world.scenarios))
    work_s = np.array([one.work_s for one in world.services])
    return float(work_s @ service_mix(world, population, 0.0) @ scenario_share)


def _own_pool(
    rows: pa.Table,
    clock_s: np.ndarray,
    agent: np.ndarray,
    world: World,
    population: WorldAgents,
    archive: Archive,
) -> ArrivalPool:
    """What the world itself wrote, unchanged."""
    service = _by_name(rows["service"], [one.name for one in world.services])
    run_s, input_mib, deadline_s = (
        _numbers(rows[name]) for name in ("requested_run_s", "input_mib", "deadline_s")
    )
    if service is None or (agent == HIDDEN).any() or not np.isfinite(run_s + input_mib + deadline_s).all():
        raise ConfigError(
            f"the archive says that world {world.name!r} wrote it, but its requests are not of that world",
            where=f"{archive.path}, services, agents, requested_run_s, input_mib, deadline_s",
            allowed="an archive as `schedtwin simulate` wrote it",
            advice="simulate it again with this version",
        )
    mean_mib = np.array([one.input_mib for one in world.services])[service]
    usual_s = _deadlines(world)[service, population.scenario[agent]]
    factor = np.divide(input_mib, mean_mib, out=np.ones_like(input_mib), where=mean_mib > 0)
    return ArrivalPool(clock_s, service, agent, run_s, factor, deadline_s / usual_s)


def _first_days(archive: Archive) -> list:
    days, count = [], 0
    for day in archive.days("requests"):
        if count >= POOL_REQUESTS:
            break
        days.append(day)
        count += archive.num_rows("requests", day)
    return days if count else []


def _seconds(column: pa.ChunkedArray) -> np.ndarray:
    """[rows] float64 seconds since 1970, NaN where null."""
    micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return micros.cast(pa.float64(), safe=False).to_numpy() / 1e6


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return column.cast(pa.float64()).to_numpy()


def _run_s(rows: pa.Table) -> np.ndarray:
    """The run time in the log: measured, from start to finish, or requested."""
    measured = _numbers(rows["run_s"])
    between = _seconds(rows["finish"]) - _seconds(rows["start"])
    run_s = np.where(np.isfinite(measured), measured, between)
    return np.where(np.isfinite(run_s), run_s, _numbers(rows["requested_run_s"]))


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str | None]]:
    """[rows] label numbers, the most frequent label first (equals by name), and the labels; null is a label too."""
    labels = pc.cast(column, pa.string()).to_pylist()
    names, code, count = np.unique(
        ["" if label is None else f"={label}" for label in labels], return_inverse=True, return_counts=True
    )
    order = np.argsort(-count, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[code.reshape(-1)], [str(names[one])[1:] or None for one in order]


def _by_name(column: pa.ChunkedArray, names: Sequence[str]) -> np.ndarray | None:
    """[rows] positions in `names`, or None where some label is none of them."""
    code, labels = _codes(column)
    if not set(labels) <= set(names):
        return None
    return np.array([list(names).index(str(label)) for label in labels], np.int32)[code]


def _agents(column: pa.ChunkedArray, world: World, population: WorldAgents) -> np.ndarray:
    named = _by_name(column, [f"agent-{index:03d}" for index in range(world.num_agents)])
    if named is not None:
        return named
    code, labels = _codes(column)
    busiest = np.argsort(-population.share, kind="stable")
    rank = np.cumsum([label is not None for label in labels]) - 1
    agent = np.array(
        [
            HIDDEN if label is None else busiest[one % world.num_agents]
            for one, label in zip(rank, labels, strict=True)
        ]
    )
    return agent[code].astype(np.int32)


def _services(
    column: pa.ChunkedArray, run_s: np.ndarray, world: World, population: WorldAgents
) -> np.ndarray:
    named = _by_name(column, [one.name for one in world.services])
    if named is not None:
        return named
    code, _ = _codes(column)
    own_class = np.bincount(code) >= RARE * len(code) / len(world.services)
    code = np.minimum(code, min(int(np.sum(own_class)), len(world.services) - 1))
    count = np.bincount(code)
    kind, first = np.zeros(len(code), np.int64), 0
    for label, num_classes in enumerate(classes_of(count, len(world.services))):
        here = np.flatnonzero(code == label)
        order = np.argsort(np.nan_to_num(run_s[here], nan=np.inf), kind="stable")
        kind[here[order]] = first + np.arange(len(here)) * num_classes // max(len(here), 1)
        first += num_classes
    frequent = np.argsort(-np.bincount(kind, minlength=len(world.services)), kind="stable")
    share = np.bincount(population.scenario, population.share, len(world.scenarios))
    popular = np.argsort(-(service_mix(world, population, 0.0) @ share), kind="stable")
    service = np.empty(len(frequent), np.int32)
    service[frequent] = popular
    return service[kind]


def classes_of(count: np.ndarray, num_classes: int) -> np.ndarray:
    """Number of classes of each label: one, and one more each time for the label with the most requests per class.

    Args:
        count: [labels] requests of each label, at most `num_classes` labels.
        num_classes: Classes to give away.

    Returns:
        [labels] int, at least 1, summing to `num_classes`.
    """
    classes = np.ones(len(count), np.int64)
    for _ in range(num_classes - len(count)):
        classes[np.argmax(count / classes)] += 1
    return classes


def _relative(value: np.ndarray, service: np.ndarray) -> np.ndarray:
    """Values over the mean of their class, cut to `SIZES`; NaN where unknown, 1 where a class is all zero."""
    known = np.isfinite(value)
    total = np.bincount(service[known], value[known], service.max() + 1)
    mean = (total / np.maximum(np.bincount(service[known], minlength=service.max() + 1), 1))[service]
    ratio = np.divide(value, mean, out=np.where(known, 1.0, np.nan), where=known & (mean > 0))
    return np.clip(ratio, *SIZES)


def _deadlines(world: World) -> np.ndarray:
    """[services, scenarios] seconds."""
    factor = np.array([one.deadline_factor for one in world.scenarios])
    return np.array([one.deadline_s for one in world.services])[:, None] * factor[None]
