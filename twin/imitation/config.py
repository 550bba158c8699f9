"""How answers and engine are imitated: three ways through one program.

`ImitationConfig()` maximises the likelihood of logged answers. `anchored()` starts there, keeps the likelihood in the
loss and lets a discriminator's gradient flow through the drawn answers. `paper()` is algorithm 2 of Xiong et al. as it
stands: from scratch, the discriminator's verdict as a reward, PPO, no likelihood.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from logs_schema.errors import ConfigError
from twin.placement.learned import AnswerConfig

NONE, ANCHORED, PAPER = "none", "anchored", "paper"


@dataclass(frozen=True)
class DiscriminatorConfig:
    """The discriminator of (state, decision, answer) among its predecessors.

    Attributes:
        hidden: Widths of its hidden layers.
        window: Consecutive decisions whose answers are its input, its own included.
        learning_rate: Of Adam (momentum 0.5).
        gradient_penalty: Weight of the squared gradient at real rows, halved (Mescheder et al. 2018, R1).
    """

    hidden: tuple[int, ...] = (64, 64)
    window: int = 4
    learning_rate: float = 1e-3
    gradient_penalty: float = 0.3


@dataclass(frozen=True)
class Guards:
    """When the game is stopped; the best parameters so far are kept.

    Attributes:
        accuracy: Band in which the discriminator's accuracy should stay.
        refusals: Largest difference between generated and logged share of refused offers.
        patience: Evaluations in a row outside of a band, or without better held-out fidelity, before it stops.
        likelihood_lost: Held-out log likelihood per answer that parameters may have lost since the game began and still
            be kept: parameters that have lost more are no better, whatever their states look like.
    """

    accuracy: tuple[float, float] = (0.3, 0.98)
    refusals: float = 0.25
    patience: int = 6
    likelihood_lost: float = 0.02


@dataclass(frozen=True)
class ImitationConfig:
    """One way to imitate.

    Attributes:
        num_members: Answer networks; each owns an equal share of the streams.
        hidden: Widths of the hidden layers, of answers and critic.
        engine_hidden: The same of the engine, which looks at every node for every decision.
        num_warm: Steps of pure likelihood before the game.
        num_steps: Steps of the game.
        num_streams: Windows per step, real and generated alike; a multiple of `num_members`.
        learning_rate: Of Adam on answers and engine while warming.
        game_learning_rate: Of Adam on them during the game.
        anchor: Weight of the likelihood during a game without PPO.
        memory: Of the moving mean over the game's steps that parameters are looked at and kept as; 0: as they are.
        adversary: Weight of the discriminator's verdict in it.
        use_ppo: Improve by PPO on the reward `-log D` alone instead of by pathwise gradients.
        discount: Of the reward, for each decision.
        clip: PPO's bound on the joint probability ratio.
        epochs: PPO's passes over a rollout.
        evaluate_every: Steps between two evaluations of held-out fidelity.
        held_out: Share of the windows kept for these evaluations.
        discriminator: Its network and learning rate.
        guards: When to stop.
    """

    num_members: int = 2
    hidden: tuple[int, ...] = (64, 64)
    engine_hidden: tuple[int, ...] = (32, 32)
    num_warm: int = 400
    num_steps: int = 0
    num_streams: int = 16
    learning_rate: float = 2e-3
    game_learning_rate: float = 3e-4
    anchor: float = 1.0
    memory: float = 0.0
    adversary: float = 0.0
    use_ppo: bool = False
    discount: float = 0.9
    clip: float = 0.2
    epochs: int = 4
    evaluate_every: int = 25
    held_out: float = 0.2
    discriminator: DiscriminatorConfig = field(default_factory=DiscriminatorConfig)
    guards: Guards = field(default_factory=Guards)

    def __post_init__(self) -> None:
        positive = {
            "num_members": self.num_members,
            "num_streams": self.num_streams,
            "evaluate_every": self.evaluate_every,
            "discriminator.window": self.discriminator.window,
        }
        for name, value in positive.items():
            if value < 1:
                raise ConfigError(f"{name} is {value}", where="ImitationConfig", allowed="at least 1")
        if self.num_streams % self.num_members:
            raise ConfigError(
                f"{self.num_streams} streams cannot be dealt to {self.num_members} members",
                where="ImitationConfig",
                allowed=f"a multiple of {self.num_members}",
            )
        if not (0.0 < self.held_out < 1.0 and 0.0 <= self.memory < 1.0):
            raise ConfigError(
                f"held_out is {self.held_out}, memory {self.memory}",
                where="ImitationConfig",
                allowed="held_out between 0 and 1, memory 0 or more and below 1",
            )


def anchored(**changes: object) -> ImitationConfig:
    """Warm start, pathwise gradients from the discriminator, likelihood kept."""
    chosen: dict[str, object] = {"num_steps": 300, "adversary": 0.3, **changes}
    return ImitationConfig(**chosen)  # type: ignore[arg-type]


def paper(**changes: object) -> ImitationConfig:
    """Algorithm 2 of Xiong et al.: from scratch, PPO, no likelihood, no guard on the discriminator's accuracy."""
    chosen: dict[str, object] = {
        "num_warm": 0,
        "num_steps": 300,
        "use_ppo": True,
        "game_learning_rate": 1e-3,
        "guards": Guards((0.0, 1.0), 1.0, 1_000, np.inf),
        **changes,
    }
    return ImitationConfig(**chosen)  # type: ignore[arg-type]


@dataclass(frozen=True)
class GameConfig:
    """Whether a twin's answers are imitated adversarially; the networks are those of its ensemble in any case.

    Attributes:
        kind: "none": the ensemble as it was fitted, by likelihood. "anchored": a game that begins with it and keeps its
            likelihood. "paper": algorithm 2 of Xiong et al., from random networks.
        num_steps: Steps of the game.
    """

    kind: str = NONE
    num_steps: int = 300

    def __post_init__(self) -> None:
        if self.kind not in (NONE, ANCHORED, PAPER) or self.num_steps < 1:
            raise ConfigError(
                f"kind = {self.kind!r}, num_steps = {self.num_steps}",
                where="[imitation]",
                allowed=f"kind {NONE}, {ANCHORED} or {PAPER}, num_steps 1 or more",
            )

    def as_settings(self) -> "dict[str, GameConfig]":
        """Itself for what a product depends on; nothing without a game, so that what was made without one stands."""
        return {} if self.kind == NONE else {"imitation": self}

    def of_ensemble(self, answers: AnswerConfig) -> ImitationConfig:
        """The game of an ensemble; ConfigError where none is wanted."""
        if self.kind == NONE:
            raise ConfigError("no game is wanted", where="[imitation] kind", allowed=f"{ANCHORED}, {PAPER}")
        each = max(2, _STREAMS // answers.num_members)
        shared: dict[str, Any] = {
            "num_members": answers.num_members,
            "hidden": answers.hidden,
            "num_steps": self.num_steps,
            "num_streams": each * answers.num_members,
            "held_out": answers.held_out,
        }
        if self.kind == PAPER:
            return paper(**shared)
        return anchored(num_warm=WARM_STEPS, game_learning_rate=_FITTED_LEARNING_RATE, memory=0.98, **shared)


_STREAMS = 20
WARM_STEPS = 200
"""In which the engine is learned before the game, where the answers are fitted already."""
_FITTED_LEARNING_RATE = 2e-5
"""An ensemble that predicts durations to a fraction of a per cent is thrown off by larger steps: with 3e-4 five nats an
answer were lost within 25 of them, and not won back within 100."""
