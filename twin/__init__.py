"""The digital twin: contracts, exact bookkeeping, learned responses, rollouts."""

from typing import TYPE_CHECKING

from logs_schema.lazy import at_first_use
from twin.backend import prepare

if TYPE_CHECKING:
    from twin.api import fit
    from twin.contracts import Policy
    from twin.placement.learned import AnswerConfig

prepare()

__all__ = ["AnswerConfig", "Policy", "fit"]

__getattr__ = at_first_use(
    __name__, {"api": ("fit",), "contracts": ("Policy",), "placement.learned": ("AnswerConfig",)}
)
