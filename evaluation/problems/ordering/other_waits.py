"""Waits of another scheduler or simulator for the same jobs, to stand beside replays of them."""

from pathlib import Path

import numpy as np

from logs_schema.errors import ConfigError, first
from logs_schema.formats.files import numbered_lines
from logs_schema.formats.reading import BadRow
from logs_schema.formats.swf_jobs import NUM_FIELDS, SwfJob, parse_job
from twin.ordering.types import Jobs, Replayed


def name_of_waits(path: Path) -> str:
    """The name of a file of waits in tables: its own, without endings."""
    return path.name.removesuffix(".gz").removesuffix(".swf")


def read_waits(path: Path, jobs: Jobs) -> Replayed:
    """The schedule in an SWF file (field 3, waits), for jobs by their numbers.

    Args:
        path: plain or .gz.
        jobs: of the same log.

    Raises:
        FormatError: the file cannot be read.
        ConfigError: it has no wait of some job.
    """
    lines = (line.split() for _, line in numbered_lines(path) if line.strip() and line.lstrip()[0] != ";")
    found = {job.job: job.wait_s for fields in lines if (job := _job_of(fields)) is not None}
    wait_s = np.array([np.nan if (wait := found.get(name)) is None else wait for name in jobs.request_id])
    if lacking := jobs.request_id[np.isnan(wait_s)].tolist():
        raise ConfigError(
            f"no waits of {len(lacking):,} of {len(wait_s):,} jobs",
            where=f"{path}: jobs {first(lacking)}",
            allowed="an SWF file of the same jobs, by number",
            advice="name the file of this log",
        )
    overran = jobs.run_s > jobs.requested_s
    return Replayed(jobs.arrival_s + wait_s, None, 0, int(overran.sum()))


def _job_of(fields: list[str]) -> SwfJob | None:
    """The job of a line; None for what an import leaves out too."""
    try:
        return parse_job(fields) if len(fields) >= NUM_FIELDS else None
    except BadRow:
        return None
