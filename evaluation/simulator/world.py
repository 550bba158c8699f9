"""What a simulated cluster is made of, declared before anything is compiled.

Sites (edge access points) have their own nodes; a finite cloud stands behind a WAN. Agents live at a site,
belong to a scenario and ask for services. A request asks for one core. Nodes take requests first come, first
served, in the order of dispatch: an accepted request takes its place in the queue at once, its input travels
meanwhile, and a core given to it waits for the input if need be (`evaluation.simulator.answers`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from evaluation.simulator.laws import Law, constant, lognormal
from logs_schema.errors import ConfigError, first
from logs_schema.tables import TIERS

CALENDAR_DAY_S = 86_400.0


@dataclass(frozen=True)
class Node:
    """One machine: `speed` is relative to the reference core that services' work is measured on."""

    name: str
    site: str
    tier: str
    cpu_cores: int
    memory_gib: float
    speed: float


@dataclass(frozen=True)
class Service:
    """One service: mean work on a reference core, input, memory held while running, deadline, popularity.

    `trend` is the exponent by which its share has grown after 30 days at full drift of the mix.
    """

    name: str
    work_s: float
    input_mib: float
    memory_gib: float
    deadline_s: float
    share: float = 1.0
    trend: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """A class of use: share of agents, patience, and mean acceptance of offers away from home (hidden)."""

    name: str
    share: float = 1.0
    deadline_factor: float = 1.0
    accepts_other_site: float = 1.0
    accepts_cloud: float = 1.0


@dataclass(frozen=True)
class Link:
    """Latency, its noise (of mean one) and bandwidth; transfer takes latency * noise + input / bandwidth."""

    latency_s: float = 0.0
    bandwidth_mib_per_s: float = float("inf")
    noise: Law = field(default_factory=constant)


@dataclass(frozen=True)
class Drift:
    """What has changed after 30 days, all of it linear in time from day 0 and switched off by default.

    Attributes:
        mix: Weight of the services' trends; 1 means `share * exp(trend)` after 30 days.
        migration: Share of the affinities' (logarithmic) pattern that has been replaced by another one, in
            [0, 1].
        slowing: Share of its speed that `slowing_node` has lost, in [0, 1).
        slowing_node: Name of the node that slows down.
    """

    mix: float = 0.0
    migration: float = 0.0
    slowing: float = 0.0
    slowing_node: str = ""


@dataclass(frozen=True)
class World:
    """A simulated cluster, its agents and its days; `validate` says what is allowed.

    Attributes:
        name: Name of the preset.
        sites: Sites where requests arrive; each has at least one node.
        cloud_site: Site of the cloud nodes (nobody asks there); empty without a cloud.
        nodes, services, scenarios: The parts.
        local, cross_site, wan: Links to a node of the site of arrival, of another site, of the cloud.
        requests_per_day: Mean number of requests in a nominal day.
        daily_amplitude: The rate of arrivals is its mean times `1 - amplitude * cos(2 pi t / day_s)`.
        day_s: Length of the nominal day. It begins at midnight of a calendar day and must fit in; the
            remainder of the calendar day is quiet, so that one day's work is done before the next begins.
        num_agents: Agents, spread over sites and scenarios.
        size: Scatter of the work a request declares, known when it asks.
        run: Scatter of the true run time around the declared one, hidden.
        input: Scatter of the input.
        taste_spread: Deviation of the logarithm of the scenarios' preference for services.
        affinity_spread: Deviation of the logarithm of a service's speed on a node (hidden).
        stubbornness: 0: every agent of a scenario accepts with the same probability; towards 1: each always
            or never.
        drift: What changes from day to day.
        seed: Seed of everything fixed: who the agents are, affinities, tastes.
    """

    name: str
    sites: tuple[str, ...]
    nodes: tuple[Node, ...]
    services: tuple[Service, ...]
    scenarios: tuple[Scenario, ...] = (Scenario("default"),)
    cloud_site: str = ""
    local: Link = Link()
    cross_site: Link = Link()
    wan: Link = Link()
    requests_per_day: float = 20_000.0
    daily_amplitude: float = 0.0
    day_s: float = CALENDAR_DAY_S
    num_agents: int = 1
    size: Law = field(default_factory=constant)
    run: Law = field(default_factory=constant)
    input: Law = field(default_factory=lambda: lognormal(0.5))
    taste_spread: float = 0.0
    affinity_spread: float = 0.0
    stubbornness: float = 0.0
    drift: Drift = Drift()
    seed: int = 0

    @property
    def all_sites(self) -> tuple[str, ...]:
        """The sites with the cloud's, if there is one, last."""
        return (*self.sites, self.cloud_site) if self.cloud_site else self.sites


