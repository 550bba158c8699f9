"""Static deployment: what was deployed first stays, whatever comes. The reference of orchestration (001, 003)."""

import jax.numpy as jnp

from evaluation.baselines.orchestration_baseline import Orchestrate, OrchestrationBaseline
from evaluation.simulator.frames.config import FrameConfig
from evaluation.simulator.frames.state import FrameState, Scaling
from evaluation.simulator.slots.instance import Instance
from twin.contracts import Array


def _rule(_case: Instance, config: FrameConfig) -> Orchestrate:
    def orchestrate(_key: Array, state: FrameState) -> Scaling:
        nothing = jnp.zeros((config.num_changes, *state.clock_s.shape), jnp.int32)
        return Scaling(nothing, nothing)

    return orchestrate


STATIC_DEPLOYMENT = OrchestrationBaseline("static", "the first deployment, never changed", _rule)
