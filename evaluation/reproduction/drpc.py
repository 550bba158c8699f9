"""Paper DRPC's comparison of autoscalers, from nothing: a log, a twin of it, autoscalers, and the truth of later days.

An ordinary autoscaler in an operator's hands writes the log of an application. A twin is fitted on it. Rules are
calibrated in the twin, then all play the same loads in the truth, some days after the log: paired by seed.
Every step is a product of its own, so that a run that was stopped goes on where it was.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.bootstrap import ANYWHERE, SHARE, TIME
from evaluation.comparison.seeds import named, over_seeds
from evaluation.jobs.job import Step, run_job
from evaluation.judges.descriptions import LADDER
from evaluation.reproduction.drpc_ladder import CHOSEN_FROM, ladder_step, played_as_chosen, read_choices
from evaluation.reproduction.drpc_learners import (
    AFTER,
    IN_TRUTH,
    KINDS,
    learned_autoscaler,
    learning_step,
    task_of,
)
from evaluation.simulator.applications.load import made_rates
from evaluation.simulator.applications.log import OPERATOR, scaling_config, simulate_application
from evaluation.simulator.applications.presets import application
from evaluation.simulator.applications.response import application_response, usual_grants
from evaluation.simulator.logs import FIRST_DAY
from logs_schema import Archive
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from offline_rl.autoscaling.config import SCALE_CODE
from offline_rl.recipes.scaling_task import ScalingTask
from offline_rl.recipes.scaling_training import POD_RULES
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, Played, follow, free_config
from offline_rl.rules.autoscaling.published import NAMES as RULES
from offline_rl.rules.autoscaling.published import Setting, autoscalers
from twin.autoscaling.fitting import coverage_of, fit_laws
from twin.autoscaling.forecasting import errors
from twin.autoscaling.persistence import ApplicationTwin, load_application_twin, save_application_twin
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.scaling_log import read_scaling_log
from twin.autoscaling.types import kept_objective, quantile_s
from twin.autoscaling.workload import fit_load
from twin.contracts import Array

FIGURES, ARCHIVE = "figures.json", "archive"
LOADS_CODE = 2
"""Raised when changes of the code change the log or the traces of a seed: those of older code are made again."""
SEEDS_APART = 1000
"""Between the traces of one log and those of the next: no two logs share a load."""
FORECAST_DAYS = 4
"""Days of log from which on predictors of the load are compared."""
WARM_UP_S = 600.0
"""Beginning of every trace that does not count: autoscalers start from the same grants."""
QUANTILES = {"p95_response_s": 0.95, "p99_response_s": 0.99, "p9999_response_s": 0.9999}
MEASURES = {
    "mean_response_s": TIME,
    "p95_response_s": TIME,
    "p99_response_s": TIME,
    "p9999_response_s": TIME,
    "failures": SHARE,
    "objective_kept": SHARE,
    "cpu_core_hours": TIME,
    "reward": ANYWHERE,
}
"""Figure of an autoscaler -> what it can be."""
RIVALS = (*POD_RULES, "lookahead", IN_TRUTH)
"""What rewards are held against: rules that what is learned must earn its place against, and a network that was trained
in the truth."""


@dataclass(frozen=True)
class DrpcConfig:
    """What is compared.

    Attributes:
        preset: Simulated application.
        log_days: Days of the log.
        minutes: Length of a trace.
        shifts: Days from the last day of the log to that of a trace.
        num_seeds: Traces of every shift.
        seed: Of the log.
        autoscalers: Names (default: all of them). For `ladder`, what `train` would hand over, all networks are trained
            that it chooses from, and both rules are calibrated.
        updates: Trajectories that a teacher learns from.
        refreshed_days: Days by which the log, and all that is learned from it, is newer, as after a refresh. Traces
            stay those of the first log, at shifts of no fewer days.
    """

    preset: str = "boutique"
    log_days: int = 7
    minutes: int = 300
    shifts: tuple[int, ...] = (0, 1, 7, 30)
    num_seeds: int = 5
    seed: int = 0
    autoscalers: tuple[str, ...] = ()
    updates: int = 150
    refreshed_days: int = 0

    def __post_init__(self) -> None:
        application(self.preset)
        fewest, least_shift = min(self.log_days, self.num_seeds, self.updates), min(self.shifts, default=-1)
        if fewest < 1 or not 20 <= self.minutes <= 1200 or least_shift < 0:
            raise ConfigError(
                "traces or trainings that cannot be",
                where="reproduce drpc",
                allowed="1 day, seed and trajectory or more, 20 to 1200 minutes, a shift or more, of 0 days or more",
            )

        if not 0 <= self.refreshed_days <= min(self.shifts):
            raise ConfigError(
                f"what is learned {self.refreshed_days} days later would be judged on days before its own",
                where="reproduce drpc",
                allowed=f"--refreshed-days from 0 to the least shift, {min(self.shifts)}",
                advice="name the shifts that are meant with --shifts",
            )

        known = (*RULES, *KINDS, LADDER)
        if unknown := [name for name in self.autoscalers if name not in known]:
            raise ConfigError(
                f"there is no autoscaler {', '.join(unknown)}",
                where="reproduce drpc",
                allowed=", ".join(known),
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The chosen autoscalers, in the order of the table."""
        return tuple(
            name for name in (*RULES, *KINDS, LADDER) if not self.autoscalers or name in self.autoscalers
        )


