"""Static deployment: the first deployment, never changed. The reference of orchestration (KaiS, KMPS)."""

import jax.numpy as jnp

from evaluation.baselines.orchestration_baseline import OrchestrationBaseline
from twin.contracts import Array
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.orchestrator import Orchestrate


def _rule(_case: EdgeCloud, config: FrameConfig) -> Orchestrate:
    def orchestrate(_key: Array, state: FrameState) -> Scaling:
        nothing = jnp.zeros((config.num_changes, *state.clock_s.shape), jnp.int32)
        return Scaling(nothing, nothing)

    return orchestrate


STATIC_DEPLOYMENT = OrchestrationBaseline("static", "the first deployment, never changed", _rule)
