"""The front door of training: a recipe, what it learns from, and a seed or several.

bc = train(behaviour_cloning(), twin.history(), seed=1)
rl = train(ppo(start=bc), twin.rollouts(streams=320), seeds=range(5))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.options import checked_progress, checked_seed, checked_seeds, refuse_type
from logs_schema.progress import Progress
from logs_schema.settings import refuse_below_one, with_settings
from offline_rl.networks import Actor, Example, example_in, greedy_policy, sampling_policy
from offline_rl.recipes.cloning import fit_clone
from offline_rl.recipes.config import NETWORKS, TrainingConfig, even_streams
from offline_rl.recipes.schedulers import example_for
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

    def refuse_other_system(self, example: Example, where: str) -> None:
        """ConfigError where a system shows its policies something else than what these were trained on."""
        seen, shown = (_shapes((one.observation, one.legal)) for one in (self.example, example))
        if seen != shown:
            raise ConfigError(
                f"{self.name} was trained on another system, or in a twin that shows something else",
                where=where,
                allowed="policies of the same nodes, services and view",
                advice="train it with this twin",
            )


def _shapes(tree: PyTree) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (jax.tree_util.keystr(path), leaf.shape) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    ]


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
        ConfigError: There is no such recipe, it learns from something else, or seeds or settings are impossible.
    """
    if not isinstance(recipe, Recipe):
        raise ConfigError(
            f"{getattr(recipe, '__name__', repr(recipe)[:80])} is no recipe",
            where="train",
            allowed="a recipe, then what it learns from",
            advice="call it: train(behaviour_cloning(), twin.history())",
        )
    if not isinstance(data, recipe.needs):
        raise ConfigError(
            f"{recipe.name} does not learn from {type(data).__name__}",
            allowed=recipe.needs.__name__,
            advice="give it twin.history() for the log, twin.rollouts(...) for the twin, or the twin of a queue",
        )
    chosen = (checked_seed(seed, "train"),) if seeds is None else checked_seeds(seeds, "train")
    return recipe.run(data, chosen, checked_progress(progress, "train"))


def behaviour_cloning(
    *, updates: int = 600, streams: int = 16, held_out: float = 0.15, network: str = "scorer"
) -> Recipe:
    """The clone of the log, stopped where held-out windows are likeliest; see `TrainingConfig`."""
    sizes = {"clone_updates": updates, "clone_streams": streams, "held_out": held_out, "network": network}
    config = with_settings(TrainingConfig(), sizes, "behaviour_cloning")

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


def ppo(start: Trained | None = None, **settings: Any) -> Recipe:
    """PPO in a twin that starts from a clone and stays near it.

    Args:
        start: Where it starts: the policy of the first seed; it does not start from nothing.
        settings: Of `TrainingConfig`, such as `num_updates` or `kl_to_clone`.
    """
    start = checked_start(
        "ppo", start, tuple(NETWORKS), "train(behaviour_cloning(), twin.history())", settings
    )
    refuse_below_one("ppo", num_updates=with_settings(TrainingConfig(), settings, "ppo").num_updates)
    clone = start.params_of(start.seeds[0])

    def run(rollouts: Rollouts, seeds: tuple[int, ...], progress: Progress) -> Trained:
        config = TrainingConfig(
            seeds=seeds,
            num_streams=rollouts.streams,
            disagreement=rollouts.disagreement,
            randomise_nodes=rollouts.randomisation.nodes,
            randomise_services=rollouts.randomisation.services,
            network=start.network_name,
        )
        twin = rollouts.twin
        start.refuse_other_system(example_for(twin.encoding, twin.windows), "ppo(start=...)")
        config = with_settings(config, settings, "ppo")
        config = even_streams(config, twin.config.num_members, twin.encoding.num_views)
        key = jax.random.key(0)  # each seed's own is folded in, so it learns the same alone or beside others
        evaluate = referee_of(key, twin, config, [(start.network, clone)]).select
        runs = train_in_twin(key, twin, start.example, start.network, clone, evaluate, config, progress, None)
        params = _stacked([run.best.params.actor for run in runs])
        return Trained("ppo", start.network, start.example, params, seeds, start.network_name)

    return Recipe("ppo", Rollouts, run)


def checked_start(
    recipe: str, start: Any, networks: tuple[str, ...], result: str, settings: Mapping[str, Any]
) -> Trained:
    """Where a recipe starts; ConfigError where it cannot start from it, or with these settings."""
    advice = f"give it the result of {result}"
    if start is None:
        raise ConfigError(
            f"{recipe} starts from a trained policy, and none is given",
            where=f"{recipe}(start=...)",
            allowed=f"networks of the kind {', '.join(networks)}",
            advice=advice,
        )
    refuse_type("start", start, Trained, recipe, advice)
    found: Trained = start
    if found.network_name not in networks:
        raise ConfigError(
            f"{recipe} does not start from {found.name}",
            where=f"{recipe}(start=...)",
            allowed=f"networks of the kind {', '.join(networks)}",
            advice=advice,
        )
    refuse_seeds(recipe, settings)
    return found


def refuse_seeds(recipe: str, settings: Mapping[str, Any]) -> None:
    """ConfigError where the settings of a recipe name seeds, which `train` is given."""
    if "seeds" in settings:
        raise ConfigError(
            "a recipe has no seeds",
            where=recipe,
            allowed="other settings",
            advice="give them to train: seeds=range(5)",
        )


def _stacked(found: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *found)
