"""A clone of the behaviour in a log of slot mode: its dispatcher as a conditional logit, its orchestration as logged.

    P(node) = explored / legal nodes + (1 - explored) softmax(weights . features),   over legal nodes

with features that a log and a state of slot mode tell alike: requests at the node for each core, where the access point
is the node's own and as the mean of the node's site elsewhere, and flags of the own site and the cloud. Weights and the
share explored are maximum-likelihood estimates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.orchestration.deployment import Orchestration
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.encode import ReplicaRows, SlotRows
from twin.orchestration.frame_mechanics import Dispatch
from twin.orchestration.mechanics import Orchestrator
from twin.orchestration.slots import SlotState

MOST_ROWS = 6_000


class DispatchClone(NamedTuple):
    """A cloned dispatcher."""

    weights: np.ndarray  # [features]
    explored: float


def fit_clone(edge: EdgeCloud, rows: SlotRows, replicas: ReplicaRows, seed: int = 0) -> DispatchClone:
    """The dispatcher that is likeliest to have sent the requests of a log where they went.

    Args:
        edge: The cluster.
        rows: Requests, of one or several days.
        replicas: Deployments of the same days.
        seed: Of the sample of rows that is looked at.
    """
    from scipy.optimize import minimize

    sent = np.flatnonzero((rows.node >= 0) & np.isfinite(rows.decided_s))
    random = np.random.default_rng(seed)
    sent = np.sort(random.permutation(sent)[:MOST_ROWS])
    load = _loads(edge, rows, sent) / np.maximum(edge.cores, 1e-9)
    features = _features(edge, jnp.asarray(rows.site[sent]), jnp.asarray(load))
    legal = _hosted(edge, rows, replicas, sent) | (np.arange(edge.num_nodes) == rows.node[sent][:, None])
    chosen = rows.node[sent]

    def loss(point: jax.Array) -> jax.Array:
        explored = jax.nn.sigmoid(point[-1])
        logits = jnp.where(legal, jnp.tensordot(point[:-1], features, axes=1), -jnp.inf)
        likely = jnp.take_along_axis(jax.nn.softmax(logits, axis=1), chosen[:, None], axis=1)[:, 0]
        return -jnp.mean(jnp.log(explored / legal.sum(axis=1) + (1.0 - explored) * likely + 1e-9))

    value = jax.jit(jax.value_and_grad(loss))
    start = np.array([-1.0, -1.0, 0.0, 0.0, -1.0])
    found = minimize(lambda x: tuple(np.asarray(one, np.float64) for one in value(x)), start, jac=True)
    return DispatchClone(found.x[:-1], float(1.0 / (1.0 + np.exp(-found.x[-1]))))


def cloned_dispatch(edge: EdgeCloud, clone: DispatchClone) -> Dispatch:
    """The clone, as slot mode's dispatcher."""

    def dispatch(key: Array, state: SlotState, legal: Array) -> Array:
        load = state.here.held / jnp.asarray(edge.cores).reshape((-1,) + (1,) * (state.here.held.ndim - 1))
        site = state.placement.request.site
        features = _features(edge, jnp.moveaxis(site, 0, -1), jnp.moveaxis(load, 0, -1)[..., None, :])
        logits = jnp.moveaxis(jnp.tensordot(jnp.asarray(clone.weights), features, axes=1), (-1, -2), (0, 1))
        key_explore, key_any, key_choice = jax.random.split(key, 3)
        noise = jax.random.gumbel(key_choice, legal.shape)
        best = jnp.argmax(jnp.where(legal, logits + noise, -jnp.inf), axis=0)
        anywhere = jnp.argmax(jnp.where(legal, jax.random.uniform(key_any, legal.shape), -1.0), axis=0)
        explores = jax.random.uniform(key_explore, best.shape) < clone.explored
        return jnp.where(explores, anywhere, best).astype(jnp.int32)

    return dispatch


