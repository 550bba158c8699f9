"""CoRaiS's tables III to VI: solvers of the assignment problem, held against exact optima, lower bounds and tests.

The paper's large-scale gap is a ratio to its own solver. Here every row also has its gap to a lower bound, valid at any
size, and the rules that a good engineer would write first stand in every table. All solvers see the same instances,
one after the other on one thread; a scale is a product of its own, so a killed run goes on where it was.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.comparison.seeds import named, over_seeds
from evaluation.jobs.job import Step, run_job
from evaluation.reproduction.corais_characteristics import measure
from evaluation.reproduction.corais_learning import (
    NetworksConfig,
    load_params,
    networks,
    quick_networks,
    training_step,
)
from evaluation.reproduction.corais_rounds import compare_rounds
from evaluation.reproduction.corais_scales import EMPTY, TABLE_3, TABLE_4, TABLE_5, Scale
from evaluation.reproduction.corais_solvers import Solve, hand_written, learned, takes
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.assignment.bounds import lower_bound_s
from offline_rl.assignment.edge_bounds import edge_bound_s
from twin.assignment.instances import draw_instances
from twin.assignment.objective import makespan_s
from twin.assignment.types import AssignmentInstance, row_of

FIGURES = "figures.json"
FIGURES_CODE, CHARACTERISTICS_CODE, ROUNDS_CODE = 3, 2, 3
"""Raised when changes of the code change what the steps find: what older code found is found again."""
_BOUND_PAIRS = 6_000_000
"""Pairs that the bound by edges looks at, rounds x requests x edges, but for three rounds of the largest."""
_Case = tuple[str, Scale, int]
"""A trained network: name, scale, seed."""


@dataclass(frozen=True)
class CoraisConfig:
    """What is solved, and for how long.

    Attributes:
        scales: Of the instances.
        num_instances: Instances of every scale of table III and without backlogs; a tenth for table IV, a hundredth for
            table V.
        exact_s: Time limit of the exact solver for an instance.
        search_s: Time limit of the local search with restarts, and of ours: they are compared at equal time.
        seed: Of the instances and of whatever draws.
        networks: What is trained.
        round_requests, round_seeds: Requests of each region that is played in rounds, and such regions.
        num_experiments: Of every characteristic test.
    """

    scales: tuple[Scale, ...] = TABLE_3 + TABLE_4 + TABLE_5 + EMPTY
    num_instances: int = 1000
    exact_s: float = 10.0
    search_s: float = 0.05
    seed: int = 0
    networks: NetworksConfig = field(default_factory=NetworksConfig)
    round_requests: int = 2000
    round_seeds: int = 5
    num_experiments: int = 200

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
    """A first look: few instances, three scales, small networks."""
    return CoraisConfig(
        (*TABLE_3[:2], EMPTY[0]),
        num_instances=10,
        exact_s=4.0,
        seed=config.seed,
        networks=quick_networks(),
        num_experiments=20,
    )


def solve(config: CoraisConfig, workdir: Path, progress: Progress) -> Mapping[Scale, Mapping[str, Any]]:
    """Trains and solves what is not done yet: scale -> what `_figures` found."""
    training = _training(config, dict.fromkeys(config.networks.of(scale) for scale in config.scales))

    def step_of(scale: Scale) -> Step:
        mine = {case: step.name for case, step in training.items() if case[1] == config.networks.of(scale)}

        def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> None:
            found = _figures(config, scale, _solvers(config, mine, inputs), progress)
            (out / FIGURES).write_text(json.dumps(found, indent=1))

        settings = {"exact_s": config.exact_s, "search_s": config.search_s, "scale": scale}
        settings |= {"num_instances": config.instances_of(scale)}
        name = f"scale-{scale.slug}"
        return Step(
            name,
            "assignment-figures",
            build,
            inputs=tuple(mine.values()),
            config=settings,
            seed=config.seed,
            code_version=FIGURES_CODE,
        )

    steps = {scale: step_of(scale) for scale in config.scales}
    products = run_job([*training.values(), *steps.values()], workdir, progress)
    return {scale: json.loads((products[step.name] / FIGURES).read_text()) for scale, step in steps.items()}


def _training(config: CoraisConfig, scales: Iterable[Scale]) -> dict[_Case, Step]:
    """The steps that train the networks of scales."""
    cases = [
        (name, scale, seed)
        for name in networks(config.networks)
        for scale in scales
        for seed in range(config.networks.num_seeds)
    ]
    return {case: training_step(config.networks, *case) for case in cases}


def _solvers(
    config: CoraisConfig, trained: Mapping[_Case, str], inputs: Mapping[str, Path]
) -> dict[str, Solve]:
    """All solvers by name, those of networks followed by the seed; `trained` names the step of each network."""
    solvers = dict(hand_written(config.exact_s, config.search_s))
    for (name, _, seed), step in trained.items():
        made = learned(name, load_params(inputs[step]), config.search_s)
        solvers |= {f"{one}/{seed}": solver for one, solver in made.items()}
    return solvers


def characteristics(config: CoraisConfig, workdir: Path, progress: Progress) -> list[dict[str, Any]]:
    """Table VI, once: rows of `corais_characteristics.measure` for every solver and seed but the exact one.

    The exact solver is left out: equal requests may be exchanged at no cost, and it spends its whole time on that. The
    networks are those of the last scale, the paper's (10, 5, 100).
    """
    training = _training(config, config.networks.scales[-1:])

    def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> None:
        solvers = _solvers(config, {case: step.name for case, step in training.items()}, inputs)
        solvers.pop("exact")
        rows: list[dict[str, Any]] = []
        with progress.stage("characteristic tests", total=len(solvers), unit="solvers") as stage:
            for number, (name, solver) in enumerate(solvers.items()):
                stage(number)
                solver_name, _, seed = name.partition("/")
                of = {"solver": solver_name, "seed": int(seed) if seed else None}
                rows += [of | row for row in measure(solver, config.num_experiments, config.seed)]
        (out / FIGURES).write_text(json.dumps(rows, indent=1))

    settings = {
        "num_experiments": config.num_experiments,
        "search_s": config.search_s,
        "exact_s": config.exact_s,
    }
    names = tuple(step.name for step in training.values())
    step = Step(
        "characteristics",
        "assignment-characteristics",
        build,
        names,
        config=settings,
        seed=config.seed,
        code_version=CHARACTERISTICS_CODE,
    )
    made = run_job([*training.values(), step], workdir, progress)
    found: list[dict[str, Any]] = json.loads((made[step.name] / FIGURES).read_text())
    return found


def live_rounds(config: CoraisConfig, workdir: Path, progress: Progress) -> list[dict[str, Any]]:
    """Rows of `compare_rounds`, once."""

    def build(out: Path, _: Mapping[str, Path], progress: Progress) -> None:
        first = config.seed * config.round_seeds
        rows = compare_rounds(config.round_requests, range(first, first + config.round_seeds), progress)
        (out / FIGURES).write_text(json.dumps(rows, indent=1))

    settings = {"num_requests": config.round_requests, "num_seeds": config.round_seeds}
    step = Step(
        "rounds", "assignment-rounds", build, config=settings, seed=config.seed, code_version=ROUNDS_CODE
    )
    made = run_job([step], workdir, progress)
    rows: list[dict[str, Any]] = json.loads((made["rounds"] / FIGURES).read_text())
    return rows


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
            instance = row_of(draw_instances(rng, scale.instances, 1), 0)
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
    bound_s = max(bound_s, lower_bound_s(instance.costs, best_s))
    num_rounds = int(np.clip(_BOUND_PAIRS // instance.costs.work_s.size, 3, 60))
    found["bound_s"].append(min(best_s, edge_bound_s(instance.costs, best_s, bound_s, num_rounds)))


def table(
    config: CoraisConfig,
    found: Mapping[Scale, Mapping[str, Any]],
    rounds: list[dict[str, Any]],
    tests: list[dict[str, Any]],
) -> dict[str, Any]:
    """The tables as plain values; `rounds` and, as `characteristics`, `tests` as they are.

    Returns:
        `rows`, one a scale and solver: `gap_to_best` and `gap_to_bound`, means over instances of the makespan over the
        best that any solver of the table found, and over the bound; `worst_gap_to_best`; mean `seconds`. Solvers that
        cannot answer a scale at that cost (`takes`) have no row there.
    """
    rows = []
    for scale, figures in found.items():
        best_s, bound_s = (np.array(figures[name]) for name in ("best_s", "bound_s"))
        solvers: dict[str, list[str]] = {}
        for one in figures["makespan_s"]:
            solvers.setdefault(one.split("/")[0], []).append(one)
        for name, seeds in solvers.items():
            makespan = np.array([figures["makespan_s"][one] for one in seeds])  # [seeds, instances]
            seconds = np.array([figures["seconds"][one] for one in seeds])
            row: dict[str, Any] = {"solver": name, "scale": scale.name, "num_instances": makespan.shape[1]}
            row |= {"num_seeds": len(seeds)}
            row |= _gap("gap_to_best", makespan / best_s)
            row |= {"worst_gap_to_best": float(np.max(makespan / best_s))}
            row |= _gap("gap_to_bound", makespan / bound_s)
            rows.append(row | {"makespan_s": float(makespan.mean()), "seconds": float(seconds.mean())})
    return {
        "config": asdict(config) | {"scales": [scale.name for scale in config.scales]},
        "interval": "95 % over seeds, over instances for a single one (Student)",
        "rows": rows,
        "rounds": rounds,
        "characteristics": tests,
    }


def _gap(name: str, gaps: np.ndarray) -> dict[str, float | None]:
    """The mean of [seeds, instances], with an interval over seeds; over instances where there is one seed. No makespan
    is below the best one found or a bound, so an interval begins at 1 or above."""
    values = (gaps.mean(axis=1) if len(gaps) > 1 else gaps[0]).tolist()
    return named(name, over_seeds(values, within=(1.0, np.inf)))
