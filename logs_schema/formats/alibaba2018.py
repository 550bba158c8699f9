"""The Alibaba 2018 batch sample as the edge-cloud papers use it: tasks without waits, agents or nodes.

Readings of the format (no header: task_name, instance_num, job_name, task_type, status, start, end, plan_cpu,
plan_mem; some files have a tenth field, empty or a rounded copy of plan_mem, which is not used):

* The papers' reading: task_type is the service, start is the arrival, end - start the delay requirement
  (`deadline_s`). When a task was submitted is not in the log, so `start` and `finish` stay null and the execution
  time end - start goes to `run_s` as well. Times have a resolution of one second: a difference of 0 stays 0.
* An end of 0, or none, means still running; of a task whose status is Running, the end is not its own either. Both
  leave `deadline_s` and `run_s` null.
* `plan_cpu` is hundredths of a core. `plan_mem` is per cent of an undisclosed machine's memory: it goes to
  `memory_share` as a fraction, never to `memory_gib`. `instance_num` is not used.
* Times count from a start that the log hides: days are counted from the `origin` given, or from 1970-01-01.
* A task is called `job_name/task_name`. Status Terminated is completed, Failed failed, Running and Waiting as
  they are, anything else unknown. A start that is missing or an end before the start breaks a row.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from logs_schema.calendar import EPOCH
from logs_schema.formats.describing import RELATIVE_CLOCK, describe
from logs_schema.formats.fields import CsvLines, instant, not_negative, number, number_or_none, positive
from logs_schema.formats.files import find_files
from logs_schema.formats.pieces import LogPiece, lines_of_span, pieces_of
from logs_schema.formats.reading import NOTHING_GIVEN, BadRow, Item, ReadingOptions, Row, parse_lines
from logs_schema.formats.swf import is_number
from logs_schema.tables import REQUESTS

NAME = "alibaba2018"
DESCRIPTION = "Alibaba 2018 batch tasks (CSV without header), one file or several that follow one another"
NUM_FIELDS = 9
EXPECTED = "task_name,instance_num,job_name,task_type,status,start,end,plan_cpu,plan_mem"
SITE = "cluster"
STATUSES = {"Terminated": "completed", "Failed": "failed", "Running": "running", "Waiting": "waiting"}
CORES_PER_PLAN_CPU = 0.01
SHARE_PER_PLAN_MEM = 0.01


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The files of the sample, in the order given or by name."""
    return find_files(paths, (".csv",))


def looks_like(lines: Sequence[str]) -> bool:
    """Whether one of the first lines is a task: nine fields, a status in letters and two times."""
    return any(is_task(line) for line in lines[:20])


def is_task(line: str) -> bool:
    """Whether a line has the shape of a task."""
    try:
        fields = task_fields(line)
    except BadRow:
        return False
    return fields[4].isalpha() and is_number(fields[5]) and is_number(fields[6])


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads the tasks of all files.

    Args:
        paths: The files, or the folder that holds them.
        given: Facts that are not in the log.
    """
    clock_s = (given.origin or EPOCH).timestamp()

    def parse_row(_: int, line: str) -> Row | None:
        return task_row(task_fields(line), clock_s) if line.strip() else None

    files = data_files(paths)
    piece = given.piece or LogPiece(0, len(files))
    for path in files[piece.first : piece.last]:
        lines = lines_of_span(path, piece.span)
        yield from parse_lines(lines, parse_row, REQUESTS, given.name_of(path), num_before=piece.num_before)


def pieces(paths: Sequence[Path]) -> list[LogPiece]:
    """What can be read apart."""
    return pieces_of(data_files(paths))


def task_fields(line: str) -> list[str]:
    """The nine fields of a line, without the tenth that some have; BadRow `field_count`."""
    has_tenth = line.count(",") == NUM_FIELDS
    return CsvLines().fields(line, NUM_FIELDS + has_tenth)[:NUM_FIELDS]


def task_row(fields: Sequence[str], clock_s: float) -> Row:
    """One task as a row of `requests`; `clock_s` is the log's time zero in seconds since 1970."""
    task, _, job, kind, status, start, end, plan_cpu, plan_mem = fields
    if not task or not job:
        raise BadRow("empty:job_name" if task else "empty:task_name")
    start_s = positive(instant(number(start, "start"), "start"), "start") or 0.0
    end_s = not_negative(instant(number_or_none(end, "end"), "end"), "end") or 0.0
    run_s = None if end_s == 0 or status == "Running" else end_s - start_s
    if run_s is not None and run_s < 0:
        raise BadRow("end_before_start")
    cpu = not_negative(number_or_none(plan_cpu, "plan_cpu"), "plan_cpu")
    memory = not_negative(number_or_none(plan_mem, "plan_mem"), "plan_mem")
    return {
        "request_id": f"{job}/{task}",
        "arrival": clock_s + start_s,
        "site": SITE,
        "service": kind or None,
        "cpu_cores": None if cpu is None else cpu * CORES_PER_PLAN_CPU,
        "memory_share": None if memory is None else memory * SHARE_PER_PLAN_MEM,
        "deadline_s": run_s,
        "run_s": run_s,
        "status": STATUSES.get(status, "unknown"),
    }


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """Facts about the sample beyond its rows, and how the papers read it."""
    data_files(paths)
    return describe(
        NAME,
        clock=RELATIVE_CLOCK,
        limits={
            "true_waits": "submit times are not logged: the arrival is the start",
            "decisions": "the sample does not say where a task ran",
            "node_capacities": "the sample does not describe the machines",
            "agents": "the sample has no users",
        },
        notes=(
            "Deadlines are the papers' reading of end - start; they are also the execution times (run_s).",
            "Memory is a share of an undisclosed machine's memory (memory_share); memory_gib is null.",
            "Tasks still running have neither deadline nor run time.",
        ),
        acknowledge="Alibaba cluster-trace programme",
    )
