"""Validation of worlds: invalid values are refused by name, with what is allowed, before compilation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from evaluation.simulator.options import (
    CALENDAR_DAY_S,
    FIFO,
    LINK_KINDS,
    PROCESSOR_SHARING,
    LinkFault,
    Outage,
    Periods,
)
from logs_schema.errors import ConfigError, first
from logs_schema.tables import TIERS

if TYPE_CHECKING:
    from evaluation.simulator.world import World

LEAST_PERIOD_S = 60.0
"""Shortest mean length of a hidden period: every replication of a day draws all of its changes at once."""
MOST_FACTOR, MOST_TIDE = 1_000.0, 10.0
DISCIPLINES = (FIFO, PROCESSOR_SHARING)


def check(world: World) -> None:
    """Refuses an invalid world.

    Raises:
        ConfigError: with the invalid value and what is allowed.
    """
    _validate_name(world.name)
    _unique(world.name, "site", world.all_sites)
    _unique(world.name, "node", [node.name for node in world.nodes])
    _unique(world.name, "service", [service.name for service in world.services])
    _unique(world.name, "scenario", [scenario.name for scenario in world.scenarios])
    _validate_nodes(world)
    _validate_demand(world)
    for name, link in (("local", world.local), ("cross_site", world.cross_site), ("wan", world.wan)):
        _within(world.name, f"link {name}: latency_s", link.latency_s, 0.0)
        bandwidth = f"link {name}: bandwidth_mib_per_s"
        _within(world.name, bandwidth, link.bandwidth_mib_per_s, 0.0, open_lower=True, may_be_inf=True)
    _validate_days(world)
    _validate_drift(world)
    _validate_reactions(world)
    _validate_failures(world)
    _validate_hidden(world)
    _validate_tides(world)
    _validate_declared(world)


def _validate_name(name: str) -> None:
    """It stands in messages and reports, and files are called by it."""
    if not re.fullmatch(r"\w[^/\\]*", name) or not name.isprintable():
        allowed = "a letter, digit or underscore, then any printable characters but / and \\"
        _refuse(name, f"name = {name!r}", allowed)


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
        _within(world.name, f"{where}: memory_gib", node.memory_gib, 0.0)
        _within(world.name, f"{where}: speed", node.speed, 0.0, open_lower=True)
        if node.discipline not in DISCIPLINES:
            _refuse(
                world.name,
                f"{where}: unknown discipline {node.discipline!r}",
                f"one of {', '.join(DISCIPLINES)}",
            )
        hosted = [service for service in world.services if world.may_host(node, service)]
        needed_gib = node.cpu_cores * max((service.memory_gib for service in hosted), default=0.0)
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
        new = service.name == world.drift.hot_service
        _within(world.name, f"service {service.name}: share", service.share, 0.0, open_lower=not new)
        _within(world.name, f"service {service.name}: output_mib", service.output_mib, 0.0)
        _within(world.name, f"service {service.name}: input_mib", service.input_mib, 0.0)
        _within(world.name, f"service {service.name}: memory_gib", service.memory_gib, 0.0)
        _within(world.name, f"service {service.name}: pressure", service.pressure, 0.0)
        _within(world.name, f"service {service.name}: sensitivity", service.sensitivity, 0.0)
    _validate_rules(world)
    if world.contends != any(one.pressure > 0.0 or one.sensitivity > 0.0 for one in world.services):
        _refuse(
            world.name,
            "services with pressure but none with sensitivity, or the other way round: no service has an effect",
            "both above 0 somewhere, or both 0 everywhere",
        )
    if all(service.share == 0.0 for service in world.services):
        _refuse(world.name, "no service has a share", "a share above 0 of at least one service")
    for scenario in world.scenarios:
        where = f"scenario {scenario.name}"
        _within(world.name, f"{where}: share", scenario.share, 0.0, open_lower=True)
        _within(world.name, f"{where}: deadline_factor", scenario.deadline_factor, 0.0, open_lower=True)
        _within(world.name, f"{where}: accepts_other_site", scenario.accepts_other_site, 0.0, 1.0)
        _within(world.name, f"{where}: accepts_cloud", scenario.accepts_cloud, 0.0, 1.0)
    _within(world.name, "seed", world.seed, 0)
    _within(world.name, "num_agents", world.num_agents, len(world.sites) * len(world.scenarios))
    _within(world.name, "stubbornness", world.stubbornness, 0.0, 0.99)


def _validate_days(world: World) -> None:
    _within(world.name, "requests_per_day", world.requests_per_day, 1.0)
    _within(world.name, "day_s", world.day_s, 0.0, CALENDAR_DAY_S, open_lower=True)
    _within(world.name, "daily_amplitude", world.daily_amplitude, 0.0, 0.99)
    _within(world.name, "weekend_factor", world.weekend_factor, 0.0, open_lower=True)


def _validate_drift(world: World) -> None:
    drift = world.drift
    _within(world.name, "drift.migration", drift.migration, 0.0, 1.0)
    _within(world.name, "drift.slowing", drift.slowing, 0.0, 0.99)
    _within(world.name, "drift.hot_share", drift.hot_share, 0.0, 1.0)
    _within(world.name, "drift.hot_from_day", drift.hot_from_day, 0)
    for name in ("acceptance", "mix", "work", "inputs", "deadlines", "latency", "bandwidth"):
        _within(world.name, f"drift.{name}", getattr(drift, name), -10.0, 10.0)
    if drift.slowing:
        for name in drift.slowing_nodes:
            _known(world, "drift.slowing_node", "node", name, [node.name for node in world.nodes])
    if drift.hot_share:
        _known(world, "drift.hot_service", "service", drift.hot_service, [one.name for one in world.services])


def _validate_rules(world: World) -> None:
    places = {name for node in world.nodes for name in (node.name, node.site, node.tier)}
    for service in world.services:
        for rule in ("only_on", "never_on"):
            for name in getattr(service, rule):
                _known(world, f"service {service.name}: {rule}", "node, site or tier", name, sorted(places))
        if not any(world.may_host(node, service) for node in world.nodes):
            _refuse(
                world.name,
                f"service {service.name}: no node may host it "
                f"(only_on {', '.join(service.only_on) or 'any'}; never_on {', '.join(service.never_on) or 'none'})",
                "rules that leave at least one node to every service",
            )


def _validate_reactions(world: World) -> None:
    reactions = world.reactions
    _within(world.name, "reactions.memory", reactions.memory, 0.0, 1.0, open_lower=True)
    for name in ("refusing", "leaving", "pausing", "after_refusals"):
        _within(world.name, f"reactions.{name}", getattr(reactions, name), 0.0, 1.0)
    _within(world.name, "reactions.absence_s", reactions.absence_s, 0.0, open_lower=True)
    newcomer_s = reactions.newcomer_s
    _within(world.name, "reactions.newcomer_s", newcomer_s, 0.0, open_lower=True, may_be_inf=True)
    if newcomer_s < float("inf") and reactions.leaving == 0.0:
        _refuse(world.name, f"reactions.newcomer_s is {newcomer_s:g}, and no agent leaves", "leaving above 0")
    hardens = max(reactions.refusing, reactions.leaving, reactions.pausing) > 0.0
    if reactions.after_refusals > 0.0 and not hardens:
        _refuse(
            world.name,
            "reactions.after_refusals without a reaction",
            "one of refusing, leaving and pausing above 0",
        )


def _validate_failures(world: World) -> None:
    for outage in world.outages:
        _known(world, "outages", "node", outage.node, [node.name for node in world.nodes])
        _validate_window(world, f"outage of {outage.node}", outage)
    for fault in world.link_faults:
        _known(world, "link_faults", "link", fault.link, LINK_KINDS if world.cloud_site else LINK_KINDS[:2])
        _validate_window(world, f"fault of link {fault.link}", fault)
        _within(world.name, f"fault of link {fault.link}: slowdown", fault.slowdown, 1.0, may_be_inf=True)


def _validate_hidden(world: World) -> None:
    for name in ("slow_nodes", "slow_sites", "regimes", "bursts"):
        periods = getattr(world, name)
        if not periods.any and periods != Periods():
            _refuse(
                world.name,
                f"{name} has lengths and a factor of 1: nothing changes",
                "another factor, or neither",
            )
        slow = name.startswith("slow")
        _within(
            world.name, f"{name}.factor", periods.factor, 0.0, 1.0 if slow else MOST_FACTOR, open_lower=True
        )
        _within(world.name, f"{name}.usual_s", periods.usual_s, LEAST_PERIOD_S)
        _within(world.name, f"{name}.other_s", periods.other_s, LEAST_PERIOD_S)
    for name in ("lost", "late"):
        _within(world.name, f"reports.{name}", getattr(world.reports, name), 0.0, 1.0)
    _within(world.name, "reports.delay_s", world.reports.delay_s, 0.0, open_lower=True)
    _within(world.name, "taken_cores", world.taken_cores, 0.0, 1.0)
    _within(world.name, "taken_mean_s", world.taken_mean_s, 0.0, open_lower=True)


def _validate_tides(world: World) -> None:
    tides = world.tides
    _within(world.name, "tides.strength", tides.strength, 0.0, MOST_TIDE)
    _within(world.name, "tides.per_day", tides.per_day, 0.0, open_lower=True)
    _within(world.name, "tides.lag", tides.lag, 0.0, 1.0)


def _validate_declared(world: World) -> None:
    declared = world.declared
    _within(world.name, "declared.excess", declared.excess, 1.0)
    _within(world.name, "declared.agent_spread", declared.agent_spread, 0.0)
    _within(world.name, "declared.informative", declared.informative, 0.0, 1.0)
    if declared.limits and declared.kills:
        _refuse(
            world.name,
            "declared.limits and declared.kills: a run that reaches what it declared would end completed and fail",
            "one of them",
        )
    values = (0.0, *declared.rounded_to_s, math.inf)
    if not all(earlier < later for earlier, later in pairwise(values)):
        _refuse(
            world.name,
            f"declared.rounded_to_s is {list(declared.rounded_to_s)}",
            "finite values above 0, each above the one before",
        )


def _validate_window(world: World, where: str, failure: Outage | LinkFault) -> None:
    _within(world.name, f"{where}: from_s", failure.from_s, 0.0)
    _within(world.name, f"{where}: to_s", failure.to_s, failure.from_s, CALENDAR_DAY_S, open_lower=True)
    if not failure.days:
        _refuse(world.name, f"{where}: no day", "one or more days since day 0")
    for day in failure.days:
        _within(world.name, f"{where}: day", day, 0)


def _known(world: World, where: str, kind: str, name: str, names: Sequence[str]) -> None:
    if name not in names:
        _refuse(world.name, f"{where}: no {kind} is called {name!r}", f"one of {first(names)}")


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
    may_be_inf: bool = False,
) -> None:
    above = value > lower if open_lower else value >= lower
    if not (above and value <= upper and (may_be_inf or value < float("inf"))):
        allowed = f"{'more than' if open_lower else 'at least'} {lower:g}{'' if may_be_inf else ', finite'}"
        _refuse(
            world,
            f"{what} is {value:g}",
            allowed if upper == float("inf") else f"{allowed.removesuffix(', finite')} and at most {upper:g}",
        )


def _refuse(world: str, what: str, allowed: str) -> None:
    raise ConfigError(what, where=f"simulated world {world!r}", allowed=allowed, advice="change the world")
