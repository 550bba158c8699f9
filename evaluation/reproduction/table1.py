"""Xiong et al.'s table 1 and beyond: all methods of agent generation, compared with agents of held-out days.

The paper's table holds KL of single dimensions, which a product of marginals passes too; here the KL of pairs and a
two-sample classifier stand beside it, the bootstrap and the product of marginals among the rivals, and all figures
stand over a floor: real agents of the training days. Every fit is a product of its own (archive, method, seed), so a
killed run goes on where it was.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.comparison.seeds import named, over_seeds
from evaluation.jobs.job import Step, run_job
from evaluation.pipeline.run import ARCHIVE, archive_step
from evaluation.problems.configuration import LogConfig
from evaluation.problems.placement.steps import TWIN_CODE
from evaluation.reproduction.populations import FLOOR, Generate, GeneratedAgents, draw, measure, ways_of
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from twin.population import MAKERS, PopulationConfig, PopulationError

FIGURES = "figures.json"
COLUMN, PAIRS, AUC = "KL of a column", "mean KL of pairs", "two-sample AUC"
WANTED = {COLUMN: 0.01, PAIRS: 0.01, AUC: 0.10}
"""Largest good excess over the floor."""


@dataclass(frozen=True)
class Table1Config:
    """What is compared, on what.

    Attributes:
        archives: Logs; none: one is simulated.
        preset, behaviour, days: Of the simulated log; every other day is held out: 5,400 agents of 36 days of `kmps`.
        methods: Names in `twin.population.MAKERS`.
        num_seeds: Fits of every method: seeds 0, 1, ...
        max_rows: Agents of each sample at most.
        rows_an_agent: Training rows of every agent and day at most.
        num_rounds: Of trained methods at most; their own where None.
        seed: Of the simulated log.
    """

    archives: tuple[Path, ...] = ()
    preset: str = "kmps"
    behaviour: str = "mix"
    days: int = 36
    methods: tuple[str, ...] = tuple(MAKERS)
    num_seeds: int = 5
    max_rows: int = 20_000
    rows_an_agent: int = PopulationConfig().rows_an_agent
    num_rounds: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = {"days": self.days, "seeds": self.num_seeds, "rows an agent": self.rows_an_agent}
        for name, value in sizes.items():
            if value < 1:
                raise ConfigError(f"{value} {name}", where="reproduce table1", allowed="1 or more")
        if self.max_rows < 100:
            raise ConfigError(f"{self.max_rows} rows", where="reproduce table1", allowed="100 or more")
        names = [path.resolve().name for path in self.archives]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(
                f"several archives are called {', '.join(twice)}",
                where="reproduce table1",
                allowed="archives of different names",
                advice="rename one, or give them to runs of their own",
            )
        ways_of(self.methods, self.num_rounds)  # refused now, and not in the middle of the table


class MethodDistances(NamedTuple):
    """One archive's figures."""

    name: str
    figures: Mapping[tuple[str, int], Mapping[str, Any]]
    """(method or floor, seed) -> what `measure` found, or `failed`: why there is nothing."""


def compare(config: Table1Config, workdir: Path, progress: Progress) -> list[MethodDistances]:
    """Fits what is not fitted yet; one entry an archive.

    Raises:
        ArchiveError: One of the archives cannot be read.
        ConfigError: An archive holds no agents to compare.
    """
    if config.archives:
        return [
            _compare_in(Archive(path), config, workdir / path.resolve().name, progress)
            for path in config.archives
        ]
    log = LogConfig(preset=config.preset, days=config.days, behaviour=config.behaviour, seed=config.seed)
    made = run_job([archive_step(log, Path())], workdir / config.preset, progress)
    archive = Archive(made["archive"] / ARCHIVE)
    return [_compare_in(archive, config, workdir / config.preset, progress)]


