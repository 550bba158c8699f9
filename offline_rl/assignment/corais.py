"""CoRaiS (Hu et al., section VI): an attention scheduler for all requests of a round at once.

Edges and requests are embedded and aligned by encoders of attention layers; the largest of either over the set stands
for the whole. Every request, with both, looks at the edges with 8 heads, and its logit for an edge is

    clip * tanh(context . key_of_edge / sqrt(width))                                              (20)

The ablations put perceptrons of as many parameters in the place of attention: FC1 in the edges' encoder, FC2 in the
requests', FC3 in both. Attention among requests is quadratic in their number. Where the paper normalises by batch, we
normalise by example; edges show all five features of their workload, where the paper shows three.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from offline_rl.assignment.layers import (
    NUM_HEADS,
    Params,
    attention,
    attention_params,
    dense,
    dense_params,
    largest,
    layer,
    layer_params,
    np_of,
)
from offline_rl.errors import TrainingError
from twin.assignment.types import Edges, RoundRequests

EDGE_FEATURES, REQUEST_FEATURES = 11, 6


@dataclass(frozen=True)
class CoraisNetwork:
    """The network; the paper's has about four million parameters, which the defaults come to.

    Attributes:
        width: Of embeddings; a multiple of the 8 heads.
        feed_forward: Width of the hidden layer.
        edge_layers, request_layers: Of the encoders.
        edges_attend, requests_attend: False puts perceptrons in the place of attention.
        clip: Largest logit.
    """

    width: int = 256
    feed_forward: int = 512
    edge_layers: int = 3
    request_layers: int = 3
    edges_attend: bool = True
    requests_attend: bool = True
    clip: float = 10.0

    def __post_init__(self) -> None:
        if self.width < NUM_HEADS or self.width % NUM_HEADS:
            raise TrainingError(f"a width of {self.width}", allowed=f"a multiple of {NUM_HEADS} heads")


def corais_params(rng: np.random.Generator, config: CoraisNetwork) -> Params:
    """Parameters to begin with."""

    def encoder(num_features: int, num_layers: int, attends: bool) -> Params:
        layers = (
            layer_params(rng, config.width, config.feed_forward, attends=attends) for _ in range(num_layers)
        )
        return {"embed": dense_params(rng, num_features, config.width)} | {
            f"layer_{index}": one for index, one in enumerate(layers)
        }

    return {
        "edges": encoder(EDGE_FEATURES, config.edge_layers, config.edges_attend),
        "requests": encoder(REQUEST_FEATURES, config.request_layers, config.requests_attend),
        "context": dense_params(rng, 3 * config.width, config.width),
        "decoder": attention_params(rng, config.width),
        "query": dense_params(rng, config.width, config.width),
        "key": dense_params(rng, config.width, config.width),
    }


def corais_logits(params: Params, edges: Edges, requests: RoundRequests, clip: float = 10.0) -> Any:
    """[*batch, Z, Q] logits of every request's edge."""
    xp = np_of(edges.xy)
    edge = _encode(params["edges"], edge_features(edges))
    request = _encode(params["requests"], request_features(edges, requests))
    pooled = [xp.broadcast_to(largest(one), request.shape) for one in (edge, request)]
    context = dense(params["context"], xp.concatenate([request, *pooled], axis=-1))
    context = attention(params["decoder"], context, edge)
    query, key = dense(params["query"], context), dense(params["key"], edge)
    return clip * xp.tanh(query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5)


def edge_features(edges: Edges) -> Any:
    """[*batch, Q, 11] coordinates, coefficients of computing time, replicas and workload."""
    xp = np_of(edges.xy)
    rest = xp.stack(list(edges[2:]), axis=-1)
    return xp.concatenate([edges.xy, edges.compute, rest], axis=-1).astype(np.float32)


def request_features(edges: Edges, requests: RoundRequests) -> Any:
    """[*batch, Z, 6] where it came, how large it is, where its client will be, how large its result is."""
    xp = np_of(edges.xy)
    source_xy = xp.take_along_axis(edges.xy, requests.source[..., None], axis=-2)
    parts = [source_xy, requests.input_mib[..., None], requests.predicted_xy, requests.output_mib[..., None]]
    return xp.concatenate(parts, axis=-1).astype(np.float32)


def _encode(params: Params, features: Any) -> Any:
    x = dense(params["embed"], features)
    for index in range(len(params) - 1):
        x = layer(params[f"layer_{index}"], x)
    return x
