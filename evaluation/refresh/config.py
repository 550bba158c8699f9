"""What a refresh leaves open."""

from dataclasses import dataclass, field

from logs_schema.errors import ConfigError

BETTER, NOT_WORSE = "better", "not-worse"
ACCEPTED = (BETTER, NOT_WORSE)
"""What the comparison may have to say of the new policy before it is exported."""


@dataclass(frozen=True)
class RefreshConfig:
    """What is held out and what is accepted.

    Attributes:
        judge_days: Newest days that are held out for certificate and comparison; without it 2, of a queue 28.
        accept: What the comparison has to say of the new policy.
        force: Also where nothing new came, or the twin has not passed its certificate: export what is better than the
            running policy.
    """

    judge_days: int | None = None
    accept: str = field(default=BETTER, metadata={"choices": ACCEPTED})
    force: bool = False

    def __post_init__(self) -> None:
        if (self.judge_days is not None and self.judge_days < 1) or self.accept not in ACCEPTED:
            raise ConfigError(
                "the refresh is misconfigured",
                where=f"judge_days={self.judge_days}, accept={self.accept!r}",
                allowed=f"judge_days at least 1, accept one of {', '.join(ACCEPTED)}",
            )
