"""The main job on a log that the project writes itself, as small as it can be."""

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.shifts import ShiftConfig
from evaluation.comparison.training_days import DaysConfig
from evaluation.judges.config import JudgeConfig
from evaluation.pipeline.run import run
from evaluation.problems.configuration import LogConfig, RunConfig
from evaluation.simulator.presets import preset
from logs_schema.progress import SilentProgress
from offline_rl.recipes.config import TrainingConfig
from twin.placement.learned import AnswerConfig
from twin.population import PopulationConfig

TINY = RunConfig(
    log=LogConfig(preset="small", days=4),
    days=DaysConfig(num_days=1, num_steps=64, view="full"),
    twin=AnswerConfig(num_members=2, hidden=(16,), num_steps=60, evaluate_every=20),
    population=PopulationConfig("none"),
    certify=CertifyConfig(num_steps=64, num_replicates=200, clone_updates=100, rankings=False),
    train=TrainingConfig(
        seeds=(3,),
        num_updates=2,
        num_streams=8,
        clone_updates=25,
        clone_streams=4,
        updates_per_look=1,
        tuning_streams=4,
        residual_updates=0,
    ),
    shifts=ShiftConfig("0d,30d"),
    judge=JudgeConfig(
        copies=2,
        num_steps=64,
        num_fit_steps=0,
        off_policy_updates=0,
        num_true_days=6,
        baselines=("random", "least_loaded", "least_expected_delay"),
    ),
    intervals=IntervalConfig(num_replicates=200),
)
"""Without the judge that costs the most to compile: the twins of shifted days."""
WITH_SHIFTED = replace(TINY, judge=replace(TINY.judge, num_fit_steps=20))
"""With it."""

RULES, KNOWING = TINY.judge.compared(), TINY.judge.compared_in_truth()
"""Few, since each is one more branch of every judge's program; `test_judging` has all of them in one."""


def make_small(patch: pytest.MonkeyPatch) -> None:
    """A short day, simulated few times."""
    short = replace(preset("small"), requests_per_day=735.0)
    patch.setattr("evaluation.simulator.presets.PRESETS", (short,))
    patch.setattr("evaluation.certify.logged_days.MAX_WINDOWS", 16)  # as many as are followed at once
    patch.setattr("twin.placement.history.AT_ONCE", 16)  # as of few windows: one program for all
    patch.setattr("evaluation.judges.off_policy.judging.CLONE_UPDATES", 10)
    patch.setattr("evaluation.judges.off_policy.judging.NUM_DRAWS", 8)


def do(folder: Path, config: RunConfig = TINY) -> dict[str, Path]:
    return run(config, folder, folder / "work", SilentProgress(), title="tiny", force=True)
