"""Which replicas are hosted where, and how that changes: the interface of orchestration.

An `Orchestration` names H nodes and for each a change `l` (KaiS, section III-B.3; KMPS, section III-B): `l = w` adds a
replica of service w, `l = -w` removes one, 0 leaves the node alone; w is an index of the cluster's vocabulary of
services, whose 0 means "unknown" and so never names a service. `schedule(case, deployment, action, clock_s)` applies it
between two slots: every frame where `slot_response` is given an orchestrator `(key, SlotState) -> Orchestration`.

An addition takes its memory at once. Where the node has the service's image (it hosts a replica) it serves from the
next slot on; otherwise the image is pulled from the cloud first, which takes the WAN's latency and the image's size
over its bandwidth. A removal waits until a replica is idle: fewer requests of the service are at the node (waiting,
served or on their way) than it has replicas. What cannot be is turned into `l = 0`, as in the papers: no memory, a
service that the rules forbid there, no replica to remove, no such node or service, or too many changes under way
already (`SlotConfig.changes`).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Streams
from twin.environment import beside
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.nodes import HeldRequests
from twin.placement.features import one_hot


class Orchestration(NamedTuple):
    """What an orchestrator asks for; leaves [H, *streams] int32."""

    node: Array
    change: Array  # 0: none; w: add a replica of service w; -w: remove one


class Deployment(NamedTuple):
    """What is hosted; public."""

    replicas: Array  # [services, nodes, *streams] float32: replicas that can serve
    used_gib: Array  # [nodes, *streams] memory of replicas, those being pulled included
    service: Array  # [changes, *streams] int32: of a change under way, 0 where there is none
    node: Array  # [changes, *streams] int32
    adds: Array  # [changes, *streams] bool
    due_s: Array  # [changes, *streams] when the image is there


def first_deployed(case: EdgeCloud, streams: Streams) -> Deployment:
    """The instance's first deployment, in every stream."""
    replicas = jnp.asarray(case.replicas, jnp.float32)
    used_gib = jnp.asarray(case.replica_gib @ case.replicas, jnp.float32)

    def everywhere(value: Array) -> Array:
        return jnp.broadcast_to(value.reshape((*value.shape, *(1,) * len(streams))), (*value.shape, *streams))

    index = jnp.zeros((case.config.changes, *streams), jnp.int32)
    return Deployment(
        everywhere(replicas),
        everywhere(used_gib),
        index,
        index,
        index > 0,
        jnp.zeros(index.shape, jnp.float32),
    )


def schedule(
    case: EdgeCloud, deployment: Deployment, action: Orchestration, clock_s: Array
) -> tuple[Deployment, Array]:
    """Enters the changes asked for.

    Args:
        case: The instance.
        deployment: As it is.
        action: What is asked for.
        clock_s: [*streams] now.

    Returns:
        The deployment with the changes under way, and what pulling images puts on the WAN [*streams] MiB.
    """
    pulled_mib = jnp.zeros(clock_s.shape, jnp.float32)
    for one in range(action.node.shape[0]):
        deployment, more_mib = _enter(case, deployment, action.node[one], action.change[one], clock_s)
        pulled_mib += more_mib
    return deployment, pulled_mib


