"""What presets are put together from: links, scenarios, drawn services and nodes, and a load to stretch the work to."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evaluation.simulator.conditions import conditions, offered_at_peak, peak_load
from evaluation.simulator.laws import lognormal
from evaluation.simulator.options import CALENDAR_DAY_S
from evaluation.simulator.world import Link, Scenario, World, WorldNode, WorldService, validate
from logs_schema.errors import ConfigError

LAN = Link(latency_s=0.005, bandwidth_mib_per_s=110.0, noise=lognormal(0.3))
METRO = Link(latency_s=0.025, bandwidth_mib_per_s=40.0, noise=lognormal(0.3))
WAN = Link(latency_s=0.1, bandwidth_mib_per_s=8.0, noise=lognormal(0.4))
"""Links to a node of the same site, of another one, of the cloud (KaiS and KMPS, section IV-A)."""

SITE_SPREAD = 0.35
"""Logarithm of the speed of the fastest site's nodes over the mean."""
NODE_SPREAD = 0.25
"""Deviation of the logarithm of nodes' speed within a site."""

MOST_CLOSED = 10.0
"""Load that may be asked for where agents send one request at a time: as much as if they never waited."""
LEAST_LOAD = 1e-12
"""A smaller one is 0 but for rounding: no factor makes a load of it."""

BUSY_DAY_S = CALENDAR_DAY_S - 1_800.0
"""A day that leaves half an hour of the calendar day, in which its work is finished."""

SCENARIOS = (
    Scenario("interactive", share=2.0, deadline_factor=0.8, accepts_other_site=0.85, accepts_cloud=0.5),
    Scenario("analytics", share=1.5, deadline_factor=1.1, accepts_other_site=0.92, accepts_cloud=0.8),
    Scenario("background", share=1.0, deadline_factor=1.6, accepts_other_site=0.98, accepts_cloud=0.97),
)


def services(
    num_services: int, seed: int, *, log_input_mib: float = 3.0, patience: tuple[float, float] = (1.4, 3.0)
) -> tuple[WorldService, ...]:
    """Draws services of different work, input, deadline, popularity and trend; mean work is one second.

    Trends change the mix but not, to first order, the mean work: over a month schedulers have to adapt, without more
    capacity.

    Args:
        num_services: Number of services.
        seed: Seed of the draws.
        log_input_mib: Mean of the logarithm of the input in MiB.
        patience: Deadlines are uniform between these multiples of `0.3 s + work`.
    """
    random = np.random.default_rng([seed, 0x5EED])
    work_s = np.exp(0.7 * random.standard_normal(num_services))
    work_s /= work_s.mean()
    share = 1.0 / np.arange(1, num_services + 1) ** 0.6
    drawn = {
        "work_s": work_s,
        "input_mib": np.exp(log_input_mib + 0.9 * random.standard_normal(num_services)),
        "memory_gib": random.choice([0.25, 0.5, 1.0, 2.0], num_services),
        "deadline_s": random.uniform(*patience, num_services) * (0.3 + work_s),
        "share": share,
        "trend": _load_neutral(random.normal(0.0, 0.8, num_services), share, work_s),
    }
    rows: list[dict[str, Any]] = [
        {name: round(float(value), 4) for name, value in zip(drawn, row, strict=True)}
        for row in zip(*drawn.values(), strict=True)
    ]
    return tuple(WorldService(f"service-{index:02d}", **row) for index, row in enumerate(rows))


def _load_neutral(trend: np.ndarray, share: np.ndarray, work_s: np.ndarray) -> np.ndarray:
    """The trend without its component along the gradient of the logarithm of mean work."""
    gradient = share * work_s / np.sum(share * work_s) - share / np.sum(share)
    return trend - gradient * (gradient @ trend) / (gradient @ gradient)


def edge_nodes(sites: Sequence[str], num_nodes: int, seed: int) -> tuple[WorldNode, ...]:
    """Draws `num_nodes` nodes of one to three cores for each site; later sites are faster than earlier ones.

    Slow and fast sites have equally many agents, so it pays to offload between sites.
    """
    random = np.random.default_rng([seed, 0xEDCE])
    site_speed = np.exp(SITE_SPREAD * np.linspace(-1.0, 1.0, len(sites)))
    return tuple(
        WorldNode(
            f"{site}-{number + 1}",
            site,
            "edge",
            int(random.choice([1, 2, 3])),
            16.0,
            round(float(speed * np.exp(NODE_SPREAD * random.standard_normal())), 3),
        )
        for site, speed in zip(sites, site_speed, strict=True)
        for number in range(num_nodes)
    )


def cloud_nodes(num_nodes: int) -> tuple[WorldNode, ...]:
    """Identical machines of two cores at the site "wide-cloud"."""
    return tuple(
        WorldNode(f"wide-cloud-{number + 1}", "wide-cloud", "cloud", 2, 16.0, 0.9)
        for number in range(num_nodes)
    )


def even_load(world: World, day: float = 0.0) -> float:
    """Work offered at the peak over capacity, when every node takes its share of all work in proportion to its speed.

    `sum_s rate_s * work_s * sum_n share_n / affinity[s, n] / sum_n cores_n * speed_n` with
    `share_n = cores_n * speed_n / sum of it`. This is the load under a scheduler that spreads work evenly without using
    affinities; `peak_load` is the load under an assignment that uses all of them.

    Args:
        world: A validated world.
        day: Days since day 0, >= 0.

    Returns:
        The load; 1 is the stability limit of such a scheduler.
    """
    today = conditions(world, day)
    offered = offered_at_peak(world, today, day)
    capacity = today.core_exists.sum(axis=0) * today.speed
    return float(offered @ (1.0 / today.affinity) @ capacity / capacity.sum() ** 2)


def at_peak_load(world: World, load: float) -> World:
    """The world with work and deadlines stretched by one factor, so that `peak_load` on day 0 is `load`.

    Raises:
        ConfigError: the load is not in (0, 1): no assignment would keep up with it; or the world cannot exist.
    """
    factor = _stretch(world, load, peak_load(validate(world)))
    return validate(replace(world, services=_stretched(world, factor, input_factor=1.0)))


def at_even_load(world: World, load: float) -> World:
    """The world with work, deadlines and inputs stretched by one factor, so that `even_load` on day 0 is `load`.

    Raises:
        ConfigError: the load is not in (0, 1), or (0, `MOST_CLOSED`) where agents send one request at a time; or the
            world cannot exist.
    """
    factor = _stretch(world, load, even_load(validate(world)))
    return validate(replace(world, services=_stretched(world, factor, input_factor=factor)))


def _stretch(world: World, load: float, now: float) -> float:
    """What work is multiplied by for a load instead of that of now."""
    where, advice = f"simulated world {world.name!r}", "change the world"
    most = MOST_CLOSED if world.reactions.one_at_a_time else 1.0
    if not 0.0 < load < most:
        raise ConfigError(
            f"a load of {load:g} at the peak",
            where=where,
            allowed=f"more than 0 and less than {most:g}",
            advice=advice,
        )
    if not LEAST_LOAD <= now < math.inf:
        raise ConfigError(
            f"the load at the peak is {now:g}, and no factor makes it {load:g}",
            where=where,
            allowed=f"work, speeds and rates with a load of {LEAST_LOAD:g} or more",
            advice=advice,
        )
    return load / now


def _stretched(world: World, factor: float, *, input_factor: float) -> tuple[WorldService, ...]:
    return tuple(
        replace(
            service,
            work_s=service.work_s * factor,
            deadline_s=service.deadline_s * factor,
            input_mib=service.input_mib * input_factor,
        )
        for service in world.services
    )
