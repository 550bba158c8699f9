"""Offline reinforcement learning: losses and returns, algorithms, training, policy export.

Names are imported when they are first asked for: a policy's runner and server need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offline_rl.api import Trained, behaviour_cloning, ppo, train
    from offline_rl.runner import load, load_network, load_queue

__all__ = ["Trained", "behaviour_cloning", "load", "load_network", "load_queue", "ppo", "train"]

_OF_THE_RUNNER = ("load", "load_network", "load_queue")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "runner" if name in _OF_THE_RUNNER else "api"
    return getattr(import_module(f"{__name__}.{home}"), name)