def quick(config: DrpcConfig) -> DrpcConfig:
    """A first look: a small application, short traces, few of them."""
    return replace(config, preset="chain", log_days=2, minutes=60, shifts=(0, 30), num_seeds=3, updates=80)


class Traces(NamedTuple):
    """Loads of the truth: rates [rows, users] and the first row of every stream, a seed's shifts together."""

    rates: np.ndarray
    starts: np.ndarray
    length: int


def compare(config: DrpcConfig, workdir: Path, progress: Progress) -> dict[str, Any]:
    """Makes what is left to make; the table as plain values (`table`)."""
    made = run_job([_log_step(config), _twin_step(config)], workdir, progress)
    twin = load_application_twin(made["twin"])
    wanted = set(config.names)
    needed = wanted | {*CHOSEN_FROM, *POD_RULES} if LADDER in wanted else wanted
    needed = needed | {AFTER[name] for name in needed & set(AFTER)}
    learning = config.preset, ARCHIVE, config.num_seeds, config.updates
    learners = [learning_step(kind, *learning) for kind in KINDS if kind in needed]
    made = run_job(learners, workdir, progress, done=made)
    app = application(config.preset)
    log = read_scaling_log(Archive(made["archive"] / ARCHIVE), deployments=twin.deployments)
    num_traces = config.num_seeds * len(config.shifts)
    names = [name for name in RULES if name in needed]
    task = task_of(app, log)
    rules = autoscalers(*task, twin, log, num_traces, names)
    makers = {name: cache(make) for name, make in rules.items()}
    choices: list[dict[str, Any]] = []
    if LADDER in wanted:
        made = run_job([ladder_step(*learning, makers)], workdir, progress, done=made)
        choices = read_choices(made[LADDER])
    shown = wanted - {LADDER} | {choice["chosen"] for choice in choices}
    steps = [
        _play_step(config, task, name, make, ("twin",)) for name, make in makers.items() if name in shown
    ]
    steps += [
        _play_step(config, task, name, partial(_learned, config, name, made), (name,))
        for name in KINDS
        if name in shown
    ]
    forecasts = [_forecast_step()] if config.log_days >= FORECAST_DAYS else []
    made = run_job([*steps, *forecasts], workdir, progress, done=made)
    played = {step.name.removeprefix("play-"): _read(made[step.name]) for step in steps}
    if choices:
        played[LADDER] = played_as_chosen(choices, played, tuple(MEASURES))
    found = table(config, {name: played[name] for name in config.names})
    return found | {"chosen": choices, "forecasts": _read(made["forecasts"]) if forecasts else []}


