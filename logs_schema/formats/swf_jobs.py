"""One job of the Standard Workload Format: 18 numbers with -1 for unknown.

Source: D. G. Feitelson, D. Talby, J. P. Jones, *Standards for the Workload Archive*, version 2.2.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from logs_schema.formats.fields import duration, instant, not_negative, number, positive
from logs_schema.formats.reading import BadRow

NAMES = (
    "job",
    "submit",
    "wait",
    "run",
    "processors",
    "cpu_time",
    "used_memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding",
    "think",
)
NUM_FIELDS = len(NAMES)
STATUS_NAMES = {0: "failed", 1: "completed", 5: "killed"}
PARTIAL_STATUSES = (2, 3, 4)
CANCELLED = 5
KIB_PER_GIB = 2**20


class SwfJob(NamedTuple):
    """The fields used here, None where the log has -1.

    Attributes:
        job: Job number, as text.
        submit_s: Submit time on the log's clock, in seconds.
        wait_s: Waiting time in seconds, at least 0.
        run_s: Run time in seconds, at least 0.
        processors: Processors requested (field 8), or else, also where that is 0, those allocated (field 5); above 0.
        requested_s: Requested time in seconds, more than 0.
        requested_memory: Field 10 in the log's own unit, at least 0.
        status: A status of the `requests` table.
        user: User number, as text.
        executable: Executable number, as text.
        queue: Queue number, as text.
        partition: Partition number, as text.
    """

    job: str
    submit_s: float
    wait_s: float | None
    run_s: float | None
    processors: float | None
    requested_s: float | None
    requested_memory: float | None
    status: str
    user: str | None
    executable: str | None
    queue: str | None
    partition: str | None

    @property
    def never_ran(self) -> bool:
        """Whether it was cancelled before it began to run."""
        return self.status == STATUS_NAMES[CANCELLED] and not self.run_s

    def start_s(self, clock_s: float) -> float | None:
        """When it began to run: `clock + submit + wait`, None if unknown or if it was cancelled before."""
        return None if self.wait_s is None or self.never_ran else clock_s + self.submit_s + self.wait_s

    def finish_s(self, clock_s: float) -> float | None:
        """When it ended: `start + run`; when it was cancelled, `submit + wait`; None where one is unknown."""
        if self.wait_s is None or (self.run_s is None and not self.never_ran):
            return None
        return clock_s + self.submit_s + self.wait_s + (self.run_s or 0.0)


def parse_job(fields: Sequence[str]) -> SwfJob:
    """Reads the first 18 fields of a line.

    A job without a submit time, with a negative time, with zero processors or requested time is no job;
    a line with status 2, 3 or 4 is a part of a job that its summary line already covers.

    Raises:
        BadRow: `not_a_number:*`, `negative:*`, `out_of_range:*`, `zero:*`, `unknown:submit` or `partial_execution`.
    """
    values = dict(
        zip(NAMES, (number(text, name) for text, name in zip(fields, NAMES, strict=False)), strict=False)
    )
    known = {name: None if value == -1 else value for name, value in values.items()}
    status = int(values["status"])
    if status in PARTIAL_STATUSES:
        raise BadRow("partial_execution")
    run_s = duration(known["run"], "run")
    wait_s = duration(known["wait"], "wait")
    submit_s = not_negative(instant(known["submit"], "submit"), "submit")
    if submit_s is None:
        raise BadRow("unknown:submit")
    requested = known["requested_processors"]
    if requested is None or (requested == 0 and known["processors"]):
        requested = known["processors"]
    never_ran = status == CANCELLED and not run_s
    return SwfJob(
        job=whole_label(fields[0]),
        submit_s=submit_s,
        wait_s=wait_s,
        run_s=run_s,
        processors=None if never_ran and not requested else positive(requested, "processors"),
        requested_s=positive(known["requested_time"], "requested_time"),
        requested_memory=not_negative(known["requested_memory"], "requested_memory"),
        status=STATUS_NAMES.get(status, "unknown"),
        user=label_or_none(fields[11]),
        executable=label_or_none(fields[13]),
        queue=label_or_none(fields[14]),
        partition=label_or_none(fields[15]),
    )


def whole_label(text: str) -> str:
    """A number used as a name, without a decimal part of zero: `17.0` is `17`."""
    return re.sub(r"\.0*$", "", text)


def label_or_none(text: str) -> str | None:
    """A number used as a name, None where it is -1."""
    name = whole_label(text)
    return None if name == "-1" else name
