"""What all jobs of a Standard Workload Format log tell beside its header: use at once, jobs that lack a line."""

from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from logs_schema.formats.fields import number
from logs_schema.formats.files import numbered_lines
from logs_schema.formats.pool_size import PoolUse, first_of_each, pool_use
from logs_schema.formats.reading import BadRow
from logs_schema.formats.swf_jobs import NUM_FIELDS, PARTIAL_STATUSES, parse_job

LOST_JOBS = "lost_jobs"
"""The fact that holds what is to be said of jobs of which only parts are told."""
STATUS = NUM_FIELDS - 8
"""Place of a job's status among its fields."""


def use_in(path: Path) -> PoolUse:
    """Processors that a log's jobs had at once."""
    columns, jobs = (array("d"), array("d"), array("d")), array("q")
    for fields in _jobs(path):
        try:
            job = parse_job(fields)
        except BadRow:
            continue
        start_s, finish_s = job.start_s(0.0), job.finish_s(0.0)
        if start_s is None or finish_s is None or not job.processors:
            continue
        jobs.append(hash(job.job))
        for column, value in zip(columns, (start_s, finish_s, job.processors), strict=True):
            column.append(value)
    counts = first_of_each(jobs)
    return pool_use(*(np.asarray(column)[counts] for column in columns))


def parts_alone(path: Path) -> list[str]:
    """That jobs have lines of their parts and none of the whole, in words; nothing where there is no such job."""
    parts, wholes = array("q"), array("q")
    for fields in _jobs(path):
        try:
            is_part = int(number(fields[STATUS], "status")) in PARTIAL_STATUSES
        except BadRow:
            continue
        (parts if is_part else wholes).append(hash(fields[0]))
    alone = np.setdiff1d(np.asarray(parts, np.int64), np.asarray(wholes, np.int64))
    if not len(alone):
        return []
    return [
        f"{len(alone):,} jobs have lines of their parts alone (status 2 to 4) and none of the whole: they are in "
        "quarantine, and the machine looks emptier than it was; join the parts of each to one line first (the first "
        "submit and wait, the sum of run times, the last status)"
    ]


def _jobs(path: Path) -> Iterator[list[str]]:
    for _, line in numbered_lines(path):
        fields = line.split()
        if len(fields) == NUM_FIELDS and not fields[0].startswith(";"):
            yield fields