def table(config: DrpcConfig, played: Mapping[str, Any]) -> dict[str, Any]:
    """Figures by autoscaler.

    Returns:
        `rows`: one an autoscaler and shift, means over seeds with intervals, and the reward over that of each of
        `RIVALS` that was played, paired by seed. `frontier`: one a setting of an autoscaler with several, over all
        shifts. `calibrated`: what was chosen in the twin.
    """
    rows, frontier = [], []

    def by_seed(name: str, measure: str) -> np.ndarray:
        values = np.asarray(played[name]["chosen"][measure])
        return values.reshape(config.num_seeds, len(config.shifts))

    for name, found in played.items():
        rivals = [rival for rival in RIVALS if rival in played and rival != name]
        for shift, days in enumerate(config.shifts):
            row: dict[str, Any] = {"autoscaler": name, "shift_days": days, "num_seeds": config.num_seeds}
            for measure, within in MEASURES.items():
                row |= named(measure, over_seeds(by_seed(name, measure)[:, shift].tolist(), within))
            for rival in rivals:
                gain = by_seed(name, "reward") - by_seed(rival, "reward")
                row |= named(f"reward_over_{rival}", over_seeds(gain[:, shift].tolist()))
            rows.append(row)
        for setting in found["frontier"]:
            means = {measure: float(np.mean(setting[measure])) for measure in MEASURES}
            frontier.append({"autoscaler": name, "setting": setting["setting"]} | means)
    return {
        "config": {**config.__dict__, "shifts": list(config.shifts), "autoscalers": list(played)},
        "objective_s": application(config.preset).slo_s,
        "interval": "95 % over the seeds of traces (Student)",
        "rows": rows,
        "frontier": frontier,
        "calibrated": {name: found["setting"] for name, found in played.items() if found["setting"]},
    }


def traces_of(config: DrpcConfig) -> Traces:
    """The loads that all autoscalers play."""
    app = application(config.preset)
    scaling = scaling_config(app)
    per_day = int(DAY_S / scaling.interval_s)
    length = int(config.minutes * 60 / scaling.interval_s)
    tables: list[np.ndarray] = []
    starts: list[int] = []
    for seed in range(config.num_seeds):
        random = np.random.default_rng([config.seed, seed, 0xD19C])
        drawn = int(random.integers(0, per_day - length + 1))
        first = min(drawn, per_day - length - 1)  # it plays the rows after it
        for days in config.shifts:
            day = config.log_days - 1 + days
            starts.append(len(tables) * per_day + first)
            own = SEEDS_APART * (1 + config.seed) + seed
            tables.append(made_rates(app, 1, scaling.interval_s, own, first_day=day))
    return Traces(np.concatenate(tables), np.asarray(starts), length)


def _log_step(config: DrpcConfig) -> Step:
    def build(out: Path, _: Mapping[str, Path], _progress: Progress) -> Mapping[str, Any]:
        report = simulate_application(
            application(config.preset),
            config.log_days,
            OPERATOR,
            config.seed,
            out / ARCHIVE,
            first_day=FIRST_DAY,
            begin=config.refreshed_days,
        )
        return {"num_rows": report.num_rows}

    settings = {"preset": config.preset, "days": config.log_days, "refreshed_days": config.refreshed_days}
    return Step("archive", "job-archive", build, config=settings, seed=config.seed, code_version=LOADS_CODE)


def _twin_step(config: DrpcConfig) -> Step:
    def build(out: Path, inputs: Mapping[str, Path], _: Progress) -> Mapping[str, Any]:
        log = read_scaling_log(
            Archive(inputs["archive"] / ARCHIVE), deployments=application(config.preset).deployments
        )
        laws = fit_laws(log)
        save_application_twin(
            out, ApplicationTwin(log.deployments, log.interval_s, laws, fit_load(log), coverage_of(log, laws))
        )
        return {"censored": float(np.mean(log.censored))}

    return Step("twin", "application-twin", build, inputs=("archive",), code_version=SCALE_CODE)


def _forecast_step() -> Step:
    """Table 2: mean squared errors of predictors of the log's load, as shares of its largest rate."""

    def build(out: Path, inputs: Mapping[str, Path], _: Progress) -> None:
        log = read_scaling_log(Archive(inputs["archive"] / ARCHIVE))
        found = errors(log.gateway["request_rate_per_s"], log.interval_s)
        rows = [
            {"predictor": name, "minutes": 5 * (place + 1), "mse": float(error)}
            for name, by_distance in found.items()
            for place, error in enumerate(by_distance)
        ]
        (out / FIGURES).write_text(json.dumps(rows, indent=1))

    return Step("forecasts", "forecast-errors", build, inputs=("archive",), code_version=SCALE_CODE)