def validate(world: World) -> World:
    """Returns the world if it can exist.

    Raises:
        ConfigError: naming the offender and what is allowed.
    """
    _unique(world.name, "site", world.all_sites)
    _unique(world.name, "node", [node.name for node in world.nodes])
    _unique(world.name, "service", [service.name for service in world.services])
    _unique(world.name, "scenario", [scenario.name for scenario in world.scenarios])
    _validate_nodes(world)
    _validate_demand(world)
    for name, link in (("local", world.local), ("cross_site", world.cross_site), ("wan", world.wan)):
        _within(world.name, f"link {name}: latency_s", link.latency_s, 0.0)
        _within(
            world.name, f"link {name}: bandwidth_mib_per_s", link.bandwidth_mib_per_s, 0.0, open_lower=True
        )
    _validate_days(world)
    return world


def _validate_nodes(world: World) -> None:
    for node in world.nodes:
        where = f"node {node.name}"
        if node.site not in world.all_sites:
            _refuse(
                world.name, f"{where}: unknown site {node.site!r}", f"one of {', '.join(world.all_sites)}"
            )
        if node.tier not in TIERS:
            _refuse(world.name, f"{where}: unknown tier {node.tier!r}", f"one of {', '.join(TIERS)}")
        if (node.tier == "cloud") != (node.site == world.cloud_site):
            _refuse(
                world.name,
                f"{where}: tier {node.tier!r} at site {node.site!r}",
                "cloud nodes at cloud_site, and only there",
            )
        _within(world.name, f"{where}: cpu_cores", node.cpu_cores, 1)
        _within(world.name, f"{where}: speed", node.speed, 0.0, open_lower=True)
        needed_gib = node.cpu_cores * max(service.memory_gib for service in world.services)
        if node.memory_gib < needed_gib:
            _refuse(
                world.name,
                f"{where}: {node.memory_gib:g} GiB of memory do not hold its cores' services",
                f"at least {needed_gib:g} GiB ({node.cpu_cores} cores x the largest service)",
            )
    empty = [site for site in world.all_sites if all(node.site != site for node in world.nodes)]
    if empty:
        _refuse(world.name, f"sites without a node: {first(empty)}", "at least one node at each site")


def _validate_demand(world: World) -> None:
    for service in world.services:
        _within(world.name, f"service {service.name}: work_s", service.work_s, 0.0, open_lower=True)
        _within(world.name, f"service {service.name}: deadline_s", service.deadline_s, 0.0, open_lower=True)
        _within(world.name, f"service {service.name}: share", service.share, 0.0, open_lower=True)
        _within(world.name, f"service {service.name}: input_mib", service.input_mib, 0.0)
        _within(world.name, f"service {service.name}: memory_gib", service.memory_gib, 0.0)
    for scenario in world.scenarios:
        where = f"scenario {scenario.name}"
        _within(world.name, f"{where}: share", scenario.share, 0.0, open_lower=True)
        _within(world.name, f"{where}: deadline_factor", scenario.deadline_factor, 0.0, open_lower=True)
        _within(world.name, f"{where}: accepts_other_site", scenario.accepts_other_site, 0.0, 1.0)
        _within(world.name, f"{where}: accepts_cloud", scenario.accepts_cloud, 0.0, 1.0)
    _within(world.name, "num_agents", world.num_agents, len(world.sites) * len(world.scenarios))
    _within(world.name, "stubbornness", world.stubbornness, 0.0, 0.99)


def _validate_days(world: World) -> None:
    _within(world.name, "requests_per_day", world.requests_per_day, 1.0)
    _within(world.name, "day_s", world.day_s, 0.0, CALENDAR_DAY_S, open_lower=True)
    _within(world.name, "daily_amplitude", world.daily_amplitude, 0.0, 0.99)
    _within(world.name, "drift.migration", world.drift.migration, 0.0, 1.0)
    _within(world.name, "drift.slowing", world.drift.slowing, 0.0, 0.99)
    names = [node.name for node in world.nodes]
    if world.drift.slowing and world.drift.slowing_node not in names:
        _refuse(
            world.name,
            f"drift.slowing_node: no node is called {world.drift.slowing_node!r}",
            f"one of {first(names)}",
        )


def _unique(world: str, kind: str, names: Iterable[str]) -> None:
    names = list(names)
    if not names or not all(names):
        _refuse(world, f"no {kind}, or one without a name", f"at least one {kind}, each with a name")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        _refuse(world, f"two {kind}s of the same name: {first(twice)}", "different names")


def _within(
    world: str,
    what: str,
    value: float,
    lower: float,
    upper: float = float("inf"),
    *,
    open_lower: bool = False,
) -> None:
    above = value > lower if open_lower else value >= lower
    if not (above and value <= upper):
        allowed = f"{'more than' if open_lower else 'at least'} {lower:g}"
        _refuse(
            world,
            f"{what} is {value:g}",
            allowed if upper == float("inf") else f"{allowed} and at most {upper:g}",
        )


def _refuse(world: str, what: str, allowed: str) -> None:
    raise ConfigError(what, where=f"simulated world {world!r}", allowed=allowed, advice="change the preset")
