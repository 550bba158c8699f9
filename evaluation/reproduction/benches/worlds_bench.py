"""Errors of twins' in-model values in various worlds, and whether their certificates detect them.

For every world and seed a log is simulated, a twin fitted on its first days and certified on later ones. Then policies
of every quality play those days in closed loop, in the twin and in the world itself. A twin deserves to pass where it
gives every policy an in-model value within `DESERVING`; a policy that it is more than `WRONG` off about must be
marked, or the certificate must fail. Each step is a product of a resumable job, so that a long run is continued.
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from evaluation.baselines import BASELINES
from evaluation.certify.cloned_behaviour import fit_behaviour
from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import DATA
from evaluation.certify.tested_system import of_twin
from evaluation.comparison.training_days import DaysConfig
from evaluation.jobs.engine.config import EngineConfig, tasks_on
from evaluation.jobs.job import Step, run_job
from evaluation.judges.players import GREEDY, SAMPLED, of_network, of_policy
from evaluation.pipeline.run import ARCHIVE, archive_of
from evaluation.problems.certificates import certificate_plan
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import StepPlan
from evaluation.problems.placement.kit import fit_plan, train_plan
from evaluation.reproduction.benches.worlds_values import Contestant, as_table, in_model_values, true_values
from evaluation.simulator.logs import FIRST_DAY, simulate
from evaluation.simulator.world import World
from evaluation.simulator.world_files import plain, redrawn
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress, SilentProgress
from logs_schema.records import to_plain
from logs_schema.settings import refuse_below_zero
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.networks import actor
from offline_rl.recipes.config import TrainingConfig
from offline_rl.recipes.schedulers import example_for, load_schedulers, policy_of, policy_params
from offline_rl.rules import rule_actor
from offline_rl.rules.in_twin import rules_of
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin
from twin.population import PopulationConfig

DESERVING, WRONG = 0.02, 0.05
"""Largest error of an in-model value in a twin that should pass, and of one that needs no warning."""
PRICE = 0.2
"""Of a core, in the variant of the rule that is not tuned to anything."""
NUM_RANDOM = 2
"""Networks with random parameters: policies that no log would show."""
VALUES = "values.json"
VALUES_CODE = 9


@dataclass(frozen=True)
class WorldsBenchConfig:
    """How much is simulated and played.

    Attributes:
        seeds: Of worlds, logs, twins and replications.
        shifts: Days from training to the days that are played and certified on; 0 plays the last days of training.
        train_days: Days that a twin is fitted on.
        played_days: Days played at every shift.
        certified_days: Days that a twin is certified on at every shift, the first ones those that are played.
        num_requests: Mean requests of a day: days are shortened to have so many at the same rate (default: as the
            worlds declare).
        num_replications: Times that every day is simulated by every policy, a multiple of the members.
        updates: Updates of a policy that is trained in the twin too; 0 trains none.
        behaviour: Who wrote the logs.
        answers: Of the twins.
        certify: Of the certificates.
    """

    seeds: tuple[int, ...] = (0,)
    shifts: tuple[int, ...] = (0, 1, 7, 30)
    train_days: int = 2
    played_days: int = 2
    certified_days: int = 2
    num_requests: int | None = None
    num_replications: int = 5
    updates: int = 0
    behaviour: str = "mix"
    answers: AnswerConfig = field(default_factory=AnswerConfig)
    certify: CertifyConfig = field(default_factory=lambda: CertifyConfig(rankings=False))

    def __post_init__(self) -> None:
        if not self.seeds or not self.shifts or min(*self.shifts, *self.seeds) < 0:
            raise ConfigError(
                f"seeds {list(self.seeds)}, shifts {list(self.shifts)}",
                where="bench worlds",
                allowed="one or more of each, 0 and larger",
            )
        refuse_below_zero("bench worlds", updates=self.updates)
        least = min(self.train_days, self.played_days, self.certified_days)
        is_short = self.num_requests is not None and self.num_requests < 500
        if least < 1 or self.certified_days < self.played_days or is_short:
            raise ConfigError(
                f"{self.train_days} days to learn from, {self.played_days} to play, {self.certified_days} to certify "
                f"on, {self.num_requests} requests",
                where="bench worlds",
                allowed="1 or more days of each, no fewer to certify on than to play, 500 or more requests a day",
            )
        if self.num_replications < 1 or self.num_replications % self.answers.num_members:
            raise ConfigError(
                f"{self.num_replications} replications of a day",
                where="bench worlds",
                allowed=f"a multiple of the twin's {self.answers.num_members} members",
            )

    @property
    def num_days(self) -> int:
        """Days of the logs."""
        return max(self.days_of(shift)[-1] for shift in self.shifts) + 1

    def days_of(self, shift: int) -> range:
        """Days since day 0 that are certified on at a shift: always after training."""
        first = self.train_days - 1 + max(shift, 1)
        return range(first, first + self.certified_days)

    def played(self, shift: int) -> range:
        """Days since day 0 that are played at a shift."""
        num = min(self.played_days, self.train_days)
        return (
            self.days_of(shift)[: self.played_days]
            if shift
            else range(self.train_days - num, self.train_days)
        )


def quick(config: WorldsBenchConfig) -> WorldsBenchConfig:
    """A first look: short days, small twins, one shift; certified on as many requests as `schedtwin certify` takes."""
    return replace(
        config,
        shifts=(1,),
        num_requests=4_000,
        certified_days=5,
        num_replications=4,
        answers=AnswerConfig(num_members=2, hidden=(64, 64), num_steps=800),
        certify=replace(config.certify, num_replicates=200, clone_updates=300, num_steps=256),
    )


def shortened(world: World, num_requests: int | None) -> World:
    """The world with days of so many requests at its own rate; planned failures move with the length of the day."""
    if num_requests is None or num_requests >= world.requests_per_day:
        return world
    factor = num_requests / world.requests_per_day

    def moved(plans: Sequence[Any]) -> tuple:
        return tuple(replace(one, from_s=one.from_s * factor, to_s=one.to_s * factor) for one in plans)

    return replace(
        world,
        requests_per_day=float(num_requests),
        day_s=world.day_s * factor,
        outages=moved(world.outages),
        link_faults=moved(world.link_faults),
    )


@dataclass(frozen=True)
class WorldTask:
    """One world and seed as a task, and the folder of its products."""

    world: World
    seed: int
    config: WorldsBenchConfig
    folder: Path

    def __str__(self) -> str:
        return f"{self.world.name}, seed {self.seed}"


def bench_worlds(
    worlds: Sequence[World], config: WorldsBenchConfig, out: Path, engine: EngineConfig, progress: Progress
) -> list[dict[str, Any]]:
    """`bench_world` of every world and seed, as tasks where the engine is not this process."""
    tasks = [
        WorldTask(world, seed, config, out.absolute() / f"{world.name}-{seed}")
        for world in worlds
        for seed in config.seeds
    ]
    out.mkdir(parents=True, exist_ok=True)
    if not engine.is_here:
        with tasks_on(engine, progress, [out]) as run:
            return [row for rows in run(bench_alone, tasks, "worlds") for row in rows]
    found: list[dict[str, Any]] = []
    with progress.stage("worlds", total=len(tasks), unit="worlds") as stage:
        for done, task in enumerate(tasks):
            stage(done, text=str(task))
            found += bench_world(task.world, task.seed, config, task.folder, progress)
    return found


def bench_alone(task: WorldTask) -> list[dict[str, Any]]:
    """`bench_world` of one world and seed."""
    return bench_world(task.world, task.seed, task.config, task.folder, SilentProgress())


def bench_world(
    world: World, seed: int, config: WorldsBenchConfig, workdir: Path, progress: Progress
) -> list[dict[str, Any]]:
    """All measurements of one world and seed, or the missing ones.

    Returns:
        For every shift the certificate and the values, as plain JSON (see `worlds_table.rows`).
    """
    chosen = redrawn(shortened(world, config.num_requests), seed)
    run = RunConfig(
        seed=seed,
        twin=config.answers,
        population=PopulationConfig("none"),
        train=_training(config),
        days=DaysConfig(first_day=FIRST_DAY, last_day=_day(config.train_days - 1), view="summary"),
    )
    steps = [_log_step(chosen, seed, config), fit_plan(run).step("twin", ("archive",), archive_of)]
    if config.updates:
        steps.append(train_plan(run).step("policy", ("twin",)))
    for days in dict.fromkeys(config.days_of(shift) for shift in config.shifts):
        held = [_day(day) for day in days]
        plan = certificate_plan(replace(config.certify, seed=seed), held, record_refusal=True)
        steps.append(plan.step(_certificate(days[0]), ("archive", "twin"), archive_of))
    inputs = ("archive", "twin", *(["policy"] if config.updates else []))
    for shift in config.shifts:
        steps.append(_values_plan(chosen, seed, shift, config).step(f"values-{shift}", inputs, archive_of))
    products = run_job(steps, workdir, progress)
    found = []
    for shift in config.shifts:
        certificate = json.loads((products[_certificate(config.days_of(shift)[0])] / DATA).read_text())
        values = json.loads((products[f"values-{shift}"] / VALUES).read_text())
        found.append(
            {"world": world.name, "seed": seed, "shift_days": shift, "certificate": certificate, **values}
        )
    return found


def _certificate(first: int) -> str:
    return f"certificate-day{first}"


def _day(number: int) -> dt.date:
    return FIRST_DAY + dt.timedelta(days=number)


def _training(config: WorldsBenchConfig) -> TrainingConfig:
    return TrainingConfig(
        seeds=(0,), num_updates=max(config.updates, 1), num_streams=160, residual_updates=config.updates
    )


def _log_step(world: World, seed: int, config: WorldsBenchConfig) -> Step:
    def build(out: Path, _: Mapping[str, Path], progress: Progress) -> Mapping[str, Any]:
        with progress.stage("simulate", unit="days") as stage:
            simulate(world, config.num_days, config.behaviour, seed, out / ARCHIVE, progress=stage)
        return {}

    settings = {"world": plain(world), "days": config.num_days, "behaviour": config.behaviour}
    return Step("archive", "job-archive", build, config=settings, seed=seed)


def _values_plan(world: World, seed: int, shift: int, config: WorldsBenchConfig) -> StepPlan:
    days = [_day(day) for day in config.played(shift)]

    def build(out: Path, inputs: Mapping[str, Path], progress: Progress) -> Mapping[str, Any]:
        archive, twin = Archive(inputs["archive"]), PlacementTwin.load(inputs["twin"])
        known = contestants(twin, config, seed, inputs.get("policy"), progress)
        names, players = tuple(known), tuple(known.values())
        keys = jax.random.split(jax.random.key(seed))
        with progress.stage(f"{len(names)} policies in the twin"):
            in_model = in_model_values(keys[0], archive, twin, days, players, config.num_replications)
        with progress.stage(f"{len(names)} policies in the world"):
            true = true_values(keys[1], archive, world, twin, days, players, config.num_replications)
        content = {
            "reward": twin.encoding.problem.reward,
            "promised": as_table(in_model, names),
            "true": as_table(true, names),
        }
        (out / VALUES).write_text(json.dumps(content, indent=1) + "\n")
        return {"policies": list(names)}

    settings = {
        "days": [day.isoformat() for day in days],
        "replications": config.num_replications,
        "certify": config.certify,
    }
    return StepPlan("world-values", build, to_plain(settings), seed, VALUES_CODE)


def contestants(
    twin: PlacementTwin, config: WorldsBenchConfig, seed: int, policy: Path | None, progress: Progress
) -> dict[str, Contestant]:
    """Policies of every quality by name: rules of thumb, rules from the log, clones, random networks, what was trained.

    Args:
        twin: Whose log they are fitted on.
        config: For the clone.
        seed: Of the random networks.
        policy: Product of a training, or None.
        progress: Where to show how far it is.
    """
    cluster = twin.encoding.cluster
    found = {
        rule.name: Contestant(of_policy(rule.policy(cluster))) for rule in BASELINES if rule.applies(cluster)
    }
    for name, params in rules_of(twin).items():
        rule = of_network(rule_actor(name), greedily=True)
        found[name] = Contestant(rule, params)
        if name == EXPECTED_ON_TIME:
            numbers = {**params["params"][name], "price": np.float32(PRICE)}
            found[f"{name}_price"] = Contestant(rule, {"params": {name: numbers}})
    clone = fit_behaviour(of_twin(twin), config.certify, progress)
    for name, kind in (("bc", SAMPLED), ("bc_greedy", GREEDY)):
        found[name] = Contestant(of_network(clone.network, greedily=kind == GREEDY), clone.params)
    network = actor(example_for(twin.encoding, twin.windows))
    for index in range(NUM_RANDOM):
        params = network.init(jax.random.fold_in(jax.random.key(seed), index))
        found[f"random_network_{index + 1}"] = Contestant(of_network(network, greedily=True), params)
    if policy is not None:
        schedulers, _ = load_schedulers(policy)
        example = example_for(twin.encoding, twin.windows)
        for name, (trained, row) in {"twin": ("twin", 0), "ladder": schedulers.chosen}.items():
            own = policy_of(policy_params(schedulers, trained, row), example)
            found[name] = Contestant(of_policy(own))
    return found
