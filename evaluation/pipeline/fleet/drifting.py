"""Drift of a cluster's log: the newest days against days that the running policy was trained on, by `survey`.

Of every aspect the distance between a training day and a newest day is the survey's, noise taken off; the median over
all pairs is held against the survey's limit.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evaluation.comparison.survey.survey import Aspect, SurveyConfig, survey
from evaluation.pipeline.fleet.outcomes import AspectDrift, LogDrift
from evaluation.pipeline.refresh.appending import ARCHIVE
from evaluation.pipeline.refresh.job import FOLDER
from logs_schema import Archive
from logs_schema.errors import SchedtwinError
from logs_schema.mapping import one_by_one
from offline_rl.bundle import origin_of


def drift_of(work: Path, running: Path | None, num_days: int) -> LogDrift:
    """The drift of the history in a work folder since its running policy was trained.

    Args:
        work: Work folder of a refresh.
        running: The running bundle; None without one.
        num_days: Most training days, the newest ones, and most newest days.
    """
    if running is None:
        return LogDrift((), "no policy is running", "")
    try:
        archive = work / FOLDER / "history" / ARCHIVE
        days = Archive(archive).days("requests")
        if not days:
            return LogDrift((), "the log has no requests, by which days are compared", "")
        origin = origin_of(running)
        trained, newest = split_days(days, origin.first_day, origin.last_day, num_days)
        if not (trained and newest):
            return LogDrift((), _why_none(trained), "")
        found = survey(archive, SurveyConfig(), one_by_one, [*trained, *newest])
    except SchedtwinError as error:
        return LogDrift((), error.what, "")
    known = [day in set(trained) for day in found.days]
    aspects = tuple(_between(one, np.array(known)) for one in found.aspects)
    return LogDrift(tuple(one for one in aspects if one is not None), "", newest[-1].isoformat())


def split_days(
    days: Sequence[dt.date], first: str, last: str, num_days: int
) -> tuple[list[dt.date], list[dt.date]]:
    """The newest training days (ISO, `first` to `last`) of a log, and its newest days after; either may be empty."""
    trained = [day for day in days if first <= day.isoformat() <= last]
    newest = [day for day in days if day.isoformat() > last] if last else []
    return trained[-num_days:], newest[-num_days:]


def _why_none(trained: Sequence[dt.date]) -> str:
    if not trained:
        return "the history holds none of the days that the running policy was trained on"
    return "the history holds no day after those that the running policy was trained on"


def _between(aspect: Aspect, is_trained: np.ndarray) -> AspectDrift | None:
    """The drift in one aspect; None where no pair of days is known."""
    pairs = aspect.distance[np.ix_(is_trained, ~is_trained)]
    pairs = pairs[np.isfinite(pairs)]
    if not len(pairs):
        return None
    return AspectDrift(aspect.name, aspect.unit, float(np.median(pairs)), aspect.limit)
