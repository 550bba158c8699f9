"""The twin's front door: fit one on some days of a log, and get history or rollouts from it."""

import datetime as dt
from typing import Any

from logs_schema.archive import Archive
from logs_schema.errors import ConfigError
from logs_schema.logged_days import LoggedDays
from logs_schema.options import checked_seed, refuse_options
from twin.fits import find_fit


def fit(problem: str, days: LoggedDays, *, seed: int = 0, **options: Any) -> Any:
    """Learns a twin of a system from some days of its log.

    Args:
        problem: What is decided: "placement", which node takes an arriving request; "ordering", which waiting job of a
            queue starts next; "autoscaling", "orchestration", "assignment", or another whose fit is known
            (`twin.fits.add_fit`).
        days: To learn from; what happened after the last of them is not looked at.
        seed: Of placement's fit; the others draw nothing.
        options: Of the problem's own fit, see the functions in `twin.fits`; placement, ordering and
            orchestration have some.

    Returns:
        The twin. One of placement gives the log as a trajectory (`twin.history()`) and experience for a learner
        (`twin.rollouts(...)`); that of a queue is learned from as it is.

    Raises:
        ConfigError: An unknown problem, no days of a log, an impossible seed or option, or days that do not hold what
            a twin is learned from.
    """
    found, where = find_fit(problem), f"fit({problem!r})"
    _refuse_other_than_days(days, where)
    refuse_options(found.fit, options, where, taken=("seed",))
    return found.fit(days, seed=checked_seed(seed, where), **options)


def _refuse_other_than_days(days: Any, where: str) -> None:
    if not (isinstance(days, LoggedDays) and isinstance(days.archive, Archive)):
        raise ConfigError(
            f"a twin is not learned from a {type(days).__name__}",
            where=where,
            allowed="a LoggedDays of an Archive",
            advice='give it the training days: shifted_days(Archive("log"), "0d,7d").train',
        )
    wrong = [day for day in days.days if not isinstance(day, dt.date) or isinstance(day, dt.datetime)]
    if wrong or not days.days:
        raise ConfigError(
            f"{wrong[0]!r} is no day" if wrong else "there are no days to learn from",
            where=where,
            allowed="one or more datetime.date of the archive",
        )
