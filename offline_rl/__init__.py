"""Offline reinforcement learning: losses and returns, algorithms, training, policy export.

Names are imported when they are first asked for: a policy's runner and server need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offline_rl.api import Trained, behaviour_cloning, ppo, train

__all__ = ["Trained", "behaviour_cloning", "ppo", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api"), name)
