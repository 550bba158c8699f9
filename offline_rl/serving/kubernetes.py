"""What the server reads from a Kubernetes pod and from node objects.

Of the request, from the pod, the first that is there:

    identity     metadata.uid, else namespace/name
    arrival      metadata.creationTimestamp (never later than now), else now
    amounts      resources.requests (else limits), as the scheduler counts them: the sum over containers and restartable
                 init containers, at least the largest other init container, or cores and memory of spec.resources; plus
                 spec.overhead. GPUs: `.../gpu`
    site         schedtwin.io/site, spec.nodeSelector[topology.kubernetes.io/zone], else the contract's first site
    service      schedtwin.io/service, app.kubernetes.io/name, app, the name of the controlling owner
    scenario     schedtwin.io/scenario
    queue        schedtwin.io/queue, spec.priorityClassName
    deadline     schedtwin.io/deadline-seconds
    run time     schedtwin.io/expected-run-seconds, spec.activeDeadlineSeconds, else the service's median in training
    input        schedtwin.io/input-mib
    agent        schedtwin.io/agent, else the namespace

`schedtwin.io/...` may be an annotation or a label; an annotation wins.

Of a node, from its object:

    amounts      status.allocatable, else status.capacity
    site         label schedtwin.io/site, topology.kubernetes.io/zone, failure-domain.beta.kubernetes.io/zone
    cloud tier   label schedtwin.io/tier is `cloud`
    available    not spec.unschedulable

Whatever an object does not have is taken from the contract, if the node is known from training. An instant, a number or
a quantity that cannot be understood is an error, not a guess.
"""

from typing import Any

from offline_rl.runner import Node, Request
from offline_rl.serving.errors import QueryError
from offline_rl.serving.inventory import MAX_NODES
from offline_rl.serving.quantities import GIB, amount_of
from offline_rl.serving.queries import PlacementQuery, instant_of, list_of, mapping_of, number_of, text_of

PREFIX = "schedtwin.io/"
ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"

Amounts = tuple[float, float, float]
"""Cores, memory in GiB, GPUs."""


def query_of_pod(
    pod: dict[str, Any], names: tuple[str, ...], machines: dict[str, Node], now_s: float
) -> PlacementQuery:
    """The question that a pod stands for.

    Raises:
        QueryError: The pod has no identity, or a part of it is not what the API allows.
    """
    metadata, spec = mapping_of(pod.get("metadata"), "metadata"), mapping_of(pod.get("spec"), "spec")
    marks = _marks(metadata)
    namespace, name = text_of(metadata.get("namespace"), "namespace"), text_of(metadata.get("name"), "name")
    identity = text_of(metadata.get("uid"), "metadata.uid") or (name and f"{namespace or 'default'}/{name}")
    if identity is None:
        raise QueryError("the pod has no identity", where="metadata", allowed="uid, or name and namespace")
    cores, memory_gib, gpus = requested_amounts(spec)
    arrival_s = instant_of(metadata.get("creationTimestamp"), "metadata.creationTimestamp")
    selector = mapping_of(spec.get("nodeSelector"), "spec.nodeSelector")
    expected = marks.get(PREFIX + "expected-run-seconds", spec.get("activeDeadlineSeconds"))
    input_mib = number_of(marks.get(PREFIX + "input-mib"), "input-mib", upper=1e12) or 0.0
    unspecified = {"cpu_cores": cores, "memory_gib": memory_gib, "input_mib": input_mib}
    agent = text_of(marks.get(PREFIX + "agent"), "agent") or namespace
    request = Request(
        cpu_cores=cores or 1.0,  # as in training, where a log has no amount
        memory_gib=memory_gib,
        gpus=gpus,
        site=text_of(marks.get(PREFIX + "site") or selector.get(ZONE), "site"),
        service=_service(marks, metadata),
        scenario=text_of(marks.get(PREFIX + "scenario"), "scenario"),
        queue=text_of(marks.get(PREFIX + "queue") or spec.get("priorityClassName"), "queue"),
        requested_run_s=number_of(expected, "expected run time", upper=1e9),
        deadline_s=number_of(marks.get(PREFIX + "deadline-seconds"), "deadline-seconds", upper=1e9),
        input_mib=input_mib,
        agent=agent,
    )
    return PlacementQuery(
        identity,
        min(now_s, arrival_s or now_s),
        request,
        names,
        machines,
        agent,
        unspecified=frozenset(column for column, amount in unspecified.items() if amount == 0.0),
    )


class NodeObjects:
    """Reads node objects, and again only where something that is read from them has changed.

    A node's `resourceVersion` changes with every change, but a caller may write any; so what counts is compared.
    """

    def __init__(self) -> None:
        self._read: dict[str, tuple[object, object, object, Node]] = {}

    def machine(self, item: dict[str, Any], where: str) -> Node:
        """As `machine_of`; an object like the last one of its name gives the same facts again."""
        metadata, status = mapping_of(item.get("metadata"), where), mapping_of(item.get("status"), where)
        name, labels = metadata.get("name"), metadata.get("labels")
        resources, spec = status.get("allocatable") or status.get("capacity"), item.get("spec")
        closed = spec.get("unschedulable") if isinstance(spec, dict) else spec
        known = self._read.get(name) if isinstance(name, str) else None
        if known is not None and known[0] == labels and known[1] == resources and known[2] == closed:
            return known[3]
        machine = machine_of(item, where)
        if len(self._read) >= MAX_NODES:
            self._read.clear()
        self._read[machine.name] = (labels, resources, closed, machine)
        return machine


