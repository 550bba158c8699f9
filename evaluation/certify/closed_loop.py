"""Closed loop: levels under a clone of the logged behaviour in the twin, compared with those of the log."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from evaluation.certify.answer_lines import (
    BLOCKS_PER_DAY,
    consecutive,
    equal_where_repeated,
    table_of,
    together,
)
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, about_zero, not_applicable
from evaluation.certify.logged_days import DayOutcomes, HeldOutDay, known_in_log, request_column
from evaluation.certify.resampled import Units, mean_of
from evaluation.certify.two_samples import Trio, distribution_lines, keep
from evaluation.comparison.bootstrap import Statistic
from twin.placement.encoding import Encoding

SECTION = "closed loop"
MIN_DAYS = 8
"""From so many held-out days on, whole days are the units, else blocks of consecutive requests of a day."""
LEAST_S = 1e-3
Value = Callable[[HeldOutDay, DayOutcomes], np.ndarray]
"""(day, outcomes) -> [rows] value."""


def level_lines(
    held: Sequence[HeldOutDay], simulated: Sequence[DayOutcomes], encoding: Encoding, config: CertifyConfig
) -> list[Line]:
    """Differences of levels, twin less log: the value of the behaviour and the share accepted. Deciding."""
    limits = config.thresholds
    if encoding.problem.reward == "on_time":
        what = ("share on time", "share", limits.behaviour_value, _on_time)
    else:
        what = ("mean log of response time over expected run", "1", limits.behaviour_response, _log_response)
    lines = []
    for name, unit, limit, value in (what, ("share accepted", "share", limits.behaviour_value, _accepted)):
        real, twin, num_units = _columns(held, simulated, value)
        name = f"{name}, twin less log"
        if np.isfinite(real[0]).sum() < config.min_rows:
            lines.append(not_applicable(SECTION, name, "too few requests of the log have a value"))
            continue
        if value is _accepted and not ((real[0] < 1.0).any() or (twin[0] < 1.0).any()):
            lines.append(not_applicable(SECTION, name, "neither the log nor the twin refuses a request"))
            continue
        lines.append(
            about_zero(SECTION, name, unit, _difference(twin, real, num_units), num_units, limit,
                       config.intervals(), deciding=True)
        )  # fmt: skip
    return lines


def closed_trio(
    held: Sequence[HeldOutDay], simulated: Sequence[DayOutcomes], partners: Sequence[HeldOutDay]
) -> Trio:
    """Outcomes of the held-out days, of their replications in the twin, and of the partner days."""
    blocks = _blocks(held)
    parts: tuple[list[Units], list[Units], list[Units]] = ([], [], [])
    for index, (day, twin, partner) in enumerate(zip(held, simulated, partners, strict=True)):
        for part, of, outcomes in zip(
            parts, (day, day, partner), (day.logged, twin, partner.logged), strict=True
        ):
            known = outcomes.known & known_in_log(of, outcomes)
            unit = index * blocks + _block(of, outcomes, blocks)
            part.append(
                Units(table_of(outcomes, request_column(of, outcomes, "service"), known), unit[known])
            )
    real, twin_part, other = (together(part) for part in parts)
    return equal_where_repeated(Trio(real, twin_part, other, len(held) * blocks))


def distance_lines(trio: Trio, config: CertifyConfig) -> list[Line]:
    """Distances of the distributions of waits and response times."""
    lines = distribution_lines(SECTION, keep(trio, ("wait", "response time")), config)
    return [replace(line, name=f"{line.name} in closed loop") for line in lines]


def _columns(held: Sequence[HeldOutDay], simulated: Sequence[DayOutcomes], value: Value) -> tuple:
    """Value and unit of the rows of log and twin, and the number of units; NaN where the value is unknown."""
    blocks = _blocks(held)
    found: tuple[list, list] = ([], [])
    for index, (day, twin) in enumerate(zip(held, simulated, strict=True)):
        for part, outcomes in zip(found, (day.logged, twin), strict=True):
            known = outcomes.known & known_in_log(day, outcomes)
            values = np.where(known, value(day, outcomes), np.nan)
            part.append((values, index * blocks + _block(day, outcomes, blocks)))
    real, drawn = (tuple(np.concatenate(leaf) for leaf in zip(*part, strict=True)) for part in found)
    return real, drawn, len(held) * blocks


def _difference(twin: tuple, real: tuple, num_units: int) -> Statistic:
    one, two = (mean_of(values, unit, num_units) for values, unit in (twin, real))
    return lambda weights: np.asarray(one(weights) - two(weights))


def _blocks(held: Sequence[HeldOutDay]) -> int:
    return 1 if len(held) >= MIN_DAYS else BLOCKS_PER_DAY


def _block(day: HeldOutDay, outcomes: DayOutcomes, blocks: int) -> np.ndarray:
    """[rows] the block of the day that a request lies in, the same in every replication."""
    num_rows = len(day.logged.known)
    return np.tile(consecutive(num_rows, blocks), len(outcomes.known) // num_rows)


def _on_time(day: HeldOutDay, outcomes: DayOutcomes) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return (outcomes.response_s <= request_column(day, outcomes, "deadline_s")) & (
            outcomes.answer == "completed"
        )


def _log_response(day: HeldOutDay, outcomes: DayOutcomes) -> np.ndarray:
    expected_s = np.maximum(request_column(day, outcomes, "expected_run_s"), LEAST_S)
    return np.asarray(np.log(np.maximum(outcomes.response_s, LEAST_S) / expected_s))


def _accepted(_day: HeldOutDay, outcomes: DayOutcomes) -> np.ndarray:
    return np.asarray(outcomes.answer != "rejected", float)
