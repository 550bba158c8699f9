"""An orchestrator that corrects a rule which plans: the rule's changes are shown to it as advice, and are its start.

A rule such as the planned deployment reads the state, the clock and a forecast, which no observation holds. So its
changes join the observation. Logits are `sharpness` for what is advised and not chosen yet, for no change where nothing
is left of the advice, and what the network adds to them, beginning at zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from offline_rl.networks import Example
from offline_rl.orchestration.stepwise_actor import (
    ChangeView,
    StepwiseActor,
    StepwiseConfig,
    stepwise_actor,
)
from offline_rl.orchestration.view import change_reader
from twin.contracts import Array, Problem
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.frames import FrameObservation
from twin.orchestration.orchestrator import Orchestrate
from twin.placement.features import one_hot

SHARPNESS = 5.0
"""Of the advice; the lower, the more is tried beside it."""


class AdvisedObservation(NamedTuple):
    """The observation of a seat; advice leaves [H, seats, *streams]."""

    frame: FrameObservation
    advice: Scaling


def advised(problem: Problem, rule: Orchestrate) -> Problem:
    """The orchestration problem in which every seat observes what `rule` would change; its key is always the same."""

    def observe(state: FrameState) -> AdvisedObservation:
        advice = rule(jax.random.key(0), state)
        wide = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], problem.num_seats, axis=1), advice)
        return AdvisedObservation(problem.observe(state), wide)

    return problem._replace(observe=observe)


def advised_actor(example: Example, case: EdgeCloud, config: StepwiseConfig | None = None) -> StepwiseActor:
    """The stepwise actor that corrects the advice.

    Args:
        example: Shapes of an orchestrator's observation in an `advised` problem.
        case: The cluster.
        config: How changes are chosen.
    """
    read = advised_reader(case)
    zeros = jax.tree.map(jnp.zeros_like, (example.observation, example.legal))
    point_of_node = tuple(int(site) for site in case.cluster.site_of_node)
    num_changes = example.legal.node.shape[-1]
    return stepwise_actor(read(*zeros), read, point_of_node, num_changes, config, advice_left)


def advised_reader(case: EdgeCloud) -> Callable[[AdvisedObservation, Scaling], ChangeView]:
    """As `view.change_reader`; the last feature of a pair is 1 where a replica more of the service is
    advised at the node, -1 where one less."""
    plain, num_services = change_reader(case), case.num_services

    def read(observation: AdvisedObservation, legal: Scaling) -> ChangeView:
        view = plain(observation.frame, legal)
        node, change = (leaf[:, 0] for leaf in observation.advice)  # [H, *batch]
        adds = (change > 0) & (change < num_services)
        service = jnp.where(adds, change, change - (num_services - 1))
        sign = jnp.where(adds, 1.0, -1.0) * (change > 0)
        here = one_hot(node, case.num_nodes)[None] & one_hot(service, num_services)[1:, None]
        advice = jnp.sum(jnp.where(here, sign[None, None], 0.0), axis=2)
        return view._replace(pair=jnp.concatenate([view.pair, advice[None]]))

    return read


def advice_left(view: ChangeView, made: Array) -> Array:
    """Logits of what is advised and left: changes of a service are done when as many were chosen as advised, wherever,
    those of a node when they were chosen there."""
    advice, done = view.pair[-1], jnp.abs(made)
    wanted = jnp.abs(advice)
    is_left = (done < wanted) & (jnp.sum(done, axis=1) < jnp.sum(wanted, axis=1))[:, None]
    left = jnp.where(is_left, advice, 0.0)
    none = jnp.broadcast_to(~jnp.any(is_left, axis=(0, 1)), left.shape[1:])[None]
    return SHARPNESS * jnp.concatenate([none, left > 0.0, left < 0.0]).astype(jnp.float32)
