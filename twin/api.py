"""The twin's front door: fit one on some days of a log, and ask it for history or rollouts."""

import jax

from logs_schema.errors import ConfigError
from logs_schema.logged_days import LoggedDays
from twin.placement.encoding import fit_encoding
from twin.placement.learned import AnswerConfig
from twin.placement.model import PlacementTwin, fit_twin
from twin.problems import PLACEMENT


def fit(
    problem: str, days: LoggedDays, *, seed: int = 0, config: AnswerConfig | None = None, num_steps: int = 128
) -> PlacementTwin:
    """Learns a twin of a system from some days of its log.

    Args:
        problem: What is decided: "placement", which node takes an arriving request.
        days: To learn from; what happened after the last of them is not looked at.
        seed: Of the fit.
        config: Of the ensemble of answers.
        num_steps: Requests per window.

    Returns:
        The twin; `twin.history()` is the log as a trajectory, `twin.rollouts(...)` experience for a learner.

    Raises:
        ConfigError: Another problem, or days that do not hold what a twin is learned from.
    """
    if problem != PLACEMENT:
        raise ConfigError(
            f"no twin of {problem!r} is fitted here", allowed=f"'{PLACEMENT}'",
            advice=f"schedtwin fit --problem {problem} fits one, or says which problems there are",
        )  # fmt: skip
    encoding, config = fit_encoding(days.archive, days.days), config or AnswerConfig()
    return fit_twin(jax.random.key(seed), days.archive, encoding, days.days, config, num_steps=num_steps)
