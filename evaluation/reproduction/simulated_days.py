"""Whole days of the truth, simulated by policies: a program for greedy networks, one for all others, one for
references.

A day is thousands of steps after one another, each dear in overhead where few streams live it. So policies live it
together: the networks of all seeds and learners, mapped over parameters; and the rules, mapped over what decides, which
computes every rule for each of them and is cheaper than a day for each. All policies meet the same requests: the same
keys.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.baselines import LEAST_EXPECTED_DELAY, LEAST_LOADED, RANDOM
from evaluation.baselines.truth_baseline import as_behaviour
from evaluation.judges.players import GREEDY, SAMPLED, PlayerInput, of_network, of_policy, of_reference, play
from evaluation.judges.room import lost_in
from evaluation.judges.truth import age_of
from evaluation.reproduction.benches.reference import problem_config, reference_choice, reference_network
from evaluation.simulator.behaviour import Behaviour
from evaluation.simulator.conditions import DayConditions, longest_day
from evaluation.simulator.logs import FIRST_DAY
from evaluation.simulator.names import names_in
from evaluation.simulator.revealing import reveal_in, revealing
from evaluation.simulator.truth import truth_response
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import World
from offline_rl.networks import Actor
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.types import Leaf

RULES = (RANDOM, LEAST_LOADED)
BEHAVIOUR = "behaviour"
KINDS = (SAMPLED, GREEDY, *(rule.name for rule in RULES), BEHAVIOUR, LEAST_EXPECTED_DELAY.name)
"""Who can act in `policy_program`, in its order; rules from the log follow."""


class DayShares(NamedTuple):
    """Shares of a day's requests, [..., replications]; JAX in programs, NumPy outside."""

    on_time: Leaf  # accepted and finished within the deadline
    offload: Leaf  # of those that ran: away from the site where they arrived
    overflow: Leaf  # found no slot in the tables of what is in flight, and count as late


SimulatesDays = Callable[[Array, Array, PyTree, DayConditions, Array], DayShares]
"""(key, index into KINDS and the rules, or several [P], parameters [P, ...], the day's numbers, weekday) -> leaves
[P, replications]."""


def policy_program(
    world: World,
    encoding: Encoding,
    network: Actor,
    writer: Behaviour,
    num_replications: int,
    rules: Mapping[str, Policy],
    depth: int,
    *,
    mixed: bool,
    most_requests: int | None = None,
) -> SimulatesDays:
    """The compiled truth of a world for policies that speak an encoding's vocabulary.

    Args:
        world: The simulated world.
        encoding: The encoding of the policies.
        network: What the parameters are of.
        writer: The behaviour that wrote the log.
        num_replications: Times that the day is simulated.
        rules: Rules from the log by name.
        depth: Slots per node for requests in flight.
        mixed: Whether every policy has its own kind; otherwise all are of one, and only its branch is computed.
        most_requests: Of a day: its first ones alone; None: all.
    """
    names = names_in(world, encoding.cluster, encoding.run_habits)
    config = replace(encoding.problem, depth=depth)
    observing = {
        SAMPLED: of_network(network, greedily=False),
        GREEDY: of_network(network, greedily=True),
        **{rule.name: of_policy(rule.policy(encoding.cluster)) for rule in RULES},
    }
    knowing = {BEHAVIOUR: as_behaviour(writer), LEAST_EXPECTED_DELAY.name: LEAST_EXPECTED_DELAY.decide}
    length = _num_steps(world, most_requests)

    def run(key: Array, kind: Array, params: PyTree, today: DayConditions, weekday: Array) -> DayShares:
        response = truth_response(world, encoding.cluster, depth, today, names, weekday=weekday)
        problem = placement(encoding.cluster, config, age_s=age_of(today, encoding, FIRST_DAY))
        references = {name: of_reference(one, world, names, today) for name, one in knowing.items()}
        players = observing | references | {name: of_policy(rule) for name, rule in rules.items()}
        return _shares(
            play(key, problem, response, players, kind, params, num_steps=length, streams=(num_replications,))
        )

    return jax.jit(jax.vmap(run, in_axes=(None, 0 if mixed else None, 0, None, None)))


def reference_program(
    world: World, num_replications: int, depth: int, most_requests: int | None = None
) -> Callable[..., DayShares]:
    """The compiled truth of a world for references: (key, parameters, the day's numbers, weekday) -> leaves
    [replications]."""
    cluster = cluster_of(world)
    names, network = names_in(world, cluster), reference_network(world)
    books = placement(cluster, problem_config(world, depth))
    length = _num_steps(world, most_requests)

    def run(key: Array, params: PyTree, today: DayConditions, weekday: Array) -> DayShares:
        response = truth_response(world, cluster, depth, today, names, weekday=weekday)
        problem, response = revealing(books, response, reveal_in(world, today, names))

        def reference(params: PyTree, _key: Array, seen: PlayerInput, legal: Array) -> Array:
            return reference_choice(network, params, world, names, today, seen.state, legal)

        players, first = {"reference": reference}, jnp.int32(0)
        return _shares(
            play(
                key, problem, response, players, first, params, num_steps=length, streams=(num_replications,)
            )
        )

    return jax.jit(run)


def _num_steps(world: World, most_requests: int | None) -> int:
    longest = longest_day(world)
    return longest if most_requests is None else min(longest, most_requests)


def _shares(simulated: Trajectory) -> DayShares:
    active = simulated.active[:, 0]
    ran = active & jnp.isfinite(simulated.outcome.start_s[:, 0])
    away = ran & simulated.decision_info.off_site[:, 0]
    on_time = jnp.sum(jnp.where(active, simulated.reward[:, 0], 0.0), axis=0) / jnp.maximum(
        active.sum(axis=0), 1
    )
    lost = lost_in(simulated)[:, 0].sum(axis=0) / jnp.maximum(active.sum(axis=0), 1)
    return DayShares(on_time, away.sum(axis=0) / jnp.maximum(ran.sum(axis=0), 1), lost)
