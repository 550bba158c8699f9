"""What a queue's job takes from the tables [days] and [shifts], which other problems read, and what it cannot take."""

from dataclasses import fields

from evaluation.comparison.shifts import ShiftConfig
from evaluation.comparison.training_days import DaysConfig
from evaluation.problems.configuration import OrderConfig, RunConfig, WeeksConfig


def order_of(config: RunConfig) -> OrderConfig:
    """The table [order]; without it, one whose weeks have the shifts of [shifts] and the number of days of [days]."""
    if config.order is not None:
        return config.order
    num_days = config.days.num_days or WeeksConfig.num_train_days
    return OrderConfig(weeks=WeeksConfig(shifts=config.shifts.shifts, num_train_days=num_days))


def unread_in_words(config: RunConfig, order: OrderConfig) -> str:
    """Which keys of [days] and [shifts] a queue's job goes without, as a sentence; empty where it is none."""
    taken = {"num_days": order.weeks.num_train_days, "shifts": order.weeks.shifts}
    unread = [
        f"[{table}] {item.name}"
        for table, given, usual in (
            ("days", config.days, DaysConfig()),
            ("shifts", config.shifts, ShiftConfig()),
        )
        for item in fields(given)
        if (value := getattr(given, item.name)) != getattr(usual, item.name) and value != taken.get(item.name)
    ]
    if not unread:
        return ""
    return (
        f"not read for a queue: {', '.join(unread)}; its anchors and weeks are those of [order.weeks] "
        "(num_train_days, shifts, between)"
    )
