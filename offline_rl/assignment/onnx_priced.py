"""The network of `offline_rl.assignment.priced` as an ONNX graph, operator by operator, and its reader.

    work, transfer, result [batch, Z, Q] float32, stays, hosts [batch, Z, Q] bool,
    edges [batch, Q, EDGE_FEATURES], requests [batch, Z, REQUEST_FEATURES] float32 -> logits [batch, Z, Q] float32

Requests and edges are free in number. What a round looks like (`priced.pairs_of`) stays NumPy's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from logs_schema.extras import how_to_install
from offline_rl.assignment.layers import Params
from offline_rl.assignment.priced import EDGE_FEATURES, FACTORS, NUM_PRICES, REQUEST_FEATURES, Pairs
from offline_rl.bundle import GRAPH
from offline_rl.onnx_graph import Graph, Tensor
from offline_rl.runner.network import graph_session
from twin.nested import by_path

SHAPES: dict[str, list[str | int]] = {
    "work": ["batch", "Z", "Q"],
    "transfer": ["batch", "Z", "Q"],
    "result": ["batch", "Z", "Q"],
    "stays": ["batch", "Z", "Q"],
    "hosts": ["batch", "Z", "Q"],
    "edges": ["batch", "Q", EDGE_FEATURES],
    "requests": ["batch", "Z", REQUEST_FEATURES],
}
_FLAGS = ("stays", "hosts")


def priced_graph(params: Params) -> bytes:
    """The serialised and checked model; ProductError where onnx is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise ProductError(
            "a scheduler's ONNX copy needs onnx, which is not installed", advice=how_to_install("onnx")
        ) from error
    graph = Graph(onnx, by_path(params))
    edge, request = _mlp(graph, params, "edge", "edges"), _mlp(graph, params, "request", "requests")
    edge = _mlp(graph, params, "edge_0", _beside(graph, edge, edge, request))
    edge = _mlp(graph, params, "edge_1", _beside(graph, edge, edge))
    said = _mlp(graph, params, "prices", edge)
    parts = [f"said_{index}" for index in range(NUM_PRICES + 1)]
    split = graph.integers(*[1] * NUM_PRICES, FACTORS)
    graph.nodes.append(onnx.helper.make_node("Split", [said, split], parts, axis=2))
    price, way, back, bias, home, factors = (graph.add("Transpose", one, perm=[0, 2, 1]) for one in parts)
    logits = graph.add("Add", graph.add("MatMul", _mlp(graph, params, "factors", request), factors), bias)
    work = graph.add("Mul", "work", _num_each(graph, onnx))
    for prices, seconds in ((price, work), (way, "transfer"), (back, "result")):
        logits = graph.add("Sub", logits, graph.add("Mul", _positive(graph, prices), seconds))
    stays = graph.add("Cast", "stays", to=onnx.TensorProto.FLOAT)
    logits = graph.add("Add", logits, graph.add("Mul", home, stays))
    graph.add("Where", "hosts", logits, graph.constant("nowhere", np.array(-1e9, np.float32)), out="logits")
    kinds = onnx.TensorProto
    inputs: dict[str, Tensor] = {
        name: (kinds.BOOL if name in _FLAGS else kinds.FLOAT, shape) for name, shape in SHAPES.items()
    }
    return graph.serialised(inputs, {"logits": (kinds.FLOAT, ["batch", "Z", "Q"])})


def priced_from_graph(folder: Path) -> Callable[[Pairs], np.ndarray]:
    """The network of a bundle in ONNX Runtime, for rounds with any batch axes.

    Raises:
        ProductError: The bundle has no such copy, onnxruntime is missing, or the graph is another.
    """
    if not (folder / GRAPH).is_file():
        raise ProductError(
            "the scheduler has no ONNX copy",
            where=str(folder),
            allowed="the backend numpy",
            advice=f"export it again with onnx installed ({how_to_install('onnx')}); a search alone has no network",
        )
    session = graph_session(folder, SHAPES)

    def network(pairs: Pairs) -> np.ndarray:
        batch = pairs.work.shape[:-2]
        flat = {name: np.reshape(leaf, (-1, *leaf.shape[-2:])) for name, leaf in pairs._asdict().items()}
        (logits,) = session.run(["logits"], flat)
        return np.reshape(logits, (*batch, *np.shape(logits)[1:]))

    return network


def _mlp(graph: Graph, params: Params, name: str, values: str) -> str:
    for index in range(len(params[name])):
        values = values if index == 0 else graph.add("Relu", values)
        values = graph.affine(f"{name}/dense_{index}", values)
    return values


def _beside(graph: Graph, like: str, *sets: str) -> str:
    """Every one of `like` with the mean and the largest of each set beside it."""
    shape = graph.add("Shape", like)
    pooled = [
        graph.add("Expand", graph.add(operator, one, axes=[1], keepdims=1), shape)
        for one in sets
        for operator in ("ReduceMean", "ReduceMax")
    ]
    return graph.add("Concat", like, *pooled, axis=2)


def _num_each(graph: Graph, onnx: Any) -> str:
    """Requests over edges, as a number."""
    shape = graph.add("Cast", graph.add("Shape", "work"), to=onnx.TensorProto.FLOAT)
    requests, edges = (graph.add("Gather", shape, graph.integers(axis)) for axis in (1, 2))
    return graph.add("Div", requests, edges)


def _positive(graph: Graph, logarithm: str) -> str:
    low, high = (
        graph.constant(name, np.array(value, np.float32)) for name, value in (("low", -6.0), ("high", 6.0))
    )
    return graph.add("Exp", graph.add("Clip", logarithm, low, high))
