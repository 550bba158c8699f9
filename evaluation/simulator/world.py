"""The declaration of a simulated cluster.

Sites (edge access points) have their own nodes; a finite cloud is behind a WAN. Agents belong to a site and a scenario
and request services. A request needs one core. Nodes serve requests first come, first
served, in the order of dispatch: an accepted request takes its place in the queue at once, its input travels
meanwhile, and a core given to it waits for the input if need be (`evaluation.simulator.answers`). A node that
shares its cores serves all whose input is there at once (`evaluation.simulator.stations`).
"""

from dataclasses import dataclass, field

from evaluation.simulator.laws import Law, constant, lognormal
from evaluation.simulator.options import (
    CALENDAR_DAY_S,
    FIFO,
    PROCESSOR_SHARING,
    Declared,
    LinkFault,
    Outage,
    Periods,
    Reactions,
    Reports,
    Tides,
)
from evaluation.simulator.validation import check

FIRST_WEEKEND_DAY = 5
"""Day 0 of a world is a Monday, so days 5 and 6 of every week are its weekend."""


@dataclass(frozen=True)
class WorldNode:
    """One machine: `speed` is relative to the reference core that services' work is measured on.

    `discipline` is "fifo" (one core a request, first come first served) or "ps" (egalitarian processor sharing: each
    of n requests runs at `speed * min(1, cores / n)`; as many share as memory surely holds, the others wait in turn).
    """

    name: str
    site: str
    tier: str
    cpu_cores: int
    memory_gib: float
    speed: float
    discipline: str = FIFO


