"""Conventions of twins and of the runner of their bundles, each in one place. Needs the standard library only."""

from typing import Any

KINDS_BY = ("scenario", "queue", "site", "agent")
"""Labels that services may be told apart by; the first of them that forecasts better is taken."""
KIND = " of "
"""Between a service and the label of a kind of it: "ocr of maps"."""


def drawn_together(whole_s: Any, typical_s: Any, exponent: float) -> Any:
    """Requested run times, longer and shorter ones of a service drawn together about its typical one."""
    return typical_s ** (1.0 - exponent) * whole_s**exponent
