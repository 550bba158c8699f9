"""The log that the table is learned from: one day of a simulated cluster, or the first requests of it, and later days
that certify what was learned."""

import datetime as dt
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.jobs.job import Step
from evaluation.pipeline.run import ARCHIVE, archive_step, world_files_of, world_in
from evaluation.problems.configuration import LogConfig
from evaluation.simulator.logs import FIRST_DAY, simulate
from logs_schema import Archive
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.progress import Progress


def log_step(log: LogConfig, num_requests: int | None, num_later: int = 0) -> Step:
    """Simulates a log and keeps its last day, or the first `num_requests` of that day (None: all of them).

    With `num_later`, it is simulated for so many days more, and these are kept as well, in whole.
    """
    longer = replace(log, days=log.days + num_later)
    if num_requests is None and log.days == 1:
        return archive_step(longer, Path())

    def build(out: Path, _: Mapping[str, Path], progress: Progress) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory() as aside, progress.stage("simulate", unit="requests") as stage:
            whole = Path(aside) / ARCHIVE
            simulate(world_in(log, Path()), longer.days, log.behaviour, log.seed, whole, progress=stage)
            return {"requests": _cut(Archive(whole), last_day(log), num_requests, out / ARCHIVE)}

    settings = {"log": longer, "requests": num_requests, "later": num_later}
    return Step("archive", "job-archive", build, files=world_files_of(log, Path()), config=settings)


def last_day(log: LogConfig) -> dt.date:
    """The day that is learned from."""
    return FIRST_DAY + dt.timedelta(days=log.days - 1)


def _cut(whole: Archive, day: dt.date, num_requests: int | None, out: Path) -> int:
    """Writes the first requests of a day, and all later days, as an archive of its own; how many that day has."""
    rows = whole.read("requests", days=[day])
    rows = rows if num_requests is None else rows.slice(0, num_requests)
    with ArchiveWriter(out, facts=whole.facts) as archive:
        archive.write("nodes", whole.nodes(), source="simulation")
        archive.write("requests", rows, source="simulation")
        for later in whole.days("requests"):
            if later > day:
                archive.write("requests", whole.read("requests", days=[later]), source="simulation")
    return rows.num_rows