def _learned(config: DrpcConfig, name: str, products: Mapping[str, Path]) -> Setting:
    return Setting(
        learned_autoscaler(name, config.preset, products, ARCHIVE, config.num_seeds, config.updates)
    )


def _play_step(
    config: DrpcConfig, task: ScalingTask, name: str, make: Callable[[], Setting], inputs: tuple[str, ...]
) -> Step:
    def build(out: Path, _: Mapping[str, Path], progress: Progress) -> None:
        with progress.stage(name, unit="autoscalers") as stage:
            setting = make()
            chosen = play(config, task, setting.autoscaler, 1)
            frontier = []
            if setting.all_at_once is not None:
                shared = play(
                    config,
                    task,
                    setting.all_at_once(config.num_seeds * len(config.shifts)),
                    len(setting.grid),
                )
                frontier = [
                    {"setting": one} | {measure: shared[measure][index] for measure in MEASURES}
                    for index, one in enumerate(setting.grid)
                ]
            stage(1.0, 1.0)
        found = {
            "setting": setting.chosen,
            "chosen": {one: chosen[one][0] for one in MEASURES},
            "frontier": frontier,
        }
        (out / FIGURES).write_text(json.dumps(found, indent=1))

    settings = {name: value for name, value in config.__dict__.items() if name != "autoscalers"}
    settings |= {"loads": LOADS_CODE}
    return Step(
        f"play-{name}",
        "autoscaler-figures",
        build,
        inputs=inputs,
        config=settings,
        seed=config.seed,
        code_version=SCALE_CODE,
    )


def play(
    config: DrpcConfig, task: ScalingTask, autoscaler: Autoscaler, num_settings: int
) -> dict[str, list[list[float]]]:
    """Measures [settings, traces] of an autoscaler in the truth; settings are the outer part of its stream axis."""
    app, traces = application(config.preset), traces_of(config)
    scaling, limits = task
    starts = np.tile(traces.starts, num_settings)
    response = application_response(
        app,
        free_config(scaling),
        traces.rates,
        traces.length,
        starts=starts,
        grants=usual_grants(app, traces.rates),
    )
    skip = int(WARM_UP_S / scaling.interval_s)

    @jax.jit
    def run(key: Array) -> dict[str, Array]:
        played = follow(
            key, response, scaling, limits, autoscaler, cost_under_slo(), traces.length, (len(starts),)
        )
        return measured(jax.tree.map(lambda leaf: leaf[skip:], played), scaling.interval_s, scaling.slo_s)

    found = run(jax.random.key(config.seed))
    return {
        name: np.asarray(value, float).reshape(num_settings, -1).tolist() for name, value in found.items()
    }


def measured(played: Played, interval_s: float, slo_s: float) -> dict[str, Array]:
    """`MEASURES` [*streams] of what was played."""
    gateway, grants = played.gateway, played.grants
    num_requests = jnp.sum(gateway.rate_per_s * interval_s, axis=0)
    answered = gateway.rate_per_s * interval_s - gateway.num_failures
    latency = jnp.sum(gateway.latency, axis=0)
    kept = kept_objective(jnp.moveaxis(gateway.latency, 1, 0), gateway.num_failures, 0.95, slo_s)
    cores = jnp.sum(grants.replicas * grants.cpu_cores, axis=1)
    return {
        "mean_response_s": jnp.sum(gateway.response_s * answered, axis=0) / jnp.sum(answered, axis=0),
        **{name: quantile_s(latency, share) for name, share in QUANTILES.items()},
        "failures": jnp.maximum(jnp.sum(gateway.num_failures, axis=0), 0.0) / num_requests,
        "objective_kept": jnp.mean(kept.astype(jnp.float32), axis=0),
        "cpu_core_hours": jnp.sum(cores, axis=0) * interval_s / 3600.0,
        "reward": jnp.mean(jnp.sum(played.reward, axis=1), axis=0),
    }


def _read(folder: Path) -> Any:
    return json.loads((folder / FIGURES).read_text())
