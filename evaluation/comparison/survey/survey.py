"""Comparison of the days of an archive with each other.

For every aspect a day is a distribution: of arrivals over the hours, of requests over sites and services and over
nodes, of run times and waits over their logarithm. Shares are compared by the total variation distance, durations by
the Wasserstein distance of their logarithms, in decades.

Two samples of one distribution differ too. This noise is measured between two random halves of every day, and
subtracted from the distances in squares. A day describes another while no distance reduced in this way is above its
limit. Of few requests a day, or few pairs of days, a reduced distance is far from zero now and then, so a median counts
as a difference where it is above the limit by more than medians of days that do not differ come to. A twin of a day can
be used from the next day on at the earliest, so the gain of a refit at a shift is the distance there less that of one
day.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from evaluation.comparison.survey.day_counts import (
    ASPECTS,
    BINS_A_DECADE,
    DayCounts,
    count_day,
    together,
)
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.mapping import TaskMap

MAX_SHIFT_DAYS = 60
CUT_OFF_HOURS, LEAST_DAYS = 3, 4
"""Usually busy hours that a day at the end of a log lacks where the log is cut off within it; days to tell it by."""
NUM_CHANCES, SURE = 400, 0.99
"""Medians that are drawn of days that do not differ, and the share of them that is put down to chance."""
UNITS = {"arrivals": "share", "mix": "share", "run times": "decades", "waits": "decades", "nodes": "share"}
DURATIONS = ("run times", "waits")


@dataclass(frozen=True)
class SurveyConfig:
    """Which days, and limits of differences between them.

    Attributes:
        share: Limit of distances between shares.
        decades: Limit of distances between logarithms of durations; .1 is a factor of 1.26.
        first_day, last_day: Bounds of the days that are compared, both included; all days if not given.
    """

    share: float = 0.1
    decades: float = 0.1
    first_day: dt.date | None = None
    last_day: dt.date | None = None

    def __post_init__(self) -> None:
        if self.first_day and self.last_day and self.first_day >= self.last_day:
            raise ConfigError(
                f"days from {self.first_day} to {self.last_day}",
                where="survey",
                allowed="a last day after the first",
            )
        if not (0.0 < self.share < 1.0 and self.decades > 0.0):
            raise ConfigError(
                f"limits of {self.share:g} and {self.decades:g} decades",
                allowed="a share above 0 and below 1, and decades above 0",
            )

    def includes(self, day: dt.date) -> bool:
        """Whether a day lies between the first and the last."""
        return (self.first_day or day) <= day <= (self.last_day or day)

    def limit(self, aspect: str) -> float:
        """The limit of an aspect, in its unit."""
        return self.decades if aspect in DURATIONS else self.share


@dataclass(frozen=True)
class AtShift:
    """Distances of an aspect between days that are `shift_days` apart, less the noise; and what a median of so many
    pairs of days comes to by chance."""

    shift_days: int
    num_pairs: int
    median: float
    low: float  # the lower and the upper quartile
    high: float
    chance: float = 0.0


@dataclass(frozen=True)
class Aspect:
    """One aspect of all days.

    Attributes:
        name: Of `ASPECTS`.
        unit: "share" or "decades".
        limit: Distances above it count as a difference.
        noise: Distance between two samples of one day, the median over days.
        by_shift: Ascending.
        distance: [days, days], NaN where one of them says nothing of it.
    """

    name: str
    unit: str
    limit: float
    noise: float
    by_shift: tuple[AtShift, ...]
    distance: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class DaySurvey:
    """Days held against each other.

    Attributes:
        archive: Content hash.
        days: With requests, ascending.
        num_requests: Of every day.
        aspects: Those that the log has.
        stops_after_days: Shift from which on a day no longer describes another, by aspect: at the median it is beyond
            the limit there and at half or more of the longer ones; None where it does throughout.
        refit_after_days: Shift from which on a fresh twin would be nearer by more than the limit, by aspect; likewise.
        cut_off: Days that the log begins or ends within, whose arrivals are not compared.
    """

    archive: str
    days: tuple[dt.date, ...]
    num_requests: tuple[int, ...]
    aspects: tuple[Aspect, ...]
    stops_after_days: dict[str, int | None]
    refit_after_days: dict[str, int | None]
    cut_off: tuple[dt.date, ...] = ()


def survey(
    archive: Path, config: SurveyConfig, run_tasks: TaskMap, days: Sequence[dt.date] | None = None
) -> DaySurvey:
    """Counts every day and compares the days with each other.

    Args:
        archive: Archive of the log.
        config: Which days, and limits of differences.
        run_tasks: Runs one task for each day.
        days: These days alone, of those that the configuration includes.

    Raises:
        ConfigError: Fewer than two days with requests, or days too thin or too far apart to be compared.
    """
    log = Archive(archive)
    chosen = [
        day for day in log.days("requests") if config.includes(day) and (days is None or day in set(days))
    ]
    if len(chosen) < 2:
        raise ConfigError(
            f"{len(chosen)} {'day' if len(chosen) == 1 else 'days'} with requests cannot be compared with each other",
            where=str(archive),
            allowed="2 days or more of requests",
            advice="import more days of the log, or name more of them"
            if log.num_rows("requests")
            else "a log of deployments alone has nothing to survey: fit a twin on it and certify it"
            if log.num_rows("deployment_samples")
            else f"`schedtwin check {archive}` says why no request was kept: mend the log and import it again",
        )
    counts = list(run_tasks(count_day, [(archive.absolute(), day) for day in chosen], "days"))
    cut = cut_off(counts)
    counts = [replace(one, arrivals=0 * one.arrivals) if one.day in cut else one for one in counts]
    found = [_aspect(name, counts, config) for name in ASPECTS]
    aspects = tuple(one for one in found if one.by_shift)
    if not aspects:
        raise ConfigError(
            f"no two of {len(chosen)} days can be compared with each other",
            where=str(archive),
            allowed=f"days of several requests each, at most {MAX_SHIFT_DAYS} days apart",
            advice="import more of the log's requests",
        )
    return DaySurvey(
        log.content_hash,
        tuple(chosen),
        tuple(one.num_requests for one in counts),
        aspects,
        {one.name: stops_after(one) for one in aspects},
        {one.name: refit_after(one) for one in aspects},
        cut,
    )


def stops_after(aspect: Aspect) -> int | None:
    """See `DaySurvey.stops_after_days`."""
    return _lasting(aspect.by_shift, [at.median - at.chance > aspect.limit for at in aspect.by_shift])


def refit_after(aspect: Aspect) -> int | None:
    """See `DaySurvey.refit_after_days`."""
    fresh, *later = aspect.by_shift
    return _lasting(later, [at.median - fresh.median - at.chance > aspect.limit for at in later])


def _lasting(by_shift: Sequence[AtShift], beyond: Sequence[bool]) -> int | None:
    """The first shift that is beyond a limit as half or more of the longer ones are; one odd shift is chance."""
    for place, at in enumerate(by_shift):
        if beyond[place] and 2 * sum(beyond[place:]) >= len(beyond[place:]):
            return at.shift_days
    return None


def cut_off(counts: Sequence[DayCounts]) -> tuple[dt.date, ...]:
    """The first and the last day, where the log begins or ends within them: hours that are usually busy lack there."""
    if len(counts) < LEAST_DAYS:
        return ()
    busy = np.array([one.arrivals.sum(axis=0) > 0 for one in counts])  # [days, hours]
    usual = busy.mean(axis=0) > 0.5
    missing = (
        (counts[0].day, usual & ~np.logical_or.accumulate(busy[0])),
        (counts[-1].day, usual & ~np.logical_or.accumulate(busy[-1][::-1])[::-1]),
    )
    return tuple(day for day, hours in missing if hours.sum() >= CUT_OFF_HOURS)


def _aspect(name: str, counts: Sequence[DayCounts], config: SurveyConfig) -> Aspect:
    halves = _halves(name, counts)  # [2, days, values]
    is_ordered = name in DURATIONS
    whole = halves.sum(axis=0)
    noise = np.array(
        [_distances(halves[0, one], halves[1, one][None], is_ordered)[0] for one in range(len(counts))]
    )
    distance = np.stack([_distances(one, whole, is_ordered) for one in whole])
    # each half has half the requests, so that the variance between two halves is twice that between two days
    floor = np.sqrt((noise[:, None] ** 2 + noise[None] ** 2) / 4.0)
    distance = np.sqrt(np.maximum(distance**2 - floor**2, 0.0))
    day = np.array([one.day.toordinal() for one in counts])
    apart = day[None] - day[:, None]
    by_shift = []
    for shift in range(1, min(MAX_SHIFT_DAYS, int(apart.max())) + 1):
        known = distance[(apart == shift) & np.isfinite(distance)]
        if len(known):
            low, median, high = np.quantile(known, (0.25, 0.5, 0.75)).tolist()
            by_shift.append(AtShift(shift, len(known), median, low, high, _chance(noise, len(known))))
    median_noise = float(np.nanmedian(noise)) if np.isfinite(noise).any() else float("nan")
    return Aspect(name, UNITS[name], config.limit(name), median_noise, tuple(by_shift), distance)


def _chance(noise: np.ndarray, num_pairs: int) -> float:
    """What the median over so many pairs of days that do not differ is hardly ever above, less the noise as it is.

    Args:
        noise: [days] distance between two halves of each; NaN where a day says nothing.
        num_pairs: How many.
    """
    known, random = noise[np.isfinite(noise)], np.random.default_rng(num_pairs)
    apart, *own = known[random.integers(0, len(known), (3, NUM_CHANCES, num_pairs))] ** 2
    reduced = np.sqrt(np.maximum(apart / 2.0 - sum(own) / 4.0, 0.0))
    return float(np.quantile(np.median(reduced, axis=1), SURE))


def _halves(name: str, counts: Sequence[DayCounts]) -> np.ndarray:
    """[2, days, values] counts of both halves of every day."""
    if name == "arrivals":
        return np.stack([one.arrivals for one in counts], axis=1)
    if name in DURATIONS:
        return np.stack([one.durations[name] for one in counts], axis=1)
    labels = [one.labels[name] for one in counts]
    known = {label for halves in labels for half in halves for label in half}
    if any(isinstance(label, int) for label in known):  # one sample has too many: all are counted as it is
        labels = [(together(one), together(two)) for one, two in labels]
        known = {label for halves in labels for half in halves for label in half}
    if len(known) < 2:  # nothing is known, or all is of one label: days cannot differ
        return np.zeros((2, len(counts), 1), np.int64)
    place = {label: index for index, label in enumerate(sorted(known, key=str))}
    found = np.zeros((2, len(counts), len(place)), np.int64)
    for number, halves in enumerate(labels):
        for half in (0, 1):
            for label, count in halves[half].items():
                found[half, number, place[label]] = count
    return found


def _distances(one: np.ndarray, others: np.ndarray, is_ordered: bool) -> np.ndarray:
    """[others] the distance of counts [values] to others [others, values]; NaN where one of them is empty."""
    with np.errstate(invalid="ignore"):
        share, shares = one / one.sum(), others / others.sum(axis=1, keepdims=True)
    if is_ordered:
        return np.asarray(np.abs(np.cumsum(shares - share, axis=1)).sum(axis=1) / BINS_A_DECADE)
    return np.asarray(0.5 * np.abs(shares - share).sum(axis=1))
