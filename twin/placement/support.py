"""Outside the support of the log: offers to nodes whose queue was longer than nearly every logged offer to them found
it.

What a network answers there is a guess. The bookkeeping stays exact, so a twin that guesses is still consistent with
itself, and nothing in its own numbers gives the guess away.
"""

import numpy as np

from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.history import Offers

QUANTILE = 0.99
"""Of the times until a node has room (`availability`) that its logged offers found: up to here a queue is usual."""
MIN_OFFERS = 50
"""A node that was offered less often is usual with no queue at all."""


def support_limit_s(encoding: Encoding, offers: Offers) -> np.ndarray:
    """[nodes] float32 the longest usual time until each node has room, in seconds; -1 where none is usual."""
    num_nodes, first = encoding.cluster.num_nodes, len(NODE_FEATURES)
    chosen = offers.inputs[first : first + num_nodes] > 0.5
    availability_s = np.expm1(offers.inputs[-2]) * encoding.problem.time_unit_s
    usual = np.full(num_nodes, -1.0, np.float32)
    for node in range(num_nodes):
        if np.count_nonzero(chosen[node]) >= MIN_OFFERS:
            # a part in a thousand more: the times have been through a logarithm
            usual[node] = 1.001 * np.quantile(availability_s[chosen[node]], QUANTILE) + 1e-3
    return usual
