"""From descriptions to numbers: the request in hand, who may run it, and what every node holds."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from offline_rl.errors import PolicyInputError
from offline_rl.runner.descriptions import Held, Node, Request
from offline_rl.runner.features import Asked, Load
from offline_rl.runner.setting import RESOURCES, PlacementSetting
from offline_rl.runner.table import NodeTable, Vocabulary

_LEAST = {"cpu_cores": 0.0, "memory_gib": 0.0, "gpus": 0.0, "num_nodes": 1.0, "input_mib": 0.0}


def asked_of(
    request: Request, clock_s: float, table: NodeTable, setting: PlacementSetting, vocabulary: Vocabulary
) -> Asked:
    """The request in numbers; labels unseen in training take the first index of their kind, as in training.

    Raises:
        PolicyInputError: An amount is negative or not finite, or the clock is not.
    """
    _refuse_impossible(request, clock_s)
    offsets, labels = vocabulary.offsets, []
    for kind, label in (
        ("site", request.site), ("scenario", request.scenario), ("service", request.service), ("queue", request.queue)
    ):  # fmt: skip
        start, index_of = offsets[kind]
        labels.append(start + index_of.get(label, 0))  # type: ignore[arg-type]
    demand = (request.cpu_cores, request.memory_gib, request.gpus)
    expected_run_s = request.requested_run_s
    if expected_run_s is None:
        expected_run_s = run_of_service(setting, vocabulary, request.service)
    return Asked(
        demand=tuple(
            float(amount) if known else 0.0 for amount, known in zip(demand, setting.demanded, strict=True)
        ),
        num_nodes=request.num_nodes,
        site=table.site_index.get(request.site, 0),  # type: ignore[arg-type]
        expected_run_s=expected_run_s,
        deadline_s=math.inf if request.deadline_s is None else request.deadline_s,
        input_mib=request.input_mib,
        labels=tuple(labels),
        clock_s=clock_s,
    )


def run_of_service(setting: PlacementSetting, vocabulary: Vocabulary, service: str | None) -> float:
    """The median run time of a service in training; of all of them where it is not known."""
    return setting.run_of_service_s[vocabulary.offsets["service"][1].get(service, 0)]  # type: ignore[arg-type]


def _refuse_impossible(request: Request, clock_s: float) -> None:
    for name, least in _LEAST.items():
        value = getattr(request, name)
        if not least <= value < math.inf:
            raise _impossible(name, value, f"a finite number of at least {least:g}")
    if request.requested_run_s is not None and not 0.0 <= request.requested_run_s < math.inf:
        raise _impossible(
            "requested_run_s", request.requested_run_s, "a finite number of at least 0, or None"
        )
    if request.deadline_s is not None and not request.deadline_s >= 0.0:
        raise _impossible("deadline_s", request.deadline_s, "a number of at least 0, or None")
    if not math.isfinite(clock_s):
        raise _impossible("clock_s", clock_s, "seconds since 1970")


def _impossible(name: str, value: object, allowed: str) -> PolicyInputError:
    return PolicyInputError("a request cannot be like this", where=f"{name} {value!r}", allowed=allowed)


def candidates_of(
    names: Sequence[str] | None, table: NodeTable, setting: PlacementSetting, *, bound: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Who may run a request by its candidate list.

    Args:
        names: Nodes, or machines of nodes; None allows all.
        table: The nodes.
        setting: Candidate sets seen in training.
        bound: Whether the rows are training's nodes.

    Returns:
        [rows] bool, who may; [rows] bool, who may as far as the policy is told: a set unseen in training is shown as
        the smallest known set around it (as in training), a list of strangers as no restriction.
    """
    everyone = np.ones(len(table.names), bool)
    if names is None:
        return everyone, everyone
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
    expected: Callable[[str | None], float],
) -> tuple[Load, np.ndarray]:
    """Adds up what described nodes hold.

    Args:
        nodes: The descriptions that the table was made of.
        table: The nodes.
        setting: Which resources demands are known for.
        clock_s: Now.
        expected: Service -> run time to expect, for requests that state none.

    Returns:
        The load, and [rows] bool: which rows are available.

    Raises:
        PolicyInputError: An amount or instant is not a finite number.
    """
    rows = np.zeros((len(RESOURCES) + 7, len(table.names)))
    available = np.zeros(len(table.names), bool)
    for node, row in zip(nodes, table.rows.tolist(), strict=True):
        if row >= 0:
            rows[:, row] = _sums(node, clock_s, expected)
            available[row] = node.available
    if not np.isfinite(rows).all():
        name = table.names[int(np.argmax(~np.isfinite(rows).all(axis=0)))]
        raise PolicyInputError(
            "what a node holds cannot be",
            where=name,
            allowed="finite amounts and instants; None where not known",
        )
    used = rows[: len(RESOURCES)] * np.array(setting.demanded)[:, None]
    waiting_cores, num_running, num_waiting, left, oldest, *recent = rows[len(RESOURCES) :]
    if not setting.demanded[0]:
        waiting_cores, left = np.zeros_like(waiting_cores), np.zeros_like(left)
    return Load(used, waiting_cores, num_running, num_waiting, left, oldest, *recent), available


def _sums(node: Node, clock_s: float, expected: Callable[[str | None], float]) -> tuple[float, ...]:
    """Used resources, waiting cores, running, waiting, core seconds left, oldest wait, recent waits and starts."""
    cores = memory = gpus = waiting_cores = left = oldest = 0.0
    running = waiting = 0
    for one in node.held:
        run_s = expected(one.service) if one.expected_run_s is None else one.expected_run_s
        if one.start_s is None or one.start_s > clock_s:
            waiting += 1
            waiting_cores += one.cpu_cores
            left += run_s * one.cpu_cores
            oldest = max(oldest, clock_s - one.arrival_s)
        else:
            running += 1
            cores, memory, gpus = cores + one.cpu_cores, memory + one.memory_gib, gpus + one.gpus
            left += max(run_s - (clock_s - one.start_s), 0.0) * one.cpu_cores
    return (
        cores if node.used_cpu_cores is None else node.used_cpu_cores,
        memory if node.used_memory_gib is None else node.used_memory_gib,
        gpus if node.used_gpus is None else node.used_gpus,
        waiting_cores, running, waiting, left, oldest, node.recent_wait_s, node.recent_starts,
    )  # fmt: skip


def as_held(request: Request, arrival_s: float, start_s: float | None = None) -> Held:
    """A request as a node holds it."""
    return Held(
        arrival_s,
        start_s,
        request.requested_run_s,
        request.service,
        request.cpu_cores,
        request.memory_gib,
        request.gpus,
    )
