"""Both sides of a user's policy by slots and frames, in a comparison."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SlotPolicies:
    """Who dispatches requests every slot, and who changes replicas every frame.

    Attributes:
        dispatch: A function of the type `twin.Policy`, a rule of `evaluation.baselines`, or the name of a dispatcher of
            the comparison, such as "least_loaded".
        orchestrate: A function (key, `FrameState`) -> `Scaling`, or the name of an orchestrator of the comparison, such
            as "static", "hpa" or "planned".
    """

    dispatch: Any = "least_loaded"
    orchestrate: Any = "planned"
