"""Lookahead: before every frame the changes that a few rules propose are tried out in a model, and the best is made.

Every proposal is played for some frames in `num_repetitions` copies of the model, from the deployment as it is and
empty queues; all proposals meet the same requests. After the first frame a base rule goes on. What counts is the share
answered in time, less a price for images pulled. With a model that is right it is at least as good as the base rule
(rollout, one step of policy improvement); the model is a twin's `Chance`, or the truth's for a reference.

Source: D. Bertsekas, Rollout, policy iteration, and distributed reinforcement learning, 2020; model-predictive control.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from twin.contracts import Array, EnvironmentState, PyTree, Streams
from twin.environment import beside, environment
from twin.orchestration.chance import Chance
from twin.orchestration.deployment import Deployment
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, frame_response
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.frames import frame_problem
from twin.orchestration.orchestrator import Orchestrate
from twin.orchestration.paired import paired

ModelOf = Callable[[FrameState], Chance]
"""State as a frame begins -> all chance from then on, with a clock that begins at zero; streams [*streams, 1, 1]."""


@dataclass(frozen=True)
class DeploymentLookahead:
    """How far and how often is tried.

    Attributes:
        num_frames: Frames that every proposal is played for.
        num_repetitions: Copies of the model for each.
        price: Share of a frame's requests that an image of a GiB costs.
    """

    num_frames: int = 3
    num_repetitions: int = 4
    price: float = 0.0


def lookahead(
    case: EdgeCloud,
    model_of: ModelOf,
    dispatch: Dispatch,
    frames: FrameConfig,
    proposals: Sequence[Orchestrate],
    config: DeploymentLookahead | None = None,
) -> Orchestrate:
    """The orchestrator.

    Args:
        case: The cluster.
        model_of: The model.
        dispatch: Plays the slots in the model.
        frames: As in the system itself.
        proposals: Who proposes changes; the first is the base rule.
        config: See `DeploymentLookahead`.
    """
    config = config or DeploymentLookahead()
    num_proposals = len(proposals)

    def orchestrate(key: Array, state: FrameState) -> Scaling:
        key_rules, key_play = jax.random.split(key)
        keys = jax.random.split(key_rules, num_proposals)
        proposed = [rule(one, state) for rule, one in zip(proposals, keys, strict=True)]
        stacked: Scaling = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=-1), *proposed)
        values = _tried(case, model_of, dispatch, frames, proposals[0], config, key_play, state, stacked)
        best = jnp.argmax(values, axis=-1)
        return jax.tree.map(
            lambda leaf: jnp.take_along_axis(leaf, best[None, ..., None], axis=-1)[..., 0], stacked
        )

    return orchestrate


def _tried(
    case: EdgeCloud,
    model_of: ModelOf,
    dispatch: Dispatch,
    frames: FrameConfig,
    base: Orchestrate,
    config: DeploymentLookahead,
    key: Array,
    state: FrameState,
    stacked: Scaling,
) -> Array:
    """[*streams, proposals] what the proposals [H, *streams, proposals] are worth in the model."""
    num_proposals, repetitions = stacked.node.shape[-1], config.num_repetitions
    streams = (*state.clock_s.shape, repetitions, num_proposals)
    chance = paired(model_of(state), num_proposals)

    def deployed(streams: Streams) -> Deployment:
        due_s = state.deployment.due_s - beside(state.clock_s, state.deployment.due_s)
        deployment = state.deployment._replace(due_s=due_s)
        copies: Deployment = _copies(deployment, streams[-2:])
        return copies

    system = environment(
        frame_problem(case, frames), frame_response(case, chance, dispatch, frames, deployed)
    )
    key_reset, key_first, key_rest = jax.random.split(key, 3)
    begun = system.reset(key_reset, streams)
    begun = begun._replace(problem=begun.problem._replace(measured=_copies(state.measured, streams[-2:])))
    model, _ = system.step(key_first, begun, _wide(stacked, repetitions))

    def frame(model: EnvironmentState, key: Array) -> tuple[EnvironmentState, None]:
        key_rule, key_frame = jax.random.split(key)
        now = model.problem._replace(clock_s=model.problem.clock_s + state.clock_s[..., None, None])
        return system.step(key_frame, model, base(key_rule, now))[0], None

    model, _ = jax.lax.scan(frame, model, jax.random.split(key_rest, config.num_frames - 1))
    counts = model.problem.counts
    paid = config.price * counts.pulled_mib / 1024.0 / config.num_frames
    return jnp.mean(counts.on_time / jnp.maximum(counts.arrived, 1) - paid, axis=-2)


def _copies(leaves: PyTree, streams: Streams) -> PyTree:
    """Every leaf once for each of some trailing streams."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[..., None, None], (*leaf.shape, *streams)), leaves)


def _wide(stacked: Scaling, repetitions: int) -> Scaling:
    """Proposals [H, *streams, proposals] for every repetition [H, *streams, repetitions, proposals]."""

    def wide(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf[..., None, :], (*leaf.shape[:-1], repetitions, leaf.shape[-1]))

    return Scaling(wide(stacked.node), wide(stacked.change))
