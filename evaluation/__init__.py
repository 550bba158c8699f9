"""Judging: time-shifted days, metrics, baselines, the ground truth, reports and the command line."""

from typing import TYPE_CHECKING, Any

from twin.backend import prepare

if TYPE_CHECKING:
    from evaluation.api import Compared, Split, compare, shifted_days

prepare()  # here, because modules of this package import JAX before they import the twin

__all__ = ["Compared", "Split", "compare", "shifted_days"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api"), name)
