"""The policy networks in NumPy, from named arrays; the same arithmetic as `twin.networks` and `offline_rl.scorer`.

`mlp`     h = [choices, feature by feature; context];  h = relu(h K_i + b_i); the last layer without the relu
`scorer`  h_c = relu(K x_c + V_c context + b);  h_c = relu(K_i h_c + P_i mean of h over legal ones + b_i);  w h_c

Both map choices [batch, A, F], context [batch, R] and legal [batch, A] to logits [batch, A]; an illegal choice gets
`MASKED_LOGIT`. A scorer without `identity` takes any A, and so does a rule, whose scores are `offline_rl.numpy_rules`.
"""

from collections.abc import Callable, Mapping

import numpy as np

from offline_rl.contract import MLP, RULES, SHARPNESS, PolicyContract
from offline_rl.numpy_rules import NUMBERS, numpy_scores, rule_of, standing_in

MASKED_LOGIT = -1e9
"""Logit of an illegal choice; the same as in training."""

Arrays = Mapping[str, np.ndarray]
Network = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(choices [batch, A, F], context [batch, R], legal [batch, A] bool) -> masked logits [batch, A]; all float32."""


def wanted_shapes(contract: PolicyContract) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every array of the contract's network: `<layer>/kernel` [inputs, outputs], `<layer>/bias`."""
    num_choices, num_features, num_context = contract.widths
    facts = contract.network
    rule = standing_in(contract)
    numbers = {} if rule is None else {f"{rule}/{name}": shape for name, shape in NUMBERS[rule].items()}
    if facts.kind in RULES:
        return numbers
    widths = list(zip(facts.hidden, facts.hidden[1:], strict=False))
    if facts.kind == MLP:
        ends = [(num_choices * num_features + num_context, facts.hidden[0]), *widths]
        ends.append((facts.hidden[-1], num_choices))
        layers = {f"Dense_{index}": pair for index, pair in enumerate(ends)}
    else:
        first = facts.hidden[0]
        layers = {
            "choice": (num_features, first),
            "context": (num_context, first * num_choices if facts.identity else first),
        }
        for index, pair in enumerate(widths):
            layers |= {f"layer_{index}": pair} | ({f"pool_{index}": pair} if facts.pooled else {})
        layers["score"] = (facts.hidden[-1], 1)
    shapes: dict[str, tuple[int, ...]] = dict(numbers)
    for name, (inputs, outputs) in layers.items():
        shapes |= {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}
    return shapes


def numpy_network(arrays: Arrays, contract: PolicyContract) -> Network:
    """The contract's network over these arrays (of `wanted_shapes`)."""
    ready = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    if contract.network.kind in RULES:
        return _rule(ready, contract)
    build = _mlp if contract.network.kind == MLP else _scorer
    network = build(ready, contract)
    return network if rule_of(contract) is None else _corrected(network, ready, contract)


def _corrected(correction: Network, arrays: Arrays, contract: PolicyContract) -> Network:
    """The rule's scores, sharpened, and the correction."""
    scores = numpy_scores(contract, arrays)

    def network(choices: np.ndarray, context: np.ndarray, legal: np.ndarray) -> np.ndarray:
        logits = np.float32(SHARPNESS) * scores(choices, context) + correction(choices, context, legal)
        return np.where(legal, logits, np.float32(MASKED_LOGIT))

    return network


def _rule(arrays: Arrays, contract: PolicyContract) -> Network:
    scores = numpy_scores(contract, arrays)

    def network(choices: np.ndarray, context: np.ndarray, legal: np.ndarray) -> np.ndarray:
        return np.where(legal, scores(choices, context), np.float32(MASKED_LOGIT))

    return network


def by_choice(array: np.ndarray, num_choices: int) -> np.ndarray:
    """A context array [..., width * choices] of a scorer with identity as [..., choices * width], choice by choice."""
    leading = array.shape[:-1]
    parts = array.reshape(*leading, -1, num_choices)
    return np.ascontiguousarray(np.swapaxes(parts, -1, -2)).reshape(*leading, -1)


def _mlp(arrays: Arrays, contract: PolicyContract) -> Network:
    num_layers = len(contract.network.hidden) + 1
    layers = [(arrays[f"Dense_{index}/kernel"], arrays[f"Dense_{index}/bias"]) for index in range(num_layers)]

    def network(choices: np.ndarray, context: np.ndarray, legal: np.ndarray) -> np.ndarray:
        flat = choices.transpose(0, 2, 1).reshape(len(choices), -1)
        values = np.concatenate([flat, context], axis=1)
        for kernel, bias in layers[:-1]:
            values = np.maximum(values @ kernel + bias, 0.0)
        kernel, bias = layers[-1]
        return np.where(legal, values @ kernel + bias, np.float32(MASKED_LOGIT))

    return network


def _scorer(arrays: Arrays, contract: PolicyContract) -> Network:
    facts = contract.network
    own, shared, shared_bias = arrays["choice/kernel"], arrays["context/kernel"], arrays["context/bias"]
    if facts.identity:
        shared, shared_bias = (by_choice(one, len(contract.choices)) for one in (shared, shared_bias))
    width = facts.hidden[0]
    layers = []
    for index in range(len(facts.hidden) - 1):
        bias, pool = arrays[f"layer_{index}/bias"], arrays.get(f"pool_{index}/kernel")
        if pool is not None:
            bias = bias + arrays[f"pool_{index}/bias"]
        layers.append((arrays[f"layer_{index}/kernel"], bias, pool))
    shared_bias = (shared_bias.reshape(-1, width) + arrays["choice/bias"]).reshape(-1)
    score, score_bias = arrays["score/kernel"][:, 0], arrays["score/bias"][0]

    def network(choices: np.ndarray, context: np.ndarray, legal: np.ndarray) -> np.ndarray:
        batch, num_choices = legal.shape
        hidden = (choices.reshape(-1, choices.shape[-1]) @ own).reshape(batch, num_choices, width)
        hidden += (context @ shared + shared_bias).reshape(batch, -1, width)
        np.maximum(hidden, 0.0, out=hidden)
        weight = _weight_of_legal(legal) if facts.pooled else None
        for kernel, bias, pool in layers:
            mixed = (hidden.reshape(-1, hidden.shape[-1]) @ kernel).reshape(batch, num_choices, -1)
            mixed += bias if weight is None or pool is None else np.matmul(weight, hidden) @ pool + bias
            hidden = np.maximum(mixed, 0.0, out=mixed)
        return np.where(legal, hidden @ score + score_bias, np.float32(MASKED_LOGIT))

    return network


def _weight_of_legal(legal: np.ndarray) -> np.ndarray:
    """[batch, 1, A] what takes [batch, A, H] to its mean over the legal choices; zeros where nothing is legal."""
    weight = legal.astype(np.float32)
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), np.float32(1.0))
    return weight[:, None]
