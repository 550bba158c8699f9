"""What a refresh leaves open."""

from dataclasses import dataclass

from logs_schema.errors import ConfigError

BETTER, NOT_WORSE = "better", "not-worse"
ACCEPTED = (BETTER, NOT_WORSE)
"""What the comparison may have to say of the new policy before it is exported."""


@dataclass(frozen=True)
class RefreshConfig:
    """What is held out and what is accepted.

    Attributes:
        judge_days: Newest days of the history that are held out: certificate and comparison look at them; None: as
            many as the problem needs (`Parts.num_days`).
        accept: What the comparison has to say of the new policy, of `ACCEPTED`.
        force: Go on where nothing new came, and where the twin did not pass its certificate; in that case only the
            comparison can get a policy exported.
    """

    judge_days: int | None = None
    accept: str = BETTER
    force: bool = False

    def __post_init__(self) -> None:
        if (self.judge_days is not None and self.judge_days < 1) or self.accept not in ACCEPTED:
            raise ConfigError(
                "the refresh is misconfigured",
                where=f"judge_days={self.judge_days}, accept={self.accept!r}",
                allowed=f"judge_days at least 1, accept one of {', '.join(ACCEPTED)}",
            )
