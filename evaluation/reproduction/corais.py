"""CoRaiS's tables III to V: solvers of the assignment problem, held against exact optima and lower bounds.

The paper's large-scale gap is a ratio to its own solver. Here every row also has its gap to a lower bound, valid at any
size, and the rules that a good engineer would write first stand in every table. All solvers see the same instances,
one after the other on one thread; a scale is a product of its own, so a killed run goes on where it was.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evaluation.jobs.job import Step, run_job
from evaluation.reproduction.corais_solvers import Solve, hand_written, takes
from evaluation.reproduction.seeds import named, over_seeds
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.assignment.bounds import lower_bound_s
from twin.assignment.instances import InstanceConfig, draw_instances
from twin.assignment.objective import makespan_s
from twin.assignment.types import AssignmentInstance, row_of

FIGURES = "figures.json"


class Scale(NamedTuple):
    """(N, Q, Z) of the paper's tables."""

    num_all_edges: int
    num_edges: int
    num_requests: int

    @property
    def name(self) -> str:
        """As the paper writes it."""
        return f"({self.num_all_edges}, {self.num_edges}, {self.num_requests})"


TABLE_3 = (Scale(10, 5, 50), Scale(10, 5, 100), Scale(20, 10, 50), Scale(20, 10, 100))
TABLE_4 = (Scale(20, 10, 200), Scale(60, 30, 400), Scale(100, 50, 600), Scale(100, 50, 800))
TABLE_5 = (
    Scale(200, 100, 2000), Scale(600, 300, 4000), Scale(1000, 500, 6000), Scale(2000, 1000, 10_000),
    Scale(2000, 1000, 15_000),
)  # fmt: skip


@dataclass(frozen=True)
class CoraisConfig:
    """What is solved, and for how long.

    Attributes:
        scales: Of the instances.
        num_instances: Of every scale of table III; a tenth of it of those of table IV, a hundredth of table V's.
        exact_s: Time limit of the exact solver for an instance.
        search_s: Time limit of the local search with restarts.
        seed: Of the instances and of whatever draws.
    """

    scales: tuple[Scale, ...] = TABLE_3 + TABLE_4 + TABLE_5
    num_instances: int = 1000
    exact_s: float = 10.0
    search_s: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_instances < 1:
            raise ConfigError(
                f"{self.num_instances} instances", where="reproduce corais", allowed="1 or more"
            )
        for name, value in {"exact": self.exact_s, "search": self.search_s}.items():
            if not value > 0.0:
                raise ConfigError(
                    f"a time limit of {value} s", where=f"reproduce corais, {name}", allowed="more than 0"
                )

    def instances_of(self, scale: Scale) -> int:
        """How many instances of a scale are solved."""
        share = 100 if scale in TABLE_5 else 10 if scale in TABLE_4 else 1
        return max(1, self.num_instances // share)


def quick(config: CoraisConfig) -> CoraisConfig:
    """A first look: few instances, three scales."""
    return CoraisConfig((*TABLE_3[:2], TABLE_4[0]), num_instances=10, exact_s=4.0, seed=config.seed)


def solve(config: CoraisConfig, workdir: Path, progress: Progress) -> Mapping[Scale, Mapping[str, Any]]:
    """Solves what is not solved yet: scale -> what `_figures` found."""
    solvers = hand_written(config.exact_s, config.search_s)

    def step_of(scale: Scale) -> Step:
        def build(out: Path, _: Mapping[str, Path], progress: Progress) -> None:
            found = _figures(config, scale, solvers, progress)
            (out / FIGURES).write_text(json.dumps(found, indent=1))

        settings = asdict(config) | {"scales": scale, "num_instances": config.instances_of(scale)}
        return Step(
            "-".join(map(str, ("scale", *scale))),
            "assignment-figures",
            build,
            config=settings,
            seed=config.seed,
        )

    steps = {scale: step_of(scale) for scale in config.scales}
    products = run_job(list(steps.values()), workdir, progress)
    return {scale: json.loads((products[step.name] / FIGURES).read_text()) for scale, step in steps.items()}


def _figures(
    config: CoraisConfig, scale: Scale, solvers: Mapping[str, Solve], progress: Progress
) -> dict[str, Any]:
    """Makespan and seconds of every solver and instance, and the instances' best makespans and bounds."""
    num_instances = config.instances_of(scale)
    asked = {name: one for name, one in solvers.items() if takes(name, scale.num_edges * scale.num_requests)}
    found: dict[str, Any] = {
        "makespan_s": {name: [] for name in asked},
        "seconds": {name: [] for name in asked},
    }
    found |= {"best_s": [], "bound_s": []}
    with progress.stage(scale.name, total=num_instances, unit="instances") as stage:
        for number in range(num_instances):
            stage(number)
            rng = np.random.default_rng((config.seed, *scale, number))
            instance = row_of(draw_instances(rng, InstanceConfig(*scale), 1), 0)
            _solve_one(instance, asked, rng, found)
    return found


def _solve_one(
    instance: AssignmentInstance,
    solvers: Mapping[str, Solve],
    rng: np.random.Generator,
    found: dict[str, Any],
) -> None:
    values, bound_s = {}, 0.0
    for name, solver in solvers.items():
        begun_s = time.perf_counter()
        answer = solver(instance, rng)
        found["seconds"][name].append(time.perf_counter() - begun_s)
        values[name] = float(makespan_s(instance.costs, answer.edge))
        found["makespan_s"][name].append(values[name])
        bound_s = max(bound_s, answer.bound_s)
    best_s = min(values.values())
    found["best_s"].append(best_s)
    found["bound_s"].append(min(best_s, max(bound_s, lower_bound_s(instance.costs, best_s))))


def table(config: CoraisConfig, found: Mapping[Scale, Mapping[str, Any]]) -> dict[str, Any]:
    """The tables as plain values.

    Returns:
        `rows`, one a scale and solver: `gap_to_best` and `gap_to_bound`, means over instances of the makespan over the
        best that any solver of the table found, and over the bound; `worst_gap_to_best`; mean `seconds`.
    """
    rows = []
    for scale, figures in found.items():
        best_s, bound_s = (np.array(figures[name]) for name in ("best_s", "bound_s"))
        for name, values in figures["makespan_s"].items():
            makespan, seconds = np.array(values), figures["seconds"][name]
            row: dict[str, Any] = {"solver": name, "scale": scale.name, "num_instances": len(values)}
            row |= named("gap_to_best", over_seeds(makespan / best_s))
            row |= {"worst_gap_to_best": float(np.max(makespan / best_s))}
            row |= named("gap_to_bound", over_seeds(makespan / bound_s))
            rows.append(row | {"makespan_s": float(makespan.mean()), "seconds": float(np.mean(seconds))})
    return {
        "config": asdict(config) | {"scales": [scale.name for scale in config.scales]},
        "interval": "95 % over instances (Student)",
        "rows": rows,
    }
