"""How a twin of every problem is fitted from Python; a new problem adds a line, or `add_fit` at run time."""

from collections.abc import Callable
from typing import Any, NamedTuple

from logs_schema.errors import ConfigError
from twin.assignment.from_logs import fit_edge_days
from twin.autoscaling.fit import fit_application_days
from twin.orchestration.fit import fit_orchestration_days
from twin.ordering.fit import fit_queue_days
from twin.placement.model import fit_days
from twin.problems import ASSIGNMENT, AUTOSCALING, ORCHESTRATION, ORDERING, PLACEMENT


class Fit(NamedTuple):
    """How a problem's twin is fitted.

    Attributes:
        problem: Its name.
        decides: What is decided, in words.
        fit: (days, *, seed, options of its own) -> twin.
    """

    problem: str
    decides: str
    fit: Callable[..., Any]


FITS: tuple[Fit, ...] = (
    Fit(PLACEMENT, "which node takes an arriving request", fit_days),
    Fit(ORDERING, "which waiting job of a queue starts next", fit_queue_days),
    Fit(AUTOSCALING, "what deployments of an application are granted", fit_application_days),
    Fit(
        ORCHESTRATION,
        "where every slot's requests go, and which replicas change every frame",
        fit_orchestration_days,
    ),
    Fit(ASSIGNMENT, "which edge takes each of many requests at once", fit_edge_days),
)


def add_fit(fit: Fit) -> None:
    """Makes a problem's fit known for this process, in place of one of its name."""
    global FITS
    FITS = (*(one for one in FITS if one.problem != fit.problem), fit)


def find_fit(problem: str) -> Fit:
    """The fit of a problem; ConfigError where none is known."""
    for one in FITS:
        if one.problem == problem:
            return one
    raise ConfigError(
        f"no twin of {problem!r} is fitted here",
        allowed="; ".join(f"{one.problem}: {one.decides}" for one in FITS),
        advice="twin.fits.add_fit adds a problem",
    )
