"""What a log said of edges, as the bundle of a scheduler keeps it: computing times, places at once, sites and ways.

So a question about edges of the log need not say again how they compute and how far apart they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from twin.assignment.compute_times import ComputeTime


@dataclass(frozen=True)
class KnownEdge:
    """How an edge computes.

    Attributes:
        site: Where it stands.
        replicas: Requests that it computes at once.
        kind, coefficients, sizes, seconds: Of its computing time over the MiB of a request's input, see `ComputeTime`.
    """

    site: str
    replicas: int
    kind: str
    coefficients: tuple[float, ...] = ()
    sizes: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()

    def compute_s(self, input_mib: np.ndarray) -> np.ndarray:
        """Seconds of requests with inputs of any shape."""
        return ComputeTime(self.kind, self.coefficients, self.sizes, self.seconds, 0.0, 0, "").at(input_mib)


@dataclass(frozen=True)
class KnownEdges:
    """The edges of a log by name, and the ways between their sites.

    Attributes:
        edges: By name; none where the log tells no inputs, as questions have no other size.
        latency_s, s_per_mib: Site -> site -> of an empty input, and of every MiB; none where the log times no ways.
    """

    edges: Mapping[str, KnownEdge] = field(default_factory=dict)
    latency_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    s_per_mib: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def ways(self, names: Sequence[str], which: str) -> np.ndarray | None:
        """[edges, edges] `latency_s` or `s_per_mib` from an edge's site to another's; 0 from an edge to itself, and
        None where the log times no ways between all of these edges."""
        known: Mapping[str, Mapping[str, float]] = getattr(self, which)
        if not known or not set(names) <= self.edges.keys():
            return None
        sites = [self.edges[name].site for name in names]
        if any(there not in known.get(here, {}) for here in sites for there in sites):
            return None
        found = np.array([[max(known[here][there], 0.0) for there in sites] for here in sites])
        np.fill_diagonal(found, 0.0)
        return found