def machine_of(node: dict[str, Any], where: str) -> Node:
    """The facts in a `v1.Node` object.

    Raises:
        QueryError: It has no name, or a part of it is not what the API allows.
    """
    metadata, status = mapping_of(node.get("metadata"), where), mapping_of(node.get("status"), where)
    name = text_of(metadata.get("name"), f"{where}.metadata.name")
    if name is None:
        raise QueryError("a node has no name", where=f"{where}.metadata.name")
    labels = mapping_of(metadata.get("labels"), f"{where}.metadata.labels")
    resources = mapping_of(status.get("allocatable") or status.get("capacity"), f"{where}.status.allocatable")
    tier = labels.get(PREFIX + "tier")
    gpus = [key for key in resources if key.endswith("/gpu")]
    return Node(
        name=name,
        available=mapping_of(node.get("spec"), where).get("unschedulable") is not True,
        site=text_of(
            labels.get(PREFIX + "site") or labels.get(ZONE) or labels.get(OLD_ZONE), f"{where} zone"
        ),
        is_cloud=None if tier is None else tier == "cloud",
        cpu_cores=amount_of(resources["cpu"]) if "cpu" in resources else None,
        memory_gib=amount_of(resources["memory"]) / GIB if "memory" in resources else None,
        gpus=sum(amount_of(resources[key]) for key in gpus) if gpus else None,
    )


def requested_amounts(spec: dict[str, Any]) -> Amounts:
    """What a pod requests, as the scheduler counts it: the sum over its containers, or the largest init container, or
    what it requests as a whole.

    Raises:
        QueryError: A container or a quantity is malformed.
    """
    running = [
        _of_container(one, "spec.containers") for one in list_of(spec.get("containers"), "spec.containers")
    ]
    sidecars: list[Amounts] = []
    largest: Amounts = (0.0, 0.0, 0.0)
    for one in list_of(spec.get("initContainers"), "spec.initContainers"):
        amounts = _of_container(one, "spec.initContainers")
        if one is not None and one.get("restartPolicy") == "Always":
            sidecars.append(amounts)
            largest = _largest(largest, _sum(sidecars))
        else:
            largest = _largest(largest, _sum([*sidecars, amounts]))
    overhead = _amounts(mapping_of(spec.get("overhead"), "spec.overhead"))
    cores, memory_gib, gpus = _largest(_sum([*running, *sidecars]), largest)
    whole = _requested(spec, "spec")
    own_cores, own_gib, _ = _amounts(whole)
    amounts = own_cores if "cpu" in whole else cores, own_gib if "memory" in whole else memory_gib, gpus
    return _sum([amounts, overhead])


def _of_container(container: Any, where: str) -> Amounts:
    return _amounts(_requested(mapping_of(container, where), where))


def _requested(of: dict[str, Any], where: str) -> dict[str, Any]:
    """Resource -> quantity that a container, or the spec of a pod, requests, else is limited to."""
    resources = mapping_of(of.get("resources"), f"{where}.resources")
    limits = mapping_of(resources.get("limits"), f"{where}.resources.limits")
    return limits | mapping_of(resources.get("requests"), f"{where}.resources.requests")


def _amounts(resources: dict[str, Any]) -> Amounts:
    gpus = sum(amount_of(value) for key, value in resources.items() if key.endswith("/gpu"))
    return amount_of(resources.get("cpu", 0)), amount_of(resources.get("memory", 0)) / GIB, gpus


def _sum(amounts: list[Amounts]) -> Amounts:
    cores, memory_gib, gpus = (sum(column) for column in zip((0.0, 0.0, 0.0), *amounts, strict=True))
    return cores, memory_gib, gpus


def _largest(one: Amounts, other: Amounts) -> Amounts:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def _marks(metadata: dict[str, Any]) -> dict[str, Any]:
    """Labels and annotations together; an annotation wins."""
    labels = mapping_of(metadata.get("labels"), "metadata.labels")
    return labels | mapping_of(metadata.get("annotations"), "metadata.annotations")


def _service(marks: dict[str, Any], metadata: dict[str, Any]) -> str | None:
    for key in (PREFIX + "service", "app.kubernetes.io/name", "app"):
        if marks.get(key):
            return text_of(marks[key], key)
    for index, owner in enumerate(list_of(metadata.get("ownerReferences"), "metadata.ownerReferences")):
        facts = mapping_of(owner, f"metadata.ownerReferences[{index}]")
        if facts.get("controller") is True:
            return text_of(facts.get("name"), f"metadata.ownerReferences[{index}].name")
    return None
