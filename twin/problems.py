"""Which problem a product is of, from its manifest; products whose manifest names none are of placement.

Any name may stand there: which problems there are is defined where their parts come together, not here.
"""

from pathlib import Path

from logs_schema.errors import ProductError
from logs_schema.product import read_manifest

PLACEMENT, ORDERING, AUTOSCALING, ORCHESTRATION = "placement", "ordering", "autoscaling", "orchestration"
ASSIGNMENT = "assignment"
KEY = "problem"


def problem_of(folder: Path) -> str:
    """The problem of a twin or a policy; ProductError where there is no product."""
    return str(read_manifest(folder).extra.get(KEY, PLACEMENT))


def refuse_other_problem(folder: Path, wanted: str) -> None:
    """Makes sure that a product is of a problem.

    Raises:
        ProductError: There is no product, or it is of another one.
    """
    found = problem_of(folder)
    if found != wanted:
        kind = read_manifest(folder).kind
        raise ProductError(
            f"this {kind} is of the problem '{found}', not '{wanted}'",
            where=str(folder),
            allowed=f"a {kind} of the problem '{wanted}'",
            advice="schedtwin certify, train, compare, generate and export take twins and policies of every problem; "
            f"schedtwin fit --problem {wanted} makes a twin of this one",
        )
