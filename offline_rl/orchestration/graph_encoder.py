"""A three-level graph encoder: embeddings of nodes, of access points, and of the whole cluster.

    node          x_n = h1(sum of f1(x_m) over the other nodes m of its access point) + s_n       `num_hops` times
    access point  y_b = h2(sum of f2(x_n) over its nodes) + s_b
    cluster       z   = h3(sum of f3(y_b))

`s` are features, brought to the width of the embeddings by an affine map; f and h are perceptrons, shared by all nodes
of a level (Han et al. 2021, equation 8; Huang et al., section III-B.1). KaiS embeds the nodes of an access point one
after another, so its result depends on their order. Here all nodes are embedded at once: permuting nodes permutes
embeddings. Sums are taken as means, so that parameters carry over to clusters of other sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from twin.contracts import Array
from twin.networks import MLP, Dense


@dataclass(frozen=True)
class GraphConfig:
    """How a graph is encoded.

    Attributes:
        width: Of the embeddings.
        hidden: Widths of the hidden layers of f and h.
        num_hops: Rounds of messages between the nodes of an access point.
        mean: Sums over neighbours are divided by their number.
    """

    width: int = 32
    hidden: tuple[int, ...] = (64, 32)
    num_hops: int = 1
    mean: bool = True


KAIS_GRAPH = GraphConfig()
"""As KaiS has it (Han et al. 2021, section IV-C)."""
KMPS_GRAPH = GraphConfig(width=24, num_hops=3)
"""As KMPS has it (Huang et al., section III-B.1)."""


class Embeddings(NamedTuple):
    """What the levels of a graph are encoded as."""

    node: Array  # [width, nodes, *batch]
    point: Array  # [width, access points, *batch]
    cluster: Array  # [width, *batch]


class GraphEncoder(nn.Module):
    """The encoder of one topology; its parameters do not depend on the topology.

    Attributes:
        config: See `GraphConfig`.
        point_of_node: [nodes] index of the access point that every node belongs to.
        num_points: Number of access points (the cloud is one of them).
    """

    config: GraphConfig
    point_of_node: tuple[int, ...]
    num_points: int

    @nn.compact
    def __call__(self, node: Array, point: Array) -> Embeddings:
        """Encodes features of nodes [F, nodes, *batch] and of access points [G, access points, *batch]."""
        config, members = self.config, _members(self.point_of_node, self.num_points)
        size = members.sum(axis=1)

        def network(name: str) -> MLP:
            return MLP(config.hidden, config.width, name=name)

        def scaled(total: Array, count: np.ndarray) -> Array:
            scale = 1.0 / np.maximum(count, 1.0) if config.mean else np.ones_like(count)
            return total * jnp.asarray(scale, jnp.float32).reshape((1, -1) + (1,) * (total.ndim - 2))

        own = Dense(config.width, name="node")(node)
        send, receive = network("f1"), network("h1")
        embedded = own
        for _ in range(config.num_hops):
            message = send(embedded)
            others = _along(members.T, _along(members, message)) - message
            embedded = receive(scaled(others, members.T @ size - 1.0)) + own
        summary = scaled(_along(members, network("f2")(embedded)), size)
        points = network("h2")(summary) + Dense(config.width, name="point")(point)
        total = jnp.sum(network("f3")(points), axis=1)
        whole = total / self.num_points if config.mean else total
        return Embeddings(embedded, points, network("h3")(whole))


class StackedEncoder(nn.Module):
    """All features as one vector, instead of a graph: what papers compare the graph with. Bound to one topology.

    Attributes:
        config: Its widths; the rest does not apply.
    """

    config: GraphConfig

    @nn.compact
    def __call__(self, node: Array, point: Array) -> Embeddings:
        """Encodes as `GraphEncoder` does."""
        width, (num_nodes, num_points) = self.config.width, (node.shape[1], point.shape[1])
        batch = node.shape[2:]
        flat = jnp.concatenate([leaf.reshape((-1, *batch)) for leaf in (node, point)])
        size = width * (num_nodes + num_points + 1)
        encoded = MLP(self.config.hidden, size, name="stacked")(flat)
        cut = width * num_nodes, width * (num_nodes + num_points)
        return Embeddings(
            encoded[: cut[0]].reshape((width, num_nodes, *batch)),
            encoded[cut[0] : cut[1]].reshape((width, num_points, *batch)),
            encoded[cut[1] :],
        )


def point_of_each_node(embedded: Array, point_of_node: Sequence[int]) -> Array:
    """[width, nodes, *batch] the embedding of every node's access point."""
    return jnp.take(embedded, jnp.asarray(point_of_node, jnp.int32), axis=1)


def _members(point_of_node: tuple[int, ...], num_points: int) -> np.ndarray:
    """[access points, nodes] 1 where a node belongs to an access point.

    Raises:
        ConfigError: a node belongs to an access point that there is not.
    """
    if not point_of_node or not 0 <= min(point_of_node) <= max(point_of_node) < num_points:
        raise ConfigError(
            f"nodes belong to access points {sorted(set(point_of_node))}",
            where="GraphEncoder",
            allowed=f"at least one node, access points 0 to {num_points - 1}",
        )
    here = np.asarray(point_of_node)[None] == np.arange(num_points)[:, None]
    return here.astype(np.float32)


def _along(matrix: np.ndarray, values: Array) -> Array:
    """[width, rows, *batch] from values [width, columns, *batch]."""
    product = jnp.tensordot(jnp.asarray(matrix), values, axes=((1,), (1,)))
    return jnp.moveaxis(product, 0, 1)
