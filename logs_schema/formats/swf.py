"""Standard Workload Format: batch jobs on one pool of processors (Parallel Workloads Archive).

Readings of the format:

* Instants are `UnixStartTime + submit`, unless submit times are plainly seconds since 1970 themselves. Without
  either the clock is relative: then days are counted from the `origin` given, or from 1970-01-01.
* Processors requested are field 8, where unknown or 0 field 5. Field 10 is KiB per processor.
* -1 is unknown and stays null; a wait of -1 leaves start and finish null, a run time of -1 the finish alone.
* Status 1 is completed, 0 failed, 5 killed, others unknown; a job cancelled with no run time never started, and its
  wait gives when it was cancelled: `finish` without `start`.
  Lines with status 2 to 4 are parts of jobs and go to the quarantine.
* A negative time, zero processors or a zero requested time breaks a row; a run time of zero does not.
* The capacity given, else the header's MaxProcs (else MaxNodes), is that of one virtual node, `pool`; MaxNodes alone
  where jobs do not use far more at once: else it counts nodes of several processors, and the size is the most in use at
  once, a guess. Where field 16 names partitions, every one is a virtual node and a class of its own
  (`logs_schema.formats.swf_partitions`). There is no placement decision to learn from: `offered_node` and `candidates`
  are null, but for a job of a partition that never started.
* A log that a simulator wrote is marked so in its header, and its waits are then not history.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from logs_schema.calendar import EPOCH
from logs_schema.casting import float_of
from logs_schema.formats.describing import ABSOLUTE_CLOCK, RELATIVE_CLOCK, describe
from logs_schema.formats.files import find_files, numbered_lines, only_file
from logs_schema.formats.instant_units import LOOKS_LIKE_EPOCH_S
from logs_schema.formats.pool_size import GUESSED, PoolUse, given_cores
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
from logs_schema.formats.swf_jobs import KIB_PER_GIB, NUM_FIELDS, SwfJob, parse_job
from logs_schema.formats.swf_partitions import (
    COUNTS_OTHERS,
    Partitions,
    partition_guesses,
    partition_notes,
    partitions_of,
    pool_name,
)
from logs_schema.formats.swf_survey import LOST_JOBS, parts_alone, use_in
from logs_schema.tables import NODES, REQUESTS

NAME = "swf"
DESCRIPTION = "Standard Workload Format (Parallel Workloads Archive), plain or .gz"
EXPECTED = "18 numbers separated by blanks, after header lines that begin with ';'"
TAKES_CAPACITY = True
SITE = "cluster"
POOL = "pool"


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The log file itself; FormatError if `paths` name several, since job numbers would collide."""
    return [only_file(find_files(paths, (".swf",)), "every SWF file is a log of its own")]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether these first lines are SWF: one of the first jobs has 18 numbers."""
    jobs = first_jobs(lines)
    return any(len(fields) == NUM_FIELDS and all(map(is_number, fields)) for fields in jobs)


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads one SWF file: the pool first, then its jobs.

    Args:
        paths: The file, or a folder that holds just one.
        given: Facts that are not in the log.
    """
    path = data_files(paths)[0]
    header = read_header(path)
    processors, partitions, _ = machine(path, header, given)
    if processors:
        yield pool_chunk(path.name, processors)
    clock_s = clock_start_s(path, header, given.origin)

    def parse_row(_: int, line: str) -> Row | None:
        if not line.strip() or line.lstrip().startswith(";"):
            return None
        fields = line.split()
        if len(fields) != NUM_FIELDS:
            raise BadRow("field_count")
        job = parse_job(fields)
        row = job_row(job, clock_s)
        if not partitions.processors:
            return row
        return {**row, **in_partition(job, row["start"], partitions.processors)}

    yield from parse_lines(numbered_lines(path), parse_row, REQUESTS, path.name)


def in_partition(job: SwfJob, start_s: float | None, pools: Container[str]) -> Row:
    """Where a job ran, or was meant to run: in the pool of its partition."""
    name = None if job.partition is None else pool_name(job.partition)
    node = name if name in pools else None
    return {"ran_node": None if start_s is None else node, "offered_node": node if start_s is None else None}


def job_row(job: SwfJob, clock_s: float) -> Row:
    """One job as a row of `requests`; `clock_s` is the log's time zero in seconds since 1970."""
    memory_kib = None
    if job.requested_memory is not None and job.processors is not None:
        memory_kib = job.requested_memory * job.processors
    start_s = job.start_s(clock_s)
    return {
        "request_id": job.job,
        "arrival": clock_s + job.submit_s,
        "site": SITE,
        "service": job.executable,
        "agent": job.user,
        "queue": job.queue,
        "cpu_cores": job.processors,
        "memory_gib": None if memory_kib is None else memory_kib / KIB_PER_GIB,
        "requested_run_s": job.requested_s,
        "start": start_s,
        "finish": job.finish_s(clock_s),
        "run_s": job.run_s if start_s is None and not job.never_ran else None,
        "status": job.status,
        "ran_node": None if start_s is None else POOL,
    }


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """Facts from the header: clock, time zone, installation, and whether a simulator wrote the waits."""
    path = data_files(paths)[0]
    header = read_header(path)
    processors, partitions, use = machine(path, header, given)
    limits = {"decisions": "one pool: there was nothing to choose", "tiers": "one pool"}
    if partitions.processors:
        limits = {"decisions": "whoever submits names the partition", "tiers": "the log names none"}
    guessed = {POOL: use.guess()} if use else partition_guesses(partitions)
    simulator = simulated_by(header)
    if simulator:
        limits["true_waits"] = f"simulated by {simulator}: an exact counterfactual, not history"
    if not processors:
        limits["node_capacities"] = (
            "the header gives neither MaxProcs nor MaxNodes, and no capacity was given"
        )
    return describe(
        NAME,
        clock=RELATIVE_CLOCK if clock_is_relative(path, header) else ABSOLUTE_CLOCK,
        limits=limits,
        notes=(
            "Processors asked for are field 8, where it is unknown or 0 field 5.",
            "Days are days in UTC.",
            *(
                f"The size of {name} was given at import: {cores:,g}."
                for name, cores in given.capacity.items()
            ),
            *partition_notes(partitions),
            *([f"MaxNodes, {header['MaxNodes']}, counts nodes of several processors."] if use else []),
        ),
        time_zone=header.get("TimeZoneString", ""),
        installation=header.get("Installation", header.get("Computer", "")),
        acknowledge=header.get("Acknowledge", ""),
        policy=path.name.split(".")[0] if simulator else "",
        **({GUESSED: guessed} if guessed else {}),
        **({LOST_JOBS: told} if (told := parts_alone(path)) else {}),
    )


