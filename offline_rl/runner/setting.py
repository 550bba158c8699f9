"""What placement features are computed with, as a bundle's contract keeps it: nodes, vocabularies, estimates, scales.

The JSON form (`PolicyContract.setting`) is made by `offline_rl.placement_contract`; null is "no limit known".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.runner.cold_starts import KnownColdStarts
from offline_rl.runner.run_levels import KnownRunDynamics
from offline_rl.runner.timeouts import KnownTimeouts, timeouts_of
from offline_rl.runner.wakes import KnownWakes
from twin.conventions import KINDS_BY, drawn_together

RESOURCES = ("cpu_cores", "memory_gib", "gpus")
"""Resources in the order of arrays; the same as in training."""
_ROUNDING = 1.000001


@dataclass(frozen=True)
class KnownNode:
    """A node as in training.

    Attributes:
        name, site, is_cloud: Where it stands.
        capacity, machine: Of the node and of its largest machine, in the order of `RESOURCES`; inf where no limit is
            known.
        run_ratio: How long each service runs there, over what is expected of it anywhere.
        run_variance: Variance of what is known of the logarithm of each.
    """

    name: str
    site: str
    is_cloud: bool
    capacity: tuple[float, ...]
    machine: tuple[float, ...]
    run_ratio: tuple[float, ...]
    run_variance: tuple[float, ...]


@dataclass(frozen=True)
class KnownRunLabels:
    """Factors of run times, by the training days; see `twin.placement.run_labels.RunLabels`."""

    of_scenario: tuple[tuple[float, ...], ...]
    of_queue: tuple[tuple[float, ...], ...]

    def fits(self, services: int, scenarios: int, queues: int) -> bool:
        """Whether there is a positive and finite factor of every service and label."""
        of_both = ((self.of_scenario, scenarios), (self.of_queue, queues))
        return all(
            len(table) == services
            and all(len(row) == size and all(0.0 < one < math.inf for one in row) for row in table)
            for table, size in of_both
        )


class KnownRequestedRuns(NamedTuple):
    """How far requested run times count: longer and shorter ones of a service are drawn together."""

    exponent: float  # in (0, 1]
    typical_s: tuple[float, ...]  # [services]

    def expected_s(self, requested_s: float, service: int) -> float:
        """What is expected of a request, the habits of its agent included."""
        return float(drawn_together(requested_s, self.typical_s[service], self.exponent))

    def are_sound(self, num_services: int) -> bool:
        """Whether these can be, of so many services."""
        sizes = len(self.typical_s) == num_services and all(0.0 < one < math.inf for one in self.typical_s)
        return sizes and 0.0 < self.exponent <= 1.0


@dataclass(frozen=True)
class PlacementSetting:
    """The system in training.

    Attributes:
        nodes: In the order of the contract's choices.
        sites, scenarios, services, queues: Vocabularies; "unknown" comes first, but for sites.
        candidate_sets: Node names of every candidate set seen in training; the first holds all nodes.
        acceptance_of_agent: Agent -> how readily offers at home, at other sites and in the cloud are accepted, where it
            is known to differ from the scenario's.
        acceptance_of_scenario: The same of every scenario.
        run_of_service_s: Median run time of every service.
        run_labels: What it is multiplied by for the scenario and the queue of a request, [scenarios] and [queues] of
            every service; None: labels say nothing of run times.
        run_habits: Agent -> what run times are multiplied by, [services], stated or not; None: agents say nothing.
        requested_runs: How far requested run times count; None: in full.
        time_unit_s: Unit of durations in features.
        memory_s: Time in which the memory of recent waits fades to 1/e.
        node_of_machine: Machine -> node, where decisions name classes of machines.
        sees_all: Whether nodes of other sites are seen in full, instead of as the mean of their site.
        knows_week: Whether training saw every weekday; otherwise policies are not shown the time of week.
        dynamics: How run times move, for a ledger kept by events; None: it does not learn.
        trained_until_s: Seconds since 1970 of the end of training.
        cold: Start-up times of services, for a ledger kept by events; None: the log shows none.
        scarce: Resources beside cores that requests wait for, names of `RESOURCES`.
        wakes: When nodes sleep, for a ledger kept by events; None: the log shows none that does.
        hazard: Losses per second of running of every node; empty: the log shows none.
        concurrency: How many requests of every service run at once on every node, 0 without a limit, for a ledger kept
            by events; empty: the log shows no limit.
        nodes_of_queue: Candidates of a request that lists none, of queues that the log shows to be bound to nodes.
        kinds_by: Label, one of `KINDS_BY`, by which services are told apart ("ocr of maps"), where there is such a kind
            in `services`; "": by none.
        timeouts: After which time runs are cut off; None: the log shows none that is.
    """

    nodes: tuple[KnownNode, ...]
    sites: tuple[str, ...]
    scenarios: tuple[str, ...]
    services: tuple[str, ...]
    queues: tuple[str, ...]
    candidate_sets: tuple[frozenset[str], ...]
    acceptance_of_agent: Mapping[str, np.ndarray]
    acceptance_of_scenario: Sequence[np.ndarray]
    run_of_service_s: tuple[float, ...]
    time_unit_s: float
    memory_s: float
    node_of_machine: dict[str, str]
    sees_all: bool = False
    knows_week: bool = True
    dynamics: KnownRunDynamics | None = None
    trained_until_s: float = 0.0
    cold: KnownColdStarts | None = None
    run_labels: KnownRunLabels | None = None
    nodes_of_queue: Mapping[str, frozenset[str]] = field(default_factory=dict)
    run_habits: Mapping[str, tuple[float, ...]] | None = None
    requested_runs: KnownRequestedRuns | None = None
    scarce: tuple[str, ...] = ()
    wakes: KnownWakes | None = None
    hazard: tuple[float, ...] = ()
    concurrency: tuple[tuple[int, ...], ...] = ()
    kinds_by: str = ""
    timeouts: KnownTimeouts | None = None

    @cached_property
    def node_names(self) -> frozenset[str]:
        """The nodes of training."""
        return frozenset(node.name for node in self.nodes)

    def places_of(self, names: Sequence[str]) -> list[int]:
        """The places of nodes among those of training; -1 of others."""
        place_of = {node.name: place for place, node in enumerate(self.nodes)}
        return [place_of.get(name, -1) for name in names]

    def hazard_of(self, names: Sequence[str]) -> np.ndarray | None:
        """[nodes] losses per second of running; of a node that was not in training the mean of those that were. None
        where nodes keep what runs on them."""
        if not self.hazard:
            return None
        return np.array([*self.hazard, np.mean(self.hazard)])[self.places_of(names)]

    @cached_property
    def counted(self) -> tuple[bool, ...]:
        """Which resources training counted: requests for the others have no effect."""
        capacity = np.array([node.capacity for node in self.nodes]).T
        return tuple(bool(row.any()) for row in np.isfinite(capacity) & (capacity > 0.0))

    @cached_property
    def demanded(self) -> tuple[bool, ...]:
        """Which resources a request's demand is known for: some node has a finite, and some a positive amount."""
        capacity = np.array([node.capacity for node in self.nodes]).T
        return tuple(bool(np.isfinite(row).any() and (row > 0.0).any()) for row in capacity)

    @cached_property
    def run_ratio_elsewhere(self) -> tuple[float, ...]:
        """Of every service, on a node that was not in training: the mean over those that were."""
        return tuple(np.mean([node.run_ratio for node in self.nodes], axis=0).tolist())

    @cached_property
    def run_variance_elsewhere(self) -> tuple[float, ...]:
        """Of every service, on a node that was not in training: as unlike the mean as the nodes that were."""
        scattered = np.var([np.log(node.run_ratio) for node in self.nodes], axis=0)
        return tuple((scattered + np.mean([node.run_variance for node in self.nodes], axis=0)).tolist())


