"""How long an input is on its way, from a log: requests that found a free core and began when their input had come.

    delay = latency + seconds per MiB * input

of requests that at their arrival met a node with cores to spare, by site of arrival and site of the node. What a queue
or a scheduler adds is not in it; so a log whose nodes are never free, or that names no inputs, has no ways.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from twin.assignment.ran_requests import RanRequests

MIN_ROWS = 20
"""Requests from which on a way is fitted."""


@dataclass(frozen=True)
class Way:
    """From a site to the nodes of a site.

    Attributes:
        latency_s: Of an empty input.
        s_per_mib: Of every MiB.
        num_rows: That it was fitted on.
        source: Whose history: "own", or "all ways within a site", "all ways between sites".
    """

    latency_s: float
    s_per_mib: float
    num_rows: int
    source: str

    def at(self, size_mib: np.ndarray) -> np.ndarray:
        """Seconds for sizes of any shape."""
        return self.latency_s + self.s_per_mib * size_mib


Ways = Mapping[str, Mapping[str, Way]]
"""Site of arrival -> site of a node -> way; empty where a log has none."""


def fit_ways(rows: RanRequests, sites: Sequence[str], cores: np.ndarray) -> Ways:
    """The ways of a log."""
    clear = found_free(rows, cores)
    if clear.sum() < MIN_ROWS:
        return {}
    size, delay_s = rows.sizes["input_mib"], rows.delay_s
    node_site = np.array(sites)[rows.edge]
    within = rows.site == node_site
    ways: dict[str, dict[str, Way]] = {}
    for here in np.unique(rows.site).tolist():
        for there in dict.fromkeys(sites):
            is_within = here == there
            sources = (
                ("own", clear & (rows.site == here) & (node_site == there)),
                (
                    f"all ways {'within a site' if is_within else 'between sites'}",
                    clear & (within == is_within),
                ),
                ("all ways", clear),
            )
            source, chosen = next((name, rows) for name, rows in sources if rows.sum() >= MIN_ROWS)
            ways.setdefault(here, {})[there] = _fit(size[chosen], delay_s[chosen], source)
    return ways


def found_free(rows: RanRequests, cores: np.ndarray) -> np.ndarray:
    """[rows] bool: the request met a node with as many free cores as it holds, and its input and delay are known."""
    clear = np.zeros(len(rows.edge), bool)
    if "input_mib" not in rows.sizes:
        return clear
    end_s = rows.arrival_s + rows.delay_s + rows.seconds
    timed = np.isfinite(end_s)
    for edge, capacity in enumerate(cores):
        mine = np.flatnonzero((rows.edge == edge) & timed)  # by arrival
        by_end = mine[np.argsort(end_s[mine], kind="stable")]
        ended = np.concatenate([[0.0], np.cumsum(rows.cores[by_end])])
        gone = ended[np.searchsorted(end_s[by_end], rows.arrival_s[mine], side="right")]
        come = np.cumsum(rows.cores[mine])  # itself included
        clear[mine] = come - gone <= capacity
    return clear & np.isfinite(rows.sizes["input_mib"]) & (rows.delay_s >= 0.0)


def way_s(ways: Ways, here: np.ndarray, sites: Sequence[str], size_mib: np.ndarray) -> np.ndarray:
    """[rows, edges] seconds from the sites of the rows to every edge; 0 without ways, and for unknown sizes."""
    found = np.zeros((len(here), len(sites)))
    if not ways:
        return found
    for site in np.unique(here).tolist():
        rows = np.flatnonzero(here == site)
        for there in dict.fromkeys(sites):
            columns = np.flatnonzero([one == there for one in sites])
            seconds = between(ways, site, there).at(size_mib[rows])
            found[np.ix_(rows, columns)] = np.nan_to_num(seconds)[:, None]
    return found


def between(ways: Ways, here: str, there: str) -> Way:
    """The way from one site to another; of a site that is not known the mean of all of its kind."""
    if there in ways.get(here, {}):
        return ways[here][there]
    pairs = [(begin == end, way) for begin, others in ways.items() for end, way in others.items()]
    alike = [way for is_within, way in pairs if is_within == (here == there)] or [way for _, way in pairs]
    mean = np.mean([(way.latency_s, way.s_per_mib) for way in alike], axis=0)
    return Way(float(mean[0]), float(mean[1]), 0, "the mean of its kind")


def _fit(size_mib: np.ndarray, delay_s: np.ndarray, source: str) -> Way:
    """Least squares with neither part negative."""
    from scipy.optimize import nnls

    both = np.stack([np.ones(len(size_mib)), size_mib], axis=1)
    (latency_s, s_per_mib), _ = nnls(both, delay_s)
    return Way(float(latency_s), float(s_per_mib), len(size_mib), source)
