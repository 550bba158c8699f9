"""Which problem a product is of: its manifest says so; products that say nothing are of placement."""

from pathlib import Path

from logs_schema.errors import ProductError
from logs_schema.product import read_manifest

PLACEMENT, ORDERING = "placement", "ordering"
PROBLEMS = (PLACEMENT, ORDERING)
KEY = "problem"
_DECIDED = {PLACEMENT: "which node takes a request", ORDERING: "which waiting job of a queue starts next"}
_COMMANDS = {
    PLACEMENT: "fit with --problem placement on a log of several nodes",
    ORDERING: "schedtwin certify, train, compare, generate and export take twins and policies of either problem",
}


def problem_of(folder: Path) -> str:
    """The problem of a twin or a policy.

    Raises:
        ProductError: There is no product, or one of an unknown problem.
    """
    manifest = read_manifest(folder)
    problem = str(manifest.extra.get(KEY, PLACEMENT))
    if problem not in PROBLEMS:
        raise ProductError(
            f"this {manifest.kind} is of the problem '{problem}', which this version does not know",
            where=str(folder), allowed=", ".join(PROBLEMS), advice="make it again with this version",
        )  # fmt: skip
    return problem


def refuse_other_problem(folder: Path, wanted: str) -> None:
    """Makes sure that a product is of a problem.

    Raises:
        ProductError: There is no product, or it is of the other one.
    """
    found = problem_of(folder)
    if found != wanted:
        kind = read_manifest(folder).kind
        raise ProductError(
            f"this {kind} is of the problem '{found}' ({_DECIDED[found]}), not '{wanted}' ({_DECIDED[wanted]})",
            where=str(folder), allowed=f"a {kind} of the problem '{wanted}'", advice=_COMMANDS[found],
        )  # fmt: skip
