"""Xiong et al.'s figure 4: the offload ratio over the parts of the day, in twins and in the system that they imitate.

A day of log is simulated. One twin, with the time as an input, is learned from the whole of it, and one for every part,
the paper's way, from the requests of that part alone. In all of them one engine is deployed, the clone of who wrote
the log. It decides the requests of the next day, the twins answer them, and the ratio of every part is held against the
log's. The one twin simulates the day in one piece; those of the parts begin with the logged state of their moment.

The floor is the system against itself: the same day of the world simulated again, with other requests, choices and
fates. Every figure of a twin is the mean over single replications of the day, as the floor's is, so both hold one day's
noise. Twins are given the very requests of the logged day, so a good one may lie below the floor.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.certify.config import Thresholds
from evaluation.certify.lines import Verdict, verdict_of
from evaluation.comparison.bootstrap import Estimate
from evaluation.comparison.seeds import named, over_seeds
from evaluation.jobs.job import Step, run_job
from evaluation.pipeline.run import ARCHIVE, archive_step
from evaluation.problems.configuration import LogConfig
from evaluation.problems.placement.steps import POLICY_CODE, TWIN_CODE
from evaluation.reproduction.day_twins import (
    Learning,
    clone_engine,
    prepare,
    read_day,
    simulate_parts,
    simulate_whole,
)
from evaluation.reproduction.offload import DayParts, correlation, logged_ratios, mean_error, simulated_ratios
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import conditions
from evaluation.simulator.history import play_streams
from evaluation.simulator.logs import FIRST_DAY, day_of
from evaluation.simulator.presets import preset
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.recipes.config import TrainingConfig
from twin.arrays import load_nested, save_arrays
from twin.placement.encoding import fit_encoding
from twin.placement.fit import MIN_ROWS
from twin.placement.learned import AnswerConfig

ONE, PER_PART, FLOOR = "one-twin", "twin-per-part", "floor"
WAYS = {ONE: simulate_whole, PER_PART: simulate_parts}
ENGINE = "engine"
CURVES, PARAMETERS = "curves.json", "engine.npz"
AGAIN = 1_000_003
"""Folded into a seed's key for the replications behind the floor; histories fold in their day."""


@dataclass(frozen=True)
class Figure4Config:
    """What is run.

    Attributes:
        preset: Simulated cluster.
        behaviour: Who wrote the log: "mix", or "random", the setting of the paper.
        num_seeds: Logs, each with its own twins and floor: seeds 0, 1, ...
        num_parts: Parts of the day.
        shift: Days from the day learned from to the day simulated.
        num_replications: Times that the day is simulated by every twin, and by the system for the floor; a multiple of
            the members of an ensemble.
        num_steps: Requests a window of the whole day's fit.
        twin: Of every ensemble.
        training: How the engine is cloned.
    """

    preset: str = "kmps"
    behaviour: str = "mix"
    num_seeds: int = 5
    num_parts: int = 12
    shift: int = 1
    num_replications: int = 10
    num_steps: int = 128
    twin: AnswerConfig = field(default_factory=AnswerConfig)
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(network="narrow_scorer"))

    def __post_init__(self) -> None:
        if self.num_seeds < 1 or self.num_parts < 2 or self.shift < 1:
            raise ConfigError(
                f"{self.num_seeds} seeds, {self.num_parts} parts of the day, {self.shift} days later",
                where="reproduce figure4",
                allowed="1 seed, 2 parts, 1 day or more",
            )
        if self.num_replications < 2 or self.num_replications % self.twin.num_members:
            raise ConfigError(
                f"{self.num_replications} replications cannot be dealt to {self.twin.num_members} members",
                where="reproduce figure4",
                allowed=f"a multiple of {self.twin.num_members}, 2 or more",
            )
        behaviour(self.behaviour)  # refused now, and not in the middle
        expected = preset(self.preset).requests_per_day / self.num_parts
        if expected < MIN_ROWS:
            raise ConfigError(
                f"{self.num_parts} parts of about {expected:.0f} requests",
                where=f"a day of preset {self.preset}",
                allowed=f"{MIN_ROWS} or more in every part",
                advice="take fewer parts or another preset",
            )

    @property
    def parts(self) -> DayParts:
        """Of the world's day: behind its end the log is quiet."""
        return DayParts(preset(self.preset).day_s, self.num_parts)

    @property
    def simulated_day(self) -> date:
        """The day that is simulated, in the log's calendar."""
        return FIRST_DAY + timedelta(days=self.shift)


