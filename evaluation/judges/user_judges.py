"""Judges of the user's in a comparison: functions from a policy and the days of a shift to values by unit.

A judge that raises, or returns anything but finite values of known metrics, equally many for every policy, is left out
by name, and the values of all other judges are kept.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.entries import JudgeFacts
from evaluation.comparison.unit_values import UnitValues, with_judge
from evaluation.judges.host_policy import failure_in_words, form_of
from evaluation.judges.named import RAISED, NamedOption, error_in_words, read_named
from evaluation.judges.read_only import read_only
from evaluation.judges.trust import trust_in
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from twin.contracts import Array

CONTRACT = (
    "a function (policy, days) -> UnitValues: policy as the problem's comparison plays it, days an "
    "evaluation.JudgedDays, values {metric of the comparison: finite [units]}, the same units for every policy"
)
NAMED = NamedOption("--judge", "judge", CONTRACT)
MOST_UNITS = 4_000
"""Units that a judge may return: an interval takes memory by their square."""


class JudgedDays(NamedTuple):
    """The days of one shift, as a judge of the user's gets them.

    Attributes:
        archive: The log.
        twin: The twin that the policies were trained in, as `twin.fit` returns it.
        shift_days: Days between training and these days.
        days: The days, in order.
        key: PRNG key, the same for all policies of a shift.
        history: () -> the log of these days as policies would have observed it: of placement a `Trajectory` with one
            stream for each window, of a queue its test weeks, of many requests at once a `ShiftedRequests`, of an
            application a `ScalingLog`, by slots a `SlotRows`. All judges share its arrays: they cannot be written.
    """

    archive: Archive
    twin: Any
    shift_days: int
    days: tuple[dt.date, ...]
    key: Array
    history: Callable[[], Any]


UserJudge = Callable[[Any, JudgedDays], UnitValues]
"""A judge: called once for each shift, policy and seed. The first line of its docstring describes it in reports.

The policy is of placement a `twin.contracts.Policy`, of a queue a function (weeks) -> starts by job, of many requests
at once a function (costs) -> edges of a round, of an application an `Autoscaler`, by slots a `JudgedPair`.
"""


def named_judges(texts: Sequence[str], here: Path = Path()) -> dict[str, UserJudge]:
    """Judges written as `name=module:function`; ConfigError as of `read_named`."""
    return read_named(texts, NAMED, here)


def days_of_shifts(
    archive: Archive,
    twin: Any,
    comparison: Comparison,
    seed: int,
    history: Callable[[tuple[dt.date, ...]], Any],
) -> list[JudgedDays]:
    """The days of every shift of a comparison that the log can answer.

    Args:
        archive, twin: As in `JudgedDays`.
        comparison: By the other judges.
        seed: Of the keys.
        history: Days -> their log; read once, when a judge needs it.
    """
    found = []
    for shift in comparison.shifts:
        if shift.days:
            days = tuple(dt.date.fromisoformat(day) for day in shift.days)
            key = jax.random.fold_in(jax.random.key(seed), shift.shift_days)
            found.append(
                JudgedDays(archive, twin, shift.shift_days, days, key, cache(partial(history, days)))
            )
    return found


def judged_by_users(
    comparison: Comparison,
    judges: Mapping[str, UserJudge],
    policies: Mapping[str, Sequence[Any]],
    days: Sequence[JudgedDays],
    config: IntervalConfig,
    progress: Progress,
) -> Comparison:
    """The comparison with the judges of the user's added.

    Args:
        comparison: By the other judges.
        judges: Name -> judge; no name is taken.
        policies: Name -> the policy of each seed.
        days: One entry for each shift.
        config: Of the bootstrap.
        progress: Progress display.

    Returns:
        The comparison; a judge that fails is left out, with the reason in `refused` under `judge NAME`.
    """
    if not judges:
        return comparison
    known = {one.name for one in comparison.policies}
    policies = {name: seeds for name, seeds in policies.items() if name in known}
    metrics = tuple(one.name for one in comparison.metrics)
    days = [one._replace(history=partial(_shared, one.history)) for one in days]
    added, refused = comparison, dict(comparison.refused)
    with progress.stage("judges of the user", total=len(judges), unit="judges") as stage:
        for done, (name, judge) in enumerate(judges.items()):
            stage(done, text=name)
            try:
                found = _judged(name, judge, policies, days, metrics)
            except ConfigError as error:
                refused[f"judge {name}"] = str(error)
                continue
            if found:
                added = with_judge(added, JudgeFacts(name, description_of(judge)), found, config)
                added = replace(added, trust=(*added.trust, *trust_in(added, name)))
        stage(len(judges))
    return replace(added, refused=refused)


def description_of(judge: UserJudge) -> str:
    """The first line of a judge's docstring."""
    lines = (getattr(judge, "__doc__", None) or "").strip().splitlines()
    return lines[0] if lines else "a judge of the user"


