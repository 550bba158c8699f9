"""The openb pods and nodes (Alibaba, 2023): Kubernetes pods of a GPU cluster, with its inventory.

Readings of the format:

* Times count from a start that the log hides: days are counted from the `origin` given, or from 1970-01-01.
* Creation is the arrival, scheduled_time the start, deletion_time the finish; empty times are null.
* Phase Succeeded is completed, Failed failed. A Running pod deleted at the log's end (its largest deletion
  time) is running, with no finish; one deleted earlier ended in a way that is not in the log: unknown. A
  Pending pod was never scheduled: waiting if it is there at the end, else unknown.
* QoS is the scenario and the queue. GPUs requested are num_gpu x gpu_milli / 1000.
* On which node a pod ran is not published: there is no decision. `gpu_spec` names the GPU models allowed;
  `candidates` are the *classes* of node with such GPUs, null where it is empty. Nodes of one class are equal
  in cores, memory, GPUs and model, and the class is named after these.
* The node list is `openb_node_list_all_node.csv`, beside the pods or given. The list of GPU nodes reuses its
  ids for other machines and is refused.
* A folder with several pod lists means `openb_pod_list_default.csv`, the log; the others are variants of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from logs_schema.calendar import EPOCH
from logs_schema.errors import FormatError
from logs_schema.formats.describing import RELATIVE_CLOCK, describe
from logs_schema.formats.fields import (
    Header,
    csv_names,
    instant,
    not_negative,
    number,
    number_or_none,
    positive,
)
from logs_schema.formats.files import find_files, numbered_lines, only_file
from logs_schema.formats.reading import NOTHING_GIVEN, BadRow, Item, ReadingOptions, Row, parse_lines
from logs_schema.tables import NODES, REQUESTS

NAME = "openb"
DESCRIPTION = "openb pods (CSV) with openb_node_list_all_node.csv"
POD_TIMES = ("creation_time", "scheduled_time", "deletion_time")
POD_DEMANDS = ("num_gpu", "gpu_milli", "cpu_milli", "memory_mib")
POD_COLUMNS = ("name", *POD_DEMANDS, "gpu_spec", "qos", "pod_phase", *POD_TIMES)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
EXPECTED = f"a header with {', '.join(POD_COLUMNS)}"
NODE_LIST = "openb_node_list_all_node.csv"
DEFAULT_PODS = "openb_pod_list_default.csv"
SITE = "openb"
MIB_PER_GIB = 1024
PHASES = {"Succeeded": "completed", "Failed": "failed"}


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The list of pods; of several in a folder the default one."""
    pods = [path for path in find_files(paths, (".csv",)) if "node_list" not in path.name]
    default = [path for path in pods if path.name.removesuffix(".gz") == DEFAULT_PODS]
    return [only_file(default if len(pods) > 1 and default else pods, "the lists hold the same pods")]


