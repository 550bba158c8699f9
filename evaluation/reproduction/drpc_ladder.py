"""What `schedtwin train` would hand over, for paper DRPC's comparison: chosen in the twin, once for every seed.

A seed's choice is that of a training with this seed alone: the better calibrated pod autoscaler, or one of the five
networks that were trained with it. It is taken by `try_in_twin`, as that of `train` is. Limits and objective are the
operator's, as for all that are compared. There is no certificate, as in a training whose twin has none. What was chosen
for a seed plays the traces of that seed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.jobs.job import Step
from evaluation.problems.autoscaling.certifying import value_off_by
from evaluation.reproduction.drpc_learners import load_params, school_of
from logs_schema.progress import Progress
from offline_rl.autoscaling.config import SCALE_CODE, ScaleConfig
from offline_rl.recipes.scaling_task import ScalingTask
from offline_rl.recipes.scaling_training import POD_RULES, STUDENTS, TEACHERS, trained_autoscaler, try_in_twin
from offline_rl.rules.autoscaling.published import Setting

CHOICES = "choices.json"
CHOSEN_FROM = (*TEACHERS, *STUDENTS)
"""The kinds of networks that `train` trains."""


def ladder_step(
    preset: str, archive: str, num_seeds: int, updates: int, rules: Mapping[str, Callable[[], Setting]]
) -> Step:
    """The step that chooses, for every seed.

    Args:
        preset, archive, num_seeds, updates: As those of the step that trains a kind.
        rules: Name -> how the rule is calibrated; `POD_RULES` among them.
    """

    def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> None:
        school = school_of(preset, inputs, archive, num_seeds, updates)
        scale = ScaleConfig(slo_s=school.scaling.slo_s, updates=updates)
        task = ScalingTask(school.scaling, school.limits)
        off_by = value_off_by(school.twin, school.log, school.scaling)
        calibrated = {name: rules[name]().autoscaler for name in POD_RULES}
        trained = {kind: load_params(inputs, kind, school) for kind in CHOSEN_FROM}
        found = []
        with progress.stage("ladder", unit="seeds") as stage:
            for seed in range(num_seeds):
                mine = jax.tree.map(lambda leaf, seed=seed: leaf[seed], trained)
                networks = {
                    f"{kind}-{seed}": trained_autoscaler(school.twin, task, kind, mine[kind])
                    for kind in CHOSEN_FROM
                }
                trial = try_in_twin(
                    calibrated | networks,
                    school.twin,
                    school.log,
                    task,
                    scale,
                    off_by=off_by,
                    is_trusted=True,
                )
                name = trial.taken.name.removesuffix(f"-{seed}")
                found.append({"seed": seed, "chosen": name, **trial.facts()})
                stage(seed + 1.0, float(num_seeds))
        (out / CHOICES).write_text(json.dumps(found, indent=1))

    settings = {"preset": preset, "num_seeds": num_seeds, "updates": updates}
    return Step(
        "ladder",
        "autoscaler-choices",
        build,
        inputs=("archive", "twin", *CHOSEN_FROM),
        config=settings,
        code_version=SCALE_CODE,
    )


def read_choices(folder: Path) -> list[dict[str, Any]]:
    """What was chosen for every seed, and why."""
    found: list[dict[str, Any]] = json.loads((folder / CHOICES).read_text())
    return found


def played_as_chosen(
    choices: Sequence[Mapping[str, Any]], played: Mapping[str, Any], measures: Sequence[str]
) -> dict[str, Any]:
    """The figures of the ladder: on the traces of a seed those of what was chosen for it.

    Args:
        choices: One a seed, in the order of the traces.
        played: Autoscaler -> what its step wrote, of all traces, a seed's side by side.
        measures: Names of the figures.
    """
    figures: dict[str, list[float]] = {}
    for measure in measures:
        by_seed = [
            np.reshape(played[choice["chosen"]]["chosen"][measure], (len(choices), -1))[place]
            for place, choice in enumerate(choices)
        ]
        figures[measure] = np.concatenate(by_seed).tolist()
    return {"setting": {}, "chosen": figures, "frontier": []}
