"""The black box for comparison: a network that predicts the whole next state, without bookkeeping.

Kept for one comparison only, that of compounding errors. Its inputs are the nodes' features, the request in hand, the
decision and the time to the next request; it gives mean and deviation of the change of every dynamic feature of every
node (a diagonal Gaussian, fitted by maximum likelihood on logged transitions). Its own output is its next input.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from twin.contracts import Array, PyTree
from twin.descent import clipped_adam, descend_in_batches
from twin.imitation.decisions import LoggedDecisions, logged_decisions, some_windows
from twin.imitation.fidelity import STATE_FEATURES
from twin.networks import MLP, apply
from twin.placement.encoding import Encoding
from twin.placement.features import LOAD_FEATURES, NODE_FEATURES, one_hot
from twin.placement.types import Leaf
from twin.placement.windows import Windows

DYNAMIC = [index for index, feature in enumerate(NODE_FEATURES) if feature.name in LOAD_FEATURES]
"""The node features that the black box predicts; the others follow from the request in hand."""
_SHOWN = [LOAD_FEATURES.index(name) for name in STATE_FEATURES]


class BlackBox(NamedTuple):
    """Parameters, and the scale of every change [features * nodes]."""

    parameters: PyTree
    scale: Leaf
    hidden: tuple[int, ...]


class _Steps(NamedTuple):
    """Logged states and the network's other inputs; windows trail."""

    state: Array  # [features * nodes, T, W]
    context: Array  # [context, T, W]: request, decision, time to the next request
    counts: Array  # [T, W] bool: the next state is in the log


def fit_black_box(
    key: Array,
    windows: Windows,
    encoding: Encoding,
    *,
    hidden: tuple[int, ...] = (128, 128),
    num_steps: int = 1000,
    num_streams: int = 16,
    learning_rate: float = 1e-3,
) -> BlackBox:
    """Fits it to logged transitions.

    Args:
        key: PRNG key.
        windows: Logged windows.
        encoding: What they mean.
        hidden: Widths of the hidden layers.
        num_steps: Gradient steps.
        num_streams: Windows per step.
        learning_rate: Of Adam, decayed to zero by a cosine.

    Returns:
        The model.
    """
    logged = logged_decisions(windows, encoding)
    gap_s = _gaps(windows)
    whole = _steps(logged, gap_s, encoding)
    change = np.diff(np.asarray(whole.state), axis=1)[:, np.asarray(whole.counts)[:-1]]
    scale = np.maximum(change.std(axis=1), 1e-3).astype(np.float32)
    network = _network(hidden, len(scale))
    optimiser = clipped_adam(optax.cosine_decay_schedule(learning_rate, num_steps), 1.0)
    key_init, key_steps = jax.random.split(key)
    parameters = network.init(key_init, jnp.zeros((whole.state.shape[0] + whole.context.shape[0], 1)))

    def loss(parameters: PyTree, some: _Steps) -> Array:
        mean, deviation = _predict(network, parameters, jnp.asarray(scale), some.state, some.context)
        after = jnp.roll(some.state, -1, axis=1)
        each = 0.5 * ((after - mean) / deviation) ** 2 + jnp.log(deviation)
        return jnp.sum(jnp.where(some.counts[None], each, 0.0)) / jnp.maximum(jnp.sum(some.counts), 1)

    @jax.jit
    def run(parameters: PyTree, data: _Steps) -> PyTree:
        def some(key_step: Array) -> _Steps:
            chosen = jax.random.randint(key_step, (num_streams,), 0, data.counts.shape[1])
            return jax.tree.map(lambda leaf: jnp.take(leaf, chosen, axis=-1), data)

        keys = jax.random.split(key_steps, num_steps)
        return descend_in_batches(optimiser, loss, some, keys, parameters)[0]

    return BlackBox(run(parameters, whole), scale, hidden)


def black_box_states(
    key: Array, model: BlackBox, windows: Windows, encoding: Encoding, horizons: tuple[int, ...]
) -> np.ndarray:
    """States [horizons, state features, nodes, W] that it predicts along the logged decisions.

    Args:
        key: PRNG key.
        model: The black box.
        windows: Arrivals, decisions and first states.
        encoding: What they mean.
        horizons: Decisions after which to look, at most the windows' length less one.
    """
    logged = logged_decisions(windows, encoding)
    steps = _steps(logged, _gaps(windows), encoding)
    network = _network(model.hidden, len(model.scale))

    @jax.jit
    def run(key: Array, first: Array, contexts: Array) -> Array:
        def one(state: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            key_step, context = step
            mean, deviation = _predict(network, model.parameters, jnp.asarray(model.scale), state, context)
            return mean + deviation * jax.random.normal(key_step, mean.shape), state

        keys = jax.random.split(key, contexts.shape[0])
        return jax.lax.scan(one, first, (keys, contexts))[1]

    imagined = np.asarray(run(key, steps.state[:, 0], jnp.moveaxis(steps.context, 1, 0)))
    shown = imagined[list(horizons)]
    nodes = encoding.cluster.num_nodes
    return shown.reshape(len(horizons), len(DYNAMIC), nodes, -1)[:, _SHOWN]


def _network(hidden: tuple[int, ...], num_predicted: int) -> MLP:
    return MLP(hidden, 2 * num_predicted, output_scale=0.1)


def _predict(
    network: MLP, parameters: PyTree, scale: Array, state: Array, context: Array
) -> tuple[Array, Array]:
    """Mean and deviation [features * nodes, *batch] of the next state."""
    outputs = apply(network, parameters, jnp.concatenate([state, context]))
    mean, log_deviation = jnp.split(outputs, 2)
    by = scale.reshape((-1,) + (1,) * (state.ndim - 1))
    return state + by * mean, by * jnp.exp(jnp.clip(log_deviation, -3.0, 2.0))


def _gaps(windows: Windows) -> np.ndarray:
    """[T, W] time to the next request; 0 after the last."""
    gaps_s = np.diff(windows.arrival_s, axis=0, append=windows.arrival_s[-1:])
    return np.maximum(gaps_s, 0.0)


def _steps(logged: LoggedDecisions, gap_s: np.ndarray, encoding: Encoding) -> _Steps:
    everything = some_windows(logged, jnp.arange(logged.node.shape[-1]))
    state = everything.full.node[jnp.array(DYNAMIC)]
    state = state.reshape(-1, *state.shape[2:])
    gap = jnp.log1p(jnp.asarray(gap_s, jnp.float32) / encoding.problem.time_unit_s)
    chosen = one_hot(everything.node, encoding.cluster.num_nodes).astype(jnp.float32)
    counts = everything.valid & jnp.roll(everything.valid, -1, axis=0)
    counts = counts.at[-1].set(False)
    return _Steps(state, jnp.concatenate([everything.full.request, chosen, gap[None]]), counts)
