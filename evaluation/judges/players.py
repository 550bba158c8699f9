"""Policies by name, and the one way in which they are played: every judge, bench and reproduction goes through here.

A *player* is a policy as a program plays it. It is given parameters, which may be mapped over (the seeds of a network),
and sees what its site observes, the logged decision and, for references that are judged in the truth alone, the whole
bookkeeping state. Which player acts is an argument of the compiled program and a conditional in it: one program serves
all policies, and only the branch of the one that acts is computed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.baselines import Baseline
from evaluation.baselines.truth_baseline import Knowing
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
    """What is before a player when it decides."""

    observation: PyTree  # leaves [..., seats, *streams]: all that a policy may use
    logged: Array | None  # [seats, *streams] int32: the logged decision; None where nothing is followed
    state: PyTree = None  # the whole bookkeeping state: for references that no scheduler could be


Player = Callable[[PyTree, Array, PlayerInput, PyTree], PyTree]
"""(parameters, key, seen, legal) -> action [seats, *streams]."""

Players = Mapping[str, Player]
"""Name of a kind -> what plays it. The order is that of the branches in a compiled program."""


def of_policy(policy: Policy) -> Player:
    """A policy that needs no parameters: it sees its site's observation and nothing else."""

    def play(_params: PyTree, key: Array, seen: PlayerInput, legal: PyTree) -> PyTree:
        return policy(key, seen.observation, legal)

    return play


def of_network(network: Actor, *, greedily: bool) -> Player:
    """A network, whose parameters are the player's: its likeliest choice, or a draw from its distribution."""

    def play(params: PyTree, key: Array, seen: PlayerInput, legal: PyTree) -> PyTree:
        logits = network.logits(params, seen.observation, legal)
        return greedy(logits) if greedily else sample(key, logits)

    return play


def as_logged(_params: PyTree, _key: Array, seen: PlayerInput, _legal: PyTree) -> PyTree:
    """The decision that the log took at this moment."""
    return seen.logged


def of_reference(decide: Knowing, world: World, names: Names, known: DayConditions) -> Player:
    """A reference that reads the simulated world's tables of the day `known`; it acts in the truth alone."""

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
        cluster: That the baselines are made for.
        network: Of the parameters that `SAMPLED` and `GREEDY` are given.
        baselines: Rules by their own names.
        policies: Anyone's, by name.
    """
    return {
        HISTORY: as_logged,
        SAMPLED: of_network(network, greedily=False),
        GREEDY: of_network(network, greedily=True),
        **{baseline.name: of_policy(baseline.policy(cluster)) for baseline in baselines},
        **{name: of_policy(policy) for name, policy in (policies or {}).items()},
    }


def choose(
    players: Players, kind: Array, params: PyTree, key: Array, seen: PlayerInput, legal: PyTree
) -> PyTree:
    """The decision of one player, `kind` its place among them."""
    branches = [lambda play=play: play(params, key, seen, legal) for play in players.values()]
    return jax.lax.switch(kind, branches)


def play(
    key: Array,
    problem: Problem,
    response: Response,
    players: Players,
    kind: Array,
    params: PyTree,
    *,
    num_steps: int,
    streams: Streams,
    logged: PyTree = None,
) -> Trajectory:
    """One episode in every stream, decided by one of several players.

    Args:
        key: PRNG key; the same key gives all players the same draws.
        problem, response: The system.
        players: Who can act.
        kind: [] int32 place of the player who acts.
        params: That player's parameters, or any.
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
