"""Worlds that are ready to simulate.

`small` is for tests and demonstrations, `edge` the first in which easy policies are told apart: three sites
with two unlike edge nodes each and a finite cloud behind a WAN, 24 services, 20,000 requests a day, and
drift.
"""

from dataclasses import replace

import numpy as np

from evaluation.simulator.conditions import peak_load
from evaluation.simulator.laws import lognormal
from evaluation.simulator.world import Drift, Link, Node, Scenario, Service, World, validate
from logs_schema.errors import ConfigError

LAN = Link(latency_s=0.005, bandwidth_mib_per_s=110.0, noise=lognormal(0.3))
METRO = Link(latency_s=0.025, bandwidth_mib_per_s=40.0, noise=lognormal(0.3))
WAN = Link(latency_s=0.1, bandwidth_mib_per_s=8.0, noise=lognormal(0.4))
"""Links to a node of the same site, of another one, of the cloud (papers 001 and 003, section IV-A)."""

QUIET_S = 1_800.0
"""Quiet time at the end of a simulated calendar day, in which the day's work is finished."""

SCENARIOS = (
    Scenario("interactive", share=2.0, deadline_factor=0.8, accepts_other_site=0.85, accepts_cloud=0.5),
    Scenario("analytics", share=1.5, deadline_factor=1.1, accepts_other_site=0.92, accepts_cloud=0.8),
    Scenario("background", share=1.0, deadline_factor=1.6, accepts_other_site=0.98, accepts_cloud=0.97),
)


def services(num_services: int, seed: int) -> tuple[Service, ...]:
    """Draws services of unlike work, input, deadline, popularity and trend; mean work is one second.

    Trends change the mix but not, to first order, the mean work: what a month asks for is to adapt, not more
    capacity.
    """
    random = np.random.default_rng([seed, 0x5EED])
    work_s = np.exp(0.7 * random.standard_normal(num_services))
    work_s /= work_s.mean()
    share = 1.0 / np.arange(1, num_services + 1) ** 0.6
    drawn = {
        "work_s": work_s,
        "input_mib": np.exp(3.0 + 0.9 * random.standard_normal(num_services)),
        "memory_gib": random.choice([0.25, 0.5, 1.0, 2.0], num_services),
        "deadline_s": random.uniform(1.4, 3.0, num_services) * (0.3 + work_s),
        "share": share,
        "trend": _load_neutral(random.normal(0.0, 0.8, num_services), share, work_s),
    }
    rows = zip(*drawn.values(), strict=True)
    return tuple(
        Service(
            f"service-{index:02d}",
            **{name: round(float(value), 4) for name, value in zip(drawn, row, strict=True)},
        )
        for index, row in enumerate(rows)
    )


def _load_neutral(trend: np.ndarray, share: np.ndarray, work_s: np.ndarray) -> np.ndarray:
    """The trend without its component along the gradient of the logarithm of mean work."""
    gradient = share * work_s / np.sum(share * work_s) - share / np.sum(share)
    return trend - gradient * (gradient @ trend) / (gradient @ gradient)


def at_peak_load(world: World, load: float) -> World:
    """The world with work and deadlines stretched by one factor, so that `peak_load` on day 0 is `load`."""
    factor = load / peak_load(world)
    stretched = tuple(
        replace(service, work_s=service.work_s * factor, deadline_s=service.deadline_s * factor)
        for service in world.services
    )
    return validate(replace(world, services=stretched))


def _small() -> World:
    return at_peak_load(
        World(
            name="small",
            sites=("north", "south"),
            cloud_site="wide-cloud",
            nodes=(
                Node("north-1", "north", "edge", 3, 8.0, 0.7),
                Node("north-2", "north", "edge", 2, 8.0, 1.1),
                Node("south-1", "south", "edge", 3, 8.0, 0.7),
                Node("south-2", "south", "edge", 2, 8.0, 1.2),
                Node("wide-cloud-1", "wide-cloud", "cloud", 3, 16.0, 0.8),
            ),
            services=services(6, seed=1),
            scenarios=SCENARIOS,
            local=LAN,
            cross_site=METRO,
            wan=WAN,
            requests_per_day=2_500.0,
            daily_amplitude=0.35,
            day_s=86_400.0 - QUIET_S,
            num_agents=24,
            size=lognormal(0.4),
            run=lognormal(0.25),
            taste_spread=0.5,
            affinity_spread=0.2,
            stubbornness=0.5,
            drift=Drift(mix=1.0, migration=0.5, slowing=0.4, slowing_node="north-2"),
            seed=1,
        ),
        load=0.8,
    )


def _edge() -> World:
    return at_peak_load(
        World(
            name="edge",
            sites=("east", "north", "south"),
            cloud_site="wide-cloud",
            nodes=(
                Node("east-1", "east", "edge", 3, 16.0, 0.8),
                Node("east-2", "east", "edge", 2, 16.0, 1.25),
                Node("north-1", "north", "edge", 4, 16.0, 0.6),
                Node("north-2", "north", "edge", 2, 16.0, 1.2),
                Node("south-1", "south", "edge", 4, 16.0, 0.65),
                Node("south-2", "south", "edge", 2, 16.0, 1.3),
                Node("wide-cloud-1", "wide-cloud", "cloud", 4, 32.0, 0.8),
            ),
            services=services(24, seed=2),
            scenarios=SCENARIOS,
            local=LAN,
            cross_site=METRO,
            wan=WAN,
            requests_per_day=20_000.0,
            daily_amplitude=0.35,
            day_s=86_400.0 - QUIET_S,
            num_agents=200,
            size=lognormal(0.4),
            run=lognormal(0.25),
            taste_spread=0.5,
            affinity_spread=0.3,
            stubbornness=0.5,
            drift=Drift(mix=1.0, migration=0.7, slowing=0.5, slowing_node="east-2"),
            seed=2,
        ),
        load=0.8,
    )


PRESETS = (_small(), _edge())


def preset(name: str) -> World:
    """The preset called `name`.

    Raises:
        ConfigError: there is none; names those there are.
    """
    for world in PRESETS:
        if world.name == name:
            return world
    raise ConfigError(
        f"there is no preset {name!r}",
        where="simulated worlds",
        allowed=", ".join(world.name for world in PRESETS),
        advice="choose one of these",
    )
