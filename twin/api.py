"""The twin's front door: fit one on some days of a log, and get history or rollouts from it."""

from typing import Any

from logs_schema.logged_days import LoggedDays
from twin.fits import find_fit


def fit(problem: str, days: LoggedDays, *, seed: int = 0, **options: Any) -> Any:
    """Learns a twin of a system from some days of its log.

    Args:
        problem: What is decided: "placement", which node takes an arriving request; "ordering", which waiting job of a
            queue starts next; "autoscaling", "orchestration", "assignment", or another whose fit is known
            (`twin.fits.add_fit`).
        days: To learn from; what happened after the last of them is not looked at.
        seed: Of the fit.
        options: Of the problem's own fit, see the functions in `twin.fits`; placement and ordering have some.

    Returns:
        The twin. One of placement gives the log as a trajectory (`twin.history()`) and experience for a learner
        (`twin.rollouts(...)`); that of a queue is learned from as it is.

    Raises:
        ConfigError: An unknown problem, or days that do not hold what a twin is learned from.
    """
    return find_fit(problem).fit(days, seed=seed, **options)
