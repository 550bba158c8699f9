"""What makes a round one that can be decided: every refusal says what, where, what is allowed and what to do."""

from collections.abc import Sequence

import numpy as np

from logs_schema.errors import ConfigError, first
from twin.assignment.types import Costs


class AssignmentError(ConfigError):
    """A round's requests or edges make no assignment problem."""


def refuse_bad_costs(costs: Costs) -> None:
    """Makes sure that one round's costs are those of a problem.

    Raises:
        AssignmentError: There are no edges, a request has no edge that hosts it, or times are negative or not numbers.
    """
    num_edges = costs.work_s.shape[1]
    if not num_edges:
        raise AssignmentError(
            "there is no edge", where="edges", allowed="one or more", advice="name the edges"
        )
    for name in ("transfer_s", "result_s", "local_s", "arriving_s", "transferred_s", "returning_s"):
        values = getattr(costs, name)
        if not np.all(values >= 0.0) or not np.all(np.isfinite(values)):
            raise AssignmentError(
                "a time is negative or no number",
                where=f"{name}, {_places(~((values >= 0) & np.isfinite(values)))}",
                allowed="seconds, 0 or more",
            )
    if np.any(np.isnan(costs.work_s)) or np.any(costs.work_s < 0.0):
        wrong = np.isnan(costs.work_s) | (costs.work_s < 0.0)
        raise AssignmentError(
            "a computing time is negative or no number",
            where=f"work_s, {_places(wrong)}",
            allowed="seconds, 0 or more; inf where an edge does not host the service",
        )
    nowhere = np.flatnonzero(~np.isfinite(costs.work_s).any(axis=1))
    if len(nowhere):
        raise AssignmentError(
            "no edge hosts the service",
            where=f"requests {first(nowhere.tolist())}",
            allowed="at least one edge with a finite computing time for every request",
            advice="leave these requests out, or add an edge that hosts their service",
        )
    if np.any((costs.source < -1) | (costs.source >= num_edges)):
        wrong = np.flatnonzero((costs.source < -1) | (costs.source >= num_edges))
        raise AssignmentError(
            "a request comes from an edge that is not there",
            where=f"requests {first(wrong.tolist())}",
            allowed=f"0 to {num_edges - 1}, or -1 for none of the {num_edges} edges",
        )


def refuse_bad_sizes(input_mib: np.ndarray) -> None:
    """Makes sure that sizes are positive; AssignmentError names the rows that are not."""
    wrong = np.flatnonzero(~(np.isfinite(input_mib) & (input_mib > 0.0)))
    if len(wrong):
        raise AssignmentError(
            "a size is zero, negative or no number",
            where=f"input_mib of requests {first(wrong.tolist())}",
            allowed="MiB, more than 0",
            advice="leave these requests out, or say how large they are",
        )


def refuse_duplicates(what: str, names: Sequence[str]) -> None:
    """Makes sure that names are given once; AssignmentError says which are not."""
    seen: set[str] = set()
    twice = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if twice:
        raise AssignmentError(
            f"{what} stand twice",
            where=first(dict.fromkeys(twice)),
            allowed="each name once",
            advice="give every one of them a name of its own",
        )


def _places(wrong: np.ndarray) -> str:
    return "at " + first(tuple(place.tolist()) for place in np.argwhere(wrong))
