"""Table [assign] of a configuration: how schedulers of many requests at once are trained and compared."""

from dataclasses import dataclass

from logs_schema.errors import ConfigError

ASSIGN_CODE = 5
"""Raised when code changes what is learned of assignments."""


@dataclass(frozen=True)
class LearningConfig:
    """How long and how training goes.

    Attributes:
        num_updates: Updates of REINFORCE.
        batch: Instances of an update.
        num_samples: Assignments drawn of every instance.
        learning_rate: Of Adam; falls to a tenth over the updates.
        entropy: Weight of the entropy, in nats a request.
        imitation_updates: Updates that imitate local search, before those of REINFORCE.
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
                raise ConfigError(
                    f"{name} = {getattr(self, name)}",
                    where="training of a scheduler",
                    allowed="1 or more; two samples at least",
                )
        if min(self.num_updates, self.imitation_updates) < 0:
            raise ConfigError(
                f"{self.num_updates} and {self.imitation_updates} updates",
                where="training of a scheduler",
                allowed="0 or more",
            )


OURS_LEARNING = LearningConfig(
    num_updates=2000,
    batch=64,
    num_samples=32,
    learning_rate=1e-3,
    imitation_updates=2000,
    imitation_instances=2000,
)
"""Of `train_priced`, where nothing else is asked for."""

QUICK_LEARNING = LearningConfig(
    num_updates=10,
    batch=8,
    num_samples=8,
    learning_rate=1e-3,
    imitation_updates=60,
    imitation_instances=20,
    solver_restarts=2,
)
"""Hardly any: to see that everything works."""


@dataclass(frozen=True)
class AssignConfig:
    """Rounds of requests, and the schedulers that are tried on them.

    Attributes:
        interval_s: Time between rounds; a twentieth of the mean computing time if None.
        num_requests: Of a round in training (default: as many as come in one at the log's busiest hour, 20 to 100).
        num_edges: Of a round in training, drawn among the log's nodes (default: all, at most 20).
        seeds: One network is trained for each; none leaves learning out, rules alone are tried.
        learning: Of the networks.
        num_held_out: Rounds on which every rung is compared.
        search_s: Time of an answer there, the same for all.
        level: Confidence with which a rung must be better to be taken.
        max_requests: Consecutive requests of a shifted day that are played, its busiest ones.
        copies: Times that they are played, with other computing times.
    """

    interval_s: float | None = None
    num_requests: int | None = None
    num_edges: int | None = None
    seeds: tuple[int, ...] = (0,)
    learning: LearningConfig = OURS_LEARNING
    num_held_out: int = 100
    search_s: float = 0.05
    level: float = 0.95
    max_requests: int = 1500
    copies: int = 3

    def __post_init__(self) -> None:
        if self.interval_s is not None and not self.interval_s > 0.0:
            raise ConfigError(f"rounds every {self.interval_s} s", where="[assign]", allowed="more than 0 s")
        if self.num_held_out < 4 or not self.search_s > 0.0 or not 0.5 <= self.level < 1.0:
            raise ConfigError(
                f"{self.num_held_out} rounds of {self.search_s} s to compare on, at the level {self.level}",
                where="[assign]",
                allowed="4 or more, each of more than 0 s; a level from .5 to 1",
            )
        if self.max_requests < 1 or self.copies < 1:
            raise ConfigError(
                f"{self.max_requests} requests, {self.copies} times", where="[assign]", allowed="1 or more"
            )


ROUND_REQUESTS = (20, 100)
"""Least and most requests of a round in training, where none are asked for."""
INTERVAL_SHARE = 0.05
"""Of the mean computing time between rounds, where no interval is asked for."""
