"""The front door of judging: days to train on, days to judge on, and policies held side by side.

split = shifted_days(Archive("log"), "0d,1d,7d,30d")
compare({"bc": bc, "ppo": rl, "mine": my_policy}, twin, split.test).table("on_time")
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from evaluation.bootstrap import BootstrapConfig
from evaluation.comparison import Comparison
from evaluation.configuration import DaysConfig, JudgeConfig
from evaluation.judges.user_policies import UserPolicy
from evaluation.placement.comparing import Case, compare_case
from evaluation.products import archive_facts
from evaluation.shifts import ShiftConfig, ShiftPlan
from evaluation.tabulation import tabulate
from evaluation.training_days import plan_of, train_days_of
from logs_schema import Archive
from logs_schema.logged_days import LoggedDays
from logs_schema.progress import Progress, SilentProgress
from twin.placement.model import PlacementTwin


class ShiftedDays(NamedTuple):
    """The days that policies are judged on, after those of training.

    Attributes:
        archive: Where they are.
        plan: Training days, and test days by shift.
    """

    archive: Archive
    plan: ShiftPlan


class Split(NamedTuple):
    """An archive's days: to train on, and to judge on."""

    train: LoggedDays
    test: ShiftedDays


def shifted_days(
    archive: Archive,
    shifts: str = "0d,1d,7d,30d",
    *,
    num_days: int | None = None,
    last_day: dt.date | None = None,
    min_requests: int = 500,
    max_width_days: int = 7,
) -> Split:
    """Divides an archive's days into training days and, for every time shift, later days.

    Args:
        archive: The log.
        shifts: Days between training and test, such as "0d,1d,1w,1m".
        num_days: Training days; by default as many as leave room for the largest shift.
        last_day: The last of them; by default early enough for the largest shift.
        min_requests, max_width_days: Thin test days are pooled, see `ShiftConfig`.

    Returns:
        The days.

    Raises:
        ConfigError: Impossible shifts or bounds.
    """
    config = ShiftConfig(shifts, min_requests, max_width_days)
    train = train_days_of(archive, DaysConfig(last_day=last_day, num_days=num_days), config)
    return Split(LoggedDays(archive, train), ShiftedDays(archive, plan_of(archive, train, config)))


@dataclass(frozen=True)
class Compared:
    """What came of a comparison: all numbers in `comparison`, and ways to look at them."""

    comparison: Comparison

    def table(self, metric: str | None = None) -> str:
        """Policies by shifts, a table a judge, with intervals; by default of the main metric."""
        from rich.console import Console

        console = Console(width=160)
        with console.capture() as captured:
            console.print(tabulate(self.comparison, metric=metric))
        return captured.get()


def compare(
    policies: Mapping[str, UserPolicy],
    twin: PlacementTwin,
    test: ShiftedDays,
    *,
    judge: JudgeConfig | None = None,
    intervals: BootstrapConfig | None = None,
    progress: Progress | None = None,
) -> Compared:
    """Judges policies side by side on time-shifted days: replay, twins of those days and, where known, the truth.

    Published baselines and the logged decisions stand beside them.

    Args:
        policies: Name -> what was trained (each seed is judged), a function of the type `twin.Policy`, a baseline, or
            the folder of a bundle.
        twin: That training happened in; it says what policies observe.
        test: Of `shifted_days`.
        judge, intervals: How.
        progress: Where to show how far it is.

    Returns:
        The comparison. A policy that fails is left out and named in `comparison.refused`.

    Raises:
        ConfigError: No shift has days in the log, or a name stands for another policy.
    """
    case = Case(
        test.archive, twin, None, test.plan, judge or JudgeConfig(), intervals or BootstrapConfig(), policies
    )
    facts = archive_facts(test.archive)
    return Compared(compare_case(case, progress or SilentProgress(), facts=facts))
