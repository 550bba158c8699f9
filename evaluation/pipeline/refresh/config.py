"""Configuration of a refresh."""

from dataclasses import dataclass, field

from logs_schema.errors import ConfigError

BETTER, NOT_WORSE = "better", "not-worse"
ACCEPTED = (BETTER, NOT_WORSE)
"""Verdicts on the new policy that an export may require."""


@dataclass(frozen=True)
class RefreshConfig:
    """Held-out days and the condition of an export.

    Attributes:
        judge_days: Newest days that are held out for certificate and comparison; without it 2, of a queue 28, of
            deployments 1.
        accept: Required verdict of the comparison on the new policy.
        force: Also without new decisions, or with a twin that has not passed its certificate: export a policy that is
            better than the running one.
        when_needed: Fit and train only where the problem's notifier says that the running policy has to be trained
            again; without a running policy always.
        reward_below: Threshold of the notifier: mean reward of the newest days; by default what the training days of
            the running policy earned at the same loads.
    """

    judge_days: int | None = None
    accept: str = field(default=BETTER, metadata={"choices": ACCEPTED})
    force: bool = False
    when_needed: bool = False
    reward_below: float | None = None

    def __post_init__(self) -> None:
        if self.reward_below is not None and not self.when_needed:
            raise ConfigError(
                "a threshold of the notifier without the notifier",
                where="--reward-below",
                allowed="together with --when-needed",
            )
        if (self.judge_days is not None and self.judge_days < 1) or self.accept not in ACCEPTED:
            raise ConfigError(
                "the refresh is misconfigured",
                where=f"judge_days={self.judge_days}, accept={self.accept!r}",
                allowed=f"judge_days at least 1, accept one of {', '.join(ACCEPTED)}",
            )
