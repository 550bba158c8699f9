"""Policies by name, and the function `play` that simulates them; every judge, bench and reproduction uses it.

A *player* is a policy as a compiled program calls it. Its inputs are parameters, which may be mapped over (the seeds of
a network), the observation of its site, the logged decision and, for references that are evaluated in the truth only,
the whole bookkeeping state. The acting player is an argument of the compiled program and selects a conditional branch:
one program serves all policies, and only the branch of the acting player is computed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.baselines import Baseline
from evaluation.baselines.truth_baseline import TruthRule
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.names import Names
from evaluation.simulator.world import World
from offline_rl.distributions import greedy, sample
from offline_rl.networks import Actor
from twin.contracts import Array, Policy, Problem, PyTree, Response, Streams, Trajectory
from twin.environment import environment
from twin.placement.types import Cluster
from twin.rollout import unroll

HISTORY, SAMPLED, GREEDY = "history", "sampled", "greedy"


class PlayerInput(NamedTuple):
    """The inputs of a player's decision."""

    observation: PyTree  # leaves [..., seats, *streams]: all that a policy may use
    logged: Array | None  # [seats, *streams] int32: the logged decision; None without a log
    state: PyTree = None  # the whole bookkeeping state: for references that real schedulers cannot implement


Player = Callable[[PyTree, Array, PlayerInput, PyTree], PyTree]
"""(parameters, key, inputs, legal) -> action [seats, *streams]."""

Players = Mapping[str, Player]
"""Name of a kind -> its player, in the order of the branches of a compiled program."""


def of_policy(policy: Policy) -> Player:
    """A policy without parameters: a function of its site's observation."""

    def play(_params: PyTree, key: Array, seen: PlayerInput, legal: PyTree) -> PyTree:
        return policy(key, seen.observation, legal)

    return play


def of_network(network: Actor, *, greedily: bool) -> Player:
    """A network with the player's parameters: its most probable choice, or a draw from its distribution."""

    def play(params: PyTree, key: Array, seen: PlayerInput, legal: PyTree) -> PyTree:
        logits = network.logits(params, seen.observation, legal)
        return greedy(logits) if greedily else sample(key, logits)

    return play


def as_logged(_params: PyTree, _key: Array, seen: PlayerInput, _legal: PyTree) -> PyTree:
    """The logged decision."""
    return seen.logged


def of_reference(decide: TruthRule, world: World, names: Names, known: DayConditions) -> Player:
    """A reference that reads the simulated world's tables of the day `known`; for the truth only."""

    def play(_params: PyTree, key: Array, seen: PlayerInput, _legal: PyTree) -> PyTree:
        return decide(key, world, names, known, seen.state)

    return play


def players_of(
    cluster: Cluster,
    network: Actor,
    baselines: Sequence[Baseline] = (),
    policies: Mapping[str, Policy] | None = None,
) -> dict[str, Player]:
    """The logged decisions, a network sampled and greedy, baselines, and any further policies.

    Args:
        cluster: The cluster of the baselines.
        network: The network of `SAMPLED` and `GREEDY`.
        baselines: Rules; their names are those of the players.
        policies: Further policies by name.
    """
    return {
        HISTORY: as_logged,
        SAMPLED: of_network(network, greedily=False),
        GREEDY: of_network(network, greedily=True),
        **{baseline.name: of_policy(baseline.policy(cluster)) for baseline in baselines},
        **{name: of_policy(policy) for name, policy in (policies or {}).items()},
    }


def choose(
    players: Players, kind: Array | None, params: PyTree, key: Array, seen: PlayerInput, legal: PyTree
) -> PyTree:
    """The decision of the player with index `kind`; None: mapped over all players, the decision of each."""
    if kind is None:
        return _each(tuple(players.values()))(params, key, seen, legal)
    branches = [lambda play=play: play(params, key, seen, legal) for play in players.values()]
    return jax.lax.switch(kind, branches)


def _each(players: Sequence[Player]) -> Player:
    """A player to be mapped over, whose row `p` decides as player `p`, where a switch would compute every player."""
    decide = jax.custom_batching.custom_vmap(players[0])

    @decide.def_vmap
    def by_row(_num_rows: int, is_mapped: Sequence[PyTree], *inputs: PyTree) -> tuple[PyTree, PyTree]:
        def of_row(row: int) -> Sequence[PyTree]:
            return jax.tree.map(lambda leaf, mapped: leaf[row] if mapped else leaf, inputs, tuple(is_mapped))

        actions = [play(*of_row(row)) for row, play in enumerate(players)]
        together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *actions)
        return together, jax.tree.map(lambda _: True, together)

    return decide


def play(
    key: Array,
    problem: Problem,
    response: Response,
    players: Players,
    kind: Array | None,
    params: PyTree,
    *,
    num_steps: int,
    streams: Streams,
    logged: PyTree = None,
) -> Trajectory:
    """One episode in every stream, decided by one of several players.

    Args:
        key: PRNG key; with the same key all players get the same draws.
        problem, response: The system.
        players: The players.
        kind: [] int32 index of the acting player; None: see `choose`.
        params: Parameters of that player; any value where it has none.
        num_steps: Length `T`.
        streams: Shape of the independent copies.
        logged: Leaves [T, seats, *streams] of logged decisions, for `as_logged`; None where there are none.

    Returns:
        The trajectory; its observations are pairs of what was observed and the bookkeeping state.
    """
    shown = problem._replace(observe=lambda state: (problem.observe(state), state))

    def decide(key: Array, both: tuple[PyTree, PyTree], legal: PyTree, followed: PyTree) -> PyTree:
        observation, state = both
        if followed is None:
            followed = jax.tree.map(lambda mask: jnp.zeros(mask.shape[1:], jnp.int32), legal)
        return choose(players, kind, params, key, PlayerInput(observation, followed, state), legal)

    return unroll(key, environment(shown, response), decide, logged, num_steps, streams)
