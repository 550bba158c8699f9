"""The lumos CSV (DIR-LAB, ALCF Theta): one pool of equal nodes, one line per job.

Readings of the format:

* `submit_time` is in seconds since 1970; start is submit + wait, finish is start + run.
* Hidden users and projects are written 0 and become null.
* Cores requested are `cpu_num`, nodes `node_num`. The machine's size is not in the log: the virtual node
  `pool` has the cores given, else as a guess the largest number of nodes in use at once, times the cores per node
  (Theta: 4,392 x 64). Facts call it a guess.
* Status Pass is completed, Killed killed, Failed failed, anything else unknown.
* Logs of GPU clusters (ThetaGPU, Philly, Helios, the GPU nodes of Blue Waters) lack cores, limits or nodes: 0 or
  nothing in `cpu_num` and `wall_time` is unknown, as is nothing in `gpu_num` and `node_num`.
* A negative time, or 0 nodes of a job without cores and GPUs, break a row; a run longer than requested does not. With
  cores or GPUs 0 nodes are unknown (Helios).
* There is no placement decision to learn from: `offered_node` and `candidates` are null.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from logs_schema.checks import LARGEST
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.fields import (
    Header,
    count,
    csv_names,
    duration,
    instant,
    limited,
    not_negative,
    number,
    number_or_none,
    positive,
)
from logs_schema.formats.files import find_files, numbered_lines, only_file
from logs_schema.formats.pool_size import GUESSED, PoolUse, first_of_each, given_cores, pool_use
from logs_schema.formats.reading import (
    NOTHING_GIVEN,
    BadRow,
    Chunk,
    Item,
    ReadingOptions,
    Row,
    parse_lines,
    tabulate,
)
from logs_schema.formats.swf_jobs import whole_label
from logs_schema.tables import NODES, REQUESTS

NAME = "lumos"
DESCRIPTION = "lumos CSV of one machine (ALCF Theta and others), plain or .gz"
NUMBERS = ("gpu_num", "cpu_num", "node_num", "submit_time", "wait_time", "run_time", "wall_time")
COLUMNS = ("job", "user", "project", *NUMBERS, "new_status")
EXPECTED = f"a header with {', '.join(COLUMNS)}"
TAKES_CAPACITY = True
SITE = "cluster"
POOL = "pool"
STATUSES = {"Pass": "completed", "Killed": "killed", "Failed": "failed"}


class LumosJob(NamedTuple):
    """The numbers of one line: instants and durations in seconds, resources requested; None where unknown."""

    submit_s: float
    wait_s: float
    run_s: float
    wall_s: float | None
    nodes: int | None
    cores: float | None
    gpus: float | None


class Size(NamedTuple):
    """The machine as far as the log shows it: its use in nodes, and cores and GPUs per node."""

    use: PoolUse
    cores_per_node: float
    gpus_per_node: float

    def num_nodes(self, given: ReadingOptions) -> float:
        """Nodes of the machine: as many as hold the cores given, else as were in use at once."""
        cores = given_cores(given, (POOL,)).get(POOL)
        if cores is None or not self.cores_per_node:
            return max(self.use.peak, self.use.largest)
        return cores / self.cores_per_node

    def pool(self, given: ReadingOptions) -> dict[str, Any] | None:
        """The machine as one virtual node; None where nothing is known of its size."""
        num_nodes, cores = self.num_nodes(given), given_cores(given, (POOL,)).get(POOL)
        if not num_nodes and cores is None:
            return None
        return {
            "node_id": POOL,
            "node_class": POOL,
            "site": SITE,
            "tier": "pool",
            "cpu_cores": min(num_nodes * self.cores_per_node if cores is None else cores, LARGEST),
            "gpus": min(num_nodes * self.gpus_per_node, LARGEST),
            "virtual": True,
        }


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The log file itself; FormatError if `paths` name several."""
    return [only_file(find_files(paths, (".csv",)), "every file is the log of one machine")]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether the first line is this format's header."""
    return bool(lines) and set(COLUMNS) <= set(csv_names(lines[0]))


