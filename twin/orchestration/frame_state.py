"""What an orchestrator observes, and what it may change.

An orchestrator is central: it sees what the nodes and the access points report of themselves, service by service, and
no request's fate. Measurements are averages over a frame; the last of them stand last.
"""

from typing import NamedTuple

import jax.numpy as jnp

from twin.contracts import Array
from twin.orchestration.counts import Counts
from twin.orchestration.deployment import Deployment, Orchestration
from twin.placement.features import one_hot


class Scaling(NamedTuple):
    """The action of a frame: H nodes and what changes on each; leaves [H, *streams] int32.

    `change` counts from zero, as choices do: 0 nothing, `w` one replica more of service w, `services - 1 + w` one less.
    """

    node: Array
    change: Array


class Load(NamedTuple):
    """Requests by service, averaged over a frame."""

    running: Array  # [services, nodes, *streams] in service
    waiting: Array  # [services, nodes, *streams] waiting at the node or on their way to it
    queued: Array  # [services, seats, *streams] at the access points


class Measured(NamedTuple):
    """Measurements of services, frame by frame; leaves [frames, services, *streams], the latest last."""

    busy: Array  # mean number of replicas in service; NaN before the first frame
    requests: Array  # mean number of requests in service, waiting or queued; NaN before the first frame
    ready: Array  # replicas that could serve at the end of the frame
    specified: Array  # those and the ones being added, without the ones being removed


class FrameEvents(NamedTuple):
    """What is recorded of a frame."""

    clock_s: Array
    available: Array  # [nodes, *streams] bool
    deployment: Deployment
    load: Load  # zero before the first frame
    counts: Counts


class FrameState(NamedTuple):
    """The state of the orchestration problem."""

    clock_s: Array  # [*streams]
    available: Array  # [nodes, *streams] bool: which nodes are up
    deployment: Deployment
    load: Load  # of the frame that has just ended
    measured: Measured
    counts: Counts  # totals since the beginning


class FrameDecisionInfo(NamedTuple):
    """What is known of a decision at once; leaves [H, *streams]."""

    clock_s: Array


class FrameOutcome(NamedTuple):
    """What came of a frame; leaves [H, *streams], the same for all H."""

    arrived: Array
    on_time: Array
    waiting: Array  # mean number of requests that waited, at nodes and at access points
    scheduling_mib: Array  # inputs forwarded and images pulled
    energy_j: Array


def as_orchestration(action: Scaling, num_services: int) -> Orchestration:
    """The changes as slot mode names them; `num_services` counts the unknown one."""
    removes = action.change >= num_services
    return Orchestration(action.node, jnp.where(removes, num_services - 1 - action.change, action.change))


def specified(deployment: Deployment) -> Array:
    """[services, *streams] replicas as asked for: serving, with those being added and without those being removed."""
    serving = jnp.sum(deployment.replicas, axis=1)
    whose = one_hot(deployment.service, serving.shape[0]) & (deployment.service > 0)[None]
    return serving + jnp.sum(jnp.where(whose, jnp.where(deployment.adds, 1.0, -1.0)[None], 0.0), axis=1)


def removable(deployment: Deployment) -> Array:
    """[services, nodes, *streams] replicas that serve and are not being removed yet."""
    num_services, num_nodes = deployment.replicas.shape[:2]
    left = deployment.replicas
    for one in range(deployment.service.shape[0]):
        service, leaves = deployment.service[one], ~deployment.adds[one]
        where = one_hot(service, num_services)[:, None] & one_hot(deployment.node[one], num_nodes)[None]
        left = left - jnp.where(where & (leaves & (service > 0))[None, None], 1.0, 0.0)
    return left
