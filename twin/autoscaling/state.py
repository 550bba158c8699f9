"""What is known of an application when grants are decided."""

from typing import NamedTuple

import jax

from twin.autoscaling.config import ScalingConfig
from twin.autoscaling.types import Grants, News


class ScalingState(NamedTuple):
    """Grants in force, and what the last intervals brought, the latest last."""

    grants: Grants  # leaves [deployments, *streams]
    window: News  # leaves [window, ...]


def known(config: ScalingConfig, state: ScalingState, age: int = 0) -> News:
    """The metrics of the latest interval that are known by now, or of `age` intervals before it; the oldest that the
    state remembers where it is older."""
    index = max(config.window - 1 - config.delay_intervals - age, 0)
    return jax.tree.map(lambda leaf: leaf[index], state.window)
