"""Which services a node should still hold: not by the time since they ran there, but by what else ran there since.

Caches of weights, images or compiled programs hold so many and drop the one used longest ago (least recently used). How
many *other* services ran on a node since (the stack distance; R. Mattson et al., 1970) says whether one is still there,
and every side knows it who knows when services last ran there.
"""

from typing import Any

import numpy as np

from twin.placement.service_times import rows_by_group

SHARPNESS = 8.0
"""Power of the number of other services over the room: at half the room hardly any of a start-up is due."""
MOST_ROOMS = 100.0
ROOMS = (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 7.5, 9.5, 12.5, 16.5, 20.5)
"""Numbers of other services, after which half of the start-up is due, that are tried."""
CHUNK = 16_384


def due_by_others(others: Any, room: Any, np: Any = np) -> Any:
    """Share of a start-up, in [0, 1], that is due where so many other services have run since (any arrays)."""
    power = np.clip(others / room, 0.0, MOST_ROOMS) ** SHARPNESS
    return power / (1.0 + power)


def others_since(pair: np.ndarray, ends_s: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """[rows] how many other services should have ended on the node after the pair's last run; all that have run there
    where it has not.

    Args:
        pair, ends_s: As of `last_ends_s`; the pairs of later stretches follow those of earlier ones.
        shape: Numbers of services and nodes.
    """
    found = np.zeros(len(pair))
    service, node = pair // shape[1] % shape[0], pair // (shape[0] * shape[1]) * shape[1] + pair % shape[1]
    for here in rows_by_group(np.where(pair >= 0, node, -1)):
        if pair[here[0]] < 0:
            continue
        latest = np.full(shape[0], -np.inf)
        for first in range(0, len(here), CHUNK):
            rows = here[first : first + CHUNK]
            known = np.full((len(rows) + 1, shape[0]), -np.inf)
            known[0] = latest
            known[np.arange(1, len(rows) + 1), service[rows]] = ends_s[rows]
            known = np.maximum.accumulate(known)
            latest, before = known[-1], known[:-1]
            own = np.take_along_axis(before, service[rows][:, None], axis=1)
            found[rows] = np.sum(before > own, axis=1)
    return found
