"""What a function of a front door is given by name, checked before it runs: names, types and seeds."""

import operator
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime
from difflib import get_close_matches
from inspect import Parameter, signature
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from logs_schema.errors import ConfigError
from logs_schema.progress import Progress, SilentProgress
from logs_schema.settings import LARGEST_SEED

_WIDER: Mapping[type, type] = {int: Integral, float: Real}
"""Numbers of NumPy are taken where plain ones are meant."""


def refuse_options(
    function: Callable[..., Any], options: Mapping[str, Any], where: str, taken: Collection[str] = ()
) -> None:
    """Checks options against the keywords of the function that gets them.

    Args:
        function: What gets them.
        options: Name -> value.
        where: The front door, for messages.
        taken: Keywords that it gets otherwise.

    Raises:
        ConfigError: The function has no such keyword, or one of another type.
    """
    parameters = list(signature(function).parameters.values())
    if any(one.kind is Parameter.VAR_KEYWORD for one in parameters):
        return
    known = [one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY and one.name not in taken]
    for name in options:
        if name not in known:
            close = get_close_matches(name, known, 1)
            raise ConfigError(
                f"unknown option {name}",
                where=where,
                allowed=", ".join(known) or "no options",
                advice=f"is {close[0]} meant?" if close else "leave it out",
            )
    try:
        hints = get_type_hints(function)
    except NameError:  # of types that are imported for the type checker alone
        return
    for name, value in options.items():
        _refuse_type(name, value, hints.get(name, Any), where)


def refuse_arguments(function: Callable[..., Any], given: Mapping[str, Any], where: str) -> None:
    """ConfigError where an argument is of another type than the function declares; a path may be text."""
    hints = get_type_hints(function)
    for name, value in given.items():
        if hints[name] is Path:
            checked_path(name, value, where)
        else:
            _refuse_type(name, value, hints[name], where)


def checked_path(name: str, value: Any, where: str) -> Path:
    """A path that is given as one or as text; ConfigError where it is neither."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(
            f"{name} is a {type(value).__name__}", where=where, allowed="a path: text, or pathlib.Path"
        )
    return Path(value)


def refuse_type(name: str, value: Any, kind: type, where: str, advice: str = "") -> None:
    """ConfigError where an argument is of another type."""
    if not isinstance(value, kind):
        raise ConfigError(
            f"{name} is a {type(value).__name__}", where=where, allowed=f"a {kind.__name__}", advice=advice
        )


def checked_progress(progress: Any, where: str) -> Progress:
    """A progress display, one that shows nothing for None; ConfigError where it is none."""
    if progress is None:
        return SilentProgress()
    if isinstance(progress, type) or not all(
        callable(getattr(progress, name, None)) for name in ("stage", "note")
    ):
        raise ConfigError(
            f"progress = {progress!r}"[:200],
            where=where,
            allowed="a progress display, or None for none",
            advice="leave it out, or give it a logs_schema.progress.Progress",
        )
    return progress


def checked_days(days: Iterable[date], where: str) -> set[date]:
    """The days as a set; ConfigError where they are none, which no row would have."""
    wrong: list[Any] = [days] if isinstance(days, str) or not isinstance(days, Iterable) else []
    found = set() if wrong else set(days)
    wrong += [day for day in found if not isinstance(day, date) or isinstance(day, datetime)]
    if wrong:
        raise ConfigError(
            f"{wrong[0]!r} is not a day"[:200],
            where=where,
            allowed="days as datetime.date",
            advice="archive.days(table) has those with rows",
        )
    return found


def checked_seeds(seeds: Iterable[Any], where: str) -> tuple[int, ...]:
    """One or more different seeds as plain whole numbers; ConfigError where they are not."""
    allowed = f"one or more different whole numbers from 0 to {LARGEST_SEED}, such as range(3)"
    try:
        given = tuple(seeds)
        found = tuple(operator.index(seed) for seed in given if not isinstance(seed, bool))
        is_right = len(given) == len(found) == len(set(found)) > 0
    except TypeError:
        found, is_right = (), False
    if not is_right or not all(0 <= seed <= LARGEST_SEED for seed in found):
        raise ConfigError(f"seeds = {seeds!r}"[:200], where=where, allowed=allowed)
    return found


def checked_seed(seed: Any, where: str) -> int:
    """A seed as a plain whole number; ConfigError where it is none that generators take."""
    try:
        return checked_seeds((seed,), where)[0]
    except ConfigError:
        allowed = f"a whole number from 0 to {LARGEST_SEED}"
        raise ConfigError(f"seed = {seed!r}"[:200], where=where, allowed=allowed) from None


def _refuse_type(name: str, value: Any, hint: Any, where: str) -> None:
    """ConfigError where a value is of none of the types of a hint; hints of other kinds are not looked at."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if not all(isinstance(kind, type) and get_origin(kind) is None for kind in kinds):
        return
    is_bool = isinstance(value, bool) and bool not in kinds
    if is_bool or not isinstance(value, tuple(_WIDER.get(kind, kind) for kind in kinds)):
        words = " or ".join("None" if kind is types.NoneType else kind.__name__ for kind in kinds)
        raise ConfigError(f"{name} = {value!r}"[:200], where=where, allowed=words)
