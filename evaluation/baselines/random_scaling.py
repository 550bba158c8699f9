"""Random scaling: a node by chance, and on it nothing, one replica more or one less of a service by chance."""

import jax

from evaluation.baselines.orchestration_baseline import Orchestrate, OrchestrationBaseline
from evaluation.simulator.frames.config import FrameConfig
from evaluation.simulator.frames.state import FrameState, Scaling
from evaluation.simulator.slots.instance import Instance
from twin.contracts import Array


def _rule(case: Instance, config: FrameConfig) -> Orchestrate:
    num_services, num_nodes = case.run_factor.shape

    def orchestrate(key: Array, state: FrameState) -> Scaling:
        key_node, key_change = jax.random.split(key)
        shape = (config.num_changes, *state.clock_s.shape)
        node = jax.random.randint(key_node, shape, 0, num_nodes)
        return Scaling(node, jax.random.randint(key_change, shape, 0, 2 * num_services - 1))

    return orchestrate


RANDOM_SCALING = OrchestrationBaseline(
    "random_scaling", "changes by chance, as far as they can be carried out", _rule
)
