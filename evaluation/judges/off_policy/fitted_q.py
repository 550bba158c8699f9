"""Fitted Q evaluation, and the fitted reward of the doubly robust estimate.

    Q(s, a) <- r + discount * sum_b pi(b | s') Q(s', b)

The value reported is the mean of `sum_b pi(b | s) Q(s, b)` over the logged states, in units of one decision's reward.
A long horizon takes many more updates than are done, so the fit begins at the policy's mean fitted reward, in all
states and for all actions: stopped early it equals the direct estimate, and it learns the differences between states.
Source: Le et al. 2019, algorithm 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import optax

from evaluation.comparison.bootstrap import Estimate, blocks_of
from evaluation.judges.off_policy.logged import (
    Logged,
    OffPolicyConfig,
    OffPolicyEstimate,
    Target,
    declined,
    effective_size,
    overlap,
    ratios,
)
from logs_schema.errors import ConfigError
from offline_rl.losses import is_choice
from twin.contracts import Array, PyTree
from twin.descent import descend
from twin.networks import MLP, apply

MOST_CELLS = 1 << 26
"""Of larger tables of features rows are padded to multiples of `ROWS`, and as many are predicted at once: a copy of a
table with the next power of two of rows might be twice as large."""
ROWS = 1024
NO_INTERVAL = "no interval: the error of the fit is not known"


@dataclass(frozen=True)
class FittedQConfig:
    """Configuration of fitted Q evaluation.

    Attributes:
        horizon_s: Seconds after which a reward is discounted to 1/e.
        num_updates: Gradient steps.
        batch_size: Decisions in each step.
        learning_rate: Of Adam, decayed to zero by a cosine.
        target_rate: Step size of the target network's update.
        hidden: Widths of the hidden layers.
        seed: Of initial parameters and batches.
    """

    horizon_s: float = 60.0
    num_updates: int = 2_000
    batch_size: int = 256
    learning_rate: float = 1e-3
    target_rate: float = 0.02
    hidden: tuple[int, ...] = (128, 64)
    seed: int = 0


def fitted_q(
    logged: Logged, target: Target, expected: np.ndarray, fit: FittedQConfig, config: OffPolicyConfig
) -> OffPolicyEstimate:
    """The value of a policy by fitted Q evaluation, without an interval: the variance over states does not include the
    error of the fit, which is the larger part.

    Args:
        logged: The log.
        target: The policy.
        expected: Fitted reward [rows, A] (`fitted_reward`), where the fit begins.
        fit: Configuration of the fit.
        config: Floors; it declines where the log hardly took the policy's actions, or has no consecutive decisions.

    Returns:
        The estimate, or the reason why there is none.
    """
    seen, size = overlap(logged, target, config), effective_size(ratios(logged, target, config))
    why = ""
    if not np.any(logged.following >= 0):
        why = "declines: no decision is followed by another"
    elif seen < config.min_overlap:
        why = f"declines: {1 - seen:.0%} of the policy's choices were hardly ever taken in the log"
    if why:
        return OffPolicyEstimate("fitted Q", target.name, declined(why), size, seen, logged.num_rows)
    values = fit_values(logged, target, expected, fit)
    mean = float(np.mean(np.sum(target.probability * values, axis=1)))
    value = Estimate(mean, None, None, blocks_of(logged.unit).num_units, NO_INTERVAL)
    return OffPolicyEstimate("fitted Q", target.name, value, size, seen, logged.num_rows)


def fit_values(logged: Logged, target: Target, expected: np.ndarray, fit: FittedQConfig) -> np.ndarray:
    """Q of the target policy at the logged states, [rows, A], scaled so that a constant reward r has the value r.

    Fitted is the difference to the policy's mean fitted reward, `expected` [rows, A] under its probabilities.
    """
    rows = np.flatnonzero(logged.following >= 0)
    if not len(rows):
        raise ConfigError("no decision is followed by another", where="fitted Q", advice="use longer windows")
    later = logged.following[rows]
    discount = np.exp(-logged.elapsed_s[rows] / fit.horizon_s)
    mean = float(np.mean(np.sum(target.probability * expected, axis=1)))
    reward = float(np.mean(1.0 - discount)) * (logged.reward[rows] - mean)
    data = (rows, logged.action[rows], reward, discount, later, target.probability[later])
    return mean + _fit(logged, data, fit)


def fitted_reward(logged: Logged, fit: FittedQConfig) -> np.ndarray:
    """Expected reward of every action at every logged state, [rows, A]; each half of the units is predicted by a fit to
    the other half (cross-fitting), so no prediction depends on the row's own reward."""
    unit = blocks_of(logged.unit).row_unit
    found = np.zeros(logged.legal.shape)
    for half in (0, 1):
        is_here = unit % 2 == half
        rows = np.flatnonzero(~is_here) if np.any(~is_here) else np.arange(logged.num_rows)
        nothing = np.zeros_like(logged.legal[rows], np.float32)
        data = (rows, logged.action[rows], logged.reward[rows], np.zeros(len(rows)), rows, nothing)
        found[is_here] = _fit(logged, data, fit)[is_here]
    return found


