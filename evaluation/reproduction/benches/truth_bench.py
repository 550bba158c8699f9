"""Values of policies in a simulated world, to show that a preset separates policies.

Every policy plays the same whole days, from an empty midnight to the day's last request, as do the days of a log and
those of the truth that judges (`evaluation.judges.truth`): the same keys give the same requests. One program is
compiled for a world, for all policies and days: the deciding policy is an argument that selects a conditional branch,
so only that one is computed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines import BASELINES, TRUTH_BASELINES
from evaluation.comparison.bootstrap import Estimate, IntervalConfig, estimate, mean_over_units
from evaluation.judges.players import Player, PlayerInput, of_policy, of_reference, play
from evaluation.reproduction.benches.reference import (
    TruthReference,
    problem_config,
    reference_choice,
    reference_network,
)
from evaluation.simulator.conditions import DayConditions, conditions, longest_day
from evaluation.simulator.names import names_in
from evaluation.simulator.revealing import reveal_in, revealing
from evaluation.simulator.truth import truth_response
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from logs_schema.progress import Stage, unseen
from twin.contracts import Array, PyTree
from twin.placement.bookkeeping import placement

POLICIES = (*(one.name for one in BASELINES), *(one.name for one in TRUTH_BASELINES))
REFERENCE = "reference"
"""A reference on the day it was trained for."""
STALE_REFERENCE = "reference_of_day_0"
"""The reference of day 0 on a later day, still believing the tables of day 0."""
SHOWN = ("random", "home", "cloud_only", "least_loaded", "least_expected_delay")
"""The policies of the table, in its order."""
STALE = "least_expected_delay_of_day_0"
"""Least expected delay with the tables of day 0 on every day: the cost of a month's drift."""


@dataclass(frozen=True)
class TruthBenchConfig:
    """How much is simulated.

    Attributes:
        num_seeds: Independent repetitions, each with its own streams of chance.
        days_per_seed: Times that each plays the day.
        num_steps: Requests of a day after which it is cut short; None: the whole day.
        depth: Requests that a node's books hold; one that finds no room is late.
        seed: Of everything drawn.
    """

    num_seeds: int = 5
    days_per_seed: int = 2
    num_steps: int | None = None
    depth: int = 24
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = (
            self.num_seeds,
            self.days_per_seed,
            self.depth,
            1 if self.num_steps is None else self.num_steps,
        )
        if min(sizes) < 1:
            raise ConfigError(
                "seeds, days, steps and slots must be at least one",
                where=f"bench truth: seeds={self.num_seeds}, days_per_seed={self.days_per_seed}, "
                f"num_steps={self.num_steps}, depth={self.depth}",
                allowed="whole numbers of at least 1",
            )


class PolicyScore(NamedTuple):
    """What came of one policy on one day."""

    policy: str
    day: int
    on_time: Estimate
    per_day: np.ndarray  # [seeds, days_per_seed] share of requests accepted and on time


Program = Callable[[Array, Array, PyTree, DayConditions, DayConditions], Array]
"""(key, index of the policy or after the last one for a reference, its parameters, the day's numbers, those it uses)
-> on-time share [seeds, days_per_seed]."""


class _Case(NamedTuple):
    name: str
    kind: int
    params: PyTree
    day: int
    known_day: int


