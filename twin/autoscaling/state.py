"""What is known of an application when grants are decided."""

from typing import NamedTuple

import jax

from twin.autoscaling.config import AutoscalingConfig
from twin.autoscaling.types import Grants, ScalingEvents


class ScalingState(NamedTuple):
    """Grants in force, and what the last intervals brought, the latest last."""

    grants: Grants  # leaves [deployments, *streams]
    window: ScalingEvents  # leaves [window, ...]


def known(config: AutoscalingConfig, state: ScalingState, age: int = 0) -> ScalingEvents:
    """The metrics of the latest interval that are known by now, or of `age` intervals before it; the oldest that the
    state remembers where it is older."""
    index = max(config.window - 1 - config.delay_intervals - age, 0)
    return jax.tree.map(lambda leaf: leaf[index], state.window)
