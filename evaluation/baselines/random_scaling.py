"""Random scaling: a node by chance, and on it nothing, one replica more or one less of a service by chance."""

import jax

from evaluation.baselines.orchestration_baseline import OrchestrationBaseline
from twin.contracts import Array
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.orchestrator import Orchestrate


def _rule(case: EdgeCloud, config: FrameConfig) -> Orchestrate:
    num_services, num_nodes = case.num_services, case.num_nodes

    def orchestrate(key: Array, state: FrameState) -> Scaling:
        key_node, key_change = jax.random.split(key)
        shape = (config.num_changes, *state.clock_s.shape)
        node = jax.random.randint(key_node, shape, 0, num_nodes)
        return Scaling(node, jax.random.randint(key_change, shape, 0, 2 * num_services - 1))

    return orchestrate


RANDOM_SCALING = OrchestrationBaseline(
    "random_scaling", "changes by chance, as far as they can be carried out", _rule
)