def parse_job(fields: Mapping[str, str]) -> LumosJob:
    """The numbers of one line.

    Raises:
        BadRow: `not_a_number:*`, `negative:*`, `out_of_range:*`, `too_large:*`, `zero:*`,
            `not_whole:node_num`.
    """
    times = {name: number(fields[name], name) for name in ("submit_time", "wait_time", "run_time")}
    asked = {
        name: number_or_none(fields[name], name) for name in ("wall_time", "node_num", "cpu_num", "gpu_num")
    }
    for name in ("wait_time", "run_time"):
        duration(times[name], name)
    for name in ("gpu_num", "cpu_num"):  # the size of the machine is read off them
        limited(asked[name], name)
    for name in ("gpu_num", "cpu_num", "wall_time"):
        not_negative(asked[name], name)
    instant(sum(times.values()), "finish")
    if asked["node_num"] == 0.0 and (asked["cpu_num"] or asked["gpu_num"]):
        asked["node_num"] = None
    return LumosJob(
        submit_s=instant(times["submit_time"], "submit_time") or 0.0,
        wait_s=times["wait_time"],
        run_s=times["run_time"],
        wall_s=asked["wall_time"] or None,
        nodes=count(positive(asked["node_num"], "node_num"), "node_num"),
        cores=asked["cpu_num"] or None,
        gpus=asked["gpu_num"],
    )


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads the pool, then the jobs.

    Args:
        paths: The file, or a folder that holds just one.
        given: Facts that are not in the log.
    """
    path = data_files(paths)[0]
    header = Header(path, COLUMNS)
    pool = machine_size(path, header).pool(given)
    if pool is not None:
        yield Chunk(NODES.name, tabulate(NODES, [pool]), path.name, 1, None, derived=True)

    def parse_row(line_number: int, line: str) -> Row | None:
        if line_number == 1 or not line.strip():
            return None
        fields = header.fields(line)
        return job_row(fields, parse_job(fields), None if pool is None else POOL)

    yield from parse_lines(numbered_lines(path), parse_row, REQUESTS, path.name)


def job_row(fields: Mapping[str, str], job: LumosJob, pool: str | None) -> Row:
    """One job as a row of `requests`; `pool` is the node that stands for the machine."""
    start_s = job.submit_s + job.wait_s
    return {
        "request_id": whole_label(fields["job"]),
        "arrival": job.submit_s,
        "site": SITE,
        "scenario": hidden_or_label(fields["project"]),
        "agent": hidden_or_label(fields["user"]),
        "cpu_cores": job.cores,
        "gpus": job.gpus,
        "num_nodes": job.nodes,
        "requested_run_s": job.wall_s,
        "start": start_s,
        "finish": start_s + job.run_s,
        "status": STATUSES.get(fields["new_status"], "unknown"),
        "ran_node": pool,
    }


def hidden_or_label(text: str) -> str | None:
    """A user or project number as text, None where it is hidden (0) or empty."""
    name = whole_label(text.strip())
    return None if name in ("0", "") else name


def machine_size(path: Path, header: Header) -> Size:
    """Reads the log once: the nodes in use at once, and the largest share of a node."""
    starts_s, finishes_s, nodes, jobs = array("d"), array("d"), array("d"), array("q")
    cores_per_node = gpus_per_node = 0.0
    for line_number, line in numbered_lines(path):
        if line_number == 1 or not line.strip():
            continue
        try:
            fields = header.fields(line)
            job = parse_job(fields)
        except BadRow:
            continue
        if job.nodes is None:
            continue
        jobs.append(hash(whole_label(fields["job"])))
        starts_s.append(job.submit_s + job.wait_s)
        finishes_s.append(job.submit_s + job.wait_s + job.run_s)
        nodes.append(job.nodes)
        cores_per_node = max(cores_per_node, (job.cores or 0.0) / job.nodes)
        gpus_per_node = max(gpus_per_node, (job.gpus or 0.0) / job.nodes)
    counts = first_of_each(jobs)
    use = pool_use(*(np.asarray(column)[counts] for column in (starts_s, finishes_s, nodes)))
    return Size(use, cores_per_node, gpus_per_node)


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """Facts about the log beyond its rows: the machine's size as far as use shows it."""
    path = data_files(paths)[0]
    size = machine_size(path, Header(path, COLUMNS))
    source = "given" if given.capacity else "guessed from the largest use at once"
    return describe(
        NAME,
        clock=ABSOLUTE_CLOCK,
        limits={"decisions": "one pool: there was nothing to choose", "tiers": "one pool"},
        notes=(
            f"The pool's capacity is {source}: {size.num_nodes(given):g} nodes of {size.cores_per_node:g} cores"
            f"{'' if size.cores_per_node else ', which the log does not tell'}.",
            "Hidden users and projects (written 0) are null.",
        ),
        acknowledge="DIR-LAB lumos; Argonne Leadership Computing Facility",
        **(
            {}
            if given.capacity or not size.use.largest * size.cores_per_node
            else {GUESSED: {POOL: size.use.guess(size.cores_per_node)}}
        ),
    )
