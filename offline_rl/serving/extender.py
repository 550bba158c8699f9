"""The wire format of Kubernetes scheduler extenders (`k8s.io/kube-scheduler/extender/v1`).

kube-scheduler posts `ExtenderArgs` to `/filter` and to `/prioritize`: the pod, and either whole node objects (`Nodes`)
or, with `nodeCacheCapable: true`, their names (`NodeNames`). Go writes these keys as its fields are spelled; older
schedulers and other callers write `pod`, `nodes`, `nodenames`. The answer is spelled as the question was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from offline_rl.runner import Node
from offline_rl.serving.errors import QueryError
from offline_rl.serving.kubernetes import NodeObjects, query_of_pod
from offline_rl.serving.node_lists import SeenNode
from offline_rl.serving.queries import PlacementQuery, list_of, mapping_of, names_of

MAX_SCORE = 10
"""`extender/v1.MaxExtenderPriority`."""


@dataclass(frozen=True)
class Spelling:
    """How the keys of one dialect are written."""

    nodes: str
    node_names: str
    failed: str
    unresolvable: str
    error: str
    host: str
    score: str


GO = Spelling("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error", "Host", "Score")
CAMEL = Spelling("nodes", "nodenames", "failedNodes", "failedAndUnresolvableNodes", "error", "host", "score")


@dataclass(frozen=True)
class ExtenderArgs:
    """A question of kube-scheduler.

    Attributes:
        query: The question in plain words.
        items: The node objects as they came, parsed or as bytes, by name; None where only names came.
        spelling: How the answer's keys are to be written.
    """

    query: PlacementQuery
    items: Mapping[str, Any] | None
    spelling: Spelling


def spelling_of(content: Any) -> Spelling:
    """The dialect of `ExtenderArgs`; Go's unless it is plainly the other."""
    return CAMEL if isinstance(content, dict) and "pod" in content else GO


def args_of(
    content: Any, now_s: float, objects: NodeObjects | None = None, seen: Sequence[SeenNode] | None = None
) -> ExtenderArgs:
    """Reads `ExtenderArgs`.

    Args:
        content: The JSON value.
        now_s: The clock.
        objects: Remembers node objects that it has read before.
        seen: The node objects, where they were split from the content.

    Raises:
        QueryError: It is no such thing, or pod or nodes are malformed.
    """
    if not isinstance(content, dict):
        raise QueryError("ExtenderArgs are a JSON object", where=type(content).__name__)
    keys = {key.lower(): value for key, value in content.items()}
    if keys.get("pod") is None:
        raise QueryError("the pod is missing", where="ExtenderArgs", allowed="Pod, with Nodes or NodeNames")
    items: dict[str, Any] | None = None
    machines: dict[str, Node] = {}
    names: tuple[str, ...] = ()
    listed = mapping_of(keys.get("nodes"), "Nodes")
    if keys.get("nodenames") is not None:
        names = names_of(list_of(keys["nodenames"], "NodeNames"), "NodeNames")
    elif seen is not None:
        items = {node.facts.name: orjson.Fragment(node.raw) for node in seen}
        machines = {node.facts.name: node.facts for node in seen}
        names = tuple(machines)
    elif "nodes" in keys:
        items, read = {}, objects or NodeObjects()
        for index, item in enumerate(list_of(listed.get("items"), "Nodes.items")):
            where = f"Nodes.items[{index}]"
            machine = read.machine(mapping_of(item, where), where)
            items[machine.name], machines[machine.name] = item, machine
        names = tuple(machines)
    query = query_of_pod(mapping_of(keys["pod"], "Pod"), names, machines, now_s)
    return ExtenderArgs(query, items, spelling_of(content))


def filter_result(
    args: ExtenderArgs, failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> dict[str, Any]:
    """An `ExtenderFilterResult`: the nodes that passed, in the mode of the question, and why others did not.

    Args:
        args: The question.
        failed: Node -> why it cannot take the pod now; preempting others may help.
        unresolvable: Node -> why it never can.
    """
    words = args.spelling
    passed = [name for name in args.query.names if name not in failed and name not in unresolvable]
    nodes = None if args.items is None else {"metadata": {}, "items": [args.items[name] for name in passed]}
    return {
        words.nodes: nodes,
        words.node_names: passed if args.items is None else None,
        words.failed: dict(failed),
        words.unresolvable: dict(unresolvable),
        words.error: "",
    }


def filter_error(message: str, words: Spelling) -> dict[str, Any]:
    """An `ExtenderFilterResult` with nothing but an error."""
    return {
        words.nodes: None,
        words.node_names: None,
        words.failed: None,
        words.unresolvable: None,
        words.error: message,
    }


def host_priorities(names: Sequence[str], scores: Sequence[int], words: Spelling) -> list[dict[str, Any]]:
    """A `HostPriorityList`: every node's score from 0 to `MAX_SCORE`."""
    host, score = words.host, words.score
    return [{host: name, score: value} for name, value in zip(names, scores, strict=True)]
