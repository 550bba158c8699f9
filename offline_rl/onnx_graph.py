"""The policy's network as an ONNX graph, built operator by operator: nothing is traced, nothing is
guessed."""

from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.bundle import MASKED_LOGIT, Layers

OPSET = 17
IR_VERSION = 9


def masked_mlp(layers: Layers) -> bytes:
    """The graph `features [batch, F] float32, legal [batch, A] bool -> logits [batch, A], action [batch]
    int64`.

    Args:
        layers: The network.

    Returns:
        The serialised and checked model; `batch` is dynamic.

    Raises:
        ProductError: onnx is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise ProductError(
            "exporting a policy needs onnx and onnxruntime, which are not installed",
            advice="pip install 'schedtwin[onnx]'",
        ) from error
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes, constants = _layer_nodes(layers, onnx)
    constants.append(onnx.numpy_helper.from_array(np.array(MASKED_LOGIT, np.float32), "masked"))
    nodes.append(helper.make_node("Where", ["legal", "scores", "masked"], ["logits"]))
    nodes.append(helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0, select_last_index=0))
    num_features, num_actions = layers.widths[0], layers.widths[-1]
    graph = helper.make_graph(
        nodes,
        "policy",
        [
            helper.make_tensor_value_info("features", kinds.FLOAT, ["batch", num_features]),
            helper.make_tensor_value_info("legal", kinds.BOOL, ["batch", num_actions]),
        ],
        [
            helper.make_tensor_value_info("logits", kinds.FLOAT, ["batch", num_actions]),
            helper.make_tensor_value_info("action", kinds.INT64, ["batch"]),
        ],
        constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="schedtwin"
    )
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def _layer_nodes(layers: Layers, onnx: Any) -> tuple[list[Any], list[Any]]:
    nodes, constants, values = [], [], "features"
    last = len(layers.kernels) - 1
    for index, (kernel, bias) in enumerate(zip(layers.kernels, layers.biases, strict=True)):
        constants.append(onnx.numpy_helper.from_array(kernel, f"kernel_{index}"))
        constants.append(onnx.numpy_helper.from_array(bias, f"bias_{index}"))
        affine = "scores" if index == last else f"affine_{index}"
        nodes.append(onnx.helper.make_node("Gemm", [values, f"kernel_{index}", f"bias_{index}"], [affine]))
        if index != last:
            values = f"hidden_{index}"
            nodes.append(onnx.helper.make_node("Relu", [affine], [values]))
    return nodes, constants
