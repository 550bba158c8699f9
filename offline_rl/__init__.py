"""Offline reinforcement learning: losses and returns, algorithms, training, policy export.

Names are imported at their first use: a policy's runner and server need no JAX.
"""

from typing import TYPE_CHECKING

from logs_schema.lazy import at_first_use

if TYPE_CHECKING:
    from offline_rl.api import Trained, behaviour_cloning, ppo, train
    from offline_rl.ordering.recipes import order_index, order_ppo
    from offline_rl.runner import load, load_network, load_queue

__all__ = [
    "Trained",
    "behaviour_cloning",
    "load",
    "load_network",
    "load_queue",
    "order_index",
    "order_ppo",
    "ppo",
    "train",
]

__getattr__ = at_first_use(
    __name__,
    {
        "api": ("Trained", "behaviour_cloning", "ppo", "train"),
        "ordering.recipes": ("order_index", "order_ppo"),
        "runner": ("load", "load_network", "load_queue"),
    },
)
