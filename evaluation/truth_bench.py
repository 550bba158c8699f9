"""How well do policies do in a simulated world? The proof that a preset tells policies apart.

Every policy lives the same episodes: the same keys give the same requests. Episodes begin empty at evenly spread times
of day; what is asked for while they fill up is not counted. One program is compiled for a world, whatever the policy
and the day: which policy decides is an argument, and a conditional in the program, so only that one is computed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines import BASELINES, TRUTH_BASELINES
from evaluation.bootstrap import BootstrapConfig, Estimate, estimate
from evaluation.oracle import Oracle, oracle_network, problem_config
from evaluation.simulator.conditions import Conditions, conditions
from evaluation.simulator.names import names_in
from evaluation.simulator.truth import truth_answers, truth_arrivals
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from offline_rl.networks import sample
from twin.contracts import Array, PyTree
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.responses import drawn_response
from twin.placement.types import PlacementState
from twin.rollout import unroll

POLICIES = (*(one.name for one in BASELINES), *(one.name for one in TRUTH_BASELINES))
ORACLE = "oracle"
"""An oracle on the day it was trained for; `oracle_of_day_D` is one on another day."""
SHOWN = ("random", "home", "cloud_only", "least_loaded", "least_expected_delay")
"""The policies of the table, in its order."""
STALE = "least_expected_delay_of_day_0"
"""Least expected delay with the tables of day 0, whatever the day it acts on: what a month's drift costs it."""


@dataclass(frozen=True)
class TruthBenchConfig:
    """How much is simulated.

    Attributes:
        num_seeds: Independent repetitions, each with its own streams of chance.
        num_episodes: Episodes of each, beginning at evenly spread times of day.
        num_steps: Requests of an episode that are counted.
        warm_turnovers: Requests before them, for every core of the world.
        depth: Requests that a node's books hold; one that finds no room is late.
        seed: Of everything drawn.
    """

    num_seeds: int = 5
    num_episodes: int = 12
    num_steps: int = 800
    warm_turnovers: float = 3.0
    depth: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = (self.num_seeds, self.num_episodes, self.num_steps, self.depth)
        if min(sizes) < 1 or self.warm_turnovers < 0:
            raise ConfigError(
                "seeds, episodes, steps and slots must be at least one",
                where=f"bench truth: seeds={self.num_seeds}, episodes={self.num_episodes}, steps={self.num_steps}, "
                f"depth={self.depth}, warm_turnovers={self.warm_turnovers:g}",
                allowed="whole numbers of at least 1; warm_turnovers of at least 0",
            )


class Score(NamedTuple):
    """What came of one policy on one day."""

    policy: str
    day: int
    on_time: Estimate
    per_episode: np.ndarray  # [seeds, episodes] share of requests accepted and on time


Program = Callable[[Array, Array, PyTree, Conditions, Conditions], Array]
"""(key, index into POLICIES, an oracle's parameters, the day's numbers, those the policy knows)
-> on-time share [seeds, episodes]."""


class _Case(NamedTuple):
    name: str
    kind: int
    params: PyTree
    day: int
    known_day: int