def node_file(paths: Sequence[Path]) -> Path:
    """The list of all nodes, given or beside the pods; FormatError if it is missing or the wrong one."""
    given = [path for path in map(Path, paths) if path.is_file() and "node_list" in path.name]
    wrong = [path for path in given if "gpu_node" in path.name]
    if wrong:
        raise FormatError(
            "this list of GPU nodes reuses ids of the full list for other machines",
            where=str(wrong[0]),
            allowed=NODE_LIST,
            advice="give the list of all nodes instead",
        )
    beside = data_files(paths)[0].with_name(NODE_LIST)
    for path in (*given, beside, beside.with_name(f"{NODE_LIST}.gz")):
        if path.exists():
            return path
    raise FormatError(
        "the list of nodes is missing",
        where=str(beside),
        allowed=f"a header with {', '.join(NODE_COLUMNS)}",
        advice="put it beside the pods or name it as well",
    )


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The list of nodes, which the archive depends on as well."""
    return [node_file(paths)]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether the first line is the header of a list of pods."""
    return bool(lines) and set(POD_COLUMNS) <= set(csv_names(lines[0]))


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads the nodes, then the pods.

    Args:
        paths: The list of pods (and of nodes), or the folder that holds them.
        given: Facts that are not in the log.
    """
    pods, nodes = data_files(paths)[0], node_file(paths)
    header, node_header = Header(pods, POD_COLUMNS), Header(nodes, NODE_COLUMNS)
    clock_s = (given.origin or EPOCH).timestamp()
    end_s = log_end_s(pods, header)
    models: dict[str, str] = {}

    def parse_node(line_number: int, line: str) -> Row | None:
        if line_number == 1 or not line.strip():
            return None
        row = node_row(node_header.fields(line))
        models[row["node_class"]] = row["gpu_model"] or ""
        return row

    def parse_pod(line_number: int, line: str) -> Row | None:
        if line_number == 1 or not line.strip():
            return None
        return pod_row(header.fields(line), clock_s, end_s, models)

    yield from parse_lines(numbered_lines(nodes), parse_node, NODES, nodes.name)
    yield from parse_lines(numbered_lines(pods), parse_pod, REQUESTS, pods.name)


def node_row(fields: Mapping[str, str]) -> Row:
    """One machine as a row of `nodes`; its class is named after cores, memory, GPUs and model."""
    if not fields["sn"]:
        raise BadRow("empty:sn")
    cores = (positive(number(fields["cpu_milli"], "cpu_milli"), "cpu_milli") or 0.0) / 1000
    memory_gib = (positive(number(fields["memory_mib"], "memory_mib"), "memory_mib") or 0.0) / MIB_PER_GIB
    gpus = not_negative(number(fields["gpu"], "gpu"), "gpu") or 0.0
    model = fields["model"]
    return {
        "node_id": fields["sn"],
        "node_class": f"{cores:g}c-{memory_gib:g}g" + (f"-{gpus:g}x{model}" if gpus else ""),
        "site": SITE,
        "tier": "pool",
        "cpu_cores": cores,
        "memory_gib": memory_gib,
        "gpus": gpus,
        "gpu_model": model or None,
        "virtual": False,
    }


def pod_row(fields: Mapping[str, str], clock_s: float, end_s: float, models: Mapping[str, str]) -> Row:
    """One pod as a row of `requests`.

    Args:
        fields: The line.
        clock_s: The log's time zero in seconds since 1970.
        end_s: The log's end on its own clock.
        models: GPU model of every class of node.
    """
    if not fields["name"]:
        raise BadRow("empty:name")
    created_s, scheduled_s, deleted_s = (
        not_negative(instant(number_or_none(fields[name], name), name), name) for name in POD_TIMES
    )
    if created_s is None:
        raise BadRow("empty:creation_time")
    gpus, milli, cores, memory = (
        not_negative(number(fields[name], name), name) or 0.0 for name in POD_DEMANDS
    )
    status, finish_s = outcome(fields["pod_phase"], scheduled_s, deleted_s, end_s)
    allowed = set(fields["gpu_spec"].split("|")) - {""}
    return {
        "request_id": fields["name"],
        "arrival": clock_s + created_s,
        "site": SITE,
        "scenario": fields["qos"] or None,
        "queue": fields["qos"] or None,
        "cpu_cores": cores / 1000,
        "memory_gib": memory / MIB_PER_GIB,
        "gpus": gpus * milli / 1000,
        "candidates": sorted(name for name, model in models.items() if model in allowed) if allowed else None,
        "start": None if scheduled_s is None else clock_s + scheduled_s,
        "finish": None if finish_s is None else clock_s + finish_s,
        "status": status,
    }


def outcome(
    phase: str, scheduled_s: float | None, deleted_s: float | None, end_s: float
) -> tuple[str, float | None]:
    """Status and finish of a pod, by the rules above."""
    if phase in PHASES:
        return PHASES[phase], deleted_s
    if deleted_s is None or deleted_s >= end_s:
        return ("waiting" if scheduled_s is None else "running"), None
    return "unknown", deleted_s


def log_end_s(path: Path, header: Header) -> float:
    """The log's end on its own clock: the largest deletion time."""
    end_s = 0.0
    for line_number, line in numbered_lines(path):
        try:
            if line_number > 1 and line.strip():
                deleted_s = number_or_none(header.fields(line)["deletion_time"], "deletion_time")
                end_s = max(end_s, instant(deleted_s, "deletion_time") or 0.0)
        except BadRow:
            continue
    return end_s


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """Facts about the log beyond its rows."""
    node_file(paths)
    return describe(
        NAME,
        clock=RELATIVE_CLOCK,
        limits={"decisions": "the log does not publish on which node a pod ran", "tiers": "one cluster"},
        notes=(
            "Candidates are classes of nodes whose GPU model gpu_spec allows; null where it is empty.",
            "A running pod that was deleted before the log's end has status unknown.",
        ),
        acknowledge="Alibaba cluster-trace programme",
    )
