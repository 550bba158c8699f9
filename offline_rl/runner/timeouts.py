"""The NumPy copy of `twin.placement.timeouts`: how likely runs end before they are cut off."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

_TINY, _MOST_ROOM, _MOST_LOGIT = 1e-6, 1e3, 30.0


class KnownTimeouts(NamedTuple):
    """After which time runs are cut off, as `twin.placement.timeouts.Timeouts` has it."""

    of_service: tuple[float, ...]
    at_requested: bool
    slope: float
    offset: float

    def limit_s(self, service: int, requested_s: float | None) -> float:
        """Seconds after which a run is cut off, inf where it is not."""
        own_s = self.of_service[service] if self.of_service else 0.0
        limit_s = own_s if own_s > 0.0 else math.inf
        return min(limit_s, requested_s) if self.at_requested and requested_s else limit_s

    def chance(self, limit_s: float, run_s: np.ndarray) -> np.ndarray:
        """The chances that runs that usually take `run_s` end before the limit."""
        if limit_s == math.inf:
            return np.ones_like(run_s)
        room = np.clip(limit_s / np.maximum(run_s, _TINY), 1.0 / _MOST_ROOM, _MOST_ROOM)
        logit = np.clip(self.offset + self.slope * np.log(room), -_MOST_LOGIT, _MOST_LOGIT)
        return np.asarray(1.0 / (1.0 + np.exp(-logit)))

    def are_sound(self, num_services: int) -> bool:
        """Whether limits are of every service or none, and all is finite."""
        return len(self.of_service) in (0, num_services) and all(
            0.0 <= one < math.inf for one in (*self.of_service, self.slope, abs(self.offset))
        )


def timeouts_of(content: Mapping[str, Any] | None) -> KnownTimeouts | None:
    """Reads them from a contract's setting."""
    if content is None:
        return None
    of_service = tuple(float(one) for one in content["of_service"])
    return KnownTimeouts(
        of_service, bool(content["at_requested"]), float(content["slope"]), float(content["offset"])
    )