def quick(config: Figure4Config) -> Figure4Config:
    """The same with smaller ensembles, fitted for less long; one seed."""
    return replace(
        config,
        num_seeds=1,
        num_replications=6,
        twin=AnswerConfig(num_members=2, num_steps=400),
        training=replace(config.training, clone_updates=75),
    )


class Curves(NamedTuple):
    """Offload ratios of one seed's day."""

    truth: np.ndarray  # [parts]
    replications: Mapping[str, np.ndarray]  # of both ways and of the floor: [replications, parts]


def curves(config: Figure4Config, workdir: Path, progress: Progress) -> list[Curves]:
    """Learns and simulates what is not done yet; one entry a seed.

    Raises:
        ConfigError: A part of the day holds too few requests to learn from.
    """
    found = []
    for seed in range(config.num_seeds):
        log = LogConfig(preset=config.preset, days=config.shift + 1, behaviour=config.behaviour, seed=seed)
        steps = [archive_step(log, Path()), _floor_step(config, seed), _engine_step(config, seed)]
        steps += [_twin_step(way, config, seed) for way in WAYS]
        products = run_job(steps, workdir / f"seed-{seed}", progress)
        saved = {name: json.loads((products[name] / CURVES).read_text()) for name in (*WAYS, FLOOR)}
        replications = {name: np.array(one["replications"], float) for name, one in saved.items()}
        found.append(Curves(np.array(saved[FLOOR]["truth"], float), replications))
    return found


def _engine_step(config: Figure4Config, seed: int) -> Step:
    def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> None:
        how = _prepared(inputs["archive"], config)
        save_arrays(out / PARAMETERS, clone_engine(jax.random.key(seed), how, progress))

    names = ("clone_updates", "clone_streams", "held_out", "network")
    settings = {name: getattr(config.training, name) for name in names} | {"num_steps": config.num_steps}
    settings |= {"policy_code": POLICY_CODE}
    return Step(
        ENGINE, "engine-clone", build, inputs=("archive",), config=settings, seed=seed, code_version=TWIN_CODE
    )


def _twin_step(way: str, config: Figure4Config, seed: int) -> Step:
    def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> None:
        how = _prepared(inputs["archive"], config)
        engine = load_nested(inputs[ENGINE] / PARAMETERS)
        held = read_day(Archive(inputs["archive"] / ARCHIVE), how.encoding, config.simulated_day)
        key = jax.random.fold_in(jax.random.key(seed), 1)
        _write(
            out,
            replications=WAYS[way](key, how, engine, held, config.parts, config.num_replications, progress),
        )

    names = ("num_parts", "shift", "num_replications", "num_steps", "twin")
    settings = {name: getattr(config, name) for name in names}
    return Step(
        way,
        "offload-curves",
        build,
        inputs=("archive", ENGINE),
        config=settings,
        seed=seed,
        code_version=TWIN_CODE,
    )


def _prepared(archive: Path, config: Figure4Config) -> Learning:
    return prepare(Archive(archive / ARCHIVE), FIRST_DAY, config.twin, config.training, config.num_steps)


def _floor_step(config: Figure4Config, seed: int) -> Step:
    """The logged day, and the same day simulated again."""

    def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> None:
        archive = Archive(inputs["archive"] / ARCHIVE)
        encoding = fit_encoding(archive, [FIRST_DAY], view="full")
        logged = read_day(archive, encoding, config.simulated_day)
        truth = logged_ratios(logged.rows, encoding, config.parts, logged.midnight_s)
        with progress.stage("simulate the day again"):
            replications = _simulate_again(config, jax.random.fold_in(jax.random.key(seed), AGAIN))
        _write(out, truth=truth, replications=replications)

    names = ("preset", "behaviour", "num_parts", "shift", "num_replications")
    settings = {name: getattr(config, name) for name in names}
    return Step(
        FLOOR,
        "offload-curves",
        build,
        inputs=("archive",),
        config=settings,
        seed=seed,
        code_version=TWIN_CODE,
    )


def _write(out: Path, **curves: np.ndarray) -> None:
    plain = {name: _plain(values.tolist()) for name, values in curves.items()}
    (out / CURVES).write_text(json.dumps(plain))


def _plain(value: Any) -> Any:
    """Nested lists with null for NaN."""
    return (
        [_plain(one) for one in value] if isinstance(value, list) else value if np.isfinite(value) else None
    )


