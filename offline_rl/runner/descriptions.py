"""Inputs and outputs of the runner: nodes, what they hold, the request in hand, the decision.

Everything is a plain dataclass, or a mapping with the same keys (from JSON). Instants are seconds since 1970 (UTC),
amounts are totals over all nodes of a request, None means "not known": what is not known is taken as in training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args

import numpy as np

from logs_schema.errors import first
from offline_rl.errors import PolicyInputError


@dataclass(frozen=True, slots=True)
class Request:
    """The request in hand.

    Attributes:
        cpu_cores, memory_gib, gpus: Requested, in total.
        num_nodes: Machines it must be spread over.
        site: Where it arrived: the site that decides; by default the first of the contract.
        service, scenario, queue: Labels; those unseen in training count as "unknown".
        requested_run_s: Run time requested; by default the median of the service in training. Where training has shown
            that agents ask for too much, each in a way of its own, less is expected.
        deadline_s: Largest useful time from arrival to finish; None without one.
        input_mib: Input to be sent to the node.
        candidates: Names of the nodes that may run it; None: those that its queue used in the log, where queues are
            bound to nodes, else all.
        agent: The sending agent; by default, and where it did not occur in training, any of the scenario.
    """

    cpu_cores: float = 1.0
    memory_gib: float = 0.0
    gpus: float = 0.0
    num_nodes: float = 1.0
    site: str | None = None
    service: str | None = None
    scenario: str | None = None
    queue: str | None = None
    requested_run_s: float | None = None
    deadline_s: float | None = None
    input_mib: float = 0.0
    candidates: Sequence[str] | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A request that a node holds, waiting or running.

    Attributes:
        arrival_s: When it was placed there.
        start_s: When it began to run; None while it waits.
        expected_run_s: What was expected of it (`Policy.expected_run_s`); None takes what is usual in training.
        service, scenario, queue, agent: Labels, for what is usual.
        cpu_cores, memory_gib, gpus: Requested, in total.
    """

    arrival_s: float
    start_s: float | None = None
    expected_run_s: float | None = None
    service: str | None = None
    cpu_cores: float = 1.0
    memory_gib: float = 0.0
    gpus: float = 0.0
    scenario: str | None = None
    queue: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A node that a decision may name.

    Attributes:
        name: As decisions name it.
        held: What is waiting and running there.
        available: Whether it can be offered now.
        recent_wait_s, recent_starts: Fading sum of waits and number of starts seen there (a `Ledger` keeps them).
        used_cpu_cores, used_memory_gib, used_gpus: In use now; by default what the running requests need.
        site, is_cloud, cpu_cores, memory_gib, gpus: Facts; by default as in training, if the node is known from there.
        machine_cpu_cores, machine_memory_gib, machine_gpus: Its largest machine; by default the whole node.
    """

    name: str
    held: Sequence[Held] = ()
    available: bool = True
    recent_wait_s: float = 0.0
    recent_starts: float = 0.0
    used_cpu_cores: float | None = None
    used_memory_gib: float | None = None
    used_gpus: float | None = None
    site: str | None = None
    is_cloud: bool | None = None
    cpu_cores: float | None = None
    memory_gib: float | None = None
    gpus: float | None = None
    machine_cpu_cores: float | None = None
    machine_memory_gib: float | None = None
    machine_gpus: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy decided.

    Attributes:
        node: The chosen node; None where none may take the request.
        nodes: Names of the described nodes, in order.
        scores: [nodes] float32 logits; comparable within this decision only, the largest legal one is chosen.
        legal: [nodes] bool: may take the request: known to the policy, available, a candidate, large enough.
        num_out_of_range: Features (of legal nodes and of the request) outside the usual range of training.
        num_unknown: Labels of the request that did not occur in training.
        unlike: Whether the request itself is unlike those of training, whatever is in flight: a number of it out of
            its range, or a label that did not occur in training.
    """

    node: str | None
    nodes: tuple[str, ...]
    scores: np.ndarray
    legal: np.ndarray
    num_out_of_range: int
    num_unknown: int
    unlike: bool = False

    @property
    def probabilities(self) -> np.ndarray:
        """[nodes] softmax of the scores over the legal nodes; zeros where none is legal."""
        if not self.legal.any():
            return np.zeros(len(self.nodes))
        weights = np.where(self.legal, np.exp(self.scores - self.scores[self.legal].max()), 0.0)
        return weights / weights.sum()


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """A feature outside the usual range of training; `node` is None for features of the request."""

    feature: str
    node: str | None
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a decision is what it is.

    Attributes:
        decision: The decision.
        features: Node -> feature -> value, as given to the policy.
        request: Feature -> value, as given to the policy.
        out_of_range: What was outside the usual range of training.
        unknown: Kind of label -> the label that did not occur in training.
        illegal: Node -> why it may not take the request.
    """

    decision: Decision
    features: dict[str, dict[str, float]]
    request: dict[str, float]
    out_of_range: tuple[OutOfRange, ...]
    unknown: dict[str, str]
    illegal: dict[str, str]


Described = TypeVar("Described", Request, Held, Node)
Answer = TypeVar("Answer", Decision, Explanation)


def described(kind: type[Described], content: Described | Mapping[str, Any]) -> Described:
    """A description from a mapping of its fields (`held` of a node may hold mappings too); others pass unchanged.

    Raises:
        PolicyInputError: It is no mapping, a key is missing or unknown, or a value is of another type.
    """
    if isinstance(content, kind):
        return content
    allowed = _TYPES[kind]
    if not isinstance(content, Mapping) or not content.keys() <= allowed.keys():
        unknown = sorted(map(str, content.keys() - allowed.keys())) if isinstance(content, Mapping) else []
        raise PolicyInputError(
            f"this does not describe a {kind.__name__.lower()}",
            where=f"unknown: {first(unknown)}" if unknown else repr(content)[:200],
            allowed=f"a mapping of {', '.join(sorted(allowed))}",
        )
    values = {name: _typed(kind, name, value) for name, value in content.items()}
    if kind is Node and "held" in values:
        values["held"] = [described(Held, one) for one in values["held"]]
    try:
        return kind(**values)
    except TypeError as error:
        raise PolicyInputError(
            f"this does not describe a {kind.__name__.lower()}", where=str(error)
        ) from error


def refuse_other_types(nodes: Any, request: Any, clock_s: Any) -> None:
    """Raises PolicyInputError where nodes, what they hold, a request or the clock have values of other types than
    theirs: descriptions that are given as such are only looked at where they could not be read."""
    if not isinstance(clock_s, float | int):
        raise PolicyInputError(
            "clock_s is no number", where=repr(clock_s)[:200], allowed="seconds since 1970"
        )
    if not isinstance(nodes, Sequence):
        raise PolicyInputError("these are no nodes", where=repr(nodes)[:200], allowed="a sequence of nodes")
    for kind, each in ((Request, [request]), (Node, nodes)):
        for one in each:
            _refuse_fields(kind, described(kind, one))
    for one in nodes:
        for held in described(Node, one).held:
            _refuse_fields(Held, held)


def _refuse_fields(kind: type, one: Any) -> None:
    if not isinstance(one, kind):
        raise PolicyInputError(f"this is no {kind.__name__}", where=repr(one)[:200])
    for name in _TYPES[kind]:
        _typed(kind, name, getattr(one, name))


def _typed(kind: type, name: str, value: Any) -> Any:
    types = _TYPES[kind][name]
    fitting = isinstance(value, types) and (bool in types or not isinstance(value, bool))
    try:
        if fitting:
            return float(value) if float in types and value is not None else value
    except OverflowError:
        pass
    raise PolicyInputError(
        f"this does not describe a {kind.__name__.lower()}",
        where=f"{name}: {value!r}"[:200],
        allowed=" or ".join(sorted({one.__name__ for one in types} - {"int"})),
    )


def _types_of(annotation: Any) -> tuple[type, ...]:
    """What a value of a field may be, as it comes from JSON."""
    parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    named = {float: (float, int), str: (str,), bool: (bool,), NoneType: (NoneType,)}
    return tuple(one for part in parts for one in named.get(part, (list, tuple)))


_TYPES: dict[type, dict[str, tuple[type, ...]]] = {
    kind: {field.name: _types_of(field.type) for field in fields(kind)} for kind in (Request, Held, Node)
}