def bench_program(world: World, config: TruthBenchConfig) -> Program:
    """The compiled truth of a world, in which every policy of `POLICIES` can act."""
    cluster = cluster_of(world)
    names = names_in(world, cluster)
    problem = placement(cluster, problem_config(world, config.depth))
    network = oracle_network(world, config.depth)
    shown = problem._replace(observe=lambda state: (problem.observe(state), state))
    rules = [baseline.policy(cluster) for baseline in BASELINES]
    num_warm = round(config.warm_turnovers * sum(node.cpu_cores for node in world.nodes))
    length = num_warm + config.num_steps
    streams = (config.num_seeds * config.num_episodes,)
    day_s = float(conditions(world, 0).day_s)
    begin_s = jnp.tile(jnp.arange(config.num_episodes) * (day_s / config.num_episodes), config.num_seeds)

    def run(key: Array, kind: Array, params: PyTree, today: Conditions, known: Conditions) -> Array:
        arrivals = truth_arrivals(world, today, names, begin_s=begin_s)
        response = drawn_response(cluster, config.depth, arrivals, truth_answers(world, today, names))

        def decide(key: Array, seen: tuple[PyTree, PlacementState], legal: Array, _: None) -> Array:
            observation, state = seen
            plain = [(lambda rule=rule: rule(key, observation, legal)) for rule in rules]
            knowing = [
                (lambda rule=rule: rule.decide(key, world, names, known, state)) for rule in TRUTH_BASELINES
            ]
            return jax.lax.switch(
                kind, [*plain, *knowing, lambda: sample(key, network.logits(params, observation, legal))]
            )

        trajectory = unroll(key, environment(shown, response), decide, None, length, streams)
        counted = trajectory.active[num_warm:, 0]
        worth = jnp.where(counted, trajectory.reward[num_warm:, 0], 0.0)
        share = worth.sum(axis=0) / jnp.maximum(counted.sum(axis=0), 1)
        return share.reshape(config.num_seeds, config.num_episodes)

    return jax.jit(run)


def bench_truth(
    world: World,
    days: Sequence[int],
    config: TruthBenchConfig,
    *,
    policies: Sequence[str] = SHOWN,
    oracles: Sequence[Oracle] = (),
    progress: Callable[[int, str], None] = lambda done, what: None,
) -> list[Score]:
    """Scores every policy on every day.

    Args:
        world: A validated world.
        days: Days since day 0, >= 0.
        config: How much to simulate.
        policies: Names among `POLICIES`.
        oracles: Of this world, scored on every day under `ORACLE` or the day they were trained for.
        progress: Told how many scores are known, and what comes next.

    Returns:
        One score a policy and day; on one day all are of the same episodes.

    Raises:
        ConfigError: an unknown policy, a negative day.
    """
    _validate(days, policies)
    program = bench_program(world, config)
    nobody = oracle_network(world, config.depth).init(jax.random.key(0))
    scores: list[Score] = []
    for case in _cases(days, policies, oracles, nobody):
        progress(len(scores), f"{case.name}, day {case.day}")
        key = jax.random.fold_in(jax.random.key(config.seed), case.day)
        today, known = conditions(world, case.day), conditions(world, case.known_day)
        shares = program(key, jnp.int32(case.kind), case.params, today, known)
        scores.append(_score(case.name, case.day, np.asarray(shares, np.float64)))
    progress(len(scores), "")
    return scores


def _cases(
    days: Sequence[int], policies: Sequence[str], oracles: Sequence[Oracle], nobody: PyTree
) -> Iterator[_Case]:
    knowing = "least_expected_delay"
    for day in days:
        for name in policies:
            yield _Case(name, POLICIES.index(name), nobody, day, day)
        if day > 0 and knowing in policies:
            yield _Case(STALE, POLICIES.index(knowing), nobody, day, 0)
        for oracle in oracles:
            name = ORACLE if oracle.day == day else f"{ORACLE}_of_day_{oracle.day}"
            yield _Case(name, len(POLICIES), oracle.params, day, day)


def _score(name: str, day: int, shares: np.ndarray) -> Score:
    units = shares.ravel()

    def mean(weights: np.ndarray) -> np.ndarray:
        return weights @ units / weights.sum(axis=1)

    return Score(name, day, estimate(mean, len(units), BootstrapConfig()), shares)


def _validate(days: Sequence[int], policies: Sequence[str]) -> None:
    if not days or min(days) < 0:
        raise ConfigError(f"days {list(days)}", where="bench truth", allowed="one or more days, 0 and later")
    for name in policies:
        if name not in POLICIES:
            raise ConfigError(
                f"there is no baseline {name!r}", where="bench truth", allowed=", ".join(POLICIES),
                advice="choose one of these",
            )  # fmt: skip
