"""What products keep of the configuration of a queue, and a small one to try it."""

from dataclasses import replace
from typing import Any

from evaluation.problems.configuration import OrderConfig
from logs_schema.records import to_plain

ORDER_CODE = 14
"""Raised when changes of the code change trained orders or their reports: those of older code are made again."""


def as_settings(config: OrderConfig, *names: str) -> dict[str, Any]:
    """The configuration, or some fields of it, as saved in products; with a pool only where one is named.

    So products made before there were pools are not made again.
    """
    plain = to_plain(config)
    unnamed = {"pool"} if config.pool is None else set()
    return {name: plain[name] for name in names or plain if name not in unnamed}


def quick(config: OrderConfig) -> OrderConfig:
    """The same with little training, to check that everything works."""
    training = config.training and replace(
        config.training, seeds=config.training.seeds[:1], num_updates=2, look_every=1, num_streams=8, num_steps=32,
        num_episodes=2, num_held_out=1, clone_updates=5,
    )  # fmt: skip
    return replace(config, training=training, num_twin_weeks=2)
