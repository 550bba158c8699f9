"""The endpoint for many requests at once: `POST /assign` asks for an edge for each so that the last answer comes soon.

    {"edges": [{"name": "e0", "compute": [0.01, 0.3], "replicas": 2, "local_s": 1.5}, {"name": "e1", "compute": [0.2]}],
     "requests": [{"request_id": "r1", "input_mib": 2.5, "output_mib": 0.1, "source": "e0", "predicted": "e1"}],
     "s_per_mib": [[0, 0.4], [0.4, 0]], "latency_s": [[0, 0.05], [0.05, 0]], "deadline_ms": 50, "bound": true}

`compute` is the seconds of one request: constant, per MiB, per MiB squared; an edge may also say its backlogs
(`local_s`, `arriving_s`, `transferred_s`, `returning_s`: equations 1 to 5 of CoRaiS) and a request the edges that host
it (`edges`). Ways are by pair of edges, in their order, from the edge of the row to that of the column: an input's
from its source to the edge, a result's from the edge to `predicted`. The answer is what insertion, and a local search
until the deadline, found best; with `bound`, how far from the optimum it is at most. It needs no bundle, changes no
books, and is not logged as a decision. Where the server has the bundle of a trained scheduler, the search begins with
the best of insertion and of what the network proposes, and `outside` says how many times the requests and edges of its
training the question has; `compute` and `replicas` of edges that its log had may be left out then, and so may both
tables of ways where all edges are such: they are those of the log.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from offline_rl.assignment.assigner import Assigner
from offline_rl.assignment.bounds import lower_bound_s
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.known_edges import KnownEdges
from offline_rl.assignment.local_search import LocalSearchConfig, improve
from offline_rl.serving.errors import QueryError
from offline_rl.serving.queries import list_of, names_of, number_of, object_of, text_of
from twin.assignment.checking import AssignmentError, refuse_bad_costs, refuse_bad_sizes, refuse_duplicates
from twin.assignment.instances import compute_s
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs

MAX_PAIRS = 2_000_000
"""Requests x edges of a question."""
MAX_DEADLINE_MS = 10_000.0
USUAL_DEADLINE_MS = 50.0
BACKLOGS = ("local_s", "arriving_s", "transferred_s", "returning_s")
WAYS = ("s_per_mib", "latency_s")
_KEYS = ("edges", "requests", "s_per_mib", "latency_s", "deadline_ms", "bound")
_EDGE_KEYS = ("name", "compute", "replicas", *BACKLOGS)
_REQUEST_KEYS = ("request_id", "input_mib", "output_mib", "source", "predicted", "edges")
_BOUND_ROUNDS = 100


def assign(content: Any, assigner: Assigner | None = None) -> dict[str, Any]:
    """Answers the content of `POST /assign`.

    Args:
        content: The question.
        assigner: A trained scheduler that proposes where the search begins; None: insertion alone does.

    Raises:
        QueryError: It makes no assignment problem; says what, where, and what is allowed.
    """
    begun_s = time.monotonic()
    asked = object_of(content, "the content", _KEYS)
    edges, requests = (
        [object_of(one, f"{what}[{index}]", keys) for index, one in enumerate(list_of(asked.get(what), what))]
        for what, keys in (("edges", _EDGE_KEYS), ("requests", _REQUEST_KEYS))
    )
    if len(edges) * len(requests) > MAX_PAIRS:
        raise QueryError(
            "too many requests and edges at once",
            where=f"{len(requests)} x {len(edges)}",
            allowed=f"{MAX_PAIRS} pairs",
            advice="ask for parts of the requests, one after the other",
        )
    if not isinstance(asked.get("bound", False), bool):
        raise QueryError("true or false is needed here", where="bound")
    limit_ms = _number(asked, "deadline_ms", "the content", USUAL_DEADLINE_MS, upper=MAX_DEADLINE_MS)
    try:
        known = KnownEdges() if assigner is None else assigner.setting.edges
        names, identities, costs = _round(asked, edges, requests, known)
    except AssignmentError as error:
        raise QueryError(error.what, where=error.where, allowed=error.allowed, advice=error.advice) from error
    left_s = max(0.0, 1e-3 * limit_ms - (time.monotonic() - begun_s))
    search = LocalSearchConfig(time_s=left_s, restarts=True, max_restarts=1000)
    rng = np.random.default_rng(0)
    if not requests:
        edge = np.empty(0, int)
    elif assigner is not None:
        edge = assigner.assign(costs, search, rng)
    else:
        edge = improve(costs, insertion(costs), search, rng)
    found_s = float(makespan_s(costs, edge))
    answer: dict[str, Any] = {
        "assignment": {identity: names[one] for identity, one in zip(identities, edge, strict=True)},
        "makespan_s": found_s,
    }
    if assigner is not None:
        answer["outside"] = assigner.outside(len(requests), len(edges))
    if asked.get("bound"):
        bound_s = lower_bound_s(costs, found_s, num_rounds=_BOUND_ROUNDS) if requests else found_s
        answer |= {"bound_s": bound_s, "gap": found_s / bound_s - 1.0 if bound_s > 0.0 else 0.0}
    return answer


def _round(
    asked: Mapping[str, Any],
    edges: Sequence[Mapping[str, Any]],
    requests: Sequence[Mapping[str, Any]],
    known: KnownEdges,
) -> tuple[list[str], list[str], Costs]:
    """Names of edges and of requests, and what the round costs."""
    if not edges:
        raise QueryError("there is no edge", where="edges", allowed="one or more, with name and compute")
    names = [_name(one, "name", f"edges[{index}]") for index, one in enumerate(edges)]
    identities = [_name(one, "request_id", f"requests[{index}]") for index, one in enumerate(requests)]
    refuse_duplicates("edges", names)
    refuse_duplicates("requests", identities)
    place = {name: index for index, name in enumerate(names)}
    rows = [f"requests[{index}]" for index in range(len(requests))]
    input_mib, output_mib = (
        np.array([_number(one, key, where, usual) for one, where in zip(requests, rows, strict=True)], float)
        for key, usual in (("input_mib", None), ("output_mib", 0.0))
    )
    refuse_bad_sizes(input_mib)
    source, predicted = (
        np.array(
            [_edge(one.get(key), place, f"{where}.{key}") for one, where in zip(requests, rows, strict=True)],
            int,
        )
        for key in ("source", "predicted")
    )
    work_s, replicas = np.zeros((len(requests), len(edges))), np.ones(len(edges))
    for index, (name, one) in enumerate(zip(names, edges, strict=True)):
        logged = known.edges.get(name)
        if one.get("compute") is None and logged is not None:
            work_s[:, index], usual = logged.compute_s(input_mib), float(logged.replicas)
        else:
            coefficients = _coefficients(one.get("compute"), f"edges[{index}].compute")
            work_s[:, index], usual = compute_s(np.array([coefficients]), input_mib)[:, 0], 1.0
        replicas[index] = _number(one, "replicas", f"edges[{index}]", usual, lower=1.0)
        if not replicas[index].is_integer():
            raise QueryError(
                "an edge has whole replicas",
                where=f"edges[{index}].replicas: {replicas[index]:g}",
                allowed="1, 2, 3, ...",
            )
    backlogs = [
        np.array([_number(one, key, f"edges[{index}]", 0.0) for index, one in enumerate(edges)])
        for key in BACKLOGS
    ]
    way = {key: _matrix(asked.get(key), len(edges), key) for key in WAYS}
    if all(asked.get(key) is None for key in WAYS):
        way |= {key: found for key in WAYS if (found := known.ways(names, key)) is not None}
    work_s /= replicas
    for index, one in enumerate(requests):
        if one.get("edges") is not None:
            where = f"{rows[index]}.edges"
            hosting = [_edge(name, place, where) for name in names_of(list_of(one["edges"], where), where)]
            work_s[index, np.setdiff1d(np.arange(len(edges)), hosting)] = np.inf
    transfer_s = way["latency_s"][source] + way["s_per_mib"][source] * input_mib[:, None]
    result_s = way["latency_s"].T[predicted] + way["s_per_mib"].T[predicted] * output_mib[:, None]
    transfer_s[source < 0], result_s[predicted < 0] = 0.0, 0.0
    costs = Costs(work_s, transfer_s, result_s, source, *backlogs)
    refuse_bad_costs(costs)
    return names, identities, costs


def _coefficients(value: Any, where: str) -> list[float]:
    listed = list_of(value, where)
    if not 1 <= len(listed) <= 3:
        raise QueryError(
            "an edge has no function of computing time",
            where=where,
            allowed="a list of 1 to 3 numbers: seconds, seconds per MiB, per MiB squared",
        )
    found = [_number({"": one}, "", f"{where}[{index}]", None) for index, one in enumerate(listed)]
    return found + [0.0] * (3 - len(found))


def _matrix(value: Any, size: int, where: str) -> np.ndarray:
    if value is None:
        return np.broadcast_to(0.0, (size, size))  # of many edges the table itself would not fit
    rows = [list_of(row, f"{where}[{index}]") for index, row in enumerate(list_of(value, where))]
    if [len(row) for row in rows] != [size] * size:
        raise QueryError(
            "ways do not fit the edges",
            where=where,
            allowed=f"{size} lists of {size} numbers, in their order",
        )
    return np.array(
        [
            [_number({"": one}, "", f"{where}[{row}][{column}]", None) for column, one in enumerate(listed)]
            for row, listed in enumerate(rows)
        ]
    )


def _edge(name: Any, place: Mapping[str, int], where: str) -> int:
    edge = text_of(name, where)
    if edge is not None and edge not in place:
        raise QueryError(
            "this edge is not among the edges", where=f"{where}: {edge}", allowed=", ".join(list(place)[:5])
        )
    return -1 if edge is None else place[edge]


def _name(fields: Mapping[str, Any], key: str, where: str) -> str:
    name = text_of(fields.get(key), f"{where}.{key}")
    if name is None:
        raise QueryError(f"{where} has no {key}", where=where, allowed=f"{key}: a text")
    return name


def _number(
    fields: Mapping[str, Any],
    key: str,
    where: str,
    usual: float | None,
    *,
    lower: float = 0.0,
    upper: float = 1e12,
) -> float:
    place, value = f"{where}.{key}" if key else where, fields.get(key)
    if isinstance(value, str):
        raise QueryError(
            "a number is needed here, not a text",
            where=f"{place}: {value[:80]!r}",
            allowed=f"{lower:g} to {upper:g}",
        )
    found = number_of(value, place, lower=lower, upper=upper)
    if found is None and usual is None:
        raise QueryError("a number is missing", where=place, allowed=f"{lower:g} to {upper:g}")
    return usual if found is None else found  # type: ignore[return-value]
