"""Worlds that are ready to simulate.

`small` is for tests and demonstrations, `edge` has three sites with two unlike nodes each. `kais` and `kmps` have the
sizes of KaiS and KMPS, `large` is larger. All but `small` separate policies (`schedtwin bench truth`): the sites
differ, so home is not enough; the cloud is finite and far; deadlines are tight and services have hidden affinities,
so counting requests is not enough; within a month the affinities have changed.

Those have a load of 0.85 to 0.9 at the peak of the day for a scheduler that spreads work evenly (`parts.even_load`).
"""

from typing import Any

from evaluation.simulator.laws import lognormal
from evaluation.simulator.parts import (
    BUSY_DAY_S,
    LAN,
    METRO,
    SCENARIOS,
    WAN,
    at_even_load,
    at_peak_load,
    cloud_nodes,
    edge_nodes,
    services,
)
from evaluation.simulator.world import Drift, World, WorldNode
from logs_schema.errors import ConfigError

LOG_INPUT_MIB = 0.4
"""Mean logarithm of the input of a service whose work is one second: to the cloud it takes a quarter of that."""
PATIENCE = (1.0, 2.2)
"""Deadlines as multiples of the work: a slow node, or one that a service does not suit, is often too late."""
HALF_DAY_S = 43_200.0
"""A nominal day that leaves time for the longest work of its end before the next one begins."""


def _world(name: str, **declared: Any) -> World:
    """The common declarations of the presets, with those of this one."""
    return World(
        name=name,
        cloud_site="wide-cloud",
        scenarios=SCENARIOS,
        local=LAN,
        cross_site=METRO,
        wan=WAN,
        size=lognormal(0.4),
        run=lognormal(0.25),
        taste_spread=0.5,
        stubbornness=0.5,
        **declared,
    )


def _small() -> World:
    return at_peak_load(
        _world(
            "small",
            sites=("north", "south"),
            nodes=(
                WorldNode("north-1", "north", "edge", 3, 8.0, 0.7),
                WorldNode("north-2", "north", "edge", 2, 8.0, 1.1),
                WorldNode("south-1", "south", "edge", 3, 8.0, 0.7),
                WorldNode("south-2", "south", "edge", 2, 8.0, 1.2),
                WorldNode("wide-cloud-1", "wide-cloud", "cloud", 3, 16.0, 0.8),
            ),
            services=services(6, seed=1),
            requests_per_day=2_500.0,
            daily_amplitude=0.35,
            day_s=BUSY_DAY_S,
            num_agents=24,
            affinity_spread=0.2,
            drift=Drift(mix=1.0, migration=0.5, slowing=0.4, slowing_node="north-2"),
            seed=1,
        ),
        load=0.8,
    )


def _edge() -> World:
    return at_even_load(
        _world(
            "edge",
            sites=("east", "north", "south"),
            nodes=(
                WorldNode("east-1", "east", "edge", 3, 16.0, 0.8),
                WorldNode("east-2", "east", "edge", 2, 16.0, 1.25),
                WorldNode("north-1", "north", "edge", 4, 16.0, 0.6),
                WorldNode("north-2", "north", "edge", 2, 16.0, 1.2),
                WorldNode("south-1", "south", "edge", 4, 16.0, 0.65),
                WorldNode("south-2", "south", "edge", 2, 16.0, 1.3),
                WorldNode("wide-cloud-1", "wide-cloud", "cloud", 4, 32.0, 0.8),
            ),
            services=services(24, seed=2, log_input_mib=LOG_INPUT_MIB, patience=PATIENCE),
            requests_per_day=20_000.0,
            daily_amplitude=0.35,
            day_s=BUSY_DAY_S,
            num_agents=200,
            affinity_spread=0.35,
            drift=Drift(mix=1.0, migration=1.0, slowing=0.5, slowing_node="east-2"),
            seed=2,
        ),
        load=0.85,
    )


def _edge_cloud(
    name: str, *, num_sites: int, num_nodes: int, num_cloud: int, num_services: int, seed: int
) -> World:
    """Sites of `num_nodes` nodes each before a cloud."""
    sites = tuple(f"site-{number + 1}" for number in range(num_sites))
    return at_even_load(
        _world(
            name,
            sites=sites,
            nodes=(*edge_nodes(sites, num_nodes, seed), *cloud_nodes(num_cloud)),
            services=services(num_services, seed, log_input_mib=LOG_INPUT_MIB, patience=PATIENCE),
            requests_per_day=20_000.0,
            daily_amplitude=0.2,
            day_s=HALF_DAY_S,
            num_agents=300,
            affinity_spread=0.3,
            drift=Drift(mix=1.0, migration=1.0, slowing=0.5, slowing_node="site-1-1"),
            seed=seed,
        ),
        load=0.9,
    )


PRESETS = (
    _small(),
    _edge(),
    _edge_cloud("kais", num_sites=5, num_nodes=8, num_cloud=15, num_services=30, seed=3),
    _edge_cloud("kmps", num_sites=3, num_nodes=6, num_cloud=6, num_services=12, seed=4),
    _edge_cloud("large", num_sites=10, num_nodes=10, num_cloud=30, num_services=40, seed=5),
)


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