def bench_program(world: World, config: TruthBenchConfig, policies: Sequence[str]) -> Program:
    """The compiled truth of a world, in which some policies of `POLICIES` can act, in their order, and references."""
    cluster = cluster_of(world)
    names = names_in(world, cluster)
    books = placement(cluster, problem_config(world, config.depth))
    network = reference_network(world)
    observing = {rule.name: of_policy(rule.policy(cluster)) for rule in BASELINES}
    knowing = {rule.name: rule.decide for rule in TRUTH_BASELINES}
    length = config.num_steps or longest_day(world)
    streams = (config.num_seeds * config.days_per_seed,)

    def run(key: Array, kind: Array, params: PyTree, today: DayConditions, known: DayConditions) -> Array:
        response = truth_response(world, cluster, config.depth, today, names)
        problem, response = revealing(books, response, reveal_in(world, today, names))

        def reference(params: PyTree, _key: Array, seen: PlayerInput, legal: Array) -> Array:
            return reference_choice(network, params, world, names, known, seen.state, legal)

        of_truth = {name: of_books(of_reference(one, world, names, known)) for name, one in knowing.items()}
        players = {name: (observing | of_truth)[name] for name in policies} | {REFERENCE: reference}
        episodes = play(key, problem, response, players, kind, params, num_steps=length, streams=streams)
        worth = jnp.where(episodes.active, episodes.reward, 0.0)
        share = worth.sum(axis=(0, 1)) / jnp.maximum(episodes.active.sum(axis=(0, 1)), 1)
        return share.reshape(config.num_seeds, config.days_per_seed)

    return jax.jit(run)


def of_books(player: Player) -> Player:
    """A player that reads the bookkeeping of a state with further entries."""

    def play(params: PyTree, key: Array, seen: PlayerInput, legal: PyTree) -> PyTree:
        return player(params, key, seen._replace(state=seen.state.books), legal)

    return play


def bench_truth(
    world: World,
    days: Sequence[int],
    config: TruthBenchConfig,
    *,
    policies: Sequence[str] = SHOWN,
    references: Sequence[TruthReference] = (),
    progress: Stage = unseen,
) -> list[PolicyScore]:
    """Scores every policy on every day.

    Args:
        world: A validated world.
        days: Days since day 0, >= 0.
        config: How much to simulate.
        policies: Names among `POLICIES`.
        references: Of this world; each is scored on its own day, the one of day 0 also on later days.
        progress: Called with the number of scores known, and what comes next.

    Returns:
        One score a policy and day; on one day all have simulated the same requests.

    Raises:
        ConfigError: an unknown policy, a negative day.
    """
    validate_bench(days, policies)
    program = bench_program(world, config, policies)
    no_params = jax.jit(reference_network(world).init)(jax.random.key(0))
    scores: list[PolicyScore] = []
    for case in _cases(days, policies, references, no_params):
        progress(len(scores), text=f"{case.name}, day {case.day}")
        key = jax.random.fold_in(jax.random.key(config.seed), case.day)
        today, known = conditions(world, case.day), conditions(world, case.known_day)
        shares = program(key, jnp.int32(case.kind), case.params, today, known)
        scores.append(_score(case.name, case.day, np.asarray(shares, np.float64)))
    progress(len(scores))
    return scores


def _cases(
    days: Sequence[int], policies: Sequence[str], references: Sequence[TruthReference], no_params: PyTree
) -> Iterator[_Case]:
    knowing = "least_expected_delay"
    for day in days:
        for name in policies:
            yield _Case(name, policies.index(name), no_params, day, day)
        if day > 0 and knowing in policies:
            yield _Case(STALE, policies.index(knowing), no_params, day, 0)
        named = [(REFERENCE, one) for one in references if one.day == day]
        named += [(STALE_REFERENCE, one) for one in references if one.day == 0 < day]
        for name, reference in named:
            yield _Case(name, len(policies), reference.params, day, reference.day)


def _score(name: str, day: int, shares: np.ndarray) -> PolicyScore:
    return PolicyScore(
        name, day, estimate(mean_over_units(shares.ravel()), shares.size, IntervalConfig()), shares
    )


def validate_bench(days: Sequence[int], policies: Sequence[str]) -> None:
    """Refuses days and policies that there are not.

    Raises:
        ConfigError: no days, a negative one, an unknown policy.
    """
    if not days or min(days) < 0:
        raise ConfigError(f"days {list(days)}", where="bench truth", allowed="one or more days, 0 and later")
    for name in policies:
        if name not in POLICIES:
            raise ConfigError(
                f"there is no baseline {name!r}",
                where="bench truth",
                allowed=", ".join(POLICIES),
                advice="choose one of these",
            )
