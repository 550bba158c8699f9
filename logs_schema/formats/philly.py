"""The Philly join (Microsoft, 2017): arrivals, GPUs and run times of deep-learning jobs by virtual cluster.

Readings of the format:

* The column `wait_time_SIMULATED_FIFO` is the outcome of a simulation and is refused as history:
  `start` and `finish` stay null, and the run time, which is real, goes to `run_s`.
* `submit_time` is in seconds since 1970; `submit_local` is the same instant in local time and is not used.
* A virtual cluster is a queue, not a place: there are no nodes and no placement decisions.
* Jobs have no names; a job is called by the number of its line. How it ended is not in the log: status unknown.
* A negative time, or no GPUs at all, breaks a row.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.formats.fields import Header, csv_names, duration, instant, number, positive
from logs_schema.formats.files import find_files, numbered_lines, only_file
from logs_schema.formats.reading import NOTHING_GIVEN, BadRow, Item, ReadingOptions, Row, parse_lines
from logs_schema.tables import REQUESTS

NAME = "philly"
DESCRIPTION = "Philly join (CSV), plain or .gz; its simulated waits are refused"
COLUMNS = ("submit_time", "run_time", "num_gpus", "vc")
SIMULATED_WAIT = "wait_time_SIMULATED_FIFO"
EXPECTED = f"a header with {', '.join((*COLUMNS, SIMULATED_WAIT))}"
SITE = "philly"


def data_files(paths: Sequence[Path]) -> list[Path]:
    """The log file itself; FormatError if `paths` name several, since jobs are called by their line."""
    return [only_file(find_files(paths, (".csv",)), "jobs are called by the number of their line")]


def looks_like(lines: Sequence[str]) -> bool:
    """Whether the first line is this format's header."""
    return bool(lines) and {*COLUMNS, SIMULATED_WAIT} <= set(csv_names(lines[0]))


def read(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> Iterator[Item]:
    """Reads the jobs.

    Args:
        paths: The file, or a folder that holds just one.
        given: Facts that are not in the log.
    """
    path = data_files(paths)[0]
    header = Header(path, COLUMNS)

    def parse_row(line_number: int, line: str) -> Row | None:
        if line_number == 1 or not line.strip():
            return None
        fields = header.fields(line)
        if not fields["vc"]:
            raise BadRow("empty:vc")
        return {
            "request_id": str(line_number),
            "arrival": instant(number(fields["submit_time"], "submit_time"), "submit_time"),
            "site": SITE,
            "queue": fields["vc"],
            "gpus": positive(number(fields["num_gpus"], "num_gpus"), "num_gpus"),
            "run_s": duration(number(fields["run_time"], "run_time"), "run_time"),
            "status": "unknown",
        }

    yield from parse_lines(numbered_lines(path), parse_row, REQUESTS, path.name)


def facts(paths: Sequence[Path], given: ReadingOptions = NOTHING_GIVEN) -> dict[str, Any]:
    """Facts about the log beyond its rows: above all that its waits were refused, and why."""
    data_files(paths)
    return describe(
        NAME,
        clock=ABSOLUTE_CLOCK,
        limits={
            "true_waits": f"refused: the column {SIMULATED_WAIT} is a simulation, not history",
            "decisions": "the log does not say where a job ran",
            "node_capacities": "the log does not describe the machines",
        },
        notes=(
            "Virtual clusters are queues.",
            "Run times are real and stand in run_s; start and finish are null.",
        ),
        acknowledge="Microsoft philly-traces (CC-BY 4.0)",
    )
