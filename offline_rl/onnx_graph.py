"""The policy's network as an ONNX graph, built operator by operator: nothing is traced, nothing is
guessed."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from logs_schema.extras import how_to_install
from offline_rl.contract import MLP, RULES, SHARPNESS, PolicyContract
from offline_rl.numpy_networks import MASKED_LOGIT, Arrays, by_choice
from offline_rl.onnx_rules import rule_scores

OPSET = 17
IR_VERSION = 9
Tensor = tuple[int, list[Any]]


def graph_of(arrays: Arrays, contract: PolicyContract) -> bytes:
    """The graph `choices [batch, A, F], context [batch, R], legal [batch, A] -> logits [batch, A], action [batch]`.

    Returns:
        The serialised and checked model; `batch` is free, and A where the network is bound to no choices.

    Raises:
        ProductError: onnx is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise ProductError(
            "exporting a policy needs onnx and onnxruntime, which are not installed",
            advice=how_to_install("onnx"),
        ) from error
    graph = Graph(onnx, arrays)
    if contract.network.kind in RULES:
        scores = rule_scores(graph, contract)
    else:
        scores = _mlp(graph, contract) if contract.network.kind == MLP else _scorer(graph, contract)
    if contract.network.corrects is not None:
        sharpness = graph.constant("sharpness", np.array(SHARPNESS, np.float32))
        scores = graph.add("Add", graph.add("Mul", rule_scores(graph, contract), sharpness), scores)
    masked = graph.constant("masked", np.array(MASKED_LOGIT, np.float32))
    graph.add("Where", "legal", scores, masked, out="logits")
    graph.add("ArgMax", "logits", out="action", axis=1, keepdims=0, select_last_index=0)
    return graph.model(contract)


class Graph:
    """Nodes and constants as they are added, each output under its own name."""

    def __init__(self, onnx: Any, arrays: Arrays) -> None:
        self.onnx, self.arrays = onnx, arrays
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, value: np.ndarray) -> str:
        """A constant under its name, kept once; without axes it gets one."""
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def weight(self, name: str) -> str:
        """An array of the network."""
        return self.constant(name, np.asarray(self.arrays[name], np.float32))

    def integers(self, *values: int) -> str:
        """A vector of whole numbers, for axes and shapes."""
        return self.constant(f"integers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def add(self, operator: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Adds an operator; returns the name of its output."""
        out = out or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [out], **attributes))
        return out

    def affine(self, name: str, values: str) -> str:
        """`values @ kernel + bias` over the last axis, whatever stands before it."""
        product = self.add("MatMul", values, self.weight(f"{name}/kernel"))
        return self.add("Add", product, self.weight(f"{name}/bias"))

    def model(self, contract: PolicyContract) -> bytes:
        """The model of all that was added, checked and serialised."""
        kinds = self.onnx.TensorProto
        num_choices, num_features, num_context = contract.widths
        free = "choices" if contract.network.any_choices else num_choices
        inputs: dict[str, Tensor] = {
            "choices": (kinds.FLOAT, ["batch", free, num_features]),
            "context": (kinds.FLOAT, ["batch", num_context]),
            "legal": (kinds.BOOL, ["batch", free]),
        }
        outputs: dict[str, Tensor] = {
            "logits": (kinds.FLOAT, ["batch", free]),
            "action": (kinds.INT64, ["batch"]),
        }
        return self.serialised(inputs, outputs)

    def serialised(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> bytes:
        """The model with these inputs and outputs: name -> (kind of number, shape, a text where an axis is free)."""
        helper = self.onnx.helper
        ends = [
            [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in each.items()]
            for each in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, "policy", *ends, list(self.constants.values()))
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="schedtwin"
        )
        model.ir_version = IR_VERSION
        self.onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString(deterministic=True))


def _mlp(graph: Graph, contract: PolicyContract) -> str:
    num_choices, num_features, _ = contract.widths
    by_feature = graph.add("Transpose", "choices", perm=[0, 2, 1])
    flat = graph.add("Reshape", by_feature, graph.integers(-1, num_choices * num_features))
    values = graph.add("Concat", flat, "context", axis=1)
    last = len(contract.network.hidden)
    for index in range(last):
        values = graph.add("Relu", graph.affine(f"Dense_{index}", values))
    return graph.affine(f"Dense_{last}", values)


def _scorer(graph: Graph, contract: PolicyContract) -> str:
    facts, width = contract.network, contract.network.hidden[0]
    own = graph.affine("choice", "choices")
    if facts.identity:
        parts = (
            by_choice(graph.arrays[f"context/{part}"], len(contract.choices)) for part in ("kernel", "bias")
        )
        kernel, bias = (
            graph.constant(f"context/{name}", np.asarray(part, np.float32))
            for name, part in zip(("kernel", "bias"), parts, strict=True)
        )
        together = graph.add("Add", graph.add("MatMul", "context", kernel), bias)
        shared = graph.add("Reshape", together, graph.integers(-1, len(contract.choices), width))
    else:
        shared = graph.add("Unsqueeze", graph.affine("context", "context"), graph.integers(1))
    hidden = graph.add("Relu", graph.add("Add", own, shared))
    mean_over_legal = _legal_mean(graph) if facts.pooled else None
    for index in range(len(facts.hidden) - 1):
        mixed = graph.affine(f"layer_{index}", hidden)
        if mean_over_legal is not None:
            mixed = graph.add("Add", mixed, graph.affine(f"pool_{index}", mean_over_legal(hidden)))
        hidden = graph.add("Relu", mixed)
    return graph.add("Squeeze", graph.affine("score", hidden), graph.integers(2))


def _legal_mean(graph: Graph) -> Callable[[str], str]:
    """The mean over the legal choices: [batch, A, H] -> [batch, 1, H]; zero where nothing is legal."""
    as_number = graph.add("Cast", "legal", to=graph.onnx.TensorProto.FLOAT)
    weight = graph.add("Unsqueeze", as_number, graph.integers(1))
    one = graph.constant("one", np.array(1.0, np.float32))
    count = graph.add("Max", graph.add("ReduceSum", weight, graph.integers(2)), one)
    return lambda hidden: graph.add("Div", graph.add("MatMul", weight, hidden), count)
