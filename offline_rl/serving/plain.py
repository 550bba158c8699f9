"""The plain JSON format: `POST /decide` decides, `POST /events` reports outcomes, `POST /nodes` sets the inventory.

    {"request": {"request_id": "r1", "service": "resize", "site": "edge-1", "cpu_cores": 2, "deadline_s": 5},
     "nodes": ["n1", {"name": "n2", "cpu_cores": 8, "site": "edge-1"}]}

The request's keys are columns of the table `requests` that are known when deciding; a node is a name, or an object with
the fields of `offline_rl.runner.Node` that describe it. Without `nodes`, all nodes known to the server are meant.
The answer says how many of the request's labels did not occur in training (`unknown_labels`), and how many features,
of it and of the nodes, are outside the range of training (`out_of_range`); null where the policy was not asked before
the answer.

What a question states of a node holds for that question alone; the inventory holds for all, until the next one, and
closes nodes of training that it does not name. An empty one goes back to the nodes of training:

    {"nodes": [{"name": "n2", "cpu_cores": 8, "site": "edge-1"}]}    or what `kubectl get nodes -o json` prints

    {"request_id": "r1", "event": "start", "time": "2024-05-01T12:00:00Z", "node": "n2"}
    {"request_id": "r1", "event": "finish", "status": "completed"}

`event` is `start` or `finish`; `time` is now unless given; `node` where it ran, if not where it was offered; `status`
of a finish is completed (by default), failed, killed, dropped or rejected. A list of events may be sent at once. What
lies before the decision or the start of its request is left out, and stands in the answer with its index (`refused`);
the others count. Where none is left the status is 400, and so where an event is malformed: then none counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from logs_schema.calendar import DAY_S
from offline_rl.runner import Node, Request
from offline_rl.serving.errors import QueryError
from offline_rl.serving.inventory import MAX_NODES
from offline_rl.serving.kubernetes import machine_of
from offline_rl.serving.quantities import MOST
from offline_rl.serving.queries import (
    PlacementQuery,
    instant_of,
    list_of,
    mapping_of,
    number_of,
    object_of,
    shown_instant,
    text_of,
)

LABELS = ("site", "service", "scenario", "queue")
AMOUNTS = ("cpu_cores", "memory_gib", "gpus", "num_nodes", "requested_run_s", "deadline_s", "input_mib")
ABOUT = ("request_id", "arrival", "agent", "session", "output_mib")
NODE_AMOUNTS = ("cpu_cores", "memory_gib", "gpus", "machine_cpu_cores", "machine_memory_gib", "machine_gpus")
NODE_FLAGS = ("available", "is_cloud")
NODE_KEYS = ("name", "site", *NODE_FLAGS, *NODE_AMOUNTS)
FINISHED = ("completed", "failed", "killed", "dropped", "rejected")
MAX_EVENTS = 10_000
OLDEST_S, NEWEST_S = 366 * DAY_S, DAY_S
"""How long before and after the server's clock a request may have arrived: beyond that its clock is another one."""


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """A start or an end of a request.

    Attributes:
        request_id, node: Of which request, and where; None: where it was offered.
        time_s: When, seconds since 1970.
        status: How it ended; None for a start.
        is_now: It happens as it is told, by the server's clock alone, which may have been set back since the decision.
    """

    request_id: str
    time_s: float
    node: str | None
    status: str | None
    is_now: bool = False


def query_of_json(content: Any, known: Sequence[str], now_s: float) -> PlacementQuery:
    """Reads the content of `POST /decide`.

    Args:
        content: The JSON value.
        known: The nodes meant where the content names none.
        now_s: The clock.

    Raises:
        QueryError: A key is unknown, or a value is not what it should be.
    """
    question = _object(content, "the content", ("request", "nodes"))
    request = _object(question.get("request"), "request", (*ABOUT, *LABELS, *AMOUNTS))
    identity = text_of(request.get("request_id"), "request.request_id")
    if identity is None:
        raise QueryError("the request has no identity", where="request.request_id")
    labels = {name: text_of(request.get(name), f"request.{name}") for name in LABELS}
    lower = {"num_nodes": 1.0}
    amounts = {
        name: number_of(request.get(name), f"request.{name}", lower=lower.get(name, 0.0)) for name in AMOUNTS
    }
    if amounts["num_nodes"] is not None and not amounts["num_nodes"].is_integer():
        raise QueryError(
            "a request is spread over whole nodes", where=f"request.num_nodes: {amounts['num_nodes']}"
        )
    named = {name: value for name, value in amounts.items() if value is not None}
    arrival_s = _arrival(request.get("arrival"), now_s)
    names, machines = _nodes(question.get("nodes"), known)
    agent = text_of(request.get("agent"), "request.agent")
    return PlacementQuery(
        request_id=identity,
        arrival_s=min(now_s, arrival_s),
        request=Request(**labels, **named, agent=agent),  # type: ignore[arg-type]
        names=names,
        machines=machines,
        agent=agent,
        session=text_of(request.get("session"), "request.session"),
        output_mib=number_of(request.get("output_mib"), "request.output_mib"),
        unspecified=frozenset(AMOUNTS) - named.keys(),
    )