@dataclass(frozen=True)
class WorldService:
    """One service: mean work on a reference core, input, memory held while running, deadline, popularity.

    `trend` is the exponent by which its share has grown after 30 days at full drift of the mix. `output_mib` is sent
    back after the run, and the request finishes when the client has it; 0: nothing to send, no way back.
    A run advances at `1 / (1 + sensitivity * sum of the pressures of the runs beside it on the node)`.
    `only_on` and `never_on` name nodes, sites or tiers that alone may host it, or may not (Xiong et al., section 2).
    """

    name: str
    work_s: float
    input_mib: float
    memory_gib: float
    deadline_s: float
    share: float = 1.0
    trend: float = 0.0
    output_mib: float = 0.0
    only_on: tuple[str, ...] = ()
    never_on: tuple[str, ...] = ()
    pressure: float = 0.0
    sensitivity: float = 0.0


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
    """What changes from day to day: linear in time over 30 days from day 0, but for the hot service, which jumps.

    Attributes:
        mix: Weight of the services' trends; 1 means `share * exp(trend)` after 30 days.
        migration: Share of the affinities' (logarithmic) pattern that has been replaced by another one, in
            [0, 1].
        slowing: Share of its speed that `slowing_node` has lost, in [0, 1).
        slowing_node: Name of the node that slows down, or a tuple of several names.
        hot_service: Name of the service that becomes hot; empty for none. Its own share may be 0: then it is new.
        hot_from_day: First day on which it is hot.
        hot_share: Its share of every scenario's requests from then on, in [0, 1]; the others keep their proportions.
        acceptance: What has been added to the log-odds of acceptance of offers away from home after 30 days.
        work, inputs, deadlines, latency, bandwidth: Logarithm by which each has grown after 30 days.
    """

    mix: float = 0.0
    migration: float = 0.0
    slowing: float = 0.0
    slowing_node: str | tuple[str, ...] = ""
    hot_service: str = ""
    hot_from_day: int = 0
    hot_share: float = 0.0
    acceptance: float = 0.0
    work: float = 0.0
    inputs: float = 0.0
    deadlines: float = 0.0
    latency: float = 0.0
    bandwidth: float = 0.0

    @property
    def slowing_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that slow down."""
        return (self.slowing_node,) if isinstance(self.slowing_node, str) else self.slowing_node


@dataclass(frozen=True)
class World:
    """A simulated cluster, its agents and its days; `validate` says what is allowed.

    Attributes:
        name: Name of the preset, or of the world of a file.
        sites: Sites where requests arrive; each has at least one node.
        cloud_site: Site of the cloud nodes (without agents); empty without a cloud.
        nodes, services, scenarios: The parts.
        local, cross_site, wan: Links to a node of the site of arrival, of another site, of the cloud.
        requests_per_day: Mean number of requests in a nominal day.
        daily_amplitude: The rate of arrivals is its mean times `1 - amplitude * cos(2 pi t / day_s)`.
        day_s: Length of the nominal day. It begins at midnight of a calendar day and must fit in; the
            remainder of the calendar day is quiet, so that one day's work is done before the next begins.
        num_agents: Agents, spread over sites and scenarios.
        size: Distribution of the work that a request declares, known at its arrival.
        run: Distribution of the true run time relative to the declared one, hidden.
        input: Distribution of the input.
        taste_spread: Deviation of the logarithm of the scenarios' preference for services.
        affinity_spread: Deviation of the logarithm of a service's speed on a node (hidden).
        stubbornness: Variation between agents: 0: all agents of a scenario accept with the same probability; towards 1:
            each accepts always or never.
        drift: What changes from day to day.
        weekend_factor: Rate of arrivals on days 5 and 6 of every week over that of the others; day 0 is a Monday.
        drop_late: A request that has not started at its deadline is dropped then, and uses no core.
        reactions: How agents respond to late requests.
        outages, link_faults: Failures by plan.
        slow_nodes, slow_sites: Periods in which a node, or all nodes of a site together, run slower (hidden).
        regimes: Periods in which the work of arriving requests is larger or smaller (hidden); of mean one over time.
        bursts: Periods in which requests arrive faster or slower; of mean one over time.
        tides: Services that are hot at some times of the day.
        declared: Relation of declared to true work.
        reports: Errors of the log in the ends of runs.
        taken_cores: Share of the cores taken at the beginning by work of the day before, which is not in the log.
        taken_mean_s: Mean time for which they are taken, exponential.
        seed: Seed of everything fixed: agents, affinities, preferences.
    """

    name: str
    sites: tuple[str, ...]
    nodes: tuple[WorldNode, ...]
    services: tuple[WorldService, ...]
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
    weekend_factor: float = 1.0
    drop_late: bool = False
    reactions: Reactions = field(default_factory=Reactions)
    outages: tuple[Outage, ...] = ()
    link_faults: tuple[LinkFault, ...] = ()
    slow_nodes: Periods = field(default_factory=Periods)
    slow_sites: Periods = field(default_factory=Periods)
    regimes: Periods = field(default_factory=Periods)
    bursts: Periods = field(default_factory=Periods)
    tides: Tides = field(default_factory=Tides)
    declared: Declared = field(default_factory=Declared)
    reports: Reports = field(default_factory=Reports)
    taken_cores: float = 0.0
    taken_mean_s: float = 60.0

    @property
    def all_sites(self) -> tuple[str, ...]:
        """The sites with the cloud's, if there is one, last."""
        return (*self.sites, self.cloud_site) if self.cloud_site else self.sites

    @property
    def unfolds(self) -> bool:
        """Whether the outcome of a request depends on later events, so that it cannot be drawn at the decision."""
        shares = any(node.discipline == PROCESSOR_SHARING for node in self.nodes)
        return self.reactions.any or shares or self.contends

    @property
    def contends(self) -> bool:
        """Whether services that run side by side slow each other down."""
        return any(one.pressure > 0.0 for one in self.services) and any(
            one.sensitivity > 0.0 for one in self.services
        )

    @property
    def paced(self) -> bool:
        """Whether the pace of a run changes by more than how many share the cores."""
        return self.contends or self.slow_nodes.any or self.slow_sites.any or self.taken_cores > 0.0

    @property
    def has_output(self) -> bool:
        """Whether any service sends something back."""
        return any(service.output_mib > 0.0 for service in self.services)

    @property
    def has_rules(self) -> bool:
        """Whether any service is bound to some nodes."""
        return any(service.only_on or service.never_on for service in self.services)

    def may_host(self, node: WorldNode, service: WorldService) -> bool:
        """Whether the rules allow the service on the node."""
        names = {node.name, node.site, node.tier}
        allowed = not service.only_on or bool(names & set(service.only_on))
        return allowed and not names & set(service.never_on)


def validate(world: World) -> World:
    """Returns the world if it is valid.

    Raises:
        ConfigError: with the invalid value and what is allowed.
    """
    check(world)
    return world
