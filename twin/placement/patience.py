"""Requests that are given up while they wait: at their deadline, or after a fixed time, read off a log.

    an accepted request is dropped at its limit, if it would wait longer

Dropped requests of such a log have all waited equally long, or until their deadline, and hardly any waits longer and
starts. Drawn apart from how long a request waits, dropping would be as rare under a scheduler that lets queues grow as
it was in the log, and queues would grow without end; whoever is dropped late uses nothing. So answers draw how long a
request would wait, of which one that was given up says that it is at least so long, and give it up at its limit.
"""

from typing import Any, NamedTuple

import numpy as np

from twin.placement.types import DROPPED, Cluster, Leaf

FEWEST, FEWEST_AT_DEADLINE = 20, 5
"""Dropped requests, of all services or of one, without which nothing is said of them; and if it is by their deadlines:
these are known, not found among them, so that few that keep to them are no chance (on clocks of whole seconds they may
be)."""
NEARLY_ALL, MOST_LONGER = 0.9, 0.005
"""Share of them that are dropped at the limit, at least, and of those that start that waited longer, at most."""
AT_LIMIT = 0.01
"""How far from the limit that is, as a share of it."""


class Patience(NamedTuple):
    """When requests that wait are given up, as fields of `Cluster`."""

    drops_late: bool = False
    wait_limit_s: tuple[float, ...] = ()


def fit_patience(
    service: np.ndarray, waited_s: np.ndarray, dropped: np.ndarray, deadline_s: np.ndarray, num_services: int
) -> Patience:
    """The patience of a log's requests, by deadlines if these explain it.

    Args:
        service: [rows] 0 is unknown.
        waited_s: [rows] from arrival to the start, of what was dropped to its end; NaN where not known.
        dropped: [rows] bool.
        deadline_s: [rows] from arrival; inf without a deadline.
        num_services: Of the vocabulary.
    """
    known = np.isfinite(waited_s)
    tick_s = 1.0 if np.all(waited_s[known & dropped] % 1.0 == 0.0) else 0.0
    has_deadline = known & np.isfinite(deadline_s)
    at_deadline = has_deadline & dropped, has_deadline & ~dropped
    fewest = FEWEST if tick_s else FEWEST_AT_DEADLINE
    if _ends_there(waited_s, deadline_s, *at_deadline, tick_s, fewest):
        return Patience(drops_late=True)
    limits = [0.0] * num_services
    for number in range(1, num_services):
        own = known & (service == number)
        if (own & dropped).any():
            limit_s = float(np.median(waited_s[own & dropped]))
            alike_s = np.full_like(waited_s, limit_s)
            if _ends_there(waited_s, alike_s, own & dropped, own & ~dropped, tick_s, FEWEST):
                limits[number] = limit_s
    return Patience(wait_limit_s=tuple(limits) if any(limits) else ())


def _ends_there(
    waited_s: np.ndarray,
    limit_s: np.ndarray,
    dropped: np.ndarray,
    started: np.ndarray,
    tick_s: float,
    fewest: int,
) -> bool:
    """Whether waits end at their limits [rows]: those that were dropped at, those that started before; not of
    fewer dropped ones than `fewest`."""
    within_s = np.maximum(AT_LIMIT * limit_s, tick_s)
    at_limit = np.abs(waited_s - limit_s)[dropped] <= within_s[dropped]
    longer = (waited_s - limit_s)[started] > within_s[started]
    if len(at_limit) < fewest or len(longer) == 0 or np.any(limit_s[dropped] <= 0.0):
        return False
    return bool(at_limit.mean() >= NEARLY_ALL and longer.mean() <= MOST_LONGER)


def patience_s(cluster: Cluster, service: Leaf, deadline_s: Leaf, np: Any = np) -> Any:
    """After which time from arrival a request that waits is given up, inf where never; leaves of one shape.

    `np`: `jax.numpy` in programs.
    """
    limit_s = deadline_s if cluster.drops_late else np.full_like(deadline_s, np.inf)
    if not cluster.wait_limit_s:
        return limit_s
    own_s = np.asarray(cluster.wait_limit_s, deadline_s.dtype)[service]
    return np.minimum(limit_s, np.where(own_s > 0.0, own_s, np.inf))


def is_given_up(
    cluster: Cluster, service: Leaf, deadline_s: Leaf, waited_s: Leaf, status: Leaf
) -> np.ndarray:
    """Whether requests that ended so, after so long, were given up at their limit; arrays of one shape."""
    limit_s = patience_s(cluster, np.asarray(service), np.asarray(deadline_s))
    return np.asarray((status == DROPPED) & (waited_s >= (1.0 - AT_LIMIT) * limit_s))