def _compare_in(archive: Archive, config: Table1Config, folder: Path, progress: Progress) -> MethodDistances:
    settings = {
        "archive": archive.content_hash,
        "max_rows": config.max_rows,
        "rows_an_agent": config.rows_an_agent,
        "num_rounds": config.num_rounds,
    }

    @cache  # once, and only where something is left to do
    def agents(seed: int) -> GeneratedAgents:
        return draw(archive, max_rows=config.max_rows, rows_an_agent=config.rows_an_agent, seed=seed)

    def step_of(name: str, generate: Generate, seed: int) -> Step:
        def build(out: Path, _: Mapping[str, Path], progress: Progress) -> None:
            (out / FIGURES).write_text(
                json.dumps(_once(name, generate, seed, agents(seed), progress), indent=1)
            )

        return Step(
            f"{name}-{seed}",
            "population-figures",
            build,
            config=settings,
            seed=seed,
            code_version=TWIN_CODE,
        )

    cases = [
        (name, generate, seed)
        for name, generate in ways_of(config.methods, config.num_rounds).items()
        for seed in range(config.num_seeds)
    ]
    products = run_job([step_of(*case) for case in cases], folder, progress)
    return MethodDistances(
        folder.name,
        {
            (name, seed): json.loads((products[f"{name}-{seed}"] / FIGURES).read_text())
            for name, _, seed in cases
        },
    )


def _once(
    name: str, generate: Generate, seed: int, agents: GeneratedAgents, progress: Progress
) -> dict[str, Any]:
    """What `measure` finds, or why the method failed; with the floor, what it was found on."""
    with progress.stage(name, unit="rounds") as stage:
        try:
            found = measure(
                generate,
                seed,
                agents,
                lambda done, total, seen: stage(
                    done, total, text=f"held-out KL of pairs {seen['held_out_pairs']:.3f}"
                ),
            )
        except PopulationError as error:
            return {"failed": error.what}
    if name == FLOOR:
        rows = {
            "unit": agents.unit,
            "num_train_rows": agents.train.num_rows,
            "num_held_out_rows": agents.real.num_rows,
            "num_unseen_rows": agents.num_unseen,
        }
        return found | {"rows": rows}
    return found


def table(config: Table1Config, compared: Sequence[MethodDistances]) -> dict[str, Any]:
    """The table as plain values.

    Returns:
        `archives`: what each was judged on. `rows`: one an archive, method and measure, the floor's among them, with
        the value and, beside the same seeds' floor, `over_floor`. `fits`: one an archive and method: processor time,
        seeds that failed and why, warnings.
    """
    rows, fits = [], []
    for one in compared:
        for method in dict.fromkeys(name for name, _ in one.figures):
            mine = {seed: one.figures[method, seed] for seed in range(config.num_seeds)}
            done = {seed: _measures(found) for seed, found in mine.items() if "failed" not in found}
            floor = {seed: _measures(one.figures[FLOOR, seed]) for seed in done}
            case = {"archive": one.name, "method": method, "num_seeds": len(done)}
            for measured, column in next(iter(done.values()), ()):
                values = {seed: found[measured, column] for seed, found in done.items()}
                over = [value - floor[seed][measured, column] for seed, value in values.items()]
                row = case | {"measure": measured, "column": column}
                row |= named("value", over_seeds(list(values.values())))
                rows.append(row | named("over_floor", over_seeds(over)))
            fits.append(case | _of_fits(list(mine.values())))
    return {
        "config": asdict(config) | {"archives": [str(path) for path in config.archives]},
        "interval": "95 % over the seeds of fits and draws (Student)",
        "wanted_over_floor": WANTED,
        "archives": [{"archive": one.name} | one.figures[FLOOR, 0]["rows"] for one in compared],
        "rows": rows,
        "fits": fits,
    }


def _measures(found: Mapping[str, Any]) -> dict[tuple[str, str | None], float]:
    """(measure, column) -> value of everything that was measured in one fit."""
    columns: dict[tuple[str, str | None], float] = {
        (COLUMN, name): value for name, value in found["columns"].items()
    }
    return columns | {(PAIRS, None): found["pairs"], (AUC, None): found["auc"]}


def _of_fits(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    spent = over_seeds([one["fit_cpu_s"] for one in found if "failed" not in one])
    return {
        "fit_cpu_s": spent.value,
        "failed": {seed: one["failed"] for seed, one in enumerate(found) if "failed" in one},
        "warnings": sorted({text for one in found for text in one.get("warnings", ())}),
    }
