"""Accuracy of a generated workload: agents and arrival times compared with those of held-out days.

Agents are compared agent by agent, never request by request (an agent with many requests would count often), given the
scenarios and times of day of the held-out agents. Arrival times are compared in two-hour parts of the day.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.certify.answer_lines import BLOCKS_PER_DAY, consecutive
from evaluation.certify.arrival_statistics import PARTS_OF_DAY, arrival_statistics
from evaluation.certify.config import CertifyConfig
from evaluation.certify.held_out import HeldOutDays
from evaluation.certify.lines import Line, against_floor, not_applicable
from evaluation.certify.resampled import Units, mean_of
from evaluation.certify.samples import Sample
from evaluation.certify.two_samples import Trio, pairs_chart, two_sample_lines
from evaluation.comparison.report import Chart, Curve
from logs_schema import Archive
from logs_schema.calendar import DAY_S, MONDAY_S, WEEK_S
from twin.placement.encoding import day_start_s
from twin.population import (
    METHODS,
    AgentTable,
    PopulationModel,
    draw_agents,
    load_population,
    load_workload_model,
    sample_agents,
    workload_facts,
)
from twin.population.arrival_times import draw_arrivals
from twin.population.arrivals import read_arrivals
from twin.population.workload import NONE

SECTION = "workload model"
REPLAYED = "this twin replays logged arrivals and generates none"
LINES = (
    "KL of the agents' columns",
    "mean KL of pairs",
    "two-sample classifier",
    "kernel distance",
    "rate, dispersion and autocorrelation of arrivals",
)
"""Names of the lines that are not applicable without a workload model."""
STATISTICS = ("rate", "dispersion", "autocorrelation of gaps", "variation of gaps")


class Generated(NamedTuple):
    """Lines, charts and notes on a population."""

    lines: list[Line]
    charts: tuple[Chart, ...]
    notes: tuple[str, ...]


def population_lines(
    archive: Archive,
    folder: Path | None,
    train_days: Sequence[dt.date],
    chosen: HeldOutDays,
    config: CertifyConfig,
) -> Generated:
    """Lines of a population and of its arrival times; without one, lines that are not applicable.

    Args:
        archive: Archive of the log.
        folder: Folder of the population; None where the twin has none.
        train_days: Days whose arrival times are used where the population has none.
        chosen: Held-out days.
        config: Configuration of the certificate.

    Raises:
        ProductError: What is in the folder cannot be read.
        ConfigError: The days hold no agents.
    """
    facts = {} if folder is None else workload_facts(folder)
    if folder is None or "refusal" in facts:
        reason = facts.get("refusal", REPLAYED)
        return Generated([not_applicable(SECTION, name, reason) for name in LINES], (), ())
    if "kind" in facts and facts["kind"] != NONE:
        model, arrivals, _ = load_workload_model(folder)
    else:
        model, arrivals = load_population(folder, METHODS), read_arrivals(archive, sorted(train_days))
    trio, notes = agents_trio(archive, model, chosen, seed=config.seed)
    notes += tuple(
        f"population: {text}" for text in (facts.get("fallback"), *facts.get("warnings", [])) if text
    )
    lines = two_sample_lines(SECTION, trio, trio.real.sample.names, config)
    keys = jax.random.split(jax.random.key(config.seed), len(chosen.days))
    drawn = [
        draw_arrivals(key, arrivals, offset_s=(day_start_s(day) - MONDAY_S) % WEEK_S, length_s=DAY_S)
        for key, day in zip(keys, chosen.days, strict=True)
    ]
    real, other = ([logged_arrivals(archive, day) for day in days] for days in (chosen.days, chosen.partners))
    generated = [np.asarray(times, float) for times in drawn]
    lines += arrival_lines(real, generated, other, config)
    charts = (_rate_chart(real, generated, other), pairs_chart(trio, trio.real.sample.names))
    return Generated(lines, charts, notes)


def agents_trio(
    archive: Archive, model: PopulationModel, chosen: HeldOutDays, *, seed: int
) -> tuple[Trio, tuple[str, ...]]:
    """Agents of the held-out days, generated ones under the same conditions, and those of the partner days."""
    parts: tuple[list[Units], list[Units], list[Units]] = ([], [], [])
    known = np.array(model.encoding.scenarios)
    num_strange, num_rows = 0, 0
    for index, (day, partner) in enumerate(zip(chosen.days, chosen.partners, strict=True)):
        real, _ = draw_agents(archive, [day], seed=seed)
        other, _ = draw_agents(archive, [partner], seed=seed + 1)
        is_known = np.isin(real.conditions.scenario, known)
        num_strange, num_rows = num_strange + int((~is_known).sum()), num_rows + len(is_known)
        real = real.take(np.flatnonzero(is_known))
        generated = sample_agents(jax.random.fold_in(jax.random.key(seed), index), model, real.conditions)
        for part, table in zip(parts, (real, generated, other), strict=True):
            part.append(
                Units(_sample(table), index * BLOCKS_PER_DAY + consecutive(table.num_rows, BLOCKS_PER_DAY))
            )
    names = set.intersection(*(set(unit.sample.names) for part in parts for unit in part))
    one, two, three = (_joined(part, names) for part in parts)
    trio = Trio(one, two, three, len(chosen.days) * BLOCKS_PER_DAY)
    if not num_strange:
        return trio, ()
    return trio, (
        f"{num_strange:,} of {num_rows:,} agents are of a scenario that is not in the training data: left out",
    )


def arrival_lines(
    real: Sequence[np.ndarray],
    generated: Sequence[np.ndarray],
    other: Sequence[np.ndarray],
    config: CertifyConfig,
) -> list[Line]:
    """Lines of arrival times.

    Args:
        real, generated, other: One entry a day: sorted seconds since midnight.
        config: Of the certificate.

    Returns:
        One line each for rate (relative to the day's mean), dispersion and variation of gaps (log ratios), and
        autocorrelation of gaps: mean distances over the parts of the days.
    """
    distances, floor = (arrival_distances(real, part) for part in (generated, other))
    num_units = len(real) * PARTS_OF_DAY
    unit = np.arange(num_units)
    return [
        against_floor(
            SECTION,
            f"{name} of arrivals",
            "mean distance",
            mean_of(distances[index], unit, num_units),
            mean_of(floor[index], unit, num_units),
            num_units,
            config.thresholds.arrivals,
            config.intervals(),
        )
        for index, name in enumerate(STATISTICS)
    ]


def logged_arrivals(archive: Archive, day: dt.date) -> np.ndarray:
    """Sorted arrivals of a day, seconds since midnight."""
    rows = archive.read("requests", days=[day], columns=["arrival"])
    microseconds = pc.cast(rows["arrival"], pa.int64()).to_numpy()
    return np.sort(microseconds / 1e6 - day_start_s(day))


def arrival_distances(real: Sequence[np.ndarray], generated: Sequence[np.ndarray]) -> np.ndarray:
    """[statistics, days * parts] distances; NaN where a part holds too few arrivals."""
    columns = []
    for one, two in zip(real, generated, strict=True):
        mean_rate = len(one) / DAY_S
        for part in range(PARTS_OF_DAY):
            first, second = (_of_part(times, part) for times in (one, two))
            with np.errstate(invalid="ignore", divide="ignore"):
                ratios = np.log(second[[1, 3]] / first[[1, 3]])
            ratios = np.where(np.isfinite(ratios), ratios, np.nan)
            rate = (second[0] - first[0]) / mean_rate if mean_rate else np.nan
            columns.append(np.abs([rate, ratios[0], second[2] - first[2], ratios[1]]))
    return np.array(columns).T


def _of_part(times_s: np.ndarray, part: int) -> np.ndarray:
    length_s = DAY_S / PARTS_OF_DAY
    inside = times_s[(times_s >= part * length_s) & (times_s < (part + 1) * length_s)] - part * length_s
    found = arrival_statistics(inside, length_s, num_parts=1)
    many = len(inside) >= 40
    dispersion = found.dispersion if many else np.nan
    return np.array([found.rate_per_s, dispersion, found.autocorrelation, found.gap_variation])


def _sample(table: AgentTable) -> Sample:
    labels = {name: np.asarray(column).astype(str) for name, column in table.labels.items()}
    return Sample({name: np.asarray(column, float) for name, column in table.continuous.items()}, labels)


def _joined(parts: Sequence[Units], names: set[str]) -> Units:
    first = parts[0].sample
    sample = Sample(
        {
            n: np.concatenate([part.sample.continuous[n] for part in parts])
            for n in first.continuous
            if n in names
        },
        {
            n: np.concatenate([part.sample.categorical[n] for part in parts])
            for n in first.categorical
            if n in names
        },
    )
    return Units(sample, np.concatenate([part.unit for part in parts]))


def _rate_chart(
    real: Sequence[np.ndarray], generated: Sequence[np.ndarray], other: Sequence[np.ndarray]
) -> Chart:
    hours = tuple(24.0 / PARTS_OF_DAY * (np.arange(PARTS_OF_DAY) + 0.5))
    curves = []
    for name, days in (("held-out days", real), ("twin", generated), ("another real day", other)):
        counts = np.mean([np.histogram(day, PARTS_OF_DAY, (0.0, DAY_S))[0] for day in days], axis=0)
        curves.append(Curve(name, hours, tuple(map(float, counts / (DAY_S / PARTS_OF_DAY / 3600.0)))))
    return Chart("Arrivals over the day", "hour of the day", "requests an hour", tuple(curves))
