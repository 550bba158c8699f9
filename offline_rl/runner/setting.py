"""What placement features are computed with, as a bundle's contract keeps it: nodes, vocabularies, estimates, scales.

The JSON form (`PolicyContract.setting`) is made by `offline_rl.placement_contract`; null is "no limit known".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from logs_schema.errors import ProductError

RESOURCES = ("cpu_cores", "memory_gib", "gpus")
"""Resources in the order of arrays; the same as in training."""


@dataclass(frozen=True)
class KnownNode:
    """A node as training knew it.

    Attributes:
        name, site, is_cloud: Where it stands.
        capacity, machine: Of the node and of its largest machine, in the order of `RESOURCES`; inf where no limit is
            known.
        run_ratio: How long each service runs there, over what is expected of it anywhere.
    """

    name: str
    site: str
    is_cloud: bool
    capacity: tuple[float, ...]
    machine: tuple[float, ...]
    run_ratio: tuple[float, ...]


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
        time_unit_s: Unit of durations in features.
        memory_s: Time in which the memory of recent waits fades to 1/e.
        node_of_machine: Machine -> node, where decisions name classes of machines.
        sees_all: Whether nodes of other sites are seen in full, instead of as the mean of their site.
        knows_week: Whether training saw every weekday; otherwise policies are not shown the time of week.
        follow: Weight of a run that ended in what usually happens, for books kept by events; 0: they do not learn.
        most_news: Most that one run counts, in units of the logarithm of a run time.
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
    follow: float = 0.0
    most_news: float = 1.0

    @cached_property
    def counted(self) -> tuple[bool, ...]:
        """Which resources training counted: the others are asked for in vain."""
        capacity = np.array([node.capacity for node in self.nodes]).T
        return tuple(bool(row.any()) for row in np.isfinite(capacity) & (capacity > 0.0))

    @cached_property
    def demanded(self) -> tuple[bool, ...]:
        """Which resources a request's demand is known for: some node has a finite, and some a positive amount."""
        capacity = np.array([node.capacity for node in self.nodes]).T
        return tuple(bool(np.isfinite(row).any() and (row > 0.0).any()) for row in capacity)

    @cached_property
    def run_ratio_elsewhere(self) -> tuple[float, ...]:
        """Of every service, on a node that training did not know: the mean over those it knew."""
        return tuple(np.mean([node.run_ratio for node in self.nodes], axis=0).tolist())


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
            follow=float(content.get("follow", 0.0)),
            most_news=float(content.get("most_news", 1.0)),
            **{name: tuple(content[name]) for name in ("sites", "scenarios", "services", "queues")},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unfit(f"{type(error).__name__}: {error}") from error
    sound = (
        setting.nodes
        and setting.candidate_sets
        and min(len(setting.sites), len(setting.scenarios), len(setting.services), len(setting.queues)) > 0
        and len(setting.acceptance_of_scenario) == len(setting.scenarios)
        and len(setting.run_of_service_s) == len(setting.services)
        and all(len(node.run_ratio) == len(setting.services) for node in setting.nodes)
        and all(min(node.run_ratio) > 0.0 for node in setting.nodes)
        and setting.time_unit_s > 0.0
        and setting.memory_s > 0.0
        and 0.0 <= setting.follow < 1.0
        and setting.most_news > 0.0
        and all(node.site in setting.sites for node in setting.nodes)
    )
    if not sound:
        raise _unfit("nodes, vocabularies or scales contradict each other")
    return setting


def _known_node(content: Mapping[str, Any]) -> KnownNode:
    capacity = _amounts([content[name] for name in RESOURCES])
    machine = _amounts([content[f"machine_{name}"] for name in RESOURCES])
    ratio = tuple(float(one) for one in content["run_ratio"])
    return KnownNode(content["name"], content["site"], bool(content["is_cloud"]), capacity, machine, ratio)


def _readiness(values: Sequence[float]) -> np.ndarray:
    home, elsewhere, cloud = map(float, values)
    return np.array([home, elsewhere, cloud])


def _amounts(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(math.inf if value is None else float(value) for value in values)


def _unfit(where: str) -> ProductError:
    return ProductError(
        "the contract's setting is none of a placement policy",
        where=where,
        allowed="nodes, vocabularies, candidate sets, estimates and scales as schedtwin export writes them",
        advice="export the policy again",
    )
