"""Training of assignment schedulers: REINFORCE over samples with entropy, and imitation of a solver.

    REINFORCE   - mean over samples of (makespan - mean of the instance) / deviation * log p  + entropy   (24, 25)
    imitation   the cross-entropy of a solver's edges; among equal edges a solver's choice is noise, so it ends in
                probabilities, not in a copy

Instances are drawn anew for every update, so nothing is learned by heart. A run is a pure function of its seed, however
often it was killed: what it keeps holds the state of the generator too.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logs_schema.progress import Stage
from offline_rl.assignment.config import LearningConfig
from offline_rl.assignment.corais import CoraisNetwork, corais_logits, corais_params
from offline_rl.assignment.layers import Params, log_softmax
from offline_rl.assignment.local_search import LocalSearchConfig, insertion_local_search
from offline_rl.assignment.priced import pairs_of, priced_logits, priced_params
from twin.arrays import kept_arrays
from twin.assignment.in_jax import makespan_s
from twin.assignment.instances import InstanceConfig, draw_instances
from twin.assignment.types import AssignmentInstance, Costs, row_of
from twin.contracts import Array, PyTree
from twin.descent import clipped_adam, descend
from twin.fitting_loop import Checkpoint, fit_keeping_best

DrawRounds = Callable[[np.random.Generator, int], Any]
"""(generator, how many) -> a batch of rounds: what the network's logits are made of."""
INSTANCES_PER_SAVE, UPDATES_PER_SAVE, UPDATES_PER_SHOWN = 200, 200, 20
"""So much is lost at most; and updates between two looks at how far it is."""
_WORD = 2**64


class _Problem(NamedTuple):
    """What is learned.

    Attributes:
        draw: Batches of rounds.
        logits: (parameters, rounds) -> [batch, Z, Q].
        costs: Rounds -> what they cost.
    """

    draw: DrawRounds
    logits: Callable[[Params, Any], Array]
    costs: Callable[[Any], Costs]


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

    problem = _Problem(
        lambda rng, number: draw_instances(rng, instances, number), logits, lambda rounds: rounds.costs
    )
    return _train(seed, problem, corais_params(np.random.default_rng(seed), network), config, stage)


def train_priced(
    seed: int,
    instances: InstanceConfig | DrawRounds,
    config: LearningConfig,
    stage: Stage | None = None,
    keep: Path | None = None,
) -> Params:
    """Ours: imitates the local search, then improves by itself.

    Args:
        seed: Of everything drawn.
        instances: Law of the rounds, or what draws their costs.
        config: How long and how.
        stage: Where to show how far it is.
        keep: Folder that saves the solver's answers and the training on the way; a second call goes on from there.
    """
    law = instances if isinstance(instances, InstanceConfig) else None

    def draw(rng: np.random.Generator, number: int) -> Costs:
        return instances(rng, number) if law is None else draw_instances(rng, law, number).costs  # type: ignore

    problem = _Problem(
        draw, lambda params, costs: priced_logits(params, pairs_of(costs)), lambda costs: costs
    )
    return _train(seed, problem, priced_params(np.random.default_rng(seed)), config, stage, keep)


def _train(
    seed: int,
    problem: _Problem,
    params: Params,
    config: LearningConfig,
    stage: Stage | None,
    keep: Path | None = None,
) -> Params:
    rng = np.random.default_rng((seed, 1))
    key, total = jax.random.key(seed), config.imitation_updates + config.num_updates
    rate = optax.cosine_decay_schedule(config.learning_rate, max(total, 1), 0.1)
    optimiser = clipped_adam(rate, 1.0)
    imitate, reinforce = _imitation(problem, optimiser), _reinforcement(problem, optimiser, config)
    asked: Any = None
    if config.imitation_updates:
        asked = single(problem.draw(rng, config.imitation_instances))
        edge, rng = _solutions(seed, problem.costs(asked), config, rng, keep)

    def advance(state: PyTree, done: int, count: int) -> tuple[PyTree, PyTree, float]:
        params, optimiser_state, words = state
        rng = _generator(words)
        for number in range(done, done + count):
            if stage is not None and number % UPDATES_PER_SHOWN == 0:
                stage(number, total)
            if asked is not None and number < config.imitation_updates:
                rows = rng.integers(config.imitation_instances, size=config.batch)
                params, optimiser_state = imitate(params, optimiser_state, row_of(asked, rows), edge[rows])
            else:
                batch = single(problem.draw(rng, config.batch))
                chance = jax.random.fold_in(key, number)
                params, optimiser_state = reinforce(params, optimiser_state, batch, chance)
        return (params, optimiser_state, _words(rng)), (), 0.0

    fit = fit_keeping_best(
        (params, optimiser.init(params), _words(rng)),
        advance,
        total,
        UPDATES_PER_SAVE,
        kept=lambda _state: (),
        checkpoint=Checkpoint(keep and keep / f"network-{seed}-on-the-way.npz", key),
    )
    return jax.tree.map(np.asarray, fit.state[0])


