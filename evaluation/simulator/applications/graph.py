"""Graphs of service calls as arrays, and the time that a request takes on its way through one.

Means and variances of independent times add up along a sequence; calls made at once take as long as the longest of them
(Clark 1961, for normal variables). A call that happens in a share p of the cases contributes `p m` and
`p (v + m^2) - p^2 m^2`. From mean and variance a gamma distribution follows (Wilson and Hilferty 1931).
"""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.applications.application import Application, ServiceCall
from twin.contracts import Array

Moments = tuple[Array, Array]
"""Mean and variance of a time, [*streams]."""


class CallNode(NamedTuple):
    """One call of a user's graph: which user, which service, the node that makes it (-1: the user), how often."""

    user: int
    service: int
    parent: int
    times: float
    depth: int


def nodes_of(application: Application) -> list[CallNode]:
    """All calls of all users, parents before those they call."""
    place = {name: index for index, name in enumerate(application.deployments)}
    nodes: list[CallNode] = []

    def add(user: int, call: ServiceCall, parent: int, depth: int) -> None:
        nodes.append(CallNode(user, place[call.service], parent, call.times, depth))
        mine = len(nodes) - 1
        for child in call.then:
            add(user, child, mine, depth + 1)

    for user, kind in enumerate(application.users):
        add(user, kind.root, -1, 0)
    return nodes


def visits(application: Application) -> np.ndarray:
    """[users, services] calls of a service that a request causes, where nothing is refused."""
    found = np.zeros((len(application.users), len(application.services)))
    made: list[float] = []
    for node in nodes_of(application):
        made.append(node.times * (made[node.parent] if node.parent >= 0 else 1.0))
        found[node.user, node.service] += made[-1]
    return found


def flows(nodes: list[CallNode], num_services: int) -> Callable[[Array, Array, Array], Array]:
    """A function (rates [users, *streams], passing [services, *streams], on [services, *streams]) -> arrivals.

    `passing` is what a service completes, as a share of what arrives: only completed work calls further. `on` is 0
    where a service is switched off: then neither it nor the services behind it are called.
    """
    depths = [
        [index for index, node in enumerate(nodes) if node.depth == depth]
        for depth in range(1 + max(node.depth for node in nodes))
    ]
    order = [index for level in depths for index in level]
    position = {index: place for place, index in enumerate(order)}
    service = np.array([nodes[index].service for index in order])

    def arrivals(rates: Array, passing: Array, on: Array) -> Array:
        flow = jnp.zeros((0, *rates.shape[1:]))
        for depth, level in enumerate(depths):
            here = np.array([nodes[index].service for index in level])
            times = jnp.asarray([nodes[index].times for index in level], jnp.float32)
            times = times.reshape((-1,) + (1,) * (rates.ndim - 1))
            if depth == 0:
                inflow = rates[np.array([nodes[index].user for index in level])]
            else:
                parents = np.array([position[nodes[index].parent] for index in level])
                inflow = flow[parents] * passing[service[parents]]
            flow = jnp.concatenate([flow, inflow * times * on[here]])
        return jax.ops.segment_sum(flow, jnp.asarray(service), num_services)

    return arrivals


def end_to_end(
    application: Application, root: ServiceCall, mean_s: Array, variance: Array, on: Array
) -> Moments:
    """Mean and variance [*streams] of a request's time, from those of its calls [services, *streams]."""
    place = {name: index for index, name in enumerate(application.deployments)}

    def of(call: ServiceCall) -> Moments:
        here = place[call.service]
        mean, spread = mean_s[here], variance[here]
        one_by_one = [often(of(child), child, place) for child in call.then if not child.parallel]
        at_once = [often(of(child), child, place) for child in call.then if child.parallel]
        below = [reduce(_after, one_by_one)] if one_by_one else []
        longest = [reduce(_longer, below + at_once)] if below or at_once else []
        return reduce(_after, longest, (mean, spread))

    def often(moments: Moments, call: ServiceCall, place: dict[str, int]) -> Moments:
        mean, spread = moments
        whole = float(np.floor(call.times))
        rest = call.times - whole
        total = whole * mean + rest * mean
        around = whole * spread + rest * (spread + mean**2) - rest**2 * mean**2
        here = on[place[call.service]]
        return total * here, around * here

    return of(root)


def _after(one: Moments, other: Moments) -> Moments:
    """Mean and variance of a sum of independent times."""
    return one[0] + other[0], one[1] + other[1]


def _longer(one: Moments, other: Moments) -> Moments:
    """Mean and variance of the larger of two normal variables (Clark 1961)."""
    (m1, v1), (m2, v2) = one, other
    spread = jnp.sqrt(jnp.maximum(v1 + v2, 1e-12))
    place = (m1 - m2) / spread
    below, density = jax.scipy.stats.norm.cdf(place), jax.scipy.stats.norm.pdf(place)
    mean = m1 * below + m2 * (1.0 - below) + spread * density
    square = (v1 + m1**2) * below + (v2 + m2**2) * (1.0 - below) + (m1 + m2) * spread * density
    return mean, jnp.maximum(square - mean**2, 1e-12)


def gamma_share_below(edges_s: Array, mean_s: Array, variance: Array) -> Array:
    """Share [edges, *streams] of a gamma variable at most `edges_s` [edges] (Wilson and Hilferty 1931)."""
    shape = mean_s**2 / jnp.maximum(variance, 1e-12)
    edges = edges_s.reshape((-1,) + (1,) * mean_s.ndim)
    root = jnp.cbrt(edges / jnp.maximum(mean_s, 1e-9)[None])
    deviation = 1.0 / (3.0 * jnp.sqrt(shape))[None]
    return jax.scipy.stats.norm.cdf((root - 1.0 + deviation**2) / deviation)
