"""The MetaCentrum wagap log: SWF with the node of every core, the queue, and the node specification.

Readings of the format, beyond SWF (`logs_schema.formats.swf_jobs`):

* Submit times are seconds since 1970. Field 10 is bytes, in total over all nodes.
* Field 19, `{id,id,...}`, names the node of every core: `offered_node` and `ran_node` are the first,
  `num_nodes` counts distinct ones. `ran_nodes` lists them where there are several; where the cores are spread
  unevenly, a node is repeated so that every entry is an equal share.
* Field 20 is queue and service (the executable is always 1); field 21 says which classes may run the job.
* `candidates` are the *classes* of node that field 21 allows (`logs_schema.formats.wagap_spec`), null where
  it allows all. The class a job really ran on is always among them: a few rows contradict their
  specification, and `facts` counts these.
* `LOG.machines` beside the log gives the classes with their numbers of nodes, cores and memory (KiB). Node
  ids are assigned to classes by `logs_schema.formats.wagap_survey`; nodes that never ran a job
  are called `CLASS-unseen-1` and so on. More ids than it lists are all kept, and `facts` notes it.
* When a decision was taken is not logged: `decided` is null. There is no failure flag: all are completed.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from logs_schema.errors import FormatError, counted
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.files import find_files, numbered_lines, only_file
from logs_schema.formats.reading import NOTHING_GIVEN, Chunk, Item, ReadingOptions, Row, parse_lines, tabulate
from logs_schema.formats.swf import first_jobs
from logs_schema.formats.wagap_spec import allowed_classes
from logs_schema.formats.wagap_survey import (
    NUM_FIELDS,
    JobPlacement,
    MachineClass,
    Survey,
    described_lines,
    parse_line,
    read_machines,
    survey,
)
from logs_schema.tables import NODES, REQUESTS

NAME = "wagap"
DESCRIPTION = (
    "MetaCentrum wagap: SWF with node lists, queue and node specification, and LOG.machines beside it"
)
EXPECTED = "18 numbers, a node list in braces, a queue and a node specification, separated by blanks"
SITE = "cerit-sc"
BYTES_PER_GIB = 2**30


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The log file, without its inventory."""
    logs = [path for path in find_files(paths, (".swf", ".machines")) if not path.name.endswith(".machines")]
    return [only_file(logs, "every log has its own node ids")]


def machines_file(paths: Sequence[Path]) -> Path:
    """The inventory: among the paths, or `LOG.machines` beside the log; FormatError if missing."""
    log = data_files(paths)[0]
    beside = log.with_name(log.name.removesuffix(".gz") + ".machines")
    given = [path for path in find_files(paths, (".swf", ".machines")) if path.name.endswith(".machines")]
    for path in (*given, beside):
        if path.exists():
            return path
    raise FormatError(
        "the inventory of machines is missing",
        where=str(beside),
        allowed="lines of: id name nodes cores speed memory_kib",
        advice="put it beside the log or name it as well",
    )


def inventory_files(paths: Sequence[Path]) -> list[Path]:
    """The inventory, which the archive depends on as well."""
    return [machines_file(paths)]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether these first lines are of a wagap log: a job with 21 fields, the 19th in braces."""
    return any(len(fields) == NUM_FIELDS and fields[18].startswith("{") for fields in first_jobs(lines))


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads the inventory, then the jobs.

    Args:
        paths: The log, or the folder that holds it; the inventory is found beside it.
        given: Facts that are not in the log.
    """
    path, inventory = data_files(paths)[0], machines_file(paths)
    machines = read_machines(inventory)
    found = survey(path, machines)
    rows = node_rows(machines, found)
    yield Chunk(NODES.name, tabulate(NODES, rows), inventory.name, 1, None, derived=True)
    yield described_lines(inventory)
    cores_per_node = {name: machine.cores for name, machine in machines.items()}

    def parse_row(_: int, line: str) -> Row | None:
        if not line.strip() or line.lstrip().startswith(";"):
            return None
        job, placement = parse_line(line)
        row = placed(placement, found.class_of, cores_per_node)
        memory = job.requested_memory
        return row | {
            "request_id": job.job,
            "arrival": job.submit_s,
            "site": SITE,
            "service": placement.queue,
            "agent": job.user,
            "queue": placement.queue,
            "cpu_cores": job.processors,
            "memory_gib": None if memory is None else memory / BYTES_PER_GIB,
            "requested_run_s": job.requested_s,
            "start": job.start_s(0.0),
            "finish": job.finish_s(0.0),
            "run_s": job.run_s if job.wait_s is None else None,
            "status": job.status,
        }

    yield from parse_lines(numbered_lines(path), parse_row, REQUESTS, path.name)


def placed(
    placement: JobPlacement, class_of: Mapping[str, str], cores_per_node: Mapping[str, float]
) -> dict[str, Any]:
    """The columns of a row for where it ran and where it might have run."""
    allowed = allowed_classes(placement.spec, cores_per_node)
    candidates = sorted(allowed | {class_of[placement.nodes[0]]})
    shares = Counter(placement.nodes)
    unit = math.gcd(*shares.values())
    spread = [node for node, cores in shares.items() for _ in range(cores // unit)]
    return {
        "num_nodes": len(shares),
        "candidates": None if len(candidates) == len(cores_per_node) else candidates,
        "offered_node": placement.nodes[0],
        "ran_node": placement.nodes[0],
        "ran_nodes": spread if len(shares) > 1 else None,
    }


def node_rows(machines: Mapping[str, MachineClass], found: Survey) -> list[Row]:
    """The inventory as rows of `nodes`: ids that occur, then the nodes of each class that never ran a job."""
    seen = Counter(found.class_of.values())
    named = sorted(found.class_of.items())
    for name, machine in machines.items():
        named += [(f"{name}-unseen-{index}", name) for index in range(1, machine.num_nodes - seen[name] + 1)]
    return [
        {
            "node_id": node,
            "node_class": name,
            "site": SITE,
            "tier": "pool",
            "cpu_cores": machines[name].cores,
            "memory_gib": machines[name].memory_gib,
            "speed": machines[name].speed,
            "virtual": False,
        }
        for node, name in named
    ]


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """Facts about the log beyond its rows: nodes per class, and where it contradicts inventory or specifications."""
    machines = read_machines(machines_file(paths))
    found = survey(data_files(paths)[0], machines)
    seen = Counter(found.class_of.values())
    beyond = [name for name, machine in machines.items() if seen[name] > machine.num_nodes]
    return describe(
        NAME,
        clock=ABSOLUTE_CLOCK,
        limits={
            "tiers": "one cluster",
            "outcomes": "the log has no failure flag: every job is taken as completed",
        },
        notes=(
            "Candidates are classes of nodes; null where the specification allows all.",
            "Field 10 is read as bytes in total over all nodes.",
            f"{counted(found.num_contradictions, 'job')} ran on a class that their specification excludes; "
            "that class is added to their candidates.",
            *(
                f"{seen[name]} nodes of class {name} occur and the inventory lists {machines[name].num_nodes}: "
                "all that occur are kept, so this class may be too large."
                for name in beyond
            ),
        ),
        installation="MetaCentrum, CERIT-SC",
        num_nodes_seen=dict(sorted(seen.items())),
    )
