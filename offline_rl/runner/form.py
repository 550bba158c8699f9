"""How bundles of a problem decide from plain descriptions: one record a problem, needing NumPy only.

A bundle of any problem decides from arrays (`network.ExportedPolicy`). Descriptions (nodes, waiting
jobs) need the problem's own way from them to arrays and back; golden questions prove that way whole.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.contract import PolicyContract
from offline_rl.runner.network import ExportedPolicy

Question = Mapping[str, Any]
"""Plain JSON, of the problem's own kind."""
_MONDAY_S, _WEEK_S = 1_600_041_600.0, 604_800.0


class Answered(NamedTuple):
    """The answer to a question."""

    choices: np.ndarray  # [rows, F] float32; fewer rows than the contract's choices where fewer jobs wait
    context: np.ndarray  # [R] float32
    legal: np.ndarray  # [rows] bool
    logits: np.ndarray  # [rows] float32
    action: int  # the contract's choice; NOTHING_LEGAL where there is none


class ServingForm(NamedTuple):
    """A problem's plain descriptions.

    Attributes:
        problem: Its name, as in contracts.
        decides: What a bundle of it decides, in words.
        answering: A bundle's network -> (question -> answer); ProductError where its setting cannot be, or its
            features are none of this runner's.
        draw: (contract, random numbers) -> a question about a system half full.
    """

    problem: str
    decides: str
    answering: Callable[[ExportedPolicy], Callable[[Question], Answered]]
    draw: Callable[[PolicyContract, np.random.Generator], Question]


def refuse_other_problem(contract: PolicyContract, wanted: str) -> None:
    """Makes sure that a bundle is of a problem; ProductError."""
    if contract.problem != wanted:
        raise ProductError(
            f"the bundle is of the problem '{contract.problem}', not '{wanted}'",
            allowed=f"a bundle of '{wanted}'",
            advice="decide from arrays: offline_rl.load_network; or see which loader its problem has in offline_rl",
        )


def some_clock_s(rng: np.random.Generator) -> float:
    """An instant of some week."""
    return _MONDAY_S + round(float(rng.random()) * _WEEK_S, 3)


def some_run_s(typical_s: float, rng: np.random.Generator) -> float:
    """A run time above 0 about a typical one."""
    return round(float(typical_s * np.exp(rng.normal())) + 0.001, 3)


def amounts(values: np.ndarray) -> list[float]:
    """Numbers as JSON holds them."""
    return [round(value, 3) for value in np.asarray(values, float).tolist()]


def one_of(items: Sequence[Any], rng: np.random.Generator) -> Any:
    """One of several, all alike."""
    return items[int(rng.integers(len(items)))]