def inventory_of_json(content: Any) -> list[Node]:
    """Reads the content of `POST /nodes`: `nodes` as in a question, or `items` of Kubernetes' node objects.

    Raises:
        QueryError: A node is malformed or stands twice, or there are too many; none of them counts.
    """
    if isinstance(content, dict) and "items" in content:
        listed = list_of(content["items"], "items")
        nodes = [
            machine_of(mapping_of(item, f"items[{index}]"), f"items[{index}]")
            for index, item in enumerate(listed)
        ]
    else:
        inventory = _object(content, "the content", ("nodes",))
        if inventory.get("nodes") is None:
            raise QueryError("an inventory has nodes", allowed="nodes, or items of Kubernetes' node objects")
        listed = list_of(inventory["nodes"], "nodes")
        names, machines = _nodes(listed, ())
        nodes = [machines.get(name) or Node(name) for name in names]
    if len(listed) > MAX_NODES:
        raise QueryError("too many nodes", where=f"{len(listed)} nodes", allowed=f"{MAX_NODES}")
    if len({node.name for node in nodes}) != len(listed):
        raise QueryError("a node stands twice in the inventory", allowed="each name once")
    return nodes


def events_of_json(content: Any, now_s: float) -> list[RequestEvent]:
    """Reads the content of `POST /events`.

    Args:
        content: One event, or a list of at most `MAX_EVENTS`.
        now_s: The time of events without one.

    Raises:
        QueryError: An event is malformed; none of them counts.
    """
    listed = content if isinstance(content, list) else [content]
    if len(listed) > MAX_EVENTS:
        raise QueryError("too many events at once", where=f"{len(listed)} events", allowed=f"{MAX_EVENTS}")
    return [_event(one, f"event {index}", now_s) for index, one in enumerate(listed)]


def _event(content: Any, where: str, now_s: float) -> RequestEvent:
    event = _object(content, where, ("request_id", "event", "time", "node", "status"))
    identity, kind = text_of(event.get("request_id"), f"{where}, request_id"), event.get("event")
    if identity is None or kind not in ("start", "finish"):
        raise QueryError(
            "this is no event",
            where=where,
            allowed="request_id, and event: start or finish",
            advice='for example {"request_id": "r1", "event": "finish", "status": "completed"}',
        )
    status = event.get("status") or "completed"
    if kind == "finish" and status not in FINISHED:
        raise QueryError("no such end of a request", where=f"{where}, status", allowed=", ".join(FINISHED))
    time_s = instant_of(event.get("time"), f"{where}, time")
    node = text_of(event.get("node"), f"{where}, node")
    time_s = now_s if time_s is None else min(time_s, now_s)
    return RequestEvent(identity, time_s, node, status if kind == "finish" else None, is_now=time_s == now_s)


def _arrival(value: Any, now_s: float) -> float:
    """When the request arrived: now unless it says so; QueryError where that is far from now."""
    arrival_s = instant_of(value, "request.arrival")
    if arrival_s is None:
        return now_s
    if not now_s - OLDEST_S <= arrival_s <= now_s + NEWEST_S:
        raise QueryError(
            "the request arrived far from the server's clock",
            where=f"request.arrival: {str(value)[:80]}, which is {shown_instant(arrival_s)}",
            allowed=f"ISO 8601 or seconds since 1970, at most a year before {shown_instant(now_s)}",
            advice="leave arrival out where the request has just arrived",
        )
    return arrival_s


def _nodes(content: Any, known: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Node]]:
    if content is None:
        return tuple(known), {}
    names: dict[str, None] = {}
    machines: dict[str, Node] = {}
    listed = list_of(content, "nodes")
    if len(listed) > MAX_NODES:
        raise QueryError("too many nodes", where=f"{len(listed)} nodes", allowed=f"{MAX_NODES}")
    for index, one in enumerate(listed):
        where = f"nodes[{index}]"
        node = _object({"name": one} if isinstance(one, str) else one, where, NODE_KEYS)
        name = text_of(node.get("name"), f"{where}.name")
        if name is None:
            raise QueryError("a node has no name", where=where)
        names[name] = None
        if len(node) > 1:
            machines[name] = _machine(name, node, where)
    return tuple(names), machines


def _machine(name: str, content: dict[str, Any], where: str) -> Node:
    for flag in NODE_FLAGS:
        if flag in content and not isinstance(content[flag], bool | None):
            raise QueryError("true or false is needed here", where=f"{where}.{flag}")
    amounts = {
        key: number_of(content[key], f"{where}.{key}", upper=MOST) for key in NODE_AMOUNTS if key in content
    }
    return Node(
        name=name,
        available=content.get("available") is not False,
        site=text_of(content.get("site"), f"{where}.site"),
        is_cloud=content.get("is_cloud"),
        **amounts,  # type: ignore[arg-type]
    )


def _object(content: Any, where: str, allowed: Sequence[str]) -> dict[str, Any]:
    """A JSON object that is there, with no keys but the allowed ones."""
    if content is None:
        raise QueryError(f"{where} is missing", allowed=", ".join(allowed))
    return object_of(content, where, allowed)
