"""Training of assignment schedulers: REINFORCE over samples with entropy, and imitation of a solver.

    REINFORCE   - mean over samples of (makespan - mean of the instance) / deviation * log p  + entropy   (24, 25)
    imitation   the cross-entropy of a solver's edges; among equal edges a solver's choice is noise, so it ends in
                probabilities, not in a copy

Instances are drawn anew for every update, so nothing is learned by heart. A run is a pure function of its seed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logs_schema.progress import Stage
from offline_rl.assignment.corais import CoraisNetwork, corais_logits, corais_params
from offline_rl.assignment.layers import Params, log_softmax
from offline_rl.assignment.local_search import LocalSearchConfig, insertion_local_search
from offline_rl.assignment.priced import pairs_of, priced_logits, priced_params
from offline_rl.errors import TrainingError
from twin.assignment.in_jax import makespan_s
from twin.assignment.instances import InstanceConfig, draw_instances
from twin.assignment.types import AssignmentInstance, row_of
from twin.contracts import Array

Logits = Callable[[Params, AssignmentInstance], Array]


@dataclass(frozen=True)
class LearningConfig:
    """How long and how training goes.

    Attributes:
        num_updates: Steps of REINFORCE.
        batch: Instances of an update.
        num_samples: Assignments drawn of every instance.
        learning_rate: Of Adam; falls to a tenth over the updates.
        entropy: Weight of the entropy, in nats a request.
        imitation_updates: Steps that imitate a solver before.
        imitation_instances: Instances that the solver is asked for.
        solver_restarts: Of its local search.
    """

    num_updates: int = 40_000
    batch: int = 128
    num_samples: int = 64
    learning_rate: float = 1e-4
    entropy: float = 0.01
    imitation_updates: int = 0
    imitation_instances: int = 512
    solver_restarts: int = 20

    def __post_init__(self) -> None:
        for name in ("batch", "num_samples", "imitation_instances"):
            if getattr(self, name) < 1 + (name == "num_samples"):
                raise TrainingError(
                    f"{name} = {getattr(self, name)}", allowed="1 or more; two samples at least"
                )


def train_corais(
    seed: int,
    instances: InstanceConfig,
    network: CoraisNetwork,
    config: LearningConfig,
    stage: Stage | None = None,
) -> Params:
    """CoRaiS, trained by REINFORCE on drawn instances of one scale."""

    def logits(params: Params, instance: AssignmentInstance) -> Array:
        return corais_logits(params, instance.edges, instance.requests, network.clip)

    params = corais_params(np.random.default_rng(seed), network)
    return _train(seed, instances, params, logits, config, stage)


def train_priced(
    seed: int, instances: InstanceConfig, config: LearningConfig, stage: Stage | None = None
) -> Params:
    """Ours: imitates the local search, then improves by itself."""

    def logits(params: Params, instance: AssignmentInstance) -> Array:
        return priced_logits(params, pairs_of(instance.costs))

    params = priced_params(np.random.default_rng(seed))
    return _train(seed, instances, params, logits, config, stage)


def _train(
    seed: int,
    instances: InstanceConfig,
    params: Params,
    logits: Logits,
    config: LearningConfig,
    stage: Stage | None,
) -> Params:
    rng = np.random.default_rng((seed, 1))
    key, total = jax.random.key(seed), config.imitation_updates + config.num_updates
    rate = optax.cosine_decay_schedule(config.learning_rate, max(total, 1), 0.1)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    state = optimiser.init(params)
    imitate, reinforce = _imitation(logits, optimiser), _reinforcement(logits, optimiser, config)
    asked: AssignmentInstance | None = None
    if config.imitation_updates:
        asked = _single(draw_instances(rng, instances, config.imitation_instances))
        edge = np.stack([_solved(asked, row, config, rng) for row in range(config.imitation_instances)])
    for number in range(total):
        if stage is not None and number % 20 == 0:
            stage(number, total)
        if asked is not None and number < config.imitation_updates:
            rows = rng.integers(config.imitation_instances, size=config.batch)
            params, state = imitate(params, state, row_of(asked, rows), edge[rows])
        else:
            batch = _single(draw_instances(rng, instances, config.batch))
            params, state = reinforce(params, state, batch, jax.random.fold_in(key, number))
    return jax.tree.map(np.asarray, params)


def _solved(
    instances: AssignmentInstance, row: int, config: LearningConfig, rng: np.random.Generator
) -> np.ndarray:
    search = LocalSearchConfig(restarts=True, max_restarts=config.solver_restarts)
    return insertion_local_search(row_of(instances.costs, row), search, rng)


def _single(instances: AssignmentInstance) -> AssignmentInstance:
    """In single precision."""
    return jax.tree.map(lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, instances)


def _imitation(logits: Logits, optimiser: optax.GradientTransformation) -> Callable[..., Any]:
    def loss(params: Params, instance: AssignmentInstance, edge: Array) -> Array:
        chosen = jnp.take_along_axis(log_softmax(logits(params, instance)), edge[..., None], axis=-1)
        return -jnp.mean(chosen)

    return _update(loss, optimiser)


def _reinforcement(
    logits: Logits, optimiser: optax.GradientTransformation, config: LearningConfig
) -> Callable[..., Any]:
    def loss(params: Params, instance: AssignmentInstance, key: Array) -> Array:
        log_p = log_softmax(logits(params, instance))  # [batch, Z, Q]
        shape = (config.num_samples, *log_p.shape[:2])
        edge = jax.random.categorical(key, jax.lax.stop_gradient(log_p), axis=-1, shape=shape)
        found_s = jax.lax.map(lambda one: makespan_s(instance.costs, one), edge)  # [samples, batch]
        advantage = found_s - found_s.mean(axis=0, keepdims=True)
        advantage = jax.lax.stop_gradient(advantage / (found_s.std(axis=0, keepdims=True) + 1e-6))
        on = jax.nn.one_hot(edge, log_p.shape[-1], dtype=log_p.dtype)
        weighted = jnp.einsum("sb,sbzq->bzq", advantage, on) / config.num_samples
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
        return jnp.mean(jnp.sum(weighted * log_p, axis=(-1, -2))) - config.entropy * jnp.mean(entropy)

    return _update(loss, optimiser)


def _update(
    loss: Callable[[Params, AssignmentInstance, Array], Array], optimiser: optax.GradientTransformation
) -> Callable[..., Any]:
    @jax.jit
    def update(params: Params, state: Any, instance: AssignmentInstance, target: Array) -> tuple[Params, Any]:
        gradient = jax.grad(loss)(params, instance, target)
        change, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, change), state

    return update