def _shared(history: Callable[[], Any]) -> Any:
    return read_only(history())


def _judged(
    name: str,
    judge: UserJudge,
    policies: Mapping[str, Sequence[Any]],
    days: Sequence[JudgedDays],
    metrics: Sequence[str],
) -> dict[tuple[int, str], list[UnitValues]]:
    """All values of a judge; ConfigError where one is not as it must be."""
    found: dict[tuple[int, str], list[UnitValues]] = {}
    for shift in days:
        first: tuple[str, int] | None = None
        for policy, seeds in policies.items():
            where = f"policy {policy!r}, shift {shift.shift_days}d"
            each = [_values_of(name, judge, one, shift, metrics, where) for one in seeds]
            for size in (len(leaf) for values in each for leaf in values.values.values()):
                first = first or (policy, size)
                if size != first[1]:
                    raise ConfigError(
                        f"judge {name!r} returns {size} units here and {first[1]} of policy {first[0]!r}",
                        where=where,
                        allowed="the same units for every policy: differences are paired by unit",
                    )
            found[shift.shift_days, policy] = each
    return found


Wrong = Callable[..., ConfigError]
"""(what is wrong with a judge, what is allowed) -> the error that names the judge and where it was called."""


def _values_of(
    name: str, judge: UserJudge, policy: Any, days: JudgedDays, metrics: Sequence[str], where: str
) -> UnitValues:
    """A judge's values of one policy, as arrays; ConfigError, which names the judge, where they are none."""

    def wrong(what: str, allowed: str = CONTRACT) -> ConfigError:
        return ConfigError(f"judge {name!r} {what}", where=where, allowed=allowed)

    returned = _returned(judge, policy, days, wrong)
    if unknown := [one for one in returned.values if one not in metrics]:
        raise wrong(f"returns the unknown metric {unknown[0]!r}", ", ".join(metrics))
    arrays = _arrays_of(returned, wrong)
    _refuse_uneven_or_infinite(arrays, wrong)
    weight = arrays.pop("weight") if returned.weight is not None else None
    if weight is not None and (weight.min() < 0.0 or weight.max() <= 0.0):
        raise wrong("returns weights that are negative, or all zero")
    return UnitValues(arrays, weight)


def _returned(judge: UserJudge, policy: Any, days: JudgedDays, wrong: Wrong) -> UnitValues:
    """What a judge returns, a UnitValues of a mapping."""
    getattr(policy, "forget_error", lambda: None)()
    try:
        found = judge(policy, days)
    except RAISED as error:  # of a function of the user's: anything
        raise wrong(f"raised {error_in_words(error)}") from error
    if (failed := getattr(policy, "error", None)) is not None:  # of plain NumPy, inside a compiled program
        raise wrong(f"was given a policy that {failure_in_words(failed)}", "policies that decide")
    if not isinstance(found, UnitValues) or not isinstance(found.values, Mapping) or not found.values:
        form = form_of(found)
        if isinstance(found, UnitValues):
            form += f" of {form_of(found.values)}" if found.values else " without values"
        raise wrong(f"returns {form} where a UnitValues of a mapping is required")
    return found


def _arrays_of(returned: UnitValues, wrong: Wrong) -> dict[str, np.ndarray]:
    """The values by metric, and `weight` where there are weights."""
    named = {**returned.values, **({} if returned.weight is None else {"weight": returned.weight})}
    try:
        if any(map(np.iscomplexobj, named.values())):
            raise TypeError("complex numbers")
        return {metric: np.asarray(leaf, np.float64) for metric, leaf in named.items()}
    except (TypeError, ValueError) as error:
        raise wrong(f"returns no numbers: {error_in_words(error)}") from error


def _refuse_uneven_or_infinite(arrays: Mapping[str, np.ndarray], wrong: Wrong) -> None:
    """ConfigError unless all arrays are of the same, not too many, units and finite."""
    num_units = max(leaf.size for leaf in arrays.values())
    if num_units > MOST_UNITS:
        raise wrong(
            f"returns {num_units:,} units",
            f"{MOST_UNITS:,} at most: a unit is a day, an episode or a block of requests, not a request by itself",
        )
    for metric, leaf in arrays.items():
        if leaf.shape != (num_units,) or not leaf.size:
            raise wrong(
                f"returns {metric} of shape {list(leaf.shape)} where [units] is required, units {num_units}"
            )
        if not np.isfinite(leaf).all():
            raise wrong(
                f"returns {metric} that is not finite in {int((~np.isfinite(leaf)).sum())} of {leaf.size} units"
            )