def logged_changes(edge: EdgeCloud, replicas: ReplicaRows, day: int, num_frames: int) -> np.ndarray:
    """[frames, most, 2] int32: nodes and signed services of the changes that a log shows to have been asked for.

    A replica that a node's image had to be pulled for was asked for that much earlier.
    """
    frame_s = edge.config.frame_s
    asked: list[list[tuple[int, int]]] = [[] for _ in range(num_frames)]
    now = edge.replicas.copy()
    mine = np.flatnonzero((replicas.day == day) & (replicas.time_s > 0.0) & (replicas.node >= 0))
    for row in mine[np.argsort(replicas.time_s[mine], kind="stable")]:
        service, node = int(replicas.service[row]), int(replicas.node[row])
        step = int(replicas.num_replicas[row]) - int(now[service, node])
        pulled_s = float(edge.pull_s[service, node]) if step > 0 and now[service, node] == 0 else 0.0
        frame = int(np.clip((replicas.time_s[row] - pulled_s) / frame_s, 0, num_frames - 1))
        asked[frame] += [(node, int(np.sign(step)) * service)] * abs(step)
        now[service, node] += step
    table = np.zeros((num_frames, max(1, *(len(one) for one in asked)), 2), np.int32)
    for frame, changes in enumerate(asked):
        for place, change in enumerate(changes):
            table[frame, place] = change
    return table


def logged_orchestration(edge: EdgeCloud, table: Array) -> Orchestrator:
    """Asks in every frame for the changes of `logged_changes`."""
    frame_s, num_frames = edge.config.frame_s, table.shape[0]

    def orchestrate(_key: Array, state: SlotState) -> Orchestration:
        clock_s = state.placement.clock_s
        frame = jnp.clip((clock_s / frame_s + 1e-3).astype(jnp.int32), 0, num_frames - 1)
        rows = jnp.moveaxis(jnp.asarray(table)[frame], (-2, -1), (0, 1))
        return Orchestration(rows[:, 0], rows[:, 1])

    return orchestrate


def _features(edge: EdgeCloud, site: Array, load: Array) -> Array:
    """[features, ..., nodes] of decisions at sites [...], by requests for each core [..., nodes]."""
    of_node = np.asarray(edge.cluster.site_of_node)
    together = (of_node[:, None] == of_node[None]).astype(np.float32)
    mean = jnp.tensordot(load, together / together.sum(axis=1, keepdims=True), axes=((-1,), (1,)))
    beside = (1,) * site.ndim + (-1,)
    own = (site[..., None] == of_node.reshape(beside)).astype(jnp.float32)
    cloud = np.asarray(edge.cluster.is_cloud, np.float32).reshape(beside)
    same = jnp.zeros_like(own + mean)
    return jnp.stack([own * load, (1.0 - own) * mean, own + same, cloud + same])


def _loads(edge: EdgeCloud, rows: SlotRows, sent: np.ndarray) -> np.ndarray:
    """[sent, nodes] requests at every node, or on their way, when a request was sent."""
    at_node = np.isfinite(rows.decided_s) & (rows.node >= 0)
    end_s = np.where(np.isfinite(rows.finish_s), rows.finish_s, np.inf)
    found = np.zeros((len(sent), edge.num_nodes))
    for day in np.unique(rows.day[sent]):
        here = rows.day[sent] == day
        now = rows.decided_s[sent[here]]
        for node in range(edge.num_nodes):
            mine = at_node & (rows.day == day) & (rows.node == node)
            begun = np.searchsorted(np.sort(rows.decided_s[mine]), now - 1e-4, side="left")
            ended = np.searchsorted(np.sort(end_s[mine]), now + 1e-4, side="right")
            found[here, node] = begun - ended
    return found


def _hosted(edge: EdgeCloud, rows: SlotRows, replicas: ReplicaRows, sent: np.ndarray) -> np.ndarray:
    """[sent, nodes] bool: the node had a replica of the request's service when it was sent."""
    found = np.zeros((len(sent), edge.num_nodes), bool)
    place = (replicas.day * edge.num_services + replicas.service) * edge.num_nodes + replicas.node
    order = np.lexsort((replicas.time_s, place))
    place, time_s, count = place[order], replicas.time_s[order], replicas.num_replicas[order]
    for node in range(edge.num_nodes):
        mine = (rows.day[sent] * edge.num_services + rows.service[sent]) * edge.num_nodes + node
        for key in np.unique(mine):
            history = slice(*np.searchsorted(place, [key, key + 1]))
            here = mine == key
            last = np.searchsorted(time_s[history], rows.decided_s[sent[here]] + 1e-4) - 1
            known = count[history]
            found[here, node] = (last >= 0) & (known[np.maximum(last, 0)] > 0) if len(known) else False
    return found
