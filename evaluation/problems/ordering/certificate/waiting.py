"""Lines on the queue of generated weeks: waits, slowdowns and utilisation under first come first served with EASY."""

from collections.abc import Sequence

import numpy as np

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_floor
from evaluation.certify.resampled import Units, mean_of
from evaluation.certify.samples import Sample
from evaluation.certify.two_samples import Trio, column_lines, distribution_lines
from evaluation.problems.ordering.certificate.held_out import HeldOutWeeks
from evaluation.problems.ordering.certificate.replayed_weeks import QUEUE_RULE, ReplayedWeek
from logs_schema.calendar import DAY_S

SECTION = "the queue that comes of it"
WAIT, SLOWDOWN = "wait", "log bounded slowdown"


def waits_trio(
    real: Sequence[ReplayedWeek], twin: Sequence[ReplayedWeek], other: Sequence[ReplayedWeek], num_units: int
) -> Trio:
    """Waits as `log(1 + seconds)` and logarithms of slowdowns, of the jobs that count and began."""
    return Trio(_together(real), _together(twin), _together(other), num_units)


def waiting_lines(
    trio: Trio,
    real: Sequence[ReplayedWeek],
    twin: Sequence[ReplayedWeek],
    other: Sequence[ReplayedWeek],
    chosen: HeldOutWeeks,
    processors: float,
    config: CertifyConfig,
) -> list[Line]:
    """Lines of waits, slowdowns and utilisation."""
    used = [_utilisation(weeks, chosen, processors) for weeks in (real, twin, other)]
    unit, num_units = np.arange(chosen.num_units), chosen.num_units
    distance, floor = (mean_of(np.abs(one - used[0]), unit, num_units) for one in used[1:])
    return [
        *column_lines(SECTION, trio, config),
        *distribution_lines(SECTION, trio, config),
        against_floor(
            SECTION,
            f"utilisation by {chosen.unit_name}",
            "mean distance",
            distance,
            floor,
            num_units,
            config.thresholds.utilisation,
            config.intervals(),
        ),
    ]


def _together(weeks: Sequence[ReplayedWeek]) -> Units:
    wait_s, slowdown, unit = (
        np.concatenate(parts)
        for parts in (
            [replayed.waits_s(QUEUE_RULE) for replayed in weeks],
            [replayed.slowdowns(QUEUE_RULE) for replayed in weeks],
            [replayed.unit for replayed in weeks],
        )
    )
    began = np.isfinite(wait_s)
    sample = Sample({WAIT: np.log1p(wait_s[began]), SLOWDOWN: np.log(slowdown[began])}, {})
    return Units(sample, unit[began])


def _utilisation(weeks: Sequence[ReplayedWeek], chosen: HeldOutWeeks, processors: float) -> np.ndarray:
    """[units] processor seconds used, over those there were."""
    length_s = chosen.unit_days * DAY_S
    shares = []
    for replayed in weeks:
        start_s, jobs, warm = replayed.starts[QUEUE_RULE], replayed.week.jobs, replayed.week.warm
        began = np.isfinite(start_s)
        begin_s = np.concatenate([start_s[began], np.zeros(len(warm.end_s))])
        end_s = np.concatenate([start_s[began] + jobs.run_s[began], warm.end_s])
        width = np.concatenate([jobs.processors[began], warm.processors])
        for part in range(chosen.units_per_week):
            from_s, to_s = part * length_s, (part + 1) * length_s
            inside_s = np.clip(end_s, from_s, to_s) - np.clip(begin_s, from_s, to_s)
            shares.append(float(np.sum(width * inside_s) / (processors * length_s)))
    return np.array(shares)
