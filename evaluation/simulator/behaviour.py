"""Policies that write logs: each returns its probabilities of choosing a node, so propensities are exact.

The propensities are not given to learners. The inputs of a behaviour are those of a real scheduler: the request, and
the number of requests on each node. `least_expected_delay` also uses the mechanics (links, speeds, affinities), but
neither the agents' preferences nor the variation of run times.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from evaluation.simulator.conditions import WAN, DayConditions
from logs_schema.errors import ConfigError
from twin.contracts import Array
from twin.placement.types import Requests


class BehaviourView(NamedTuple):
    """The inputs of a behaviour, for one stream."""

    request: Requests  # leaves [], demand [resources]; in the world's own indices
    num_in_system: Array  # [nodes] requests accepted there and not finished, on their way included
    expected_work_s: Array  # [nodes] declared work of those requests
    # [nodes] bool, some True: nodes that are up and may host it; None: all of them
    allowed: Array | None = None


class Behaviour(NamedTuple):
    """A policy that writes logs."""

    name: str
    description: str
    probabilities: Callable[[DayConditions, BehaviourView], Array]  # -> [nodes], >= 0, summing to one


def _uniform(today: DayConditions, view: BehaviourView) -> Array:
    num_nodes = today.speed.shape[0]
    if view.allowed is None:
        return jnp.full(num_nodes, 1.0 / num_nodes)
    return view.allowed / jnp.sum(view.allowed)


def _among_allowed(view: BehaviourView, score: Array) -> Array:
    return score if view.allowed is None else jnp.where(view.allowed, score, -jnp.inf)


def _greedy(view: BehaviourView, score: Array) -> Array:
    """Probability one for the largest score of an allowed node, shared equally among ties."""
    score = _among_allowed(view, score)
    best = score >= jnp.max(score)
    best = best if view.allowed is None else best & view.allowed
    return best / jnp.sum(best)


def _relative_load(today: DayConditions, view: BehaviourView) -> Array:
    return view.num_in_system / jnp.sum(jnp.asarray(today.core_exists), axis=0)


FEWEST = "fewest_per_core"
FORMERLY = {"least_loaded": FEWEST}
"""Names that logs of older versions carry; `least_loaded` is the baseline that counts cores, not requests."""
ERROR = 0.4
"""Scale of the errors (Gumbel law) with which `mix` reads a node's load, in requests per core."""
RANDOM_SHARE = 0.3
"""Share of decisions that the behaviour `mix` takes at random."""


def _mix(today: DayConditions, view: BehaviourView) -> Array:
    score = _among_allowed(view, -_relative_load(today, view) / ERROR)
    weight = jnp.exp(score - jnp.max(score))
    return RANDOM_SHARE * _uniform(today, view) + (1.0 - RANDOM_SHARE) * weight / jnp.sum(weight)


def _least_expected_delay(today: DayConditions, view: BehaviourView) -> Array:
    request = view.request
    link = jnp.asarray(today.link)[request.site]
    transfer_s = jnp.asarray(today.latency_s)[link] + request.input_mib * jnp.asarray(today.s_per_mib)[link]
    speed = jnp.asarray(today.speed)
    cores = jnp.sum(jnp.asarray(today.core_exists), axis=0)
    mean_run_s = view.expected_work_s / jnp.maximum(view.num_in_system, 1.0) / speed
    wait_s = jnp.maximum(view.num_in_system - cores + 1.0, 0.0) * mean_run_s / cores
    run_s = request.expected_run_s / (speed * jnp.asarray(today.affinity)[request.service])
    return _greedy(view, -(jnp.maximum(transfer_s, wait_s) + run_s))


def _home(today: DayConditions, view: BehaviourView) -> Array:
    link = jnp.asarray(today.link)[view.request.site]
    return _greedy(view, jnp.where(link == 0, -_relative_load(today, view), -jnp.inf))


def _cloud_only(today: DayConditions, view: BehaviourView) -> Array:
    link = jnp.asarray(today.link)[view.request.site]
    return _greedy(view, jnp.where(link == WAN, -_relative_load(today, view), -jnp.inf))


BEHAVIOURS = (
    Behaviour("mix", "30 % at random, else the least loaded node as read with errors", _mix),
    Behaviour("random", "every node with equal probability", _uniform),
    Behaviour(
        FEWEST, "fewest requests per core", lambda today, view: _greedy(view, -_relative_load(today, view))
    ),
    Behaviour(
        "least_expected_delay",
        "shortest expected time to finish, by the true mechanics",
        _least_expected_delay,
    ),
    Behaviour("home", "least loaded node of the site where the request arrived", _home),
    Behaviour("cloud_only", "least loaded cloud node", _cloud_only),
)


def behaviour(name: str) -> Behaviour:
    """The behaviour called `name`, `-`, capitals and former names allowed.

    Raises:
        ConfigError: there is none; names those there are.
    """
    wanted = name.lower().replace("-", "_")
    for one in BEHAVIOURS:
        if one.name == FORMERLY.get(wanted, wanted):
            return one
    raise ConfigError(
        f"there is no behaviour {name!r}",
        where="policies that write logs",
        allowed=", ".join(one.name for one in BEHAVIOURS),
        advice="choose one of these",
    )
