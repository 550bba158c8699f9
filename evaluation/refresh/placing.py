"""The refresh of a placement policy: which node takes a request."""

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation.comparing import refuse_uneven_lives
from evaluation.comparison import Comparison
from evaluation.configuration import DaysConfig, RunConfig
from evaluation.judges.contender import load_contender
from evaluation.pipeline import build_bundle, build_policy, build_twin
from evaluation.refresh.judging import judge_both
from evaluation.refresh.parts import HeldOut, Parts
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.recipes.training import refuse_uneven_streams
from twin.placement.model import PlacementTwin, load_encoding
from twin.problems import PLACEMENT

JUDGE_DAYS = 2


def placement_parts(config: RunConfig) -> Parts:
    """The parts.

    Raises:
        ConfigError: Lives of a window or streams of training cannot be dealt to the twin's members.
    """
    refuse_uneven_lives(config.judge, config.twin.num_members)
    refuse_uneven_streams(config.train, config.twin.num_members)

    def fit(out: Path, archive: Path, days: DaysConfig, progress: Progress) -> Mapping[str, Any]:
        return build_twin(
            out, archive, days, config.shifts, config.twin, config.seed, progress,
            population=config.population, imitation=config.imitation,
        )  # fmt: skip

    def train(out: Path, twin: Path, certificate: Mapping[str, Any], progress: Progress) -> Mapping[str, Any]:
        return build_policy(out, twin, config.train, config.seed, progress, certification=certificate)

    def judge(
        archive: Path, twin: Path, days: tuple[dt.date, ...], new: Path, running: Path, progress: Progress
    ) -> Comparison:
        system = PlacementTwin.load(twin)
        one, other = (load_contender(bundle, system.encoding) for bundle in (new, running))
        return judge_both(
            Archive(archive), system, days, one, other, config.judge, config.intervals, progress
        )

    return Parts(
        problem=PLACEMENT,
        num_days=JUDGE_DAYS,
        settings={
            "twin": {"twin": config.twin, "population": config.population, **config.imitation.as_settings()},
            "policy": config.train,
            "judged": {"judge": config.judge, "intervals": config.intervals},
        },
        hold_out=newest_days,
        fit=fit,
        train=train,
        export=build_bundle,
        refuse_other=_refuse_other,
        judge=judge,
    )


def newest_days(archive: Archive, num_days: int) -> HeldOut:
    """The newest days with requests.

    Raises:
        ConfigError: That leaves no day to learn from.
    """
    days = archive.days("requests")
    if len(days) <= num_days:
        raise ConfigError(
            f"the history has {len(days)} days with requests, and {num_days} of them are to be held out",
            where=str(archive.path),
            allowed="at least one day more than is held out",
            advice="hold out fewer days (--judge-days), or begin with a longer log",
        )
    return HeldOut(tuple(days[-num_days:]), days[-num_days] - dt.timedelta(days=1))


def _refuse_other(bundle: Path, twin: Path) -> None:
    load_contender(bundle, load_encoding(twin))
