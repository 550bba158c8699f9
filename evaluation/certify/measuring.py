"""Measures the parts of a certificate, each independently and as a task.

Answers: held-out days are forecast from logged states and simulated in closed loop, and both compared with the log.
Values of fixed policies. The population.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from evaluation.certify.answer_lines import (
    COLUMNS,
    answer_lines,
    answers_trio,
    distribution_charts,
    refuse_few,
)
from evaluation.certify.answer_lines import SECTION as ANSWERS
from evaluation.certify.awaiting import awaiting_line
from evaluation.certify.biases import bias_lines
from evaluation.certify.calibrated import SECTION as CALIBRATION
from evaluation.certify.calibrated import calibration_lines
from evaluation.certify.cloned_behaviour import clone_line, fit_behaviour, resting_on
from evaluation.certify.closed_loop import SECTION as CLOSED
from evaluation.certify.closed_loop import closed_trio, distance_lines, level_lines
from evaluation.certify.config import CertifyConfig
from evaluation.certify.copies import copies_line
from evaluation.certify.forecasting import Forecast, Forecaster
from evaluation.certify.generating import SECTION as POPULATION
from evaluation.certify.generating import population_lines
from evaluation.certify.held_out import HeldOutDays, end_of_log_s, hold_out
from evaluation.certify.horizons import SECTION as HORIZON
from evaluation.certify.horizons import horizon_lines
from evaluation.certify.lines import Line, Verdict
from evaluation.certify.logged_days import HeldOutDay, real_days
from evaluation.certify.model_class import model_class_lines
from evaluation.certify.offloading import SECTION as OFFLOAD
from evaluation.certify.offloading import offload_lines
from evaluation.certify.rankings import SECTION as POLICIES
from evaluation.certify.rankings import ranking_lines
from evaluation.certify.reactions import reaction_line
from evaluation.certify.redirected import redirected_line
from evaluation.certify.retries import repeat_line
from evaluation.certify.simulating import Simulation
from evaluation.certify.since_training import held_against_training, last_windows
from evaluation.certify.tested_system import SystemUnderTest, of_twin, seen_in_full
from evaluation.certify.two_samples import pairs_chart
from evaluation.comparison.formatting import share_in_words
from evaluation.comparison.report import Chart
from evaluation.jobs.unfinished import Unfinished
from logs_schema import Archive
from logs_schema.progress import Progress, SilentProgress, Stage, unseen
from twin.placement.encoding import Encoding
from twin.placement.log_windows import encode_days
from twin.placement.model import PlacementTwin
from twin.placement.types import Cluster

PARTS = (ANSWERS, POLICIES, POPULATION)
"""The parts that tasks measure; the answers, and all lines from the same simulated days, are one part."""
MOST_OF_A_DAY = 40_000
"""Requests of a day that are forecast, about at most: of more, windows spread evenly over it."""


ALL = 0.9
"""Share of the requests from which on nothing is said of those left out."""


@dataclass(frozen=True)
class MeasuredSections:
    """Measurements of a system under test: lines, charts by section, notes, number of requests and of unknown ones, and
    the verdicts on training days of what fails (`since_training.py`)."""

    lines: tuple[Line, ...]
    charts: Mapping[str, tuple[Chart, ...]]
    notes: tuple[str, ...] = ()
    num_requests: int = 0
    num_unknown: int = 0
    in_training: Mapping[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True)
class CertificateParts:
    """The parts of a certificate, each measured independently and saved as soon as it is done."""

    twin: PlacementTwin
    archive: Archive
    days: Sequence[dt.date] | None
    config: CertifyConfig
    population: Path | None
    keep: Unfinished
    progress: Progress

    @cached_property
    def chosen(self) -> HeldOutDays:
        """Held-out days and their partners."""
        return hold_out(self.archive, self.twin.encoding.train_days, self.days, self.config)

    @cached_property
    def real(self) -> Mapping[dt.date, HeldOutDay]:
        """Logged windows and outcomes of these days."""
        # Seen as what is measured is, so that one program follows both logs where windows are as long.
        encoding = seen_in_full(of_twin(self.twin)).encoding
        with self.progress.stage("follow the held-out days", unit="windows") as stage:
            return logged_days(self.archive, encoding, self.chosen, self.config, stage)

    def part(self, name: str) -> MeasuredSections:
        """One of `PARTS`."""
        make = {ANSWERS: self._answers, POLICIES: self._policies, POPULATION: self._population}[name]
        return self.keep.record(name, make, MeasuredSections)

    def _answers(self) -> MeasuredSections:
        return measure(
            of_twin(self.twin), self.archive, self.chosen, self.config, self.progress, lambda: self.real
        )

    def _policies(self) -> MeasuredSections:
        with self.progress.stage(POLICIES):
            lines, charts = ranking_lines(
                self.archive, self.twin, lambda: self.real[self.chosen.days[0]], self.config
            )
        return MeasuredSections(tuple(lines), {POLICIES: charts})

    def _population(self) -> MeasuredSections:
        train_days = self.twin.encoding.train_days
        with self.progress.stage(POPULATION):
            found = population_lines(self.archive, self.population, train_days, self.chosen, self.config)
        return MeasuredSections(tuple(found.lines), {POPULATION: found.charts}, found.notes)


@dataclass(frozen=True)
class PartTask:
    """One part of a certificate as a task: paths of twin, archive, population and of the folder for results."""

    twin: Path
    archive: Path
    days: Sequence[dt.date] | None
    config: CertifyConfig
    population: Path | None
    folder: Path | None
    name: str

    def __str__(self) -> str:
        return f"{self.name} of {self.twin}"


def measure_part(task: PartTask) -> None:
    """Measures one part of a certificate and saves it."""
    parts = CertificateParts(
        PlacementTwin.load(task.twin),
        Archive(task.archive),
        task.days,
        task.config,
        task.population,
        Unfinished(task.folder),
        SilentProgress(),
    )
    parts.part(task.name)


def logged_days(
    archive: Archive, encoding: Encoding, chosen: HeldOutDays, config: CertifyConfig, stage: Stage = unseen
) -> Mapping[dt.date, HeldOutDay]:
    """Logged windows and outcomes of held-out days and their partners; `stage` as of `real_days`."""
    days = [*chosen.days, *chosen.partners]
    return real_days(archive, encoding, days, num_steps=config.num_steps, stage=stage)


def measure(
    tested: SystemUnderTest,
    archive: Archive,
    chosen: HeldOutDays,
    config: CertifyConfig,
    progress: Progress,
    logged: Callable[[], Mapping[dt.date, HeldOutDay]] | None = None,
) -> MeasuredSections:
    """All measurements of a system under test.

    Args:
        tested: The system.
        archive: Archive of the log.
        chosen: Held-out days and their partners.
        config: Configuration of the certificate.
        progress: Progress display.
        logged: Returns `logged_days`, to share them between parts.

    Raises:
        ConfigError: Days without requests, or too few with known decisions and outcomes.
    """
    tested = seen_in_full(tested)
    encoding = tested.encoding
    with progress.stage("play the held-out days"):
        real = logged_days(archive, encoding, chosen, config) if logged is None else logged()
        held, partners = ([real[day] for day in part] for part in (chosen.days, chosen.partners))
        parts = [
            encode_days(archive, encoding, [day], num_steps=config.num_steps, most=MOST_OF_A_DAY)
            for day in chosen.days
        ]
        refuse_few(parts, config.min_rows)
    behaviour = fit_behaviour(tested, config, progress)
    with progress.stage("forecast them"):
        end_s = end_of_log_s(archive)
        forecaster = Forecaster(tested, behaviour, seed=config.seed, known_until_s=end_s)
        forecasts = forecaster.forecast(parts)
        trio = answers_trio(forecasts, partners)
        clone = clone_line(CLOSED, forecasts, config)
    with progress.stage("play them in closed loop", unit="replications") as stage:
        simulation = Simulation(tested, behaviour, held, seed=config.seed)
        simulated = simulation.closed_loop(end_s, stage)
    with progress.stage("compare twin and log"):
        one_step, calibration_charts = _one_step(forecasts, config, encoding.cluster)
        closed = closed_trio(held, simulated, partners)
        resting = [*level_lines(held, simulated, encoding, config), *distance_lines(closed, config)]
        offload, offload_charts = offload_lines(held, simulated, partners, encoding, config)
        horizon, horizon_charts = horizon_lines(held, simulation.states_with_logged_luck(), partners, config)

        def in_training() -> Sequence[Line]:
            past = last_windows(tested, len(forecasts.unit))
            return _one_step(forecaster.forecast(past), config, encoding.cluster)[0]

        one_step, verdicts_before = held_against_training(one_step, in_training)
        rested = resting_on(clone, [*resting, *offload])
        where_run = redirected_line(archive, chosen.days, config)
        lines = [*answer_lines(trio, config), *one_step, where_run, clone, *rested, *horizon]
    charts = {
        ANSWERS: (*distribution_charts(trio), pairs_chart(trio, COLUMNS)),
        CALIBRATION: calibration_charts,
        CLOSED: distribution_charts(closed, "twin, a clone deciding"),
        OFFLOAD: offload_charts,
        HORIZON: horizon_charts,
    }
    played = share_played(archive, chosen, len(forecasts.unit), sum(len(day.logged.known) for day in held))
    return MeasuredSections(
        tuple(lines), charts, played, len(trio.real.unit), int((~forecasts.known).sum()), verdicts_before
    )


def share_played(
    archive: Archive, chosen: HeldOutDays, num_forecast: int, num_played: int
) -> tuple[str, ...]:
    """What share of the held-out days' requests the lines rest on, in words; nothing where it is nearly all of them."""
    total = archive.num_rows_on("requests", chosen.days)
    shares = {"forecast": num_forecast, "counted in closed loop": num_played}
    some = [f"{share_in_words(part, total)} are {how}" for how, part in shares.items() if part < ALL * total]
    return (
        (f"of the held-out days {', '.join(some)}, in stretches spread evenly over each day",) if some else ()
    )


def _one_step(
    forecasts: Forecast, config: CertifyConfig, cluster: Cluster
) -> tuple[list[Line], tuple[Chart, ...]]:
    """The lines of one-step forecasts that need no other days, and the charts of their calibration."""
    calibrated, charts = calibration_lines(forecasts, config)
    lines = [*bias_lines(forecasts, config), *calibrated, *model_class_lines(forecasts, config)]
    lines += [reaction_line(forecasts, config), repeat_line(forecasts, config, cluster.repeats)]
    lines += [awaiting_line(forecasts, config, awaits=cluster.awaits), copies_line(forecasts, config)]
    return lines, charts
