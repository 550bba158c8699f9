"""Kubernetes resource quantities: `500m`, `2`, `1.5`, `64Mi`, `1e3`, `2G`."""

import re

from offline_rl.serving.errors import QueryError

GIB = 1024.0**3
MOST = 2.0**63
"""Kubernetes knows no larger amount."""

_SCALE = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)"
)


def amount_of(quantity: object) -> float:
    """The number that a quantity stands for.

    Args:
        quantity: Text or a number, as in `resources.requests` and `status.allocatable`.

    Returns:
        The amount in the resource's own unit (cores, bytes), from 0 to `MOST`.

    Raises:
        QueryError: It is no quantity, negative, or too large.
    """
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise _not_a_quantity(quantity)
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if match is None:
        raise _not_a_quantity(quantity)
    number, exponent, suffix = match.groups()
    amount = float(number + (exponent or "")) * _SCALE[suffix or ""]
    if not 0.0 <= amount <= MOST:
        raise _not_a_quantity(quantity)
    return amount


def _not_a_quantity(quantity: object) -> QueryError:
    return QueryError(
        "this is no quantity of a resource",
        where=repr(quantity)[:80],
        allowed="a number of at least 0 with an optional suffix, such as 500m, 2, 64Mi or 1.5G",
    )
