"""Runs that are cut off: after a fixed time of their service, or at the run time that was requested; read off a log.

    a run fails at its limit, if it would take longer

Failures of such a service all come after the same time, and hardly a run takes longer; a batch system kills what
reaches its requested time. Drawn apart from how long a run takes, such failures would be as rare on a slow node as they
were in the log, and counted twice: most of those that are cut off would have been late, too. So answers draw how long a
run would take, of which one that was cut off says that it is at least so long, and cut it off.

    chance that a run ends before its limit = sigmoid(slope * ln(limit / usual run there) + offset)

is what policies are shown with the chance that an offer is accepted: the usual run times of the log's requests scatter
about what is expected of them as in a log-logistic distribution.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FEWEST = 20
"""Failed runs of a service, or at the requested time, without which nothing is said of it."""
NEARLY_ALL, MOST_LONGER = 0.9, 0.005
"""Share of failed runs of a service that end at the limit, or of runs that end at the requested time that failed, at
least; and of all runs that take longer, at most."""
AT_LIMIT, GRACE = 0.01, 0.1
"""How far from the limit that is, as a share of it; and how much later than requested runs are killed at most."""
NEWTON_STEPS, RIDGE = 30, 1e-3
MOST_LOGIT = 30.0
_TINY, _MOST_ROOM = 1e-6, 1e3


@dataclass(frozen=True)
class Timeouts:
    """After which time runs are cut off.

    Attributes:
        of_service: [services] seconds, 0 where services have no limit; empty where none has.
        at_requested: Whether runs are cut off at the run time that was requested.
        slope, offset: Of the chance that a run ends before its limit.
    """

    of_service: tuple[float, ...] = ()
    at_requested: bool = False
    slope: float = 0.0
    offset: float = 0.0

    def limit_s(self, service: Any, requested_s: Any, np: Any = np) -> Any:
        """Seconds after which runs are cut off, inf where they are not; arrays of one shape. `requested_s` is NaN where
        not given; `np`: `jax.numpy` in programs."""
        limit_s = np.full(service.shape, np.inf, requested_s.dtype)
        if self.of_service:
            own_s = np.array(self.of_service, requested_s.dtype)[service]
            limit_s = np.where(own_s > 0.0, own_s, limit_s)
        if self.at_requested:
            limit_s = np.where(requested_s > 0.0, np.minimum(limit_s, requested_s), limit_s)
        return limit_s

    def chance(self, limit_s: Any, run_s: Any, np: Any = np) -> Any:
        """The chance that a run that usually takes `run_s` ends before its limit; arrays of one shape. `np`:
        `jax.numpy` in programs."""
        room = np.clip(limit_s / np.maximum(run_s, _TINY), 1.0 / _MOST_ROOM, _MOST_ROOM)
        logit = np.clip(self.offset + self.slope * np.log(room), -MOST_LOGIT, MOST_LOGIT)
        chance = 1.0 / (1.0 + np.exp(-logit))
        return np.where(np.isfinite(limit_s), chance, 1.0)

    def beyond_s(self, limit_s: np.ndarray, usual_s: np.ndarray) -> np.ndarray:
        """[rows] how long runs that usually take `usual_s` would have taken that were cut off after `limit_s`: the mean
        of the logarithm of what is longer. Not known where the slope is 0: then the limits."""
        if self.slope <= 0.0:
            return limit_s
        with np.errstate(divide="ignore", invalid="ignore"):
            room = -self.offset - self.slope * np.log(limit_s / usual_s)
        room = np.nan_to_num(np.clip(room, -MOST_LOGIT, MOST_LOGIT), nan=np.inf)
        longer = np.logaddexp(0.0, room) * (1.0 + np.exp(-room)) / self.slope
        return np.where(np.isfinite(longer), limit_s * np.exp(longer), limit_s)


def timeouts_of(content: Mapping[str, Any] | None) -> Timeouts | None:
    """Reads them from an encoding's JSON."""
    return None if content is None else Timeouts(**{**content, "of_service": tuple(content["of_service"])})


def fit_timeouts(
    service: np.ndarray, run_s: np.ndarray, failed: np.ndarray, requested_s: np.ndarray, num_services: int
) -> Timeouts | None:
    """The limits of a log's runs, without the chance to end before them; None where it shows none.

    Args:
        service: [rows] 0 is unknown.
        run_s: [rows] NaN where not known.
        failed: [rows] bool.
        requested_s: [rows] NaN where not given.
        num_services: Of the vocabulary.
    """
    limits = [0.0] * num_services
    for number in range(1, num_services):
        ran = (service == number) & np.isfinite(run_s)
        failed_s = run_s[ran & failed]
        if len(failed_s) < FEWEST:
            continue
        limit = float(np.median(failed_s))
        at_limit = np.abs(failed_s - limit) <= AT_LIMIT * limit
        longer = run_s[ran] > (1.0 + AT_LIMIT) * limit
        if limit > 0.0 and at_limit.mean() >= NEARLY_ALL and longer.mean() <= MOST_LONGER:
            limits[number] = limit
    at_requested = _ends_as_requested(run_s, failed, requested_s)
    if not (any(limits) or at_requested):
        return None
    return Timeouts(tuple(limits) if any(limits) else (), at_requested)


def _ends_as_requested(run_s: np.ndarray, failed: np.ndarray, requested_s: np.ndarray) -> bool:
    known = np.isfinite(run_s) & (requested_s > 0.0)
    share, failed = run_s[known] / requested_s[known], failed[known]
    at_limit = (share >= 1.0 - AT_LIMIT) & (share <= 1.0 + GRACE)
    if (at_limit & failed).sum() < FEWEST:
        return False
    return bool(failed[at_limit].mean() >= NEARLY_ALL and (share > 1.0 + GRACE).mean() <= MOST_LONGER)


def run_limits_s(
    timeouts: Timeouts | None, service: np.ndarray, requested_s: np.ndarray
) -> np.ndarray | None:
    """[rows] float32 limits of runs (`Timeouts.limit_s`); None where runs are not cut off."""
    return None if timeouts is None else timeouts.limit_s(service, requested_s).astype(np.float32)


def is_cut_off(limit_s: Any, run_s: Any, failed: Any) -> np.ndarray:
    """Whether runs that failed or not were cut off at their limits; arrays of one shape."""
    return np.asarray(failed & np.isfinite(limit_s) & (run_s >= (1.0 - AT_LIMIT) * limit_s))


def fit_chance(limit_s: np.ndarray, usual_s: np.ndarray, cut_off: np.ndarray) -> tuple[float, float]:
    """Slope and offset of the chance that runs end before their limits; leaves [rows].

    Args:
        limit_s: inf where there is none.
        usual_s: How long they usually run where they ran; NaN where not known.
        cut_off: bool.
    """
    known = np.isfinite(limit_s) & (usual_s > 0.0)
    room = np.log(limit_s[known] / usual_s[known])
    columns, ended = np.stack([room, np.ones_like(room)]), ~cut_off[known]
    found = np.zeros(2)
    for _ in range(NEWTON_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(found @ columns, -MOST_LOGIT, MOST_LOGIT)))
        curvature = (columns * chance * (1.0 - chance)) @ columns.T + RIDGE * np.eye(2)
        found = found + np.linalg.solve(curvature, columns @ (ended - chance) - RIDGE * found)
    return max(float(found[0]), 0.0), float(found[1])