def _simulate_again(config: Figure4Config, key: jax.Array) -> np.ndarray:
    """[replications, parts] of the day of the world, simulated under the behaviour as often as twins simulate it."""
    world = preset(config.preset)
    today = conditions(world, config.shift)
    every = jax.tree.map(lambda leaf: jnp.stack([leaf] * config.num_replications), today)
    keys = jax.random.split(key, config.num_replications)
    simulated = play_streams(world, behaviour(config.behaviour), every, keys)
    return np.stack(
        [
            simulated_ratios(day_of(simulated, replication), world, config.parts)
            for replication in range(config.num_replications)
        ]
    )


def table(config: Figure4Config, found: Sequence[Curves]) -> dict[str, Any]:
    """The figure as plain values.

    Returns:
        `rows`, one a way and one for the floor. `error`: mean over replications of the mean absolute error of the ratio
        over the parts against the logged day, and the same over the floor of the same seed; `correlation` with the
        logged day alike. `mean_replication_error` and `mean_replication_correlation`: of the mean over replications
        against that of the system, where the noise of choices and fates is averaged out (the floor's: the first half of
        the system's replications against the second); all replications of a twin have the same requests, those of the
        system have not. Verdicts against what is wanted. `curves`, one a seed and part.
    """
    wanted = Thresholds()
    floors = [_measured(one, FLOOR) for one in found]
    reached = over_seeds([floor["correlation"] for floor in floors]).value
    rows = []
    for way in (*WAYS, FLOOR):
        mine = [_measured(one, way) for one in found]
        estimates = {name: over_seeds([figures[name] for figures in mine]) for name in mine[0]}
        row: dict[str, Any] = {"way": way, "num_seeds": len(found)}
        if way != FLOOR:
            over = [figures["error"] - floor["error"] for figures, floor in zip(mine, floors, strict=True)]
            estimates["error_over_floor"] = over_seeds(over)
            row |= {
                "error_verdict": verdict_of(
                    estimates["error_over_floor"], wanted.offload_error, higher_is_better=False
                ).value,
                "correlation_verdict": _correlated(
                    estimates["correlation"], reached, wanted.offload_correlation
                ).value,
            }
        for name, estimate in estimates.items():
            row |= named(name, estimate)
        rows.append(row)
    return {
        "config": asdict(config),
        "interval": "95 % over seeds (Student)",
        "wanted": {"error_over_floor": wanted.offload_error, "correlation": wanted.offload_correlation},
        "rows": rows,
        "curves": [row for seed, one in enumerate(found) for row in _curve_rows(config, seed, one)],
    }


def _correlated(found: Estimate, reached: float | None, limit: float) -> Verdict:
    """The verdict on a limit; a miss is no failure where the system does not reach the limit with itself."""
    verdict = verdict_of(found, limit, higher_is_better=True)
    out_of_reach = reached is None or reached < limit
    return Verdict.CANNOT_TELL if verdict is Verdict.FAIL and out_of_reach else verdict


def _measured(one: Curves, name: str) -> dict[str, float]:
    """One seed's figures of a way, or of the floor."""
    replications, system = one.replications[name], one.replications[FLOOR]
    if name == FLOOR:
        half = len(system) // 2
        pair = system[:half].mean(axis=0), system[half:].mean(axis=0)
    else:
        pair = replications.mean(axis=0), system.mean(axis=0)
    return {
        "error": float(np.mean([mean_error(replication, one.truth) for replication in replications])),
        "correlation": float(np.mean([correlation(replication, one.truth) for replication in replications])),
        "mean_replication_error": mean_error(*pair),
        "mean_replication_correlation": correlation(*pair),
    }


def _curve_rows(config: Figure4Config, seed: int, one: Curves) -> list[dict[str, Any]]:
    floor = one.replications[FLOOR]
    columns = {"truth": one.truth} | {way: one.replications[way].mean(axis=0) for way in WAYS}
    columns |= {"floor": floor.mean(axis=0), "floor_low": floor.min(axis=0), "floor_high": floor.max(axis=0)}
    hours = (np.arange(config.num_parts) + 0.5) * config.parts.day_s / config.num_parts / 3600.0
    plain = {name: _plain(values.tolist()) for name, values in columns.items()}
    return [
        {"seed": seed, "part": part + 1, "hour": float(hours[part])}
        | {name: values[part] for name, values in plain.items()}
        for part in range(config.num_parts)
    ]
