"""The offload ratio over the parts of a day: of the requests that started, the share that ran away from home.

The parts are equally long and cover the time in which a simulated world has requests (Xiong et al., figure 4, has 12).
"""

from typing import NamedTuple

import numpy as np

from evaluation.simulator.history import History
from evaluation.simulator.world import World
from twin.placement.encode import EncodedRows
from twin.placement.encoding import Encoding


class DayParts(NamedTuple):
    """How a day is cut."""

    day_s: float  # requests arrive from midnight to this time of day
    num: int

    def of(self, time_of_day_s: np.ndarray) -> np.ndarray:
        """The part that every instant lies in, int in [0, num)."""
        place = (np.asarray(time_of_day_s, float) / self.day_s * self.num).astype(int)
        return np.clip(place, 0, self.num - 1)


def ratios(part: np.ndarray, started: np.ndarray, away: np.ndarray, num_parts: int) -> np.ndarray:
    """[parts] offload ratio; NaN where nothing started.

    Args:
        part: [rows] int.
        started: [rows] bool: began to run.
        away: [rows] bool: was sent to another site than the one where it arrived.
        num_parts: Number of parts.
    """
    all_of, off = (np.bincount(part[rows], minlength=num_parts) for rows in (started, started & away))
    return np.asarray(np.where(all_of > 0, off / np.maximum(all_of, 1), np.nan))


def logged_ratios(rows: EncodedRows, encoding: Encoding, parts: DayParts, midnight_s: float) -> np.ndarray:
    """[parts] offload ratio of one logged day that began at `midnight_s` seconds since 1970."""
    away = np.asarray(encoding.cluster.site_of_node)[rows.node] != rows.request.site
    today = rows.arrival_s >= midnight_s  # the others were still in flight then
    started = np.isfinite(rows.start_s) & (rows.node >= 0) & today
    return ratios(parts.of(rows.arrival_s - midnight_s), started, away, parts.num)


def simulated_ratios(day: History, world: World, parts: DayParts) -> np.ndarray:
    """[parts] offload ratio of one simulated day, leaves [requests], in the world's own indices."""
    place = {site: index for index, site in enumerate(world.sites)}
    site_of_node = np.array([place.get(node.site, -1) for node in world.nodes])  # the cloud has no agents
    away = site_of_node[day.node] != day.request.site
    return ratios(parts.of(np.asarray(day.arrival_s)), np.isfinite(day.fate.start_s), away, parts.num)


def mean_error(one: np.ndarray, other: np.ndarray) -> float:
    """Mean absolute difference over the parts where both are known."""
    return float(np.nanmean(np.abs(one - other)))


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation over the parts where both are known; NaN where one of them does not vary."""
    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < 2 or np.ptp(one[known]) == 0.0 or np.ptp(other[known]) == 0.0:
        return float("nan")
    return float(np.corrcoef(one[known], other[known])[0, 1])
