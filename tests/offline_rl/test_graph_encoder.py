"""The graph encoder: equation by equation, whatever the order of nodes, and for clusters of any size."""

import jax
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.orchestration.graph_encoder import KMPS_GRAPH, GraphConfig, GraphEncoder

NUM_FEATURES, NUM_POINT_FEATURES = 3, 2
SMALL = GraphConfig(width=4, hidden=(8,), num_hops=2)


def drawn(num_nodes, num_points, streams=(2,)):
    random = np.random.default_rng(num_nodes)
    shapes = (NUM_FEATURES, num_nodes, *streams), (NUM_POINT_FEATURES, num_points, *streams)
    return tuple(random.normal(size=shape).astype(np.float32) for shape in shapes)


def perceptron(params, values):
    """[outputs, ...] of [inputs, ...], by loops over nothing but layers."""
    for index in range(len(params)):
        layer = params[f"Dense_{index}"]
        values = np.tensordot(np.asarray(layer["kernel"]).T, values, axes=1)
        values += np.asarray(layer["bias"]).reshape((-1,) + (1,) * (values.ndim - 1))
        values = np.maximum(values, 0.0) if index < len(params) - 1 else values
    return values


def by_loops(params, config, point_of_node, num_points, node, point):
    """The equations, node by node."""
    params = params["params"]

    def affine(name, values):
        return np.tensordot(np.asarray(params[name]["kernel"]).T, values, axes=1) + np.asarray(
            params[name]["bias"]
        )

    def total(values):
        mean = np.sum(values, axis=0) / max(len(values), 1) if config.mean else np.sum(values, axis=0)
        return mean if len(values) else np.zeros(config.width)

    nodes = [affine("node", one) for one in node.T]
    embedded = list(nodes)
    for _ in range(config.num_hops):
        messages = [perceptron(params["f1"], one) for one in embedded]
        embedded = [
            perceptron(
                params["h1"],
                total([m for o, m in enumerate(messages) if o != n and point_of_node[o] == point_of_node[n]]),
            )
            + nodes[n]
            for n in range(len(nodes))
        ]
    points = [
        perceptron(
            params["h2"],
            total([perceptron(params["f2"], x) for n, x in enumerate(embedded) if point_of_node[n] == b]),
        )
        + affine("point", point[:, b])
        for b in range(num_points)
    ]
    whole = perceptron(params["h3"], total([perceptron(params["f3"], one) for one in points]))
    return np.stack(embedded, axis=1), np.stack(points, axis=1), whole


@pytest.mark.parametrize("mean", [True, False])
def test_every_level_is_the_equation_of_the_paper(mean):
    config = GraphConfig(width=4, hidden=(8,), num_hops=2, mean=mean)
    point_of_node = (0, 0, 1, 0, 2)  # one access point has one node, one has none
    encoder = GraphEncoder(config, point_of_node, 4)
    node, point = drawn(5, 4)
    params = encoder.init(jax.random.key(0), node, point)
    found = encoder.apply(params, node, point)
    for stream in range(2):
        wanted = by_loops(params, config, point_of_node, 4, node[..., stream], point[..., stream])
        for level, one in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(level)[..., stream], one, rtol=1e-4, atol=1e-5)


def test_permuting_nodes_and_access_points_permutes_their_embeddings_and_leaves_the_cluster_s():
    random = np.random.default_rng(0)
    point_of_node = np.array([0, 0, 1, 0, 2, 1, 2])
    node, point = drawn(7, 3)
    params = GraphEncoder(SMALL, tuple(point_of_node), 3).init(jax.random.key(0), node, point)
    plain = GraphEncoder(SMALL, tuple(point_of_node), 3).apply(params, node, point)
    nodes, points = random.permutation(7), random.permutation(3)
    renamed = np.argsort(points)[point_of_node[nodes]]
    other = GraphEncoder(SMALL, tuple(renamed), 3).apply(params, node[:, nodes], point[:, points])
    np.testing.assert_allclose(other.node, plain.node[:, nodes], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other.point, plain.point[:, points], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other.cluster, plain.cluster, rtol=1e-4, atol=1e-5)
    assert np.asarray(plain.node).std(axis=1).min() > 1e-3


@pytest.mark.slow
def test_parameters_of_five_access_points_encode_ten_with_a_hundred_nodes():
    """Ten copies of one access point: every copy's nodes are encoded as the nodes of the five were."""
    eight, (node, point) = 8, drawn(8, 1, ())
    of_five = tuple(np.repeat(np.arange(5), eight))
    tiled = [np.tile(leaf, (1, 5)) for leaf in (node, point)]
    params = GraphEncoder(KMPS_GRAPH, of_five, 5).init(jax.random.key(0), *tiled)
    five = GraphEncoder(KMPS_GRAPH, of_five, 5).apply(params, *tiled)
    of_ten = tuple(np.repeat(np.arange(10), 10))
    random_node, random_point = drawn(100, 10, ())
    ten = GraphEncoder(KMPS_GRAPH, of_ten, 10).apply(params, random_node, random_point)
    assert [leaf.shape for leaf in ten] == [(24, 100), (24, 10), (24,)]
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in ten)
    copies = [np.tile(leaf, (1, 10)) for leaf in (node, point)]
    twice = GraphEncoder(KMPS_GRAPH, tuple(np.repeat(np.arange(10), eight)), 10).apply(params, *copies)
    for level in ("node", "point"):
        copy, one = getattr(twice, level), getattr(five, level)
        np.testing.assert_allclose(copy[:, : one.shape[1]], one, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(twice.cluster, five.cluster, rtol=1e-4, atol=1e-5)


def test_nodes_of_access_points_that_there_are_not_are_refused():
    with pytest.raises(ConfigError, match=r"access points \[0, 3\]"):
        GraphEncoder(SMALL, (0, 3), 2).init(jax.random.key(0), *drawn(2, 2))