def _enter(
    case: EdgeCloud, deployment: Deployment, node: Array, change: Array, clock_s: Array
) -> tuple[Deployment, Array]:
    num_services, num_nodes = case.num_services, case.num_nodes
    service, adds = jnp.abs(change), change > 0
    exists = (service > 0) & (service < num_services) & (node >= 0) & (node < num_nodes)
    service, node = jnp.where(exists, service, 0), jnp.where(exists, node, 0)
    here = one_hot(node, num_nodes)
    replicas = _at(deployment.replicas, service, here)
    free_gib = jnp.sum(
        jnp.where(here, _beside_nodes(case.memory_gib, node) - deployment.used_gib, 0.0), axis=0
    )
    needs_gib = jnp.asarray(case.replica_gib)[service]
    leaving = (deployment.service == service[None]) & (deployment.node == node[None]) & ~deployment.adds
    removable = replicas > jnp.sum(leaving & (deployment.service > 0), axis=0)
    places = deployment.service.shape[0]
    index = jnp.arange(places, dtype=jnp.int32).reshape((-1,) + (1,) * node.ndim)
    free = jnp.min(jnp.where(deployment.service == 0, index, places), axis=0)
    able = jnp.asarray(case.hosts)[service, node] & (needs_gib <= free_gib + 1e-4)
    valid = exists & (free < places) & jnp.where(adds, able, removable)
    pulls = valid & adds & (replicas == 0.0)
    due_s = clock_s + jnp.where(pulls, jnp.asarray(case.pull_s)[service, node], 0.0)
    place = (index == free[None]) & valid[None]
    deployment = deployment._replace(
        used_gib=deployment.used_gib + jnp.where(here & (valid & adds)[None], needs_gib[None], 0.0),
        service=jnp.where(place, service[None], deployment.service),
        node=jnp.where(place, node[None], deployment.node),
        adds=jnp.where(place, adds[None], deployment.adds),
        due_s=jnp.where(place, due_s[None], deployment.due_s),
    )
    return deployment, jnp.where(pulls, jnp.asarray(case.pull_mib)[service, node], 0.0)


def _beside_nodes(values: np.ndarray, like: Array) -> Array:
    """[nodes] values beside arrays [nodes, *streams], `like` being one of [*streams]."""
    return jnp.asarray(values).reshape((-1,) + (1,) * like.ndim)


def _at(table: Array, service: Array, here: Array) -> Array:
    """[*streams] the entry of [services, nodes, *streams] at a service [*streams] and a node (one-hot)."""
    row = jnp.sum(jnp.where(one_hot(service, table.shape[0])[:, None], table, 0.0), axis=0)
    return jnp.sum(jnp.where(here, row, 0.0), axis=0)


def replicas_at(deployment: Deployment, service: Array, node: Array) -> Array:
    """[seats, *streams] replicas of the services on the nodes, both [seats, *streams]."""
    num_services, num_nodes = deployment.replicas.shape[:2]
    width = deployment.replicas.size // (num_services * num_nodes)
    flat = ((service * num_nodes + node).reshape(-1, width) * width) + jnp.arange(width, dtype=jnp.int32)[
        None
    ]
    return deployment.replicas.reshape(-1)[flat].reshape(node.shape)


def carry_out(
    case: EdgeCloud, deployment: Deployment, held: HeldRequests, until_s: Array
) -> tuple[Deployment, HeldRequests]:
    """Makes the changes that are due at `until_s` [*streams]: replicas whose image is there join, idle ones go."""
    num_services, num_nodes = case.num_services, case.num_nodes
    present = jnp.isfinite(held.arrives_s) & jnp.isinf(held.end_s)
    for one in range(deployment.service.shape[0]):
        service, node = deployment.service[one], deployment.node[one]
        here, adds = one_hot(node, num_nodes), deployment.adds[one]
        theirs = here[:, None] & (held.service == beside(service, held.service))
        busy = jnp.sum(theirs & present, axis=(0, 1))
        idle = busy < _at(deployment.replicas, service, here)
        made = (service > 0) & jnp.where(adds, deployment.due_s[one] <= until_s, idle)
        step = jnp.where(made, jnp.where(adds, 1.0, -1.0), 0.0)
        freed_gib = jnp.where(made & ~adds, jnp.asarray(case.replica_gib)[service], 0.0)
        where = one_hot(service, num_services)[:, None] & here[None]
        held = held._replace(replicas=held.replicas + jnp.where(theirs, beside(step, held.service), 0.0))
        deployment = deployment._replace(
            replicas=deployment.replicas + jnp.where(where, step[None, None], 0.0),
            used_gib=deployment.used_gib - jnp.where(here, freed_gib[None], 0.0),
            service=deployment.service.at[one].set(jnp.where(made, 0, service)),
        )
    return deployment, held
