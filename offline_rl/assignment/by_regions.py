"""Several regions with a scheduler each, and one over them: a medium and a top level, the future work of
CoRaiS (section IX).

The upper scheduler sees a region as one edge. A request takes there what it would take if all edges of the region that
host it shared it at their own speeds, `1 / sum of 1 / work_s`; backlogs are means over the edges, ways those to the
nearest of them. Each region's own scheduler then sees its edges and the requests that it was sent, and nothing else:
an upper round costs requests x regions, a lower one its own requests x its own edges, and regions decide side by side.
"""

import numpy as np

from offline_rl.assignment.insertion import insertion
from twin.assignment.types import Costs


def by_regions(costs: Costs, region: np.ndarray) -> np.ndarray:
    """[Z] the edge of every request, by insertion at both levels.

    Args:
        costs: Of one instance.
        region: [Q] int, the region of every edge, from 0 on; each has an edge.
    """
    chosen = insertion(over_regions(costs, region))
    edge = np.zeros(len(costs.source), np.int64)
    for one in np.unique(chosen):
        requests, edges = np.flatnonzero(chosen == one), np.flatnonzero(region == one)
        edge[requests] = edges[insertion(within(costs, requests, edges))]
    return edge


def over_regions(costs: Costs, region: np.ndarray) -> Costs:
    """The round as the upper scheduler sees it: [Z, regions] and [regions]."""
    members = [region == one for one in range(region.max() + 1)]
    with np.errstate(divide="ignore"):
        work_s = np.stack([1.0 / np.sum(1.0 / costs.work_s[:, mine], axis=1) for mine in members], axis=1)
    hosted = np.isfinite(costs.work_s)
    transfer_s, result_s = (
        np.stack([np.min(np.where(hosted, way_s, np.inf)[:, mine], axis=1) for mine in members], axis=1)
        for way_s in (costs.transfer_s, costs.result_s)
    )
    source = np.where(costs.source >= 0, region[costs.source], -1)
    held = (np.array([one[mine].mean() for mine in members]) for one in costs[4:])
    return Costs(work_s, transfer_s, result_s, source, *held)


def within(costs: Costs, requests: np.ndarray, edges: np.ndarray) -> Costs:
    """The round of one region: some requests, some edges; who came to an edge elsewhere came from none of these."""
    pairs = np.ix_(requests, edges)
    own = {int(edge): place for place, edge in enumerate(edges)}
    source = np.array([own.get(int(one), -1) for one in costs.source[requests]], np.int64)
    work_s, transfer_s, result_s = (one[pairs] for one in costs[:3])
    return Costs(work_s, transfer_s, result_s, source, *(one[edges] for one in costs[4:]))


def neighbouring(xy: np.ndarray, num_regions: int) -> np.ndarray:
    """[Q] regions of edges [Q, 2] that lie near each other: halved along their longer side until there are enough.

    Args:
        xy: Coordinates.
        num_regions: How many; the largest is halved first. At most one for every edge.
    """
    parts = [np.arange(len(xy))]
    while len(parts) < min(num_regions, len(xy)):
        part = parts.pop(int(np.argmax([len(one) for one in parts])))
        side = int(np.argmax(np.ptp(xy[part], axis=0)))
        ordered = part[np.argsort(xy[part, side], kind="stable")]
        parts += [ordered[: len(part) // 2], ordered[len(part) // 2 :]]
    region = np.zeros(len(xy), np.int64)
    for one, part in enumerate(parts):
        region[part] = one
    return region