def machine(
    path: Path, header: Mapping[str, str], given: ReadingOptions
) -> tuple[Mapping[str, float], Partitions, PoolUse | None]:
    """Processors by pool, none where they are unknown; the partitions; and the use that one pool is guessed from.

    Raises:
        FormatError: A capacity was given for a pool that is not there.
    """
    whole = pool_capacity(header)
    partitions = partitions_of(path, header, whole, given.capacity)
    if partitions.processors:
        given_cores(given, tuple(partitions.processors))
        return partitions.processors, partitions, None
    cores = given_cores(given, (POOL,)).get(POOL, whole)
    if cores is None:
        return {}, partitions, None
    if not given.capacity and header_processors(header, "MaxProcs") is None:
        use = use_in(path)
        if COUNTS_OTHERS * use.peak > cores:
            return {POOL: use.guess()["cores"]}, partitions, use
    return {POOL: cores}, partitions, None


def read_header(path: Path) -> dict[str, str]:
    """The `; Name: value` lines before the first job; the first value of a name counts."""
    header: dict[str, str] = {}
    for _, line in numbered_lines(path):
        if line.strip() and not line.lstrip().startswith(";"):
            break
        match = re.match(r"\s*;\s*(\w+):\s*(.*\S)", line)
        if match:
            header.setdefault(match[1], match[2])
    return header


def pool_capacity(header: Mapping[str, str]) -> float | None:
    """Processors of the pool: MaxProcs, else MaxNodes, None where both are missing or -1."""
    found = (header_processors(header, name) for name in ("MaxProcs", "MaxNodes"))
    return next((size for size in found if size is not None), None)


def header_processors(header: Mapping[str, str], name: str) -> float | None:
    """The size that the header gives by one name; None where it is missing or -1."""
    text = header.get(name, "-1").split()[0].replace(",", "")  # 1,152 or 100, of which 4 are ...
    return float(text) if is_number(text) and float(text) > 0 else None


def pool_chunk(source: str, pools: Mapping[str, float]) -> Chunk:
    """The virtual nodes that stand for whole machines, with their processors."""
    rows = [
        {
            "node_id": name,
            "node_class": name,
            "site": SITE,
            "tier": "pool",
            "cpu_cores": processors,
            "virtual": True,
        }
        for name, processors in pools.items()
    ]
    return Chunk(NODES.name, tabulate(NODES, rows), source, 1, None, derived=True)


def clock_start_s(path: Path, header: Mapping[str, str], origin: datetime | None) -> float:
    """Seconds since 1970 at the log's time zero: 0 if times are absolute, else the header's, else `origin`."""
    if submits_since_1970(path):
        return 0.0
    return unix_start_s(header) or (origin or EPOCH).timestamp()


def clock_is_relative(path: Path, header: Mapping[str, str]) -> bool:
    """Whether the log hides its dates: no UnixStartTime, and a first submit time too small to be one."""
    return unix_start_s(header) is None and not submits_since_1970(path)


def unix_start_s(header: Mapping[str, str]) -> float | None:
    """The header's UnixStartTime; None where it is missing, 0 or -1."""
    start = header.get("UnixStartTime", "").split()
    return float(start[0]) if start and is_number(start[0]) and float(start[0]) > 0 else None


def submits_since_1970(path: Path) -> bool:
    """Whether submit times are plainly absolute, whatever start the header gives."""
    jobs = first_jobs(line for _, line in numbered_lines(path))
    submits = [float(fields[1]) for fields in jobs if len(fields) == NUM_FIELDS and is_number(fields[1])]
    return bool(submits) and submits[0] > LOOKS_LIKE_EPOCH_S


def simulated_by(header: Mapping[str, str]) -> str:
    """The simulator that wrote the log, by its header; empty for a log of a real machine."""
    computer = header.get("Computer", "")
    return computer.split(" (")[0] if "simulator" in computer.lower() else ""


def first_jobs(lines: Iterable[str]) -> list[list[str]]:
    """The fields of the first lines that are neither blank nor comments: several, since one may be broken."""
    jobs = (line.split() for line in lines if line.strip() and not line.lstrip().startswith(";"))
    return list(islice(jobs, 20))


def is_number(text: str) -> bool:
    """Whether `text` writes a number."""
    try:
        float_of(text)
    except ValueError:
        return False
    return True
