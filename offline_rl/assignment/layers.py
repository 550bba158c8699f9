"""Layers over sets as plain functions of arrays, NumPy's or JAX's: one forward pass for training and the runner.

Parameters are nested dictionaries of arrays. `dense` {"kernel", "bias"}; `norm` {"scale", "bias"}; a layer of an
encoder is attention with 8 heads and a feed-forward net, each with a skip connection and normalisation (Vaswani et al.,
2017). They are normalised by example, so that one round alone is treated as in a batch.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Params = dict[str, Any]
NUM_HEADS = 8


def dense_params(rng: np.random.Generator, num_in: int, num_out: int) -> Params:
    """Uniform within one over the root of the inputs, as in CoRaiS."""
    most = 1.0 / np.sqrt(num_in)
    draw = rng.uniform(-most, most, (num_in + 1, num_out)).astype(np.float32)
    return {"kernel": draw[1:], "bias": draw[0]}


def dense(params: Params, x: Any) -> Any:
    """x [..., in] -> [..., out]."""
    return x @ params["kernel"] + _along(params["bias"], x)


def _along(vector: Any, x: Any) -> Any:
    """A vector along the last axis of x, with as many axes."""
    return vector.reshape((1,) * (x.ndim - 1) + (-1,))


def mlp_params(rng: np.random.Generator, widths: Sequence[int]) -> Params:
    """Dense layers one after the other."""
    return {f"dense_{index}": dense_params(rng, *pair) for index, pair in enumerate(pairwise(widths))}


def mlp(params: Params, x: Any) -> Any:
    """Dense layers with rectifiers between them."""
    for index in range(len(params)):
        x = dense(params[f"dense_{index}"], x if index == 0 else x.clip(0.0))
    return x


def norm_params(width: int) -> Params:
    """Nothing scaled, nothing moved."""
    return {"scale": np.ones(width, np.float32), "bias": np.zeros(width, np.float32)}


def norm(params: Params, x: Any) -> Any:
    """Layer normalisation over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np_of(x).sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / deviation * _along(params["scale"], x) + _along(params["bias"], x)


def attention_params(rng: np.random.Generator, width: int) -> Params:
    """Queries, keys, values and what mixes the heads."""
    return {name: dense_params(rng, width, width) for name in ("query", "key", "value", "mix")}


def attention(params: Params, asking: Any, asked: Any) -> Any:
    """Each of `asking` [*batch, n, width] looks at all of `asked` [*batch, m, width] with `NUM_HEADS` heads."""
    query, key, value = (
        _heads(dense(params[name], x)) for name, x in (("query", asking), ("key", asked), ("value", asked))
    )
    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    seen = (softmax(scores) @ value).swapaxes(-2, -3)
    return dense(params["mix"], seen.reshape(*seen.shape[:-2], -1))


def _heads(x: Any) -> Any:
    """[*batch, n, width] -> [*batch, heads, n, width / heads]."""
    return x.reshape(*x.shape[:-1], NUM_HEADS, -1).swapaxes(-2, -3)


def softmax(logits: Any) -> Any:
    """Probabilities over the last axis."""
    return np_of(logits).exp(log_softmax(logits))


def log_softmax(logits: Any) -> Any:
    """Logarithms of the probabilities over the last axis."""
    if not isinstance(logits, np.ndarray):
        from jax.nn import log_softmax as in_jax  # lets no gradient through the largest

        return in_jax(logits)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def largest(x: Any) -> Any:
    """[*batch, 1, width] the largest of a set [*batch, n, width].

    It is looked up rather than compared with: a gradient that asks which element equals the largest finds none where
    the compiler computes the two by different roundings.
    """
    return np_of(x).take_along_axis(x, x.argmax(axis=-2, keepdims=True), axis=-2)


def np_of(x: Any) -> Any:
    """The functions for an array: NumPy's, or JAX's."""
    return x.__array_namespace__()


def layer_params(rng: np.random.Generator, width: int, feed_forward: int, *, attends: bool) -> Params:
    """An encoder's layer; without attention a perceptron of as many parameters takes its place."""
    mixing = attention_params(rng, width) if attends else mlp_params(rng, (width, 2 * width, width))
    return {
        "attention" if attends else "perceptron": mixing,
        "norm_0": norm_params(width),
        "feed_forward": mlp_params(rng, (width, feed_forward, width)),
        "norm_1": norm_params(width),
    }


def layer(params: Params, x: Any) -> Any:
    """One layer of an encoder: [*batch, n, width] -> the same."""
    mixed = attention(params["attention"], x, x) if "attention" in params else mlp(params["perceptron"], x)
    x = norm(params["norm_0"], x + mixed)
    return norm(params["norm_1"], x + mlp(params["feed_forward"], x))
