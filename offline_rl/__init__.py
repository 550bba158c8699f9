"""Offline reinforcement learning: losses and returns, algorithms, training, policy export.

Names are imported at their first use: a policy's runner and server need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "load": "runner",
    "load_network": "runner",
    "load_queue": "runner",
    "order_index": "ordering.recipes",
    "order_ppo": "ordering.recipes",
}
"""Where a name is at home; the others are in `offline_rl.api`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'api')}"), name)
