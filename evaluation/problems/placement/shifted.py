"""The twins of shifted days that a comparison judges in, fitted on their own or beside other work."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import jax

from evaluation.comparison.shifts import TestDays, answerable
from evaluation.comparison.training_days import plan_of
from evaluation.judges.config import JudgeConfig
from evaluation.problems.configuration import RunConfig
from logs_schema import Archive
from logs_schema.background import Background
from logs_schema.errors import ConfigError
from twin.contracts import Array
from twin.placement.fit import FitProgram, fit_program
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin, fit_twin

FEW_STEPS = 200
"""On a day of the world `small` a held-out row's log likelihood is -3.6, -0.1, 1.7, 2.3 and 3.0 after 50, 100, 200, 300
and 600 steps; twins of 200 steps rank policies as the truth does with .9 in the demonstration."""
ShiftedTwins = Mapping[str, PlacementTwin]
"""By the names of shifts."""


def fit_of_shifted(twin: PlacementTwin, judge: JudgeConfig) -> tuple[AnswerConfig, FitProgram]:
    """How the twins of shifted days are fitted, as the twin in fewer steps, and the program that they share."""
    config = replace(twin.config, num_steps=judge.num_fit_steps)
    return config, fit_program(twin.encoding, config)


def fit_to_shift(
    key: Array,
    archive: Archive,
    twin: PlacementTwin,
    shift: TestDays,
    config: AnswerConfig,
    program: FitProgram,
) -> PlacementTwin:
    """The twin of a shift's days, in windows as long as those of `twin`; raises as `fit_twin`."""
    num_steps = twin.windows.num_steps
    return fit_twin(key, archive, twin.encoding, shift.days, config, num_steps=num_steps, program=program)


def notes_on_fits(judge: JudgeConfig) -> list[str]:
    """That the twins of shifted days are fitted in so few steps that they hardly know the log; nothing where not."""
    if not 0 < judge.num_fit_steps < FEW_STEPS:
        return []
    return [
        f"the twins of shifted days were fitted in {judge.num_fit_steps} steps ([judge] num_fit_steps); with fewer "
        f"than {FEW_STEPS} they hardly know their days, and what they say of policies is not to be relied on"
    ]


def key_of_shift(judge: JudgeConfig, shift: TestDays) -> Array:
    """The PRNG key of a shift's twin and of all that is played on it."""
    return jax.random.fold_in(jax.random.key(judge.seed), shift.shift_days)


def fit_shifted(
    archive: Archive, twin: PlacementTwin, shifts: Sequence[TestDays], judge: JudgeConfig
) -> ShiftedTwins:
    """Fits a twin on the days of every shift; those whose days lack what it takes are left out."""
    (config, program), found = fit_of_shifted(twin, judge), {}
    for shift in shifts:
        with suppress(ConfigError):  # the comparison names it
            key = key_of_shift(judge, shift)
            found[shift.name] = fit_to_shift(key, archive, twin, shift, config, program)
    return found


def fit_beside(archive_path: Path, twin_path: Path, config: RunConfig) -> Background[ShiftedTwins]:
    """Begins the fits of a comparison beside other work."""

    def make() -> ShiftedTwins:
        archive, twin = Archive(archive_path), PlacementTwin.load(twin_path)
        plan = plan_of(archive, twin.encoding.train_days, config.shifts)
        return fit_shifted(archive, twin, answerable(plan), config.judge)

    return Background(make)
