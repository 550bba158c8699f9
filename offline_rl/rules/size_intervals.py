"""Size intervals: requests of like size go to like nodes, so that short ones do not wait behind long ones.

Sizes are core-times as requested: expected run time x cores. The log gives the share of all work below a size,

    below(x) = sum of sizes up to x / sum of all sizes,

and the nodes, from the weakest to the strongest, divide [0, 1] in proportion to their strength: cores over how long
services usually run there. A request goes to the node in whose part its `below` lies, the nearest legal one where that
is not legal. So every node is given work in proportion to its strength, whatever the law of sizes. Requests of one size
that have more of the work than a node's part are drawn among the nodes in question. No state is looked at.

Source: M. Harchol-Balter, M. Crovella and C. Murta, On choosing a task assignment policy for a distributed server
system, Journal of Parallel and Distributed Computing, 1999 (SITA-E).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Policy
from twin.placement.features import NUMERIC_REQUEST_FEATURES
from twin.placement.types import Cluster, Observation
from twin.placement.windows import Windows

SIZE_INTERVALS = "size_intervals"
WORDS = "a rule: requests of like size to like nodes, intervals of equal load for their strength (SITA-E), from the log"
MOST_SIZES = 1_024
"""Sizes that are kept, about equally far apart in work."""
_TINY = 1e-9
_TOLERANCE = 1e-3
"""Sizes that differ by less, relatively, are one."""
_ROW = {feature.name: row for row, feature in enumerate(NUMERIC_REQUEST_FEATURES)}


class SizeIntervals(NamedTuple):
    """How work is divided.

    Attributes:
        size: [sizes] core-times, rising, in time units x cores.
        below: [sizes + 1] share of the work in requests smaller than each; 1 at the end.
        first, last: [nodes] the part of [0, 1] that every node is given.
    """

    size: np.ndarray
    below: np.ndarray
    first: np.ndarray
    last: np.ndarray


def fit_size_intervals(size: np.ndarray, strength: np.ndarray) -> SizeIntervals:
    """The intervals of some requests on some nodes.

    Args:
        size: [requests] core-times; those that are not positive and finite do not count.
        strength: [nodes] positive; equal nodes are in their own order.
    """
    known, count = np.unique(size[np.isfinite(size) & (size > 0.0)], return_counts=True)
    work = known * count
    share = np.cumsum(work) / np.maximum(work.sum(), _TINY)
    kept = np.unique(np.searchsorted(share[:-1], np.arange(1, MOST_SIZES + 1) / MOST_SIZES))[: len(known)]
    known, below = known[kept], np.concatenate([[0.0], share[kept]])
    order = np.argsort(strength, kind="stable")
    ends = np.cumsum(strength[order]) / strength.sum()
    first, last = np.empty(len(order)), np.empty(len(order))
    first[order], last[order] = np.concatenate([[0.0], ends[:-1]]), ends
    return SizeIntervals(known, below, first, last)


def strength_of(cluster: Cluster) -> np.ndarray:
    """[nodes] cores over the usual ratio of run times to expected ones; the others' mean where cores are not known."""
    cores = np.asarray(cluster.capacity[0], float) / np.exp(np.log(cluster.run_ratio).mean(axis=0))
    known = np.isfinite(cores) & (cores > 0.0)
    return np.where(known, cores, cores[known].mean() if known.any() else 1.0)


def size_intervals_of(windows: Windows, cluster: Cluster, time_unit_s: float) -> Policy:
    """The rule of a log's windows, as a policy."""
    request, valid = windows.request, windows.valid()
    size = (np.asarray(request.expected_run_s) / time_unit_s * np.asarray(request.demand[0]))[valid]
    return size_intervals(fit_size_intervals(size, strength_of(cluster)))


def size_intervals(intervals: SizeIntervals) -> Policy:
    """The rule as a policy."""
    sizes, below = jnp.asarray(intervals.size, jnp.float32), jnp.asarray(intervals.below, jnp.float32)

    def decide(key: Array, observation: Observation, legal: Array) -> Array:
        run, cores = (
            jnp.expm1(observation.request[_ROW[name]]) for name in ("expected_run", "asked_cpu_cores")
        )
        low, high = (
            below[jnp.searchsorted(sizes, run * cores * (1.0 + change), side="right")]
            for change in (-_TOLERANCE, _TOLERANCE)
        )
        share = (low + jax.random.uniform(key, low.shape) * (high - low))[None]
        first, last = (
            jnp.asarray(part, jnp.float32).reshape((-1,) + (1,) * low.ndim)
            for part in (intervals.first, intervals.last)
        )
        away = jnp.maximum(jnp.maximum(first - share, share - last), 0.0)
        return jnp.argmin(jnp.where(legal, away, jnp.inf), axis=0).astype(jnp.int32)

    return decide