def parse_setting(content: Mapping[str, Any]) -> PlacementSetting:
    """Reads a placement contract's `setting`.

    Raises:
        ProductError: Something is missing or cannot be.
    """
    try:
        setting = PlacementSetting(
            nodes=tuple(_known_node(one) for one in content["nodes"]),
            candidate_sets=tuple(frozenset(names) for names in content["candidate_sets"]),
            acceptance_of_agent={
                name: _readiness(one) for name, one in content["acceptance_of_agent"].items()
            },
            acceptance_of_scenario=[_readiness(one) for one in content["acceptance_of_scenario"]],
            run_of_service_s=tuple(float(run_s) for run_s in content["run_of_service_s"]),
            time_unit_s=float(content["time_unit_s"]),
            memory_s=float(content["memory_s"]),
            node_of_machine=dict(content.get("node_of_machine", {})),
            sees_all=bool(content.get("sees_all", False)),
            knows_week=bool(content.get("knows_week", True)),
            dynamics=_dynamics(content.get("run_dynamics")),
            trained_until_s=float(content.get("trained_until_s", 0.0)),
            cold=_cold_starts(content.get("cold_starts")),
            run_labels=_run_labels(content.get("run_labels")),
            nodes_of_queue={
                str(queue): frozenset(each) for queue, each in content.get("nodes_of_queue", {}).items()
            },
            run_habits=_run_habits(content.get("run_habits")),
            requested_runs=_requested_runs(content.get("requested_runs")),
            scarce=tuple(content.get("scarce", ())),
            wakes=_wakes(content.get("wakes")),
            hazard=tuple(float(one) for one in content.get("hazard", ())),
            concurrency=tuple(tuple(int(one) for one in row) for row in content.get("concurrency", ())),
            kinds_by=str(content.get("kinds_by", "")),
            timeouts=timeouts_of(content.get("timeouts")),
            **{name: tuple(content[name]) for name in ("sites", "scenarios", "services", "queues")},
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _unfit(f"{type(error).__name__}: {error}") from error
    _refuse_impossible(setting)
    return setting


def _refuse_impossible(setting: PlacementSetting) -> None:
    """Makes sure that numbers are finite and positive, and that names belong together; ProductError where not."""
    nodes, names = setting.nodes, {node.name for node in setting.nodes}
    words = (setting.sites, setting.scenarios, setting.services, setting.queues)
    readiness = [*setting.acceptance_of_agent.values(), *setting.acceptance_of_scenario]
    sound = {
        "there must be nodes, each name once": nodes and len(names) == len(nodes),
        "vocabularies must hold different words": all(each and len(set(each)) == len(each) for each in words),
        "services are told apart by scenario, queue, site or agent": setting.kinds_by in ("", *KINDS_BY),
        "names must be text": all(isinstance(one, str) for one in (*names, *sum(words, ()))),
        "a node's site must be one of the sites": all(node.site in setting.sites for node in nodes),
        "capacities must be at least 0, and no machine larger than its node": all(
            0.0 <= machine <= whole * _ROUNDING
            for node in nodes
            for machine, whole in zip(node.machine, node.capacity, strict=True)
        ),
        "run times must be finite and at least 0, one of every service": len(setting.run_of_service_s)
        == len(setting.services)
        and all(0.0 <= run_s < math.inf for run_s in setting.run_of_service_s),
        "ratios of run times must be positive and finite, one of every service": all(
            len(node.run_ratio) == len(setting.services)
            and all(0.0 < one < math.inf for one in node.run_ratio)
            for node in nodes
        ),
        "acceptances must be shares, three of every scenario": len(setting.acceptance_of_scenario)
        == len(setting.scenarios)
        and all(np.all((one >= 0.0) & (one <= 1.0)) for one in readiness),
        "the first candidate set must hold all nodes, the others some of them": setting.candidate_sets
        and setting.candidate_sets[0] == names
        and all(one <= names for one in setting.candidate_sets),
        "the nodes of a queue must be one of the candidate sets": all(
            one in setting.candidate_sets for one in setting.nodes_of_queue.values()
        ),
        "idle and wake times must be finite and at least 0, one of every node": setting.wakes is None
        or setting.wakes.are_sound(len(nodes)),
        "limits of runs must be at least 0, one of every service or none": setting.timeouts is None
        or setting.timeouts.are_sound(len(setting.services)),
        "hazards must be finite and at least 0, one of every node, or none": len(setting.hazard)
        in (0, len(nodes))
        and all(0.0 <= one < math.inf for one in setting.hazard),
        "limits of what runs at once must be at least 0, one of every service and node": not setting.concurrency
        or (
            len(setting.concurrency) == len(setting.services)
            and all(len(row) == len(nodes) and min(row) >= 0 for row in setting.concurrency)
        ),
        "what is scarce must be some of the resources beside cores": set(setting.scarce)
        <= set(RESOURCES[1:]),
        "machines must belong to nodes": names.issuperset(setting.node_of_machine.values()),
        "units and the memory of waits must be positive and finite": 0.0 < setting.time_unit_s < math.inf
        and 0.0 < setting.memory_s < math.inf,
        "start-up times must be at least 0, one of every service, their memory and room positive": setting.cold
        is None
        or setting.cold.are_sound(len(setting.services), len(nodes)),
        "factors of run times must be positive and finite, one of every service and label": setting.run_labels
        is None
        or setting.run_labels.fits(len(setting.services), len(setting.scenarios), len(setting.queues)),
        "factors of run times must be positive and finite, one of every service of an agent": setting.run_habits
        is None
        or all(
            len(row) == len(setting.services) and all(0.0 < one < math.inf for one in row)
            for row in setting.run_habits.values()
        ),
        "requested run times must count by an exponent in (0, 1], and be positive and finite, one of every service": (
            setting.requested_runs is None or setting.requested_runs.are_sound(len(setting.services))
        ),
        "what books learn must be bounded": math.isfinite(setting.trained_until_s)
        and _bounded(setting.dynamics)
        and all(
            len(node.run_variance) == len(setting.services)
            and all(0.0 <= one < math.inf for one in node.run_variance)
            for node in nodes
        ),
    }
    if broken := [words for words, holds in sound.items() if not holds]:
        raise _unfit("; ".join(broken))


def _known_node(content: Mapping[str, Any]) -> KnownNode:
    capacity = _amounts([content[name] for name in RESOURCES])
    machine = _amounts([content[f"machine_{name}"] for name in RESOURCES])
    ratio = tuple(float(one) for one in content["run_ratio"])
    variance = tuple(float(one) for one in content.get("run_variance", (0.0,) * len(ratio)))
    return KnownNode(
        content["name"], content["site"], bool(content["is_cloud"]), capacity, machine, ratio, variance
    )


def _dynamics(content: Mapping[str, Any] | None) -> KnownRunDynamics | None:
    return (
        None
        if content is None
        else KnownRunDynamics(
            **{"aged_per_day": float(content["drift_per_day"])}  # earlier contracts have one rate for both
            | {name: float(value) for name, value in content.items()}
        )
    )


def _cold_starts(content: Mapping[str, Any] | None) -> KnownColdStarts | None:
    if content is None:
        return None
    startup_s, room, slowness = (
        None if content.get(name) is None else tuple(float(one) for one in content[name])
        for name in ("startup_s", "room", "slowness")
    )
    part = content.get("part")
    part = None if part is None else tuple(tuple(float(one) for one in row) for row in part)
    return KnownColdStarts(float(content["memory_s"]), startup_s or (), room, slowness, part)


def _wakes(content: Mapping[str, Any] | None) -> KnownWakes | None:
    if content is None:
        return None
    return KnownWakes(*(tuple(float(one) for one in content[name]) for name in ("after_s", "wake_s")))


def _run_habits(content: Mapping[str, Any] | None) -> dict[str, tuple[float, ...]] | None:
    if content is None:
        return None
    return {agent: tuple(float(one) for one in row) for agent, row in content.items()}


def _requested_runs(content: Mapping[str, Any] | None) -> KnownRequestedRuns | None:
    if content is None:
        return None
    return KnownRequestedRuns(float(content["exponent"]), tuple(float(one) for one in content["typical_s"]))


def _run_labels(content: Mapping[str, Any] | None) -> KnownRunLabels | None:
    if content is None:
        return None
    of_scenario, of_queue = (
        tuple(tuple(float(one) for one in row) for row in content[name])
        for name in ("of_scenario", "of_queue")
    )
    return KnownRunLabels(of_scenario, of_queue)


def _bounded(dynamics: KnownRunDynamics | None) -> bool:
    if dynamics is None:
        return True
    amounts = (
        dynamics.scatter,
        dynamics.node_memory_s,
        dynamics.node_variance,
        dynamics.drift_per_day,
        dynamics.aged_per_day,
    )
    return (
        math.isfinite(sum(amounts) + dynamics.offset) and min(amounts[:2]) > 0.0 and min(amounts[2:]) >= 0.0
    )


def _readiness(values: Sequence[float]) -> np.ndarray:
    home, elsewhere, cloud = map(float, values)
    return np.array([home, elsewhere, cloud])


def _amounts(values: Sequence[float | None]) -> tuple[float, ...]:
    amounts = tuple(math.inf if value is None else float(value) for value in values)
    if any(math.isinf(amount) and value is not None for amount, value in zip(amounts, values, strict=True)):
        raise ValueError("amounts must be finite; null where no limit is known")
    return amounts


def _unfit(where: str) -> ProductError:
    return ProductError(
        "the contract's setting is none of a placement policy",
        where=where,
        allowed="nodes, vocabularies, candidate sets, estimates and scales as schedtwin export writes them",
        advice="export the policy again",
    )
