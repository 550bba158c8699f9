"""Policies for the batches: PPO in the learned edges, its parameters kept and taken up again."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.algorithms.ppo import PPOConfig, ppo
from offline_rl.networks import Actor, actor, example_of, greedy_policy
from offline_rl.training_loop import in_twin, train
from twin.arrays import load_nested, save_arrays
from twin.contracts import Environment, Policy, PyTree
from twin.environment import environment

from .edges import response_of
from .problem import BatchEdges, batches_problem, edges_response, observe

ACTORS = "actors.npz"
NUM_UPDATES, NUM_STEPS, NUM_STREAMS = 100, 16, 64
CONFIG = PPOConfig(
    horizon_s=1.0, learning_rate=3e-3, entropy=0.003, num_epochs=4, actor_hidden=(32, 32), critic_hidden=(32,)
)
"""A horizon of a second: batches do not meet, so nothing that comes later is owed to a decision."""


def twin_of(edges: BatchEdges, length: int = NUM_STEPS) -> Environment:
    """The learned edges as an environment."""
    return environment(batches_problem(edges.cores), edges_response(edges, length))


def learn(edges: BatchEdges, seeds: tuple[int, ...]) -> PyTree:
    """Trains one policy for each seed: parameters, leaves [seeds, ...]."""
    twin = twin_of(edges)
    algorithm, experience = ppo(example_of(twin), CONFIG), in_twin(twin, NUM_STEPS, (NUM_STREAMS,))
    found = [
        train(jax.random.key(seed), algorithm, experience, NUM_UPDATES)[0].params.actor for seed in seeds
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def save_actors(folder: Path, params: PyTree) -> None:
    """Writes the parameters into a product's folder."""
    save_arrays(folder / ACTORS, params)


def load_actors(folder: Path, num_seeds: int) -> list[PyTree]:
    """The parameters of every seed."""
    stacked = load_nested(folder / ACTORS)
    return [jax.tree.map(lambda leaf, row=row: leaf[row], stacked) for row in range(num_seeds)]


def policy_of(edges: BatchEdges, params: PyTree) -> Policy:
    """The policy of some parameters: the likeliest edge."""
    network: Actor = actor(example_of(twin_of(edges)), CONFIG.actor_hidden)
    return greedy_policy(network, params)


def choices(policy: Policy, cores: np.ndarray, size_mib: np.ndarray) -> np.ndarray:
    """The edges [rows] that a policy chooses for batches [rows]."""
    legal = jnp.ones((len(cores), 1, len(size_mib)), bool)
    seen = observe(jnp.asarray(cores, jnp.float32), jnp.asarray(size_mib, jnp.float32))
    return np.asarray(policy(jax.random.key(0), seen, legal))[0]


def mean_response_s(edges: BatchEdges, policy: Policy) -> float:
    """What a policy is worth on the batches that the edges were learned from."""
    size_mib = np.asarray(edges.size_mib)
    return float(response_of(edges, size_mib, choices(policy, edges.cores, size_mib)).mean())