def _fit(logged: Logged, data: tuple[np.ndarray, ...], fit: FittedQConfig) -> np.ndarray:
    run, predict = _programs(fit, logged.legal.shape[1])
    features = _padded(logged.features)
    params = run(
        jax.random.key(fit.seed), features, tuple(_padded(column) for column in data), jnp.int32(len(data[0]))
    )
    width = ROWS if features.size > MOST_CELLS else len(features)
    found = [
        np.asarray(predict(params, features[first : first + width]))
        for first in range(0, len(features), width)
    ]
    return np.concatenate(found)[: logged.num_rows]


def _padded(column: np.ndarray) -> Array:
    """The column with rows of zeros up to the next power of two: few lengths, few compilations."""
    size = 1 << max(0, len(column) - 1).bit_length()
    if size * column[:1].size > MOST_CELLS:
        size = -(-len(column) // ROWS) * ROWS
    kind = np.int32 if np.issubdtype(column.dtype, np.integer) else np.float32
    padded = np.zeros((size, *column.shape[1:]), kind)
    padded[: len(column)] = column
    return jnp.asarray(padded)


@lru_cache(maxsize=8)
def _programs(fit: FittedQConfig, num_actions: int) -> tuple[Callable[..., PyTree], Callable[..., Array]]:
    """The compiled fit (key, features, columns, number of rows) -> parameters, where columns name rows of the features;
    and (parameters, features) -> values [rows, A]."""
    # a small last layer: the initial output of the network would persist through the fit of a long horizon
    network = MLP(fit.hidden, num_actions, output_scale=0.01)
    optimizer = optax.adam(optax.cosine_decay_schedule(fit.learning_rate, fit.num_updates))

    def loss_of(params: PyTree, target: PyTree, batch: tuple[Array, ...]) -> Array:
        features, action, reward, discount, later, probability = batch
        values = apply(network, params, features.T)
        chosen = jnp.sum(jnp.where(is_choice(action, values.shape[0]), values, 0.0), axis=0)
        following = jnp.sum(probability.T * apply(network, target, later.T), axis=0)
        return jnp.mean((chosen - reward - discount * jax.lax.stop_gradient(following)) ** 2)

    def run(key: Array, table: Array, columns: tuple[Array, ...], num_rows: Array) -> PyTree:
        key_init, key_batches = jax.random.split(key)
        params = network.init(key_init, table[:1].T)

        def step(
            carry: tuple[PyTree, PyTree, PyTree], index: Array
        ) -> tuple[tuple[PyTree, PyTree, PyTree], None]:
            params, target, memory = carry
            rows = jax.random.randint(jax.random.fold_in(key_batches, index), (fit.batch_size,), 0, num_rows)
            now, action, reward, discount, later, probability = (column[rows] for column in columns)
            batch = (table[now], action, reward, discount, table[later], probability)
            gradient = jax.grad(loss_of)(params, target, batch)
            params, memory = descend(optimizer, gradient, memory, params)
            target = optax.incremental_update(params, target, fit.target_rate)
            return (params, target, memory), None

        first = (params, params, optimizer.init(params))
        (params, _, _), _ = jax.lax.scan(step, first, jnp.arange(fit.num_updates))
        return params

    return jax.jit(run), jax.jit(lambda params, features: apply(network, params, features.T).T)
