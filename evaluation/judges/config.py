"""Configuration of the judges of placement."""

from dataclasses import dataclass

from logs_schema.errors import ConfigError
from logs_schema.settings import refuse_below_one


@dataclass(frozen=True)
class JudgeConfig:
    """Configuration of the judges.

    Attributes:
        copies: Replications of every test window in a twin; a multiple of the ensemble's members.
        num_steps: Longest stretch of requests judged in one piece; longer days are cut, each piece starting from
            the logged state.
        num_fit_steps: Gradient steps of the twins of shifted days.
        off_policy_updates: Gradient steps of the fitted off-policy estimates; 0 leaves those estimates out.
        num_true_days: Replications of a day in the simulated truth, for logs of the ground truth.
        seed: Seed of the judges.
    """

    copies: int = 10
    num_steps: int = 512
    num_fit_steps: int = 600
    off_policy_updates: int = 1000
    num_true_days: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        if self.off_policy_updates < 0:
            raise ConfigError(
                f"off_policy_updates = {self.off_policy_updates}", where="[judge]", allowed="0 or more"
            )
        refuse_below_one(
            "[judge]", copies=self.copies, num_steps=self.num_steps, num_fit_steps=self.num_fit_steps,
            num_true_days=self.num_true_days,
        )  # fmt: skip
