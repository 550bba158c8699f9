"""From descriptions to numbers: the request in hand, the nodes that may run it, and what every node holds."""

import math
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from offline_rl.errors import PolicyInputError
from offline_rl.runner.descriptions import Held, Node, Request
from offline_rl.runner.features import LOAD, RequestNumbers
from offline_rl.runner.setting import PlacementSetting
from offline_rl.runner.table import NodeTable, Vocabulary

_OF_RESOURCE = [[0, LOAD.index("waiting_cores"), LOAD.index("core_seconds_left")], [1], [2]]
"""Rows of `LOAD` that count a resource."""
_SERVICE = 2
"""Place of the service among the labels of a request."""
_LEAST = {"cpu_cores": 0.0, "memory_gib": 0.0, "gpus": 0.0, "num_nodes": 1.0, "input_mib": 0.0}


def request_numbers(
    request: Request, clock_s: float, table: NodeTable, setting: PlacementSetting, vocabulary: Vocabulary
) -> RequestNumbers:
    """The request in numbers; labels unseen in training take the first index of their kind, as in training.

    Raises:
        PolicyInputError: An amount is negative or not finite, or the clock is not.
    """
    _refuse_impossible(request, clock_s)
    labels = (request.site, request.scenario, request.service, request.queue)
    kinds = vocabulary.offsets.values()
    known = [index_of.get(label, 0) for label, (_, index_of) in zip(labels, kinds, strict=True)]  # type: ignore[arg-type]
    _, scenario, _, queue = known
    known[_SERVICE] = service = vocabulary.service_index(request)
    expected_run_s = _expected_run_s(setting, request, service, scenario, queue)
    accepts = setting.acceptance_of_agent.get(request.agent)  # type: ignore[arg-type]
    has_cores, has_memory, has_gpus = setting.demanded
    return RequestNumbers(
        demand=(
            request.cpu_cores if has_cores else 0.0,
            request.memory_gib if has_memory else 0.0,
            request.gpus if has_gpus else 0.0,
        ),
        num_nodes=request.num_nodes,
        site=table.site_index.get(request.site, 0),  # type: ignore[arg-type]
        expected_run_s=expected_run_s,
        run_limit_s=math.inf
        if setting.timeouts is None
        else setting.timeouts.limit_s(service, request.requested_run_s),
        deadline_s=math.inf if request.deadline_s is None else request.deadline_s,
        input_mib=request.input_mib,
        labels=tuple(start + index for index, (start, _) in zip(known, kinds, strict=True)),
        service=service,
        accepts=setting.acceptance_of_scenario[scenario] if accepts is None else accepts,
        clock_s=clock_s,
    )


def expected_run_s(setting: PlacementSetting, vocabulary: Vocabulary, asked: Request | Held) -> float:
    """What is requested, or else the median run time of the service in training (of all services where it is not
    known), by what scenario and queue say of it; by the habits of the agent."""
    if isinstance(asked, Held) and asked.expected_run_s is not None:
        return asked.expected_run_s
    service = vocabulary.service_index(asked)
    of_scenario, of_queue = (vocabulary.offsets[kind][1] for kind in ("scenario", "queue"))
    scenario, queue = of_scenario.get(asked.scenario, 0), of_queue.get(asked.queue, 0)  # type: ignore[arg-type]
    return _expected_run_s(setting, asked, service, scenario, queue)


def _expected_run_s(
    setting: PlacementSetting, asked: Request | Held, service: int, scenario: int, queue: int
) -> float:
    stated_s = asked.requested_run_s if isinstance(asked, Request) else None
    run_s = _usual_run_s(setting, service, scenario, queue) if stated_s is None else stated_s
    factors = None if setting.run_habits is None else setting.run_habits.get(asked.agent)  # type: ignore[arg-type]
    run_s = run_s if factors is None else run_s * factors[service]
    if stated_s is None or setting.requested_runs is None:
        return run_s
    return setting.requested_runs.expected_s(run_s, service)


def _usual_run_s(setting: PlacementSetting, service: int, scenario: int, queue: int) -> float:
    run_s, labels = setting.run_of_service_s[service], setting.run_labels
    if labels is None:
        return run_s
    return run_s * labels.of_scenario[service][scenario] * labels.of_queue[service][queue]


def _refuse_impossible(request: Request, clock_s: float) -> None:
    limit_s, deadline_s = request.requested_run_s, request.deadline_s
    if (
        0.0 <= request.cpu_cores < math.inf
        and 0.0 <= request.memory_gib < math.inf
        and 0.0 <= request.gpus < math.inf
        and 1.0 <= request.num_nodes < math.inf
        and 0.0 <= request.input_mib < math.inf
        and (limit_s is None or 0.0 <= limit_s < math.inf)
        and (deadline_s is None or deadline_s >= 0.0)
        and math.isfinite(clock_s)
    ):
        return
    for name, least in _LEAST.items():
        value = getattr(request, name)
        if not least <= value < math.inf:
            raise impossible(name, value, f"a finite number of at least {least:g}")
    if limit_s is not None and not 0.0 <= limit_s < math.inf:
        raise impossible("requested_run_s", limit_s, "a finite number of at least 0, or None")
    if deadline_s is not None and not deadline_s >= 0.0:
        raise impossible("deadline_s", deadline_s, "a number of at least 0, or None")
    raise impossible("clock_s", clock_s, "seconds since 1970")


