"""The days of table 2: every policy and reference in the simulated system, on the same requests."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.judges.room import with_room
from evaluation.reproduction.benches.reference_cache import Kept
from evaluation.reproduction.benches.truth_bench import REFERENCE
from evaluation.reproduction.simulated_days import (
    KINDS,
    DayShares,
    SimulatesDays,
    policy_program,
    reference_program,
)
from evaluation.reproduction.table2 import Table2Config
from evaluation.reproduction.table2_policies import Table2Policy, by_need, dealt, policies_of, together
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.truth import depths_of
from logs_schema.progress import Progress
from offline_rl.recipes.schedulers import example_for, load_schedulers, network_for, policy_of
from twin.contracts import Array
from twin.placement.model import PlacementTwin


def simulate_days(
    config: Table2Config, products: Mapping[str, Path], references: Sequence[Kept], progress: Progress
) -> dict[tuple[str, int], DayShares]:
    """(policy, days after the training day) -> shares [seeds, replications], every policy on the same requests.

    Policies whose requests find no slot are simulated again with more (`judges.room`).
    """
    world, twin = config.simulated, PlacementTwin.load(products["twin"])
    schedulers, _ = load_schedulers(products["policy"])
    example = example_for(twin.encoding, twin.windows)
    network = network_for(schedulers, example)
    rules = {name: policy_of(params, example) for name, params in schedulers.rules.items()}
    depths, known = depths_of(world, twin.encoding.problem.depth), (*KINDS, *rules)

    @cache
    def program(mixed: bool, depth: int) -> SimulatesDays:
        return policy_program(
            world,
            twin.encoding,
            network,
            behaviour(config.behaviour),
            config.num_replications,
            rules,
            depth,
            mixed=mixed,
            most_requests=config.max_requests,
        )

    def simulate(
        members: Sequence[Table2Policy], mixed: bool, day: int, depth: int, chosen: Sequence[int]
    ) -> list[DayShares]:
        acting = [members[place] for place in chosen]
        kinds = jnp.array([known.index(one.kind) for one in acting])
        shares = program(mixed, depth)(
            _key_of(config, day), kinds if mixed else kinds[0], together(acting), *_on(config, day)
        )
        return dealt(shares, acting)

    networks, others = by_need(policies_of(schedulers))
    found: dict[tuple[str, int], DayShares] = {}
    with progress.stage("simulate the days", total=len(config.days), unit="days") as stage:
        for done, (shift, day) in enumerate(zip(config.days, config.simulated_days, strict=True)):
            for text, members, mixed in (("rules", others, True), ("networks", networks, False)):
                stage(done, text=f"day {day}, {text}")
                shares = with_room(partial(simulate, members, mixed, day), len(members), depths, _overflows)
                found |= {(one.name, shift): each for one, each in zip(members, shares, strict=True)}
        stage(len(config.days))
    return found | simulate_references(config, products, references, progress)


def simulate_references(
    config: Table2Config, products: Mapping[str, Path], references: Sequence[Kept], progress: Progress
) -> dict[tuple[str, int], DayShares]:
    """The references' days, on the very requests that the policies meet: (name, shift) -> shares [1, replications]."""
    world, twin = config.simulated, PlacementTwin.load(products["twin"])
    depths = depths_of(world, twin.encoding.problem.depth)

    @cache
    def program(depth: int) -> Callable[..., DayShares]:
        return reference_program(world, config.num_replications, depth, most_requests=config.max_requests)

    def simulate(kept: Kept, depth: int, _chosen: Sequence[int]) -> list[DayShares]:
        day = kept.reference.day
        shares = program(depth)(_key_of(config, day), kept.reference.params, *_on(config, day))
        return [DayShares(*(np.asarray(leaf, float)[None] for leaf in shares))]

    found = {}
    with progress.stage("simulate the references' days", total=len(references), unit="days") as stage:
        for done, kept in enumerate(references):
            day = kept.reference.day
            if day not in config.simulated_days:
                continue
            stage(done, text=f"day {day}")
            [shares] = with_room(partial(simulate, kept), 1, depths, _overflows)
            found[REFERENCE, day - config.train_day] = shares
    return found


def _key_of(config: Table2Config, day: int) -> Array:
    """The key of a day's chance, the same for all policies."""
    return jax.random.fold_in(jax.random.key(config.seed + 1), day)


def _on(config: Table2Config, day: int) -> tuple[DayConditions, Array]:
    """The day's numbers and its weekday."""
    return conditions(config.simulated, day), jnp.int32(day % 7)


def _overflows(shares: DayShares) -> bool:
    return bool(np.any(shares.overflow > 0.0))
