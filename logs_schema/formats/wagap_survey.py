"""A first pass over a wagap log: which class of machine each node id belongs to.

The inventory names classes, not ids. A node belongs to the smallest class that holds its peak of concurrently
used cores, among the classes that every job seen on it was allowed to use. Peaks are exact: at one instant,
jobs that end leave before jobs that start arrive.
"""

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from logs_schema.concurrency import most_at_once
from logs_schema.errors import FormatError
from logs_schema.formats.fields import instant
from logs_schema.formats.files import numbered_lines
from logs_schema.formats.reading import BadRow, Lines
from logs_schema.formats.swf_jobs import KIB_PER_GIB, SwfJob, parse_job
from logs_schema.formats.wagap_spec import allowed_classes, parse_nodes

NUM_FIELDS = 21
MAX_NODES = 250_000
"""An inventory of more nodes is a slip of the pen: every node becomes a row."""
MOST_CORES = 2**31 - 1
T = TypeVar("T", int, float)


class MachineClass(NamedTuple):
    """One line of a `.machines` file: a class of `num_nodes` equal nodes."""

    name: str
    num_nodes: int
    cores: float
    speed: float
    memory_gib: float


class JobPlacement(NamedTuple):
    """The three extra fields of a line: the node of every core, queue and node specification."""

    nodes: tuple[str, ...]
    queue: str
    spec: str


@dataclass(frozen=True)
class Survey:
    """What the first pass found.

    Attributes:
        class_of: Class of every node id that occurs.
        num_contradictions: Jobs that ran on a class that their specification excludes.
    """

    class_of: Mapping[str, str]
    num_contradictions: int


@dataclass
class _Use:
    """What jobs held of one node, and the classes they allow."""

    start_s: "array[float]" = field(default_factory=lambda: array("d"))
    finish_s: "array[float]" = field(default_factory=lambda: array("d"))
    cores: "array[int]" = field(default_factory=lambda: array("i"))
    allowed: Counter[frozenset[str]] = field(default_factory=Counter)

    def peak(self) -> float:
        return most_at_once(*map(np.asarray, (self.start_s, self.finish_s, self.cores)))


def parse_line(line: str) -> tuple[SwfJob, JobPlacement]:
    """One line of a wagap log; BadRow where a field breaks a rule, also `node_list_length`."""
    fields = line.split()
    if len(fields) != NUM_FIELDS:
        raise BadRow("field_count")
    job = parse_job(fields)
    instant(job.finish_s(0.0), "finish")
    nodes = parse_nodes(fields[18])
    if job.processors is not None and len(nodes) != job.processors:
        raise BadRow("node_list_length")
    return job, JobPlacement(nodes, fields[19], fields[20])


def survey(path: Path, machines: Mapping[str, MachineClass]) -> Survey:
    """Reads the log once and finds every node's class.

    Args:
        path: The log.
        machines: The classes by name.
    """
    cores_per_node = {name: machine.cores for name, machine in machines.items()}
    uses: dict[str, _Use] = defaultdict(_Use)
    known: set[str] = set()
    for _, line in numbered_lines(path):
        try:
            job, placement = parse_line(line)
            allowed = allowed_classes(placement.spec, cores_per_node)
        except BadRow:
            continue
        if job.job in known:
            continue  # the archive keeps the first
        known.add(job.job)
        start_s, finish_s = job.start_s(0.0), job.finish_s(0.0)
        for node, cores in Counter(placement.nodes).items():
            use = uses[node]
            use.allowed[allowed] += 1
            if start_s is not None and finish_s is not None:
                use.start_s.append(start_s)
                use.finish_s.append(finish_s)
                use.cores.append(cores)
    classes = {node: _class_of(use.allowed, use.peak(), machines, path) for node, use in uses.items()}
    against = sum(n for node, use in uses.items() for ok, n in use.allowed.items() if classes[node] not in ok)
    return Survey(classes, against)


def _class_of(
    allowed: Counter[frozenset[str]], peak: float, machines: Mapping[str, MachineClass], path: Path
) -> str:
    fitting = sorted((machine.cores, name) for name, machine in machines.items() if machine.cores >= peak)
    if not fitting:
        raise FormatError(
            f"a node uses {peak:g} cores at once, more than any class of machine has",
            where=str(path),
            allowed=", ".join(f"{machine.name}: {machine.cores:g} cores" for machine in machines.values()),
            advice="check that the .machines file belongs to this log",
        )
    votes = Counter({name: sum(n for ok, n in allowed.items() if name in ok) for _, name in fitting})
    most = max(votes.values())
    return next(name for _, name in fitting if votes[name] == most)


def described_lines(inventory: Path) -> Lines:
    """How the lines of a `.machines` file divide: none of them is a row by itself."""
    is_blank = [not line.strip() for _, line in numbered_lines(inventory)]
    return Lines(inventory.name, len(is_blank), sum(is_blank), len(is_blank) - sum(is_blank))


def _within(value: T, most: float = math.inf) -> T:
    """The value itself; ValueError unless it is finite, from 0 to `most`."""
    if not (0 <= value <= most and math.isfinite(value)):
        raise ValueError(value)
    return value


def read_machines(path: Path) -> dict[str, MachineClass]:
    """The classes in a `.machines` file: `id name nodes cores speed memory_kib` per line.

    Raises:
        FormatError: A line does not read so, there is none, or they name more than `MAX_NODES` nodes.
    """
    machines: dict[str, MachineClass] = {}
    num_nodes = 0
    for number, line in numbered_lines(path):
        fields = line.split()
        if not fields:
            continue
        try:
            _, name, nodes, cores, speed, memory_kib = fields
            num_nodes += _within(int(nodes), MAX_NODES - num_nodes)
            machine = MachineClass(
                name,
                int(nodes),
                _within(float(cores), MOST_CORES),
                _within(float(speed)),
                _within(float(memory_kib) / KIB_PER_GIB),
            )
        except ValueError:
            raise FormatError(
                f"this line describes no class of machines: {line[:80]!r}",
                where=f"{path}, line {number}",
                allowed=f"id name nodes cores speed memory_kib; {MAX_NODES:,} nodes in all",
                advice="check the inventory",
            ) from None
        machines[name] = machine
    if not machines:
        raise FormatError(
            "the inventory describes no class of machines",
            where=str(path),
            allowed="lines of: id name nodes cores speed memory_kib",
            advice="fetch it again",
        )
    return machines