def impossible(name: str, value: object, allowed: str) -> PolicyInputError:
    """The error for a number that cannot be."""
    return PolicyInputError("a request cannot be like this", where=f"{name} {value!r}", allowed=allowed)


def candidates_of(
    names: Sequence[str] | None, table: NodeTable, setting: PlacementSetting, *, bound: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Which nodes may run a request by its candidate list.

    Args:
        names: Nodes, or machines of nodes; None allows all.
        table: The nodes.
        setting: Candidate sets seen in training.
        bound: Whether the rows are training's nodes.

    Returns:
        [rows] bool, which may; [rows] bool, which may by the policy's input: a set unseen in training is shown as
        the smallest known set around it (as in training), a list of strangers as no restriction.

    Raises:
        PolicyInputError: `names` is one text.
    """
    everyone = table.everyone
    if names is None:
        return everyone, everyone
    if isinstance(names, str):
        raise PolicyInputError("candidates are a text", where=repr(names), allowed="a list of names")
    node_of = setting.node_of_machine
    wanted = frozenset(node_of.get(name, name) if name not in table.row_of else name for name in names)
    exact = np.array([name in wanted for name in table.names], bool)
    if not exact.any():
        return exact, everyone
    if not bound:
        return exact, exact
    known = wanted & table.row_of.keys()
    if known in setting.candidate_sets:
        return exact, exact
    around = min((one for one in setting.candidate_sets if one >= known), key=len)
    return exact, np.array([name in around for name in table.names], bool)


def load_of(
    nodes: Sequence[Node],
    table: NodeTable,
    setting: PlacementSetting,
    clock_s: float,
    expected: Callable[[Held], float],
) -> tuple[np.ndarray, np.ndarray]:
    """Adds up what described nodes hold.

    Args:
        nodes: The descriptions that the table was made of.
        table: The nodes.
        setting: Which resources demands are known for.
        clock_s: Now.
        expected: What is held -> run time to expect, for requests that state none.

    Returns:
        The load [load rows, rows], in the order of `LOAD`, and [rows] bool: which rows are available.

    Raises:
        PolicyInputError: An amount or instant is not a finite number.
    """
    each = chain.from_iterable([_sums(node, clock_s, expected) for node in nodes])
    sums = np.ascontiguousarray(np.fromiter(each, float, len(nodes) * len(LOAD)).reshape(-1, len(LOAD)).T)
    if not np.isfinite(sums).all():
        name = nodes[int(np.argmax(~np.isfinite(sums).all(axis=0)))].name
        raise PolicyInputError(
            "what a node holds cannot be",
            where=name,
            allowed="finite amounts and instants; None where not known",
        )
    for resource, is_known in enumerate(setting.demanded):
        if not is_known:
            sums[_OF_RESOURCE[resource]] = 0.0
    is_available = np.array([node.available for node in nodes], bool)
    if table.as_described:
        return sums, is_available
    load, available = np.zeros((len(LOAD), len(table.names))), np.zeros(len(table.names), bool)
    is_row = table.rows >= 0
    load[:, table.rows[is_row]], available[table.rows[is_row]] = sums[:, is_row], is_available[is_row]
    return load, available


def _sums(node: Node, clock_s: float, expected: Callable[[Held], float]) -> tuple[float, ...]:
    """One node's load, in the order of `LOAD`."""
    cores = memory = gpus = waiting_cores = left = 0.0
    running = waiting = 0
    oldest_s = clock_s
    for one in node.held:
        run_s, start_s, cpu_cores = one.expected_run_s, one.start_s, one.cpu_cores
        if run_s is None:
            run_s = expected(one)
        if start_s is None or start_s > clock_s:
            waiting += 1
            waiting_cores += cpu_cores
            left += run_s * cpu_cores
            if not one.arrival_s >= oldest_s:  # written so that a NaN gets through, to be refused
                oldest_s = one.arrival_s
        else:
            running += 1
            cores += cpu_cores
            memory += one.memory_gib
            gpus += one.gpus
            run_s -= clock_s - start_s
            if not run_s <= 0.0:
                left += run_s * cpu_cores
    return (
        cores if node.used_cpu_cores is None else node.used_cpu_cores,
        memory if node.used_memory_gib is None else node.used_memory_gib,
        gpus if node.used_gpus is None else node.used_gpus,
        waiting_cores,
        running,
        waiting,
        left,
        clock_s - oldest_s,
        node.recent_wait_s,
        node.recent_starts,
    )


def as_held(request: Request, arrival_s: float, expected_run_s: float) -> Held:
    """A request as a node holds it that has not begun."""
    return Held(
        arrival_s,
        None,
        expected_run_s,
        request.service,
        request.cpu_cores,
        request.memory_gib,
        request.gpus,
        request.scenario,
        request.queue,
        request.agent,
    )
