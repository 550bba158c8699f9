"""What is known of nodes: from training, from the inventory that `POST /nodes` states, and from a question itself.

What a question states of a node holds for that question alone: it is laid over what is known, and
nothing of it is kept but that it was read before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from offline_rl.runner import Node
from offline_rl.runner.features import SLACK
from offline_rl.runner.setting import RESOURCES
from offline_rl.serving.queries import PlacementQuery

MAX_NODES = 20_000
"""Nodes of an inventory, and of one question."""
MAX_KINDS = 1000
"""Kinds of requests (by what they request), and sets of candidates, that are remembered."""
MAX_NAMES = 1_000_000
"""Names in all that are remembered of sets of candidates, or of nodes too small for a kind of request."""
_MACHINE = tuple(f"machine_{name}" for name in RESOURCES)
Wanted = tuple[tuple[str, float, float], ...]
"""(resource, amount in total, amount per machine) that a request needs."""


class Remembered(dict):
    """A dictionary that forgets everything when it holds too much: `MAX_KINDS` keys, or `MAX_NAMES` in all."""

    def __init__(self) -> None:
        super().__init__()
        self._num_names = 0

    def keep(self, key: Any, value: Any, num_names: int) -> Any:
        """Remembers a value that stands for so many names; the value."""
        if len(self) >= MAX_KINDS or self._num_names + num_names > MAX_NAMES:
            self.clear()
        if num_names <= MAX_NAMES:
            self[key] = value
            self._num_names += num_names
        return value

    def clear(self) -> None:
        """Forgets everything."""
        super().clear()
        self._num_names = 0


class Inventory:
    """Facts about nodes, by name. Not thread-safe.

    Attributes:
        facts: What is known of every node, in order of appearance: the inventory's word over training's.
        absent: Nodes of training, and machines of theirs, that the inventory does not name: they are not there.
    """

    def __init__(self) -> None:
        self.facts: dict[str, Node] = {}
        self.absent: set[str] = set()
        self._trained: tuple[Node, ...] = ()
        self._node_of_machine: Mapping[str, str] = {}
        self._stated: tuple[Node, ...] = ()
        self._closed: set[str] = set()
        self._too_small = Remembered()
        self._read: dict[str, tuple[Node, Node | None]] = {}

    def train(self, nodes: Iterable[Node], node_of_machine: Mapping[str, str] | None = None) -> None:
        """Takes the nodes of another policy in place of those of the last one.

        Args:
            nodes: Of its training.
            node_of_machine: Machine -> node, where nodes are classes of machines.
        """
        self._trained, self._node_of_machine = tuple(nodes), node_of_machine or {}
        self._combine()

    def state(self, nodes: Iterable[Node]) -> None:
        """Takes another inventory in place of the last one."""
        self._stated = tuple(nodes)
        self._combine()

    def own(self, query: PlacementQuery) -> dict[str, Node]:
        """What a question states of its nodes and is not known already: by name, laid over what is known."""
        own = {}
        for name, stated in query.machines.items():
            read = self._read.get(name)
            if read is None or read[0] is not stated:
                known = self.facts.get(name)
                node = stated if known is None else merged(known, stated)
                if len(self._read) >= MAX_NODES:
                    self._read.clear()
                read = self._read[name] = stated, None if node == known else node
            if read[1] is not None:
                own[name] = read[1]
        return own

    def verdicts(
        self, query: PlacementQuery, own: Mapping[str, Node]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Candidate -> why it cannot take a request now, and candidate -> why it never can."""
        wanted = _wanted(query)
        too_small = self._nodes_too_small(wanted)
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        if not (too_small or self._closed or own):
            return failed, unresolvable
        for name in query.names:
            node = own.get(name)
            is_closed = name in self._closed if node is None else not node.available
            trouble = too_small.get(name) if node is None else _too_small(node, wanted)
            if is_closed:
                failed[name] = "not in the inventory" if name in self.absent else "not available"
            elif trouble:
                unresolvable[name] = trouble
        return failed, unresolvable

    def _combine(self) -> None:
        self.facts = {node.name: node for node in self._trained}
        for node in self._stated:
            known = self.facts.get(node.name)
            self.facts[node.name] = node if known is None else merged(known, node)
        self.absent = self._not_stated()
        for name in self.absent & self.facts.keys():
            self.facts[name] = replace(self.facts[name], available=False)
        self._closed = {name for name, node in self.facts.items() if not node.available} | self.absent
        self._too_small.clear()
        self._read.clear()

    def _not_stated(self) -> set[str]:
        """What training knows and the inventory does not name; nothing without an inventory. A class of machines is
        there while one of them is, and machines are while their class is named."""
        if not self._stated:
            return set()
        node_of = self._node_of_machine
        stated = {node.name for node in self._stated}
        there = stated | {
            node_of[node.name] for node in self._stated if node.available and node.name in node_of
        }
        machines = {machine for machine, node in node_of.items() if not stated & {machine, node}}
        return {node.name for node in self._trained if node.name not in there} | machines

    def _nodes_too_small(self, wanted: Wanted) -> dict[str, str]:
        """Node -> why it can never take such a request; kept until the facts change."""
        known = self._too_small.get(wanted)
        if known is None:
            known = {
                name: trouble for name, node in self.facts.items() if (trouble := _too_small(node, wanted))
            }
            self._too_small.keep(wanted, known, len(known))
        return known


def merged(known: Node, stated: Node) -> Node:
    """What is known of a node, and over it what is stated of it; what is not stated stays. A node of one machine is as
    large as its machine, also where it has grown since training."""
    facts = ("site", "is_cloud", *RESOURCES, *_MACHINE)
    changes = {name: value for name in facts if (value := getattr(stated, name)) is not None}
    for name, machine in zip(RESOURCES, _MACHINE, strict=True):
        largest = getattr(known, machine)
        if name in changes and machine not in changes and largest is not None:
            is_one = largest == getattr(known, name)
            changes[machine] = changes[name] if is_one else min(largest, changes[name])
    return replace(known, available=stated.available, **changes)


def _wanted(query: PlacementQuery) -> Wanted:
    request = query.request
    amounts = zip(RESOURCES, (request.cpu_cores, request.memory_gib, request.gpus), strict=True)
    return tuple((name, amount, amount / request.num_nodes) for name, amount in amounts if amount > 0.0)


def _too_small(node: Node, wanted: Wanted) -> str:
    """Why a node can never take the request; empty if it can, as far as is known."""
    for name, total, each in wanted:
        whole, largest = getattr(node, name), getattr(node, f"machine_{name}")
        for amount, limit in ((total, whole), (each, whole if largest is None else largest)):
            if limit is not None and amount > limit * SLACK:
                return f"asks for {amount:g} {name}, the node has {limit:g}"
    return ""
