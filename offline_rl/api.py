"""The front door of training: a recipe, what it learns from, and a seed or several.

bc = train(behaviour_cloning(), twin.history(), seed=1)
rl = train(ppo(start=bc), twin.rollouts(streams=320), seeds=range(5))
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.progress import Progress, SilentProgress
from logs_schema.settings import refuse_below_one
from offline_rl.networks import Actor, Example, example_in, greedy_policy, sampling_policy
from offline_rl.recipes.cloning import fit_clone
from offline_rl.recipes.config import NETWORKS, TrainingConfig, even_streams
from offline_rl.recipes.training import referee_of, train_in_twin
from twin.contracts import Policy, PyTree, Trajectory
from twin.placement.model import Rollouts


@dataclass(frozen=True)
class Trained:
    """What a recipe yields: one policy for each seed.

    Attributes:
        name: Of the recipe.
        network: Of all of them.
        example: Shapes of what they see.
        params: Parameters of the network, leaves [seeds, ...].
        seeds: One for each.
        network_name: Among `offline_rl.recipes.config.NETWORKS`.
    """

    name: str
    network: Actor
    example: Example
    params: PyTree
    seeds: tuple[int, ...]
    network_name: str

    def params_of(self, seed: int) -> PyTree:
        """The parameters of one seed; ConfigError where it was not trained."""
        if seed not in self.seeds:
            raise ConfigError(f"there is no policy of seed {seed}", allowed=", ".join(map(str, self.seeds)))
        return jax.tree.map(lambda leaf: leaf[self.seeds.index(seed)], self.params)

    def policy(self, seed: int | None = None, *, sampled: bool = False) -> Policy:
        """The policy of one seed, by default the first: its likeliest choice, or a draw from its distribution."""
        params = self.params_of(self.seeds[0] if seed is None else seed)
        return sampling_policy(self.network, params) if sampled else greedy_policy(self.network, params)


class Recipe(NamedTuple):
    """How to train."""

    name: str
    needs: type  # what it learns from
    run: Callable[[Any, tuple[int, ...], Progress], Trained]


def train(
    recipe: Recipe,
    data: Any,
    *,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Trains a policy, or one for each of several seeds.

    Args:
        recipe: `behaviour_cloning()` or `ppo(start=...)`; of a queue `order_index()` or `order_ppo(start=...)`.
        data: `twin.history()` for learning from the log, `twin.rollouts(...)` for learning in the twin; of a queue the
            twin itself.
        seed: The seed, where there is one.
        seeds: Several; `seed` is not looked at then.
        progress: Where to show how far it is.

    Returns:
        The policies.

    Raises:
        ConfigError: The recipe learns from something else, or the settings are impossible.
    """
    if not isinstance(data, recipe.needs):
        raise ConfigError(
            f"{recipe.name} does not learn from {type(data).__name__}", allowed=recipe.needs.__name__,
            advice="give it twin.history() for the log, twin.rollouts(...) for the twin, or the twin of a queue",
        )  # fmt: skip
    chosen = (seed,) if seeds is None else tuple(seeds)
    return recipe.run(data, chosen, progress or SilentProgress())


def behaviour_cloning(
    *, updates: int = 600, streams: int = 16, held_out: float = 0.15, network: str = "scorer"
) -> Recipe:
    """The clone of the log, stopped where held-out windows are likeliest; see `TrainingConfig`."""
    config = TrainingConfig(clone_updates=updates, clone_streams=streams, held_out=held_out, network=network)

    def run(history: Trajectory, seeds: tuple[int, ...], progress: Progress) -> Trained:
        example = example_in(history)
        actor = NETWORKS[config.network](example)
        found = []
        with progress.stage("behaviour cloning", total=updates * len(seeds), unit="updates") as stage:
            for seed in seeds:
                params, _ = fit_clone(
                    jax.random.key(seed), history, example, actor, updates, streams, held_out, stage
                )
                found.append(params)
        return Trained("behaviour_cloning", actor, example, _stacked(found), seeds, config.network)

    return Recipe("behaviour_cloning", Trajectory, run)


def ppo(start: Trained, **settings: Any) -> Recipe:
    """PPO in a twin that starts from a clone and stays near it.

    Args:
        start: Where it starts: the policy of the first seed.
        settings: Of `TrainingConfig`, such as `num_updates` or `kl_to_clone`.
    """
    clone = start.params_of(start.seeds[0])

    def run(rollouts: Rollouts, seeds: tuple[int, ...], progress: Progress) -> Trained:
        config = TrainingConfig(
            seeds=seeds, num_streams=rollouts.streams, disagreement=rollouts.disagreement,
            randomise_nodes=rollouts.randomisation.nodes, randomise_services=rollouts.randomisation.services,
            network=start.network_name,
        )  # fmt: skip
        twin = rollouts.twin
        config = even_streams(replace(config, **settings), twin.config.num_members)
        refuse_below_one("ppo", num_updates=config.num_updates)
        key = jax.random.key(0)  # each seed's own is folded in, so it learns the same alone or beside others
        judge = referee_of(key, twin, config, [(start.network, clone)]).select
        runs = train_in_twin(key, twin, start.example, start.network, clone, judge, config, progress, None)
        params = _stacked([run.best.params.actor for run in runs])
        return Trained("ppo", start.network, start.example, params, seeds, start.network_name)

    return Recipe("ppo", Rollouts, run)


def _stacked(found: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *found)
