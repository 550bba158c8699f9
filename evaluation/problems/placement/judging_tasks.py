"""Judges of a comparison as tasks of the engine: one for each judge and shift.

A task makes units of the comparison (`Unfinished`), of all policies and seeds of its judge, by the same code as in one
process; the comparison then finds them. Users' functions exist in this process only, so a comparison with policies of
the user does not use tasks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evaluation.comparison.shifts import ShiftConfig, ShiftPlan, answerable, plan_shifts
from evaluation.comparison.training_days import plan_of
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.config import JudgeConfig
from evaluation.judges.descriptions import REPLAY, SHIFTED_TWIN, TRAINING_TWIN
from evaluation.judges.trust import TRUTH
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.configuration import RunConfig
from evaluation.problems.placement.case import Case
from evaluation.problems.placement.comparing import OFF_POLICY, judge_case
from logs_schema import Archive
from logs_schema.progress import Progress, SilentProgress
from offline_rl.recipes.schedulers import load_schedulers
from twin.placement.model import PlacementTwin


@dataclass(frozen=True)
class JudgeTask:
    """One judge on one shift: paths of archive, twin and policy, the configuration, and the folder for results."""

    archive: Path
    twin: Path
    policy: Path | None
    config: RunConfig
    folder: Path | None
    judge: str
    shift_days: int

    def __str__(self) -> str:
        return f"{self.judge}, {self.shift_days}d, of {self.twin}"


def judge_on_shift(task: JudgeTask) -> None:
    """Evaluates all candidates by one judge on one shift; saves one unit for each."""
    archive, twin = Archive(task.archive), PlacementTwin.load(task.twin)
    schedulers = None if task.policy is None else load_schedulers(task.policy)[0]
    plan = plan_of(archive, twin.encoding.train_days, task.config.shifts)
    case = Case(
        archive,
        twin,
        schedulers,
        plan,
        task.config.judge,
        task.config.intervals,
        keep=Unfinished(task.folder),
        only=(task.judge, task.shift_days),
    )
    judge_case(case, SilentProgress())


def judge_ahead(
    archive: Path,
    twin: Path,
    policy: Path | None,
    config: RunConfig,
    plan: ShiftPlan,
    policies: Mapping[str, UserPolicy],
    keep: Unfinished,
    progress: Progress,
) -> None:
    """Evaluates by tasks of the engine, where there is one and no policy is the user's."""
    if keep.engine.is_here:
        return
    if policies:
        progress.note(
            f"policies of the user's ({', '.join(policies)}) are known to this process alone: it judges them all, "
            "worker processes are not used"
        )
        return
    archive, twin = archive.absolute(), twin.absolute()
    policy = None if policy is None else policy.absolute()
    pairs = [
        (judge, shift.shift_days) for shift in answerable(plan) for judge in _judges(policy, config.judge)
    ]
    if "ground_truth" in Archive(archive).facts:
        shifts = ",".join(shift.name for shift in plan.shifts)
        true_plan = plan_shifts({}, plan.train_days, ShiftConfig(shifts), truth=True)
        pairs += [(TRUTH, shift.shift_days) for shift in true_plan.shifts]
    tasks = [JudgeTask(archive, twin, policy, config, keep.folder, *one) for one in pairs]
    shared = [archive, twin] if policy is None else [archive, twin, policy]
    keep.ahead(judge_on_shift, tasks, "judge", progress, shared)


def _judges(policy: Path | None, config: JudgeConfig) -> tuple[str, ...]:
    """The longest tasks first."""
    judges = (SHIFTED_TWIN, TRAINING_TWIN, REPLAY) if config.num_fit_steps else (TRAINING_TWIN, REPLAY)
    return judges if policy is None else (*judges, OFF_POLICY)
