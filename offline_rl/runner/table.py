"""The table of nodes that a decision is about: descriptions laid over the nodes of training.

A policy bound to its choices always decides over all of training's nodes, in their order: a node that is not described
is not available, one that was not in training cannot be chosen. A policy bound to none decides over the nodes as
described; their capacities come from the description, or from training where the node is known there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from logs_schema.errors import first
from offline_rl.contract import PolicyContract
from offline_rl.errors import PolicyInputError
from offline_rl.runner.descriptions import Held, Node, Request
from offline_rl.runner.features import NUMERIC_REQUEST_FEATURES, NodeFacts, node_facts
from offline_rl.runner.setting import RESOURCES, KnownNode, PlacementSetting
from twin.conventions import KIND

NO_SUCH_NODE = "this node was not in training, and the policy is bound to the nodes it was trained on"
NO_CAPACITY = "this node was not in training, and its capacity (cpu_cores) is not given"


@dataclass(frozen=True)
class NodeTable:
    """Nodes in the order of arrays.

    Attributes:
        names: [rows] name of every row.
        row_of: Name -> row.
        described: Names as described, in order: what a decision is about.
        rows: [described] row of every described node.
        refused: Described node -> why it can never be chosen.
        choosable: [rows] bool: described, and not refused.
        facts: What is fixed of the rows.
        everyone: [rows] True.
        as_described: Whether the rows are the described nodes, in order.
        site_index: Site -> index; training's sites first.
        run_variance: [services, rows] of what is known of the logarithms of run times.
        trained_units: `facts.run_units` as in training, where the ledger has learned since; None where they have not.
    """

    names: tuple[str, ...]
    row_of: dict[str, int]
    described: tuple[str, ...]
    rows: np.ndarray
    refused: dict[str, str]
    choosable: np.ndarray
    facts: NodeFacts
    everyone: np.ndarray
    as_described: bool
    site_index: dict[str, int]
    trained_units: np.ndarray | None = None
    run_variance: np.ndarray | None = None


def node_table(nodes: Sequence[Node], contract: PolicyContract, setting: PlacementSetting) -> NodeTable:
    """Lays descriptions over the nodes of training.

    Args:
        nodes: Each name once.
        contract: Of the policy.
        setting: Of the policy.

    Raises:
        PolicyInputError: A name stands twice, or a capacity is negative or NaN.
    """
    names = tuple(node.name for node in nodes)
    if len(set(names)) != len(names):
        twice = sorted(name for name, times in Counter(names).items() if times > 1)
        raise PolicyInputError("nodes are described twice", where=first(twice), allowed="each name once")
    known = {node.name: node for node in setting.nodes}
    described = dict(zip(names, nodes, strict=True))
    site_index = {site: index for index, site in enumerate(setting.sites)}
    free = contract.network.any_choices
    refused = {name: NO_SUCH_NODE for name in names if not free and name not in known}
    row_names = names if free else tuple(known)
    facts = []
    for name in row_names:
        each = _laid_over(described.get(name), known.get(name), setting)
        if each is None:
            refused[name] = NO_CAPACITY
            each = _stranger(name, setting, (0.0,) * len(RESOURCES))
        site_index.setdefault(each.site, len(site_index))
        facts.append(each)
    row_of = {name: row for row, name in enumerate(row_names)}
    capacity = np.array([each.capacity for each in facts]).reshape(-1, len(RESOURCES)).T
    machine = np.array([each.machine for each in facts]).reshape(-1, len(RESOURCES)).T
    run_ratio = np.array([each.run_ratio for each in facts]).reshape(-1, len(setting.services)).T
    _refuse_impossible(capacity, machine, row_names)
    site = np.array([site_index[each.site] for each in facts], int)
    is_cloud = np.array([each.is_cloud for each in facts], bool)
    return NodeTable(
        names=row_names,
        row_of=row_of,
        described=names,
        rows=np.array([row_of.get(name, -1) for name in names], int),
        refused=refused,
        choosable=np.array([name in described and name not in refused for name in row_names], bool),
        facts=node_facts(
            site,
            is_cloud,
            capacity,
            machine,
            run_ratio,
            setting.counted,
            setting.time_unit_s,
            num_sites=len(site_index),
            sees_all=setting.sees_all,
            scarce=tuple(map(RESOURCES.index, setting.scarce)),
            hazard=setting.hazard_of(row_names),
            timeouts=setting.timeouts,
        ),
        everyone=np.ones(len(row_names), bool),
        as_described=names == tuple(row_names),
        site_index=site_index,
        run_variance=np.array([each.run_variance for each in facts]).reshape(-1, len(setting.services)).T,
    )


def _laid_over(node: Node | None, known: KnownNode | None, setting: PlacementSetting) -> KnownNode | None:
    """The facts of a node, as described, else as in training; None where its capacity is in neither."""
    if node is None:
        return known
    stated = tuple(getattr(node, name) for name in RESOURCES)
    machine = tuple(getattr(node, f"machine_{name}") for name in RESOURCES)
    if known is None:
        if node.cpu_cores is None:
            return None
        known = _stranger(node.name, setting, (0.0, np.inf, 0.0))
    elif (
        stated == (None,) * len(stated) and machine == stated and node.site is None and node.is_cloud is None
    ):
        return known
    total = tuple(
        before if now is None else float(now) for now, before in zip(stated, known.capacity, strict=True)
    )
    largest = tuple(
        float(own) if own is not None else (before if now is None else float(now))
        for own, now, before in zip(machine, stated, known.machine, strict=True)
    )
    site = known.site if node.site is None else node.site
    is_cloud = known.is_cloud if node.is_cloud is None else node.is_cloud
    return KnownNode(node.name, site, is_cloud, total, largest, known.run_ratio, known.run_variance)


def _stranger(name: str, setting: PlacementSetting, capacity: tuple[float, ...]) -> KnownNode:
    """A node that was not in training."""
    return KnownNode(
        name,
        setting.sites[0],
        False,
        capacity,
        capacity,
        setting.run_ratio_elsewhere,
        setting.run_variance_elsewhere,
    )


def _refuse_impossible(capacity: np.ndarray, machine: np.ndarray, names: tuple[str, ...]) -> None:
    bad = ~np.all((capacity >= 0.0) & (machine >= 0.0), axis=0)  # written so that NaN is bad
    if np.any(bad):
        raise PolicyInputError(
            "a node's capacity cannot be",
            where=first(name for name, is_bad in zip(names, bad.tolist(), strict=True) if is_bad),
            allowed="numbers of at least 0; None where not known",
        )


@dataclass(frozen=True)
class Vocabulary:
    """Where the labels of a request stand among its features.

    Attributes:
        offsets: Kind of label -> (position of its first flag, label -> index).
        num_features: Of a request, flags included.
        kinds_by: Label that services of training are told apart by, see `PlacementSetting`.
    """

    offsets: dict[str, tuple[int, dict[str, int]]]
    num_features: int
    kinds_by: str = ""

    def service_index(self, asked: Request | Held) -> int:
        """The place of a request's service among those of training, of its kind where that has one; 0 where it is not
        known. What a node is described to hold has no site, and so no kind by it."""
        index_of = self.offsets["service"][1]
        index = index_of.get(asked.service, 0)  # type: ignore[arg-type]
        if not self.kinds_by:
            return index
        return index_of.get(f"{asked.service}{KIND}{getattr(asked, self.kinds_by, None)}", index)


def vocabulary_of(setting: PlacementSetting) -> Vocabulary:
    """The vocabularies of a setting, in the order of training: site, scenario, service, queue."""
    start, offsets = len(NUMERIC_REQUEST_FEATURES), {}
    kinds = {
        "site": setting.sites,
        "scenario": setting.scenarios,
        "service": setting.services,
        "queue": setting.queues,
    }
    for kind, labels in kinds.items():
        offsets[kind] = start, {label: index for index, label in enumerate(labels)}
        start += len(labels)
    return Vocabulary(offsets, start, setting.kinds_by)


def request_feature_names(vocabulary: Vocabulary) -> tuple[str, ...]:
    """Names of the features of a request, in order."""
    flags = (f"{kind}={label}" for kind, (_, labels) in vocabulary.offsets.items() for label in labels)
    return (*NUMERIC_REQUEST_FEATURES, *flags)


def unknown_labels(request: Request, vocabulary: Vocabulary) -> dict[str, str]:
    """Kind -> label of a request that training never saw."""
    labels = {kind: getattr(request, kind) for kind in vocabulary.offsets}
    return {
        kind: label
        for kind, label in labels.items()
        if label is not None and label not in vocabulary.offsets[kind][1]
    }
