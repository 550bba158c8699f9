"""The usual refresh: the new and the running bundle stand in the kit's own comparison, on the newest days."""

import datetime as dt
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.products import load_comparison, train_days_in
from evaluation.comparison.shifts import ShiftConfig
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import StepPlan
from evaluation.problems.refresh_parts import NEW, RUNNING, HistorySplit, RefreshParts, newest_days
from logs_schema import Archive
from logs_schema.errors import ProductError
from logs_schema.progress import Progress
from logs_schema.tables import REQUESTS

ALL_REQUESTS = 10**12
"""Of a test day: more than any has, so that all days after training, which are held out, are judged together."""


def usual_refresh(
    config: RunConfig,
    compare: Callable[[RunConfig, str, Mapping[str, UserPolicy]], StepPlan],
    refuse_other: Callable[[Path, Path], None],
    *,
    num_days: int,
    table: str = REQUESTS.name,
) -> RefreshParts:
    """The parts of a problem whose comparison takes bundles as policies of the user's.

    Args:
        config: Of the job.
        compare: The kit's own; `RUNNING` must be among the references of its differences.
        refuse_other: (bundle, twin), as in `RefreshParts`.
        num_days: Held-out days, by default.
        table: Of the archive, that the problem learns from.
    """

    def hold_out(archive: Archive, number: int) -> HistorySplit:
        return newest_days(archive, number, table)

    def judge(
        archive: Path,
        twin: Path,
        days: tuple[dt.date, ...],
        new: Path,
        running: Path,
        progress: Progress,
        keep: Unfinished,
    ) -> Comparison:
        shifts = ShiftConfig("0d", ALL_REQUESTS, (days[-1] - train_days_in(twin)[-1]).days)
        plan = compare(replace(config, shifts=shifts), "refresh", {NEW: new, RUNNING: running})
        with _folder_beside(keep) as folder:
            plan.build(folder, {"archive": archive, "twin": twin}, progress)
            found = load_comparison(folder)
        for name, why in found.refused.items():
            raise ProductError(f"the {name} bundle cannot be judged: {why}", where=str(archive))
        return found

    plan = compare(config, "refresh", {})
    return RefreshParts(
        num_days=num_days,
        config=config,
        judge_code=plan.code_version,
        judge_settings={"comparison": plan.settings},
        hold_out=hold_out,
        refuse_other=refuse_other,
        judge=judge,
        table=table,
    )


@contextmanager
def _folder_beside(keep: Unfinished) -> Iterator[Path]:
    """An empty folder for a comparison, whose own units are found again after a kill."""
    if keep.folder is None:
        with tempfile.TemporaryDirectory(prefix="schedtwin-") as temporary:
            yield Path(temporary)
        return
    folder = keep.folder / "comparison"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
