"""The calendar days that a simulated or generated log lies on."""

import datetime as dt

from logs_schema.errors import ConfigError

LAST_DAY = dt.date(9998, 12, 31)
"""What begins on it ends within the calendar, whose last year is 9999."""


def validate_days(first_day: dt.date, num_days: int, command: str = "simulate") -> None:
    """ConfigError unless a log has a day, and all its days, from `first_day` on, lie within the calendar."""
    if num_days < 1:
        raise ConfigError(f"number of days is {num_days}", where=command, allowed="1 or more")
    if num_days > (LAST_DAY - first_day).days + 1:
        raise ConfigError(
            f"{num_days} days from {first_day} on",
            where=f"{command}: first day, number of days",
            allowed=f"days up to {LAST_DAY}",
            advice="begin earlier, or write fewer days",
        )
