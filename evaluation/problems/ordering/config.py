"""Configuration of the whole question for one archive of batch jobs."""

from dataclasses import dataclass, field, replace
from typing import Any

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.jobs.records import to_plain
from evaluation.problems.ordering.weeks import WeeksConfig
from offline_rl.ordering.programs import OrderTrainingConfig

ORDER_CODE = 5
"""Raised when code changes what is learned or said of orders: what older code made is made again then."""


@dataclass(frozen=True)
class OrderConfig:
    """What to do.

    Attributes:
        processors: of the pool; those of the archive's nodes by default.
        weeks: which weeks to judge.
        training: how to train; None judges the published rules alone.
        num_twin_weeks: generated weeks for each anchor in which all policies are played too.
        intervals: of the bootstrap.
        pool: which of the archive's pools, by the class of its nodes; to be named where there are several.
    """

    processors: float | None = None
    weeks: WeeksConfig = field(default_factory=WeeksConfig)
    training: OrderTrainingConfig | None = field(default_factory=OrderTrainingConfig)
    num_twin_weeks: int = 6
    intervals: IntervalConfig = field(default_factory=IntervalConfig)
    pool: str | None = None


def as_settings(config: OrderConfig, *names: str) -> dict[str, Any]:
    """The configuration, or some fields of it, as products keep it; a pool stands there only where one is named.

    So what was made before there were pools is not made again.
    """
    told = to_plain(config)
    unnamed = {"pool"} if config.pool is None else set()
    return {name: told[name] for name in names or told if name not in unnamed}


def quick(config: OrderConfig) -> OrderConfig:
    """The same with little training: to see that everything works, not to find out who is better."""
    training = config.training and replace(
        config.training, seeds=config.training.seeds[:1], num_updates=2, look_every=1, num_streams=8, num_steps=32,
        num_episodes=2, num_held_out=1, clone_updates=5,
    )  # fmt: skip
    return replace(config, training=training, num_twin_weeks=2)
