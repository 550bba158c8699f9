"""Recipes for the order of a queue, for `offline_rl.train`; all learn from the queue's twin.

index = train(order_index(), twin, seeds=range(2))
rl = train(order_ppo(start=index), twin, seeds=range(2))
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Progress
from logs_schema.settings import with_settings
from offline_rl.api import Recipe, Trained, checked_start, refuse_seeds
from offline_rl.ordering.index_scorer import scorer_of
from offline_rl.ordering.learning import anchor_data, learn_index, logged_windows, samples_before, train_order
from offline_rl.ordering.programs import SCORER, OrderTrainingConfig, example_in_windows, programs_for
from offline_rl.ordering.tables import with_tables
from offline_rl.scorer import scorer
from twin.contracts import PyTree
from twin.ordering.persistence import QueueTwin, tick_of

NETWORK = "order_scorer"
"""Kind of network of these recipes."""


def order_index(**settings: Any) -> Recipe:
    """The index of predicted run times, as a scorer of waiting jobs.

    Args:
        settings: Of `OrderTrainingConfig`: sizes of the bookkeeping.
    """
    refuse_seeds("order_index", settings)
    with_settings(OrderTrainingConfig(), settings, "order_index")

    def run(twin: QueueTwin, seeds: tuple[int, ...], progress: Progress) -> Trained:
        config = _config(twin, seeds, settings)
        samples, found = samples_before(twin.past, twin.pool, twin.anchor, twin.num_days), []
        with progress.stage("learn run times", total=len(seeds), unit="seeds") as stage:
            for seed in seeds:
                index, loss = learn_index(seed, samples)
                found.append(scorer_of(index, twin.pool))
                stage(len(found), text=f"seed {seed}: {loss:.3f} nats on held-out jobs")
        return _trained("order_index", twin, config, found)

    return Recipe("order_index", QueueTwin, run)


def order_ppo(start: Trained | None = None, **settings: Any) -> Recipe:
    """PPO in generated weeks, from an order and near it.

    Args:
        start: Where it starts: the policy of the first seed; it does not start from nothing.
        settings: Of `OrderTrainingConfig`, such as `num_updates`.
    """
    start = checked_start("order_ppo", start, (NETWORK,), "train(order_index(), twin)", settings)
    with_settings(OrderTrainingConfig(), settings, "order_ppo")
    first = start.params_of(start.seeds[0])

    def run(twin: QueueTwin, seeds: tuple[int, ...], progress: Progress) -> Trained:
        config = _config(twin, seeds, settings)
        data = anchor_data(twin.past, twin.population, twin.pool, twin.anchor, config, twin.num_days)
        programs, found = programs_for(twin.pool, data.train, config), []
        with progress.stage(
            "PPO in the twin", total=config.num_updates * len(seeds), unit="updates"
        ) as stage:
            for done, seed in enumerate(seeds):
                order = train_order(seed, programs, data, first, config, stage, done * config.num_updates)
                found.append(order.params)
        return _trained("order_ppo", twin, config, found)

    return Recipe("order_ppo", QueueTwin, run)


def _config(twin: QueueTwin, seeds: tuple[int, ...], settings: dict[str, Any]) -> OrderTrainingConfig:
    """Sizes and ticks that fit the queue."""
    config = with_settings(OrderTrainingConfig(seeds=seeds, tick_s=tick_of(twin)), settings, "settings")
    return with_tables(config, twin.past, twin.pool)


def _trained(name: str, twin: QueueTwin, config: OrderTrainingConfig, found: Sequence[PyTree]) -> Trained:
    """Scorers by seed, for the places that policies see where they are judged."""
    windows = logged_windows(twin.past, twin.pool, twin.anchor, twin.num_days, config)
    example = example_in_windows(twin.pool, windows, config)
    params = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *found)
    return Trained(name, scorer(example, SCORER), example, params, config.seeds, NETWORK)
