"""Costs of a log's own requests on the edges that were learned from it; backlogs are none, rounds add them."""

import numpy as np

from twin.assignment.from_logs import EdgesFromLog
from twin.assignment.ran_requests import RanRequests
from twin.assignment.types import Costs
from twin.assignment.ways import way_s


def day_costs(edges: EdgesFromLog, rows: RanRequests) -> Costs:
    """What every request would cost on every edge, as the edges' functions and ways tell.

    A request comes from a site, not from an edge, so its source is -1 and its way within the site counts as well.
    Results go back the same way, where the log says how large they are.

    Args:
        edges: Of the log.
        rows: Requests, their edges in the order of `edges.names`, which have the size.

    Returns:
        Leaves [rows, edges]; backlogs are 0.
    """
    sites = [edges.sites[name] for name in edges.names]
    sizes = rows.sizes[edges.size]
    seconds = np.stack([one.at(sizes) for one in edges.compute.values()], axis=1)
    replicas = np.array([edges.replicas[name] for name in edges.names], float)
    work_s = seconds / replicas
    if rows.hosts is not None:
        work_s = np.where(rows.hosts, work_s, np.inf)
    nothing = np.zeros(len(sites))
    input_mib = rows.sizes.get("input_mib", np.full(len(sizes), np.nan))
    there_s = way_s(edges.ways, rows.site, sites, input_mib)
    back_s = way_s(edges.ways, rows.site, sites, rows.output_mib)
    return Costs(work_s, there_s, back_s, np.full(len(sizes), -1), nothing, nothing, nothing, nothing)
