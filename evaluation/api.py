"""The public interface of evaluation: training days, shifted test days, and the comparison of policies on them.

split = shifted_days(Archive("log"), "0d,1d,7d,30d")
compare({"bc": bc, "ppo": rl, "mine": my_policy}, twin, split.test).table("on_time")
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.table import Table

from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import number, shift_label, with_interval
from evaluation.comparison.report.overview import figure_file, panels
from evaluation.comparison.report.words import summary
from evaluation.comparison.shifts import ShiftConfig, ShiftPlan
from evaluation.comparison.tabulation import printed, tabulate
from evaluation.comparison.training_days import DaysConfig, plan_of, train_days_of
from evaluation.judges.user_judges import CONTRACT, UserJudge
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.kits import kit_of_twin
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.logged_days import LoggedDays
from logs_schema.options import checked_progress, refuse_options, refuse_type
from logs_schema.progress import Progress
from logs_schema.settings import with_settings


class ShiftedDays(NamedTuple):
    """The test days of a comparison, all after the training days.

    Attributes:
        archive: The archive with the requests.
        plan: The training days, and the test days of every shift.
    """

    archive: Archive
    plan: ShiftPlan


class Split(NamedTuple):
    """The days of an archive: those to train on and those to test on."""

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
        archive: The log; days are those with requests, of a log without any those with samples of deployments.
        shifts: Days between training and test, such as "0d,1d,1w,1m".
        num_days: Number of training days; by default as many as leave room for the largest shift.
        last_day: The last training day; by default early enough for the largest shift.
        min_requests, max_width_days: Pooling of test days with few requests, see `ShiftConfig`.

    Returns:
        The training days and the test days.

    Raises:
        ConfigError: Impossible shifts or bounds.
    """
    refuse_type("archive", archive, Archive, "shifted_days", 'open it first: Archive("log")')
    bounds = {"shifts": shifts, "min_requests": min_requests, "max_width_days": max_width_days}
    config = with_settings(ShiftConfig(), bounds, "shifted_days")
    days = with_settings(DaysConfig(), {"last_day": last_day, "num_days": num_days}, "shifted_days")
    train = train_days_of(archive, days, config)
    return Split(LoggedDays(archive, train), ShiftedDays(archive, plan_of(archive, train, config)))


@dataclass(frozen=True)
class Compared:
    """The result of a comparison: all numbers in `comparison`, and methods that show them."""

    comparison: Comparison

    def table(self, metric: str | None = None) -> str:
        """One table for each judge: policies by shifts with intervals; by default of the main metric.

        Raises:
            ConfigError: There is no such metric.
        """
        known = [one.name for one in self.comparison.metrics]
        if metric is not None and metric not in known:
            raise ConfigError(f"there is no metric {metric!r}", allowed=", ".join(known))
        return printed(tabulate(self.comparison, metric=metric))

    def in_words(self) -> list[str]:
        """The verdicts as sentences: which policies are better or worse, and where no difference is established."""
        return summary(self.comparison)

    def figure(self) -> str:
        """SVG of the main metric against the shift: one panel for each judge, the main policies in colour."""
        return figure_file(self.comparison)

    def picture(self, judge: str, over: str | None = None) -> str:
        """SVG of the main metric against the shift, by one judge.

        Args:
            judge: Name of a judge of the comparison.
            over: Policy that differences are taken to; the values themselves if None.

        Raises:
            ConfigError: There is no such judge or policy, or the judge has no values.
        """
        known = [one.name for one in self.comparison.policies]
        drawn = panels(self.comparison, over) if over is None or over in known else {}
        if judge in drawn:
            return drawn[judge]
        judges = ", ".join(one.name for one in self.comparison.judges)
        raise ConfigError(
            f"there is nothing to show by {judge!r}" + ("" if over is None else f" over {over!r}"),
            allowed=f"judges {judges}; policies {', '.join(known)}",
        )

    def judges_table(self) -> str:
        """Accuracy of each judge: against the truth, where there is one, and against the logged value."""
        table = Table("judge", "shift", "rank correlation", "mean error", "bias", "judge minus log")
        for one in self.comparison.trust:
            off = None if one.told is None or one.logged is None else one.told - one.logged
            signed = (number(value, signed=True) for value in (one.bias, off))
            table.add_row(
                one.judge,
                shift_label(one.shift_days),
                number(one.rank_correlation),
                number(one.error),
                *signed,
            )
        return printed(table)

    def off_policy_table(self, policies: Sequence[str]) -> str:
        """Off-policy estimates of some policies by shift; "declines" where there is no estimate."""
        found = self.comparison
        table = Table("policy", "estimator", *(shift_label(one.shift_days) for one in found.shifts))
        rows = {(row.policy, row.method, row.shift_days): row.estimate for row in found.off_policy}
        for policy, method in dict.fromkeys((row.policy, row.method) for row in found.off_policy):
            if policy in policies:
                each = [rows.get((policy, method, one.shift_days)) for one in found.shifts]
                cells = [
                    "declines" if one is None or one.value is None else with_interval(one) for one in each
                ]
                table.add_row(policy, method, *cells)
        return printed(table)


def compare(
    policies: Mapping[str, UserPolicy],
    twin: Any,
    test: ShiftedDays,
    *,
    judges: Mapping[str, UserJudge] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Compared:
    """Compares policies on time-shifted days: by replay, in twins of those days, in the truth where known, and by
    judges of the user's.

    Published baselines and the logged decisions are part of every comparison.

    Args:
        policies: Name -> a trained policy (every seed is evaluated), a function of the type `twin.Policy`, a baseline
            or rule, or the folder of a bundle. What a problem does not take is left out, with what it takes.
        twin: The twin that the policies were trained in; it defines what policies observe.
        test: The test days, from `shifted_days`.
        judges: Name -> a judge: a function (policy, `JudgedDays`) -> `UnitValues`, see `UserJudge`.
        progress: Progress display; none by default.
        options: Options of the problem: `intervals` of the bootstrap; for placement `judge` (by default without
            off-policy estimates, `off_policy_updates`), for a queue `order` (lengths, numbers of generated weeks), by
            slots `play`, for deployments `scale`, for many requests at once `assign`.

    Returns:
        The comparison. A policy or a judge that fails is left out and named in `comparison.refused`.

    Raises:
        ConfigError: Arguments of other types, unknown options, no shift has days in the log, a name is taken by another
            policy or judge, or the problem takes no judges.
    """
    kit = kit_of_twin(twin)
    judge = kit.need(kit.judge, "comparing from Python")
    refuse_type(
        "test", test, ShiftedDays, "compare", 'give it the test days: shifted_days(Archive("log")).test'
    )
    shown = checked_progress(progress, "compare")
    _refuse_unnamed("policies", policies)
    _refuse_unnamed("judges", judges or {})
    if wrong := [name for name, one in (judges or {}).items() if not callable(one)]:
        raise ConfigError(f"judge {wrong[0]!r} is no function", where="compare", allowed=CONTRACT)
    refuse_options(judge, options, "compare", taken=("judges",))
    options |= kit.with_judges(judges or {})
    return Compared(judge(policies, twin, test.archive, test.plan, shown, **options))


def _refuse_unnamed(what: str, named: object) -> None:
    """ConfigError where policies or judges are not given by name."""
    if not isinstance(named, Mapping) or not all(isinstance(name, str) and name for name in named):
        raise ConfigError(
            f"{what} = {named!r}"[:200],
            where="compare",
            allowed='a mapping by name, such as {"mine": my_function}',
        )
