"""The digital twin: contracts, exact bookkeeping, learned responses, rollouts."""

from typing import TYPE_CHECKING, Any

from twin.backend import prepare

if TYPE_CHECKING:
    from twin.api import fit
    from twin.contracts import Policy
    from twin.placement.learned import AnswerConfig

prepare()

__all__ = ["AnswerConfig", "Policy", "fit"]

_HOMES = {"AnswerConfig": "placement.learned", "Policy": "contracts", "fit": "api"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
