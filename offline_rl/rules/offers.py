"""What a rule reads of a placement observation, in plain terms: waits, runs, transfers, in time units.

The inputs are those of the policy itself (`twin.placement.features`) and a few numbers from the log:

    response = max(queue, latency + per_mib * input) + run
    queue    = wait_scale * backlog where the node is short of cores, behind_scale * backlog where others go first
    run      = usual run * exp(crowding_0 * ln(1 + running) + crowding_1 * ln max(1, load) - crowding_2)

`running` counts the requests that run on the node, `load` is the share of its cores that all there ask for, with this.

A site that observes other sites by their means reads the same of the means.
"""

from typing import NamedTuple

import jax.numpy as jnp

from twin.contracts import Array, PyTree
from twin.placement.features import NODE_FEATURES, NUMERIC_REQUEST_FEATURES

_OF_NODE = {feature.name: row for row, feature in enumerate(NODE_FEATURES)}
_OF_REQUEST = {feature.name: row for row, feature in enumerate(NUMERIC_REQUEST_FEATURES)}


class OfferEstimates(NamedTuple):
    """What is expected of every offer; leaves [choices, *batch], durations in time units."""

    acceptance: Array  # probability
    backlog: Array  # work ahead over all cores, where cores are short; else 0
    behind: Array  # the same where cores are free, but others wait or a GPU that is asked for is not free
    run: Array  # usual run time
    core_time: Array  # the run, times the share of the cores requested
    busy: Array  # share of the cores in use
    crowd: Array  # [2, choices, *batch] ln(1 + running), ln max(1, load)
    kind: Array  # [3, choices, *batch] flags, in the order of `usual.OFFER_KINDS`
    input_mib: Array  # [1, *batch]
    deadline: Array  # [1, *batch], inf without one


def read_offers(node: Array, request: Array) -> OfferEstimates:
    """The offers of an observation.

    Args:
        node: [node features, choices, *batch].
        request: [request features, *batch].

    Returns:
        The offers, durations never negative.
    """

    def duration(feature: Array) -> Array:
        return jnp.maximum(jnp.expm1(feature), 0.0)

    seen = {name: node[row] for name, row in _OF_NODE.items()}
    of_request = {name: request[row][None] for name, row in _OF_REQUEST.items()}
    room = seen["free_cpu_cores"] - jnp.expm1(seen["waiting_share"])
    has_room = room >= seen["needed_share"] - 1e-3
    load = 1.0 - room + seen["needed_share"]
    no_gpu = (of_request["asked_gpus"] > 0.0) & (seen["free_gpus"] < 1e-3)
    is_behind = has_room & (no_gpu | (seen["num_waiting"] > 0.0))
    work = duration(seen["backlog"])
    home = seen["same_site"] > 0.5
    cloud = ~home & (seen["is_cloud"] > 0.5)
    return OfferEstimates(
        acceptance=seen["acceptance"],
        backlog=jnp.where(has_room, 0.0, work),
        behind=jnp.where(is_behind, work, 0.0),
        run=duration(seen["usual_run"]),
        core_time=duration(seen["core_time"]),
        busy=1.0 - seen["free_cpu_cores"],
        crowd=jnp.stack([seen["num_running"], jnp.log(jnp.maximum(load, 1.0))]),
        kind=jnp.stack([home, ~home & ~cloud, cloud]).astype(jnp.float32),
        input_mib=duration(of_request["input"]),
        deadline=jnp.where(of_request["has_deadline"] > 0.5, duration(of_request["deadline"]), jnp.inf),
    )


def expected_delay(params: PyTree, offers: OfferEstimates) -> Array:
    """[choices, *batch] time from the offer to the start: the queue and the transfer run side by side."""

    def of_kind(values: Array) -> Array:
        return jnp.tensordot(values, offers.kind, axes=1)

    transfer = of_kind(params["latency"]) + of_kind(params["per_mib"]) * offers.input_mib
    queue = params["wait_scale"] * offers.backlog + params["behind_scale"] * offers.behind
    return jnp.maximum(queue, transfer)


def expected_run(params: PyTree, offers: OfferEstimates) -> Array:
    """[choices, *batch] how long the request should run, beside those that run there now."""
    by_count, by_load, usual = params["crowding"]
    return offers.run * jnp.exp(by_count * offers.crowd[0] + by_load * offers.crowd[1] - usual)


def cost_to_others(params: PyTree, offers: OfferEstimates) -> Array:
    """[choices, *batch] what a request costs those that come later, by `price`, and those that run there, by `toll`."""
    later = params["price"] * jnp.log1p(offers.core_time) * (1.0 + offers.busy)
    return later + params["toll"] * offers.crowd[0] * jnp.log1p(offers.run)
