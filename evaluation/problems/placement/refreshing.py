"""The refresh of a placement policy: which node takes a request."""

import datetime as dt
from pathlib import Path

from evaluation.comparison.comparison import Comparison
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.bundle_policies import load_bundle_policy
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.case import refuse_uneven
from evaluation.problems.placement.comparing import COMPARISON_CODE
from evaluation.problems.placement.refresh_judging import judge_both
from evaluation.problems.refresh_parts import RefreshParts, newest_days
from logs_schema import Archive
from logs_schema.progress import Progress
from twin.placement.model import PlacementTwin, load_encoding

JUDGE_DAYS = 2


def placement_parts(config: RunConfig) -> RefreshParts:
    """The parts.

    Raises:
        ConfigError: Replications of a window or streams of training cannot be dealt to the twin's members.
    """
    refuse_uneven(config)

    def judge(
        archive: Path,
        twin: Path,
        days: tuple[dt.date, ...],
        new: Path,
        running: Path,
        progress: Progress,
        keep: Unfinished,
    ) -> Comparison:
        system = PlacementTwin.load(twin)
        one, other = (load_bundle_policy(bundle, system.encoding) for bundle in (new, running))
        return judge_both(
            Archive(archive), system, days, one, other, config.judge, config.intervals, progress, keep
        )

    return RefreshParts(
        num_days=JUDGE_DAYS,
        config=config,
        judge_code=COMPARISON_CODE,
        judge_settings={"judge": config.judge, "intervals": config.intervals},
        hold_out=newest_days,
        refuse_other=_refuse_other,
        judge=judge,
    )


def _refuse_other(bundle: Path, twin: Path) -> None:
    load_bundle_policy(bundle, load_encoding(twin))
