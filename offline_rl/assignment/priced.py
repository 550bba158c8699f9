"""This project's network: every edge has prices, a request goes where it costs least; linear in requests x edges.

    logit[z, q] = bias_q - price_q * work - way_q * transfer - back_q * result + home_q [z came to q] + f_z . g_q

with times over the instance's own unit (`unit_s`), so nothing depends on units, coordinates or on how many edges and
requests there are. What the edges say comes of their own features and of what all edges and requests are on average
and at most; so it costs Q + Z evaluations of small perceptrons, and no pair is looked at by more than the sum above.
It is the form of the relaxation's dual (`offline_rl.assignment.bounds`), whose prices no request sees but through it.
"""

from typing import Any, NamedTuple

import numpy as np

from offline_rl.assignment.layers import Params, dense_params, largest, mlp, mlp_params, np_of
from twin.assignment.types import Costs

WIDTH, FACTORS = 64, 8
NUM_PRICES = 5
EDGE_FEATURES, REQUEST_FEATURES = 9, 7


class Pairs(NamedTuple):
    """A round in its own unit of time; leaves [*batch, Z, Q] but for the features."""

    work: Any
    transfer: Any  # 0 where the request came
    result: Any
    stays: Any
    hosts: Any  # bool
    edges: Any  # [*batch, Q, EDGE_FEATURES]
    requests: Any  # [*batch, Z, REQUEST_FEATURES]


def priced_params(rng: np.random.Generator) -> Params:
    """Parameters to begin with: nearly the same small prices for all."""
    heads = dense_params(rng, WIDTH, NUM_PRICES + FACTORS)
    return {
        "edge": mlp_params(rng, (EDGE_FEATURES, WIDTH, WIDTH)),
        "request": mlp_params(rng, (REQUEST_FEATURES, WIDTH, WIDTH)),
        "edge_0": mlp_params(rng, (5 * WIDTH, WIDTH, WIDTH)),
        "edge_1": mlp_params(rng, (3 * WIDTH, WIDTH, WIDTH)),
        "prices": {"dense_0": heads},
        "factors": mlp_params(rng, (WIDTH, WIDTH, FACTORS)),
    }


def unit_s(costs: Costs) -> Any:
    """[*batch] the instance's unit of time: all backlogs and work shared among the edges by their speeds."""
    xp = np_of(costs.work_s)
    hosts = xp.isfinite(costs.work_s)
    mean_s = xp.where(hosts, costs.work_s, 0.0).sum(axis=-2) / xp.maximum(hosts.sum(axis=-2), 1)
    speed = 1.0 / xp.maximum(mean_s, 1e-9)
    share = speed / speed.sum(axis=-1, keepdims=True)
    least_s = xp.where(hosts, costs.work_s * share[..., None, :], xp.inf).min(axis=-1).sum(axis=-1)
    held_s = (share * (xp.maximum(costs.local_s, costs.arriving_s) + costs.transferred_s)).sum(axis=-1)
    way_s = xp.where(hosts, costs.transfer_s + costs.result_s, 0.0).mean(axis=(-1, -2))
    return xp.maximum(least_s + held_s + way_s, 1e-9)


def pairs_of(costs: Costs) -> Pairs:
    """A round as the network sees it."""
    xp, unit = np_of(costs.work_s), unit_s(costs)
    hosts = xp.isfinite(costs.work_s)
    every = xp.arange(costs.local_s.shape[-1]).reshape((1,) * costs.source.ndim + (-1,))
    stays = costs.source[..., None] == every
    per_pair = 1.0 / unit[..., None, None]
    work = xp.where(hosts, costs.work_s, 0.0) * per_pair
    transfer = xp.where(stays, 0.0, costs.transfer_s) * per_pair
    result = costs.result_s * per_pair
    num_requests, num_edges = work.shape[-2:]
    held = [one / unit[..., None] for one in costs[4:]]
    mean_work = work.sum(axis=-2) / xp.maximum(hosts.sum(axis=-2), 1)
    speed = 1.0 / xp.maximum(mean_work, 1e-6)
    share = speed / speed.sum(axis=-1, keepdims=True) * num_edges
    edges = [
        *held,
        xp.maximum(held[0], held[1]) + held[2] + held[3],
        xp.log(share + 1e-6),
        transfer.mean(axis=-2),
        result.mean(axis=-2),
        stays.mean(axis=-2) * num_edges,
    ]
    relative = work / xp.maximum(mean_work[..., None, :], 1e-6)
    requests = [
        relative.mean(axis=-1),
        work.mean(axis=-1) * num_requests / num_edges,
        transfer.mean(axis=-1),
        transfer.max(axis=-1),
        result.mean(axis=-1),
        result.min(axis=-1),
        result.max(axis=-1),
    ]
    of_edges, of_requests = (
        xp.stack(one, axis=-1).clip(-10.0, 10.0).astype(np.float32) for one in (edges, requests)
    )
    work, transfer, result = (one.astype(np.float32) for one in (work, transfer, result))
    return Pairs(work, transfer, result, stays, hosts, of_edges, of_requests)


def priced_logits(params: Params, pairs: Pairs) -> Any:
    """[*batch, Z, Q] logits; -1e9 where an edge does not host the service."""
    xp = np_of(pairs.work)
    edge, request = mlp(params["edge"], pairs.edges), mlp(params["request"], pairs.requests)
    edge = mlp(
        params["edge_0"], xp.concatenate([edge, *_all_of(edge, edge), *_all_of(request, edge)], axis=-1)
    )
    edge = mlp(params["edge_1"], xp.concatenate([edge, *_all_of(edge, edge)], axis=-1))
    said = mlp(params["prices"], edge)
    price, way, back = (xp.exp(said[..., None, :, index].clip(-6.0, 6.0)) for index in range(3))
    bias, home = said[..., None, :, 3], said[..., None, :, 4]
    factors = mlp(params["factors"], request) @ said[..., NUM_PRICES:].swapaxes(-1, -2)
    num_each = pairs.work.shape[-2] / pairs.work.shape[-1]
    logits = bias + factors - price * pairs.work * num_each - way * pairs.transfer - back * pairs.result
    return xp.where(pairs.hosts, logits + home * pairs.stays, np.float32(-1e9))


def _all_of(every: Any, like: Any) -> list[Any]:
    """The mean and the largest of a set [*batch, n, width], beside every one of `like` [*batch, m, width]."""
    xp = np_of(every)
    pooled = every.mean(axis=-2, keepdims=True), largest(every)
    return [xp.broadcast_to(one, like.shape) for one in pooled]