def _solutions(
    seed: int, costs: Costs, config: LearningConfig, rng: np.random.Generator, keep: Path | None
) -> tuple[np.ndarray, np.random.Generator]:
    """The solver's edges [instances, Z], and the generator after them."""
    found, words = [], _words(rng)

    def solve(begin: int, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rng, rows = _generator(words), range(begin, config.imitation_instances)[:INSTANCES_PER_SAVE]
        return np.stack([_solved(costs, row, config, rng) for row in rows]), _words(rng)

    for begin in range(0, config.imitation_instances, INSTANCES_PER_SAVE):
        file = keep and keep / f"solved-{seed}-{begin}.npz"
        edge, words = kept_arrays(file, partial(solve, begin, words), lambda: (0, 0))
        found.append(edge)
    return np.concatenate(found), _generator(words)


def _words(rng: np.random.Generator) -> np.ndarray:
    """The state of a generator [6] uint64."""
    state: Any = rng.bit_generator.state
    parts = [divmod(state["state"][name], _WORD) for name in ("state", "inc")]
    return np.array([*parts[0], *parts[1], state["has_uint32"], state["uinteger"]], np.uint64)


def _generator(words: np.ndarray) -> np.random.Generator:
    """A generator in the state that `_words` gave."""
    high, low, inc_high, inc_low, has_half, half = map(int, words)
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": high * _WORD + low, "inc": inc_high * _WORD + inc_low},
        "has_uint32": has_half,
        "uinteger": half,
    }
    return rng


def _solved(costs: Costs, row: int, config: LearningConfig, rng: np.random.Generator) -> np.ndarray:
    search = LocalSearchConfig(restarts=True, max_restarts=config.solver_restarts)
    return insertion_local_search(row_of(costs, row), search, rng)


def single(tree: Any) -> Any:
    """Arrays of a pytree in single precision, as networks see them."""
    return jax.tree.map(lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, tree)


def _imitation(problem: _Problem, optimiser: optax.GradientTransformation) -> Callable[..., Any]:
    def loss(params: Params, rounds: Any, edge: Array) -> Array:
        chosen = jnp.take_along_axis(log_softmax(problem.logits(params, rounds)), edge[..., None], axis=-1)
        return -jnp.mean(chosen)

    return _update(loss, optimiser)


def _reinforcement(
    problem: _Problem, optimiser: optax.GradientTransformation, config: LearningConfig
) -> Callable[..., Any]:
    def loss(params: Params, rounds: Any, key: Array) -> Array:
        log_p, costs = log_softmax(problem.logits(params, rounds)), problem.costs(rounds)  # [batch, Z, Q]
        shape = (config.num_samples, *log_p.shape[:2])
        edge = jax.random.categorical(key, jax.lax.stop_gradient(log_p), axis=-1, shape=shape)
        found_s = jax.lax.map(lambda one: makespan_s(costs, one), edge)  # [samples, batch]
        advantage = found_s - found_s.mean(axis=0, keepdims=True)
        advantage = jax.lax.stop_gradient(advantage / (found_s.std(axis=0, keepdims=True) + 1e-6))
        on = jax.nn.one_hot(edge, log_p.shape[-1], dtype=log_p.dtype)
        weighted = jnp.einsum("sb,sbzq->bzq", advantage, on) / config.num_samples
        entropy = -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)
        return jnp.mean(jnp.sum(weighted * log_p, axis=(-1, -2))) - config.entropy * jnp.mean(entropy)

    return _update(loss, optimiser)


def _update(
    loss: Callable[[Params, Any, Array], Array], optimiser: optax.GradientTransformation
) -> Callable[..., Any]:
    @jax.jit
    def update(params: Params, state: Any, rounds: Any, target: Array) -> tuple[Params, Any]:
        return descend(optimiser, jax.grad(loss)(params, rounds, target), state, params)

    return update
