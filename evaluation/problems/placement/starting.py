"""Training beside other steps of a job: the log's replay and its clone beside the fit of the twin, the rest later."""

from pathlib import Path

import jax

from evaluation.comparison.training_days import train_days_of
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.choices import no_choice
from evaluation.problems.placement.encodings import encoding_of
from evaluation.problems.placement.steps import contenders_of
from logs_schema import Archive
from logs_schema.background import Background, NotesAlone
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress, SilentProgress
from offline_rl.recipes.training import Contenders, TrainingStart, start_of
from twin.placement.log_windows import disjoint, fit_windows


def start_beside(archive_path: Path, config: RunConfig) -> Background[TrainingStart]:
    """Begins the start of the training in the twin that is being fitted; its result raises ConfigError where the log
    leaves no choice."""

    def make() -> TrainingStart:
        archive, days = Archive(archive_path), config.days
        train_days = train_days_of(archive, days, config.shifts)
        encoding = encoding_of(archive, train_days, days)
        if without := no_choice(archive, encoding, train_days):
            raise ConfigError(without)
        windows = disjoint(fit_windows(archive, encoding, train_days, days.num_steps)[1])
        return start_of(jax.random.key(config.seed), windows, encoding, config.train, SilentProgress())

    return Background(make)


def train_beside(
    out: Path,
    twin_path: Path,
    config: RunConfig,
    progress: Progress,
    start: Background[TrainingStart] | None = None,
) -> Background[Contenders]:
    """Begins the training of the product `out`, from `start_beside` if that was begun; of its progress the notes are
    shown."""
    beside = NotesAlone(progress)
    return Background(lambda: contenders_of(out, twin_path, config, beside, start))
