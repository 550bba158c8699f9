"""Judges autoscalers on the days after training: in twins of those days and, where the log is simulated, in the truth.

A shifted day, or as many as are judged together, is cut into episodes of two hours that all autoscalers play: paired,
they are the units of the intervals. A day that is not whole has as many as its log holds. Its twin has the load and the
laws of that day alone; its truth is the simulated application under the load of that day.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.bootstrap import Estimate, IntervalConfig, summarise, weights_of
from evaluation.comparison.comparison import Comparison, drawn_over_seeds, paired
from evaluation.comparison.entries import (
    Cell,
    Difference,
    JudgeFacts,
    JudgeTrust,
    MetricFacts,
    PolicyFacts,
    ShiftFacts,
    Tally,
)
from evaluation.comparison.metrics.metric import range_of
from evaluation.comparison.rank_correlation import known_rank_correlation
from evaluation.comparison.shifts import TestDays
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.named import RAISED
from evaluation.judges.user_policies import raised
from evaluation.problems.autoscaling.episodes import (
    EPISODES,
    WARM_UP_S,
    counted,
    rows_of_episode,
    starts_of,
    sums_in_log,
)
from evaluation.problems.autoscaling.judged_days import judged_days, without_days
from evaluation.problems.autoscaling.user_autoscalers import SIGNATURE
from evaluation.problems.refresh_parts import RUNNING
from evaluation.simulator.applications.load import made_rates, split_rates
from evaluation.simulator.applications.presets import application
from evaluation.simulator.applications.response import application_response, usual_grants
from logs_schema import Archive
from logs_schema.errors import ArchiveError, ConfigError
from logs_schema.progress import Progress
from offline_rl.recipes.scaling_task import ScalingTask
from offline_rl.recipes.scaling_training import POD_RULES
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, follow, free_config, free_limits
from offline_rl.rules.autoscaling.logged import as_that_day, logged_grants
from offline_rl.rules.autoscaling.published import typical_grants
from twin.autoscaling.answers import twin_response
from twin.autoscaling.config import GrantLimits
from twin.autoscaling.fit import fit_application
from twin.autoscaling.persistence import load_application_twin, save_application_twin
from twin.autoscaling.rewards import Reward
from twin.autoscaling.scaling_log import DAY_S, TABLE, ScalingLog, read_scaling_log, without_gaps
from twin.autoscaling.types import Grants
from twin.contracts import Array, Response

TWIN, TRUTH, LOGGED = "twin", "truth", "logged"
Sums = Mapping[str, np.ndarray]
"""Sums over each episode, [episodes] or of every seed [seeds, episodes]; metrics are one over the other (`PARTS`)."""
MIN_RANKED = 3
"""Policies that the twin is held against the truth on, at least."""
JUDGES = {
    TWIN: "the application as learned from the shifted day alone, under the load of that day",
    TRUTH: "the simulated application that wrote the log, under its load of that day",
}
METRICS = (
    MetricFacts(
        "reward", "cores", "higher", "minus cores granted and the price of violations of the objective, mean"
    ),
    MetricFacts("mean_response", "s", "lower", "mean response time over the requests answered"),
    MetricFacts(
        "objective_kept", "share", "higher", "share of intervals that keep the objective, of all requests"
    ),
    MetricFacts("failures", "share", "lower", "requests that failed over requests sent"),
    MetricFacts("cpu_cores", "cores", "lower", "cores granted, mean"),
)
PARTS = {
    "reward": ("reward", "intervals"),
    "mean_response": ("time_s", "answered"),
    "objective_kept": ("kept", "intervals"),
    "failures": ("failed", "asked"),
    "cpu_cores": ("cores", "intervals"),
}
"""Metric -> sums over an episode, one over the other."""
SUMS = {part: 0.0 for parts in PARTS.values() for part in parts}


class ComparedAutoscaler(NamedTuple):
    """A policy that is compared: autoscalers of all its seeds.

    Attributes:
        facts: Name, kind, description.
        autoscalers: Of each seed.
        is_users: Whether an error of it leaves it out, instead of ending the comparison.
    """

    facts: PolicyFacts
    autoscalers: Sequence[Autoscaler]
    is_users: bool = False


class Day(NamedTuple):
    """A judge's shifted day: number of intervals of an episode, limits -> the system, and grants that its log had."""

    judge: str
    shift_days: int
    starts: np.ndarray  # [episodes] rows of the day that its episodes begin with
    respond: Callable[[int, GrantLimits], Response]
    logged: Grants | None  # leaves [intervals of the day, deployments]
    in_log: Sums | None = None  # what the log says came of its grants


def compare_autoscalers(
    archive: Archive,
    train_days: Sequence[dt.date],
    shifts: Sequence[TestDays],
    task: ScalingTask,
    deployments: Sequence[str],
    contenders: Sequence[ComparedAutoscaler],
    reward: Reward,
    progress: Progress,
    *,
    references: Sequence[str] = (*POD_RULES, "lookahead", LOGGED, RUNNING),
    seed: int = 0,
    config: IntervalConfig | None = None,
    keep: Unfinished = NOTHING_KEPT,
) -> Comparison:
    """All autoscalers on every shifted day; `seed` is that of all that is drawn. A twin of a day, and what
    an autoscaler came to on a day, are units of `keep`, unless it is the user's: the name of a function does not
    identify its code.

    Raises:
        ConfigError: The log holds no episode of any of the shifted days, and is not simulated.
    """
    config = config or IntervalConfig()
    facts, days = _days(archive, train_days, shifts, task, deployments, reward, keep)
    cells: list[Cell] = []
    differences: list[Difference] = []
    tallies: list[Tally] = []
    refused: dict[str, str] = {}
    with progress.stage("judge", unit="days") as stage:
        for done, day in enumerate(days, 1):
            found: dict[str, Sums] = {}
            for row, one in enumerate(contenders):
                stage(done - 1 + row / len(contenders), float(len(days)), f"{day.judge}, {one.facts.name}")
                if one.facts.name not in refused:
                    try:
                        name = one.facts.name
                        make = partial(_sums, day, task, one.autoscalers, reward, seed, name)
                        found[name] = make() if one.is_users else _kept(keep, day, name, make)
                    except RAISED as error:  # of a function of the user's: anything
                        if not one.is_users:
                            raise
                        where = f"{day.judge}, shift {day.shift_days}d"
                        known = isinstance(error, ConfigError)
                        why = error if known else raised(one.facts.name, error, where, SIGNATURE)
                        refused[one.facts.name] = str(why)
            if day.logged is not None:
                # the day may have left the bounds
                free = ScalingTask(task.scaling, free_limits(len(deployments)))
                as_logged = [as_that_day(day.logged, day.starts)]
                found[LOGGED] = _kept(keep, day, LOGGED, partial(_sums, day, free, as_logged, reward, seed))
            elif day.in_log is not None:
                found[LOGGED] = day.in_log
            made = _judged(day, found, references, config)
            cells += made[0]
            differences += made[1]
            for name, sums in found.items():
                num = int(np.atleast_2d(sums["intervals"]).mean(axis=0).sum())
                tallies.append(Tally(day.judge, day.shift_days, name, num, 0, 0, 0, None))
            stage(float(done), float(len(days)))
    cells = [one for one in cells if one.policy not in refused]
    tallies = [one for one in tallies if one.policy not in refused]
    differences = [one for one in differences if not {one.policy, one.reference} & refused.keys()]
    policies = [one.facts for one in contenders if one.facts.name not in refused]
    if any(day.logged is not None or day.in_log is not None for day in days):
        policies.insert(0, PolicyFacts(LOGGED, "history", "the grants of the log, one after the other"))
    judges = [JudgeFacts(name, JUDGES[name]) for name in dict.fromkeys(day.judge for day in days)]
    entry = {
        "name": archive.path.name,
        "content_hash": archive.content_hash,
        "num_rows": archive.num_rows(TABLE),
    }
    return Comparison(
        entry, tuple(day.isoformat() for day in train_days), "episodes of two hours", config.level, "reward",
        tuple(policies), tuple(judges), facts, METRICS, tuple(cells), tuple(differences), tuple(tallies),
        _trust(cells, days), refused=refused,
    )  # fmt: skip


def _days(
    archive: Archive, train_days: Sequence[dt.date], shifts: Sequence[TestDays], task: ScalingTask,
    deployments: Sequence[str], reward: Reward, keep: Unfinished = NOTHING_KEPT,
) -> tuple[tuple[ShiftFacts, ...], list[Day]]:  # fmt: skip
    facts, days = [], []
    truth = archive.facts.get("ground_truth")
    for test in shifts:
        shift, (date, dates) = test.shift_days, judged_days(archive, train_days, test)
        log, unread = None, ""
        try:
            log = read_scaling_log(archive, dates, deployments) if dates else None
        except ArchiveError as error:  # such as a deployment that has come or gone
            unread = error.what
        asked = np.zeros(0) if log is None else log.gateway["request_rate_per_s"]
        starts, whole = starts_of(asked, task.scaling.interval_s), EPISODES * len(dates)
        number = len(starts)
        in_log = None if log is None or not number else sums_in_log(log, starts, task, reward)
        name = f"{date}" if len(dates) < 2 else f"{date} to {dates[-1]}"
        told = f"holds {number} of {whole} episodes of {name}" if number else f"holds no episode of {name}"
        note = f"the log has no samples of {name}" if log is None else f"the log {told}"
        note = f"{name} cannot be judged by its log: {unread}" if unread else note
        notes = [] if number and number == whole else [note]
        judged = bool(truth and number)
        if log is not None and number:
            try:
                days.append(_twin_day(log, shift, task, in_log, keep))
                judged = True
            except ConfigError as error:
                notes.append(f"no twin of {name}: {error.what}")
        known = tuple(day.isoformat() for day in dates) if judged else ()
        facts.append(ShiftFacts(shift, known, None, "; ".join(notes)))
        if truth and (number or not truth.get("series")):  # how a series of rates goes on is not known
            days.append(_true_day(truth, date, shift, task, deployments, log if number else None, in_log))
    if not days:
        raise without_days(archive, train_days, (one.note for one in facts))
    return tuple(facts), days


def _twin_day(
    log: ScalingLog,
    shift: int,
    task: ScalingTask,
    in_log: Sums | None = None,
    keep: Unfinished = NOTHING_KEPT,
) -> Day:
    twin = keep.unit(
        f"twin, {shift}d",
        partial(fit_application, log),
        lambda twin, folder: save_application_twin(folder, twin),
        load_application_twin,
    )
    starts = starts_of(log.gateway["request_rate_per_s"], log.interval_s)
    rates, before = _from_midnight(log)

    def respond(length: int, limits: GrantLimits) -> Response:
        free = free_config(task.scaling)
        return twin_response(
            twin.laws, free, limits, rates, length, typical_grants(log), starts=starts + before
        )

    return Day(TWIN, shift, starts, respond, logged_grants(log, task.limits.max_memory_gib), in_log)


def _true_day(
    truth: Mapping[str, Any], date: dt.date, shift: int, task: ScalingTask, deployments: Sequence[str],
    log: ScalingLog | None, in_log: Sums | None = None,
) -> Day:  # fmt: skip
    """The simulated application under the load that the day's log has, or one like it where there is none."""
    app, interval_s = application(truth["preset"]), float(truth["interval_s"])
    named = {service.name: service for service in app.services}
    app = replace(app, services=tuple(named[name] for name in deployments))
    number = (date - dt.date.fromisoformat(truth["first_day"])).days
    if log is None:
        rates, before = made_rates(app, 1, interval_s, int(truth["seed"]), first_day=number), 0
        starts = starts_of(rates.sum(axis=1), interval_s)
    else:
        starts = starts_of(log.gateway["request_rate_per_s"], interval_s)
        total, before = _from_midnight(log)
        rates = split_rates(app, total, number * DAY_S + np.arange(len(total)) * interval_s)

    def respond(length: int, limits: GrantLimits) -> Response:
        return application_response(
            app,
            free_config(task.scaling),
            rates,
            length,
            starts=starts + before,
            grants=usual_grants(app, rates[before:]),
            limits=limits,
        )

    return Day(TRUTH, shift, starts, respond, None, in_log)


def _from_midnight(log: ScalingLog) -> tuple[np.ndarray, int]:
    """Rates of a day as responses take them, and how many of them lie before the log: no episode plays those."""
    before = round(float(log.time_s[0]) % DAY_S / log.interval_s)
    asked = without_gaps(log.gateway["request_rate_per_s"][:, None])[:, 0]
    return np.pad(asked, (before, 0), mode="edge"), before


def _sums(
    day: Day,
    task: ScalingTask,
    autoscalers: Sequence[Autoscaler],
    reward: Reward,
    seed: int,
    name: str = LOGGED,
) -> Sums:
    """Sums over each episode, [seeds, episodes]. `name` is the policy's, for messages."""
    length = rows_of_episode(task.scaling.interval_s) - 1
    skip = int(WARM_UP_S / task.scaling.interval_s)

    def play(key: Array, autoscaler: Autoscaler) -> dict[str, Array]:
        response = day.respond(length, task.limits)
        played = follow(key, response, *task, autoscaler, reward, length, day.starts.shape)
        unknown = jnp.sum(~played.asked, axis=0)
        return counted(jax.tree.map(lambda leaf: leaf[skip:], played), task) | {"unknown": unknown}

    found = [
        jax.jit(partial(play, autoscaler=one))(jax.random.key(1000 * seed + row))
        for row, one in enumerate(autoscalers)
    ]
    if num_unknown := int(sum(np.sum(one.pop("unknown")) for one in found)):
        raise ConfigError(
            f"policy {name!r} asked for grants that are no numbers in {num_unknown} of "
            f"{len(found) * length * len(day.starts)} intervals",
            where=f"{day.judge}, shift {day.shift_days}d",
            allowed="finite cores, GiB and replicas of every deployment",
        )
    return {name: np.stack([np.asarray(one[name]) for one in found]) for name in found[0]}


def _kept(keep: Unfinished, day: Day, name: str, make: Callable[[], Sums]) -> Sums:
    """What an autoscaler came to on a day, a unit of `keep`."""
    found: Sums = keep.tree(f"{day.judge}, {day.shift_days}d, {name}", make, lambda: SUMS)
    return found


def _judged(
    day: Day, found: Mapping[str, Mapping[str, np.ndarray]], references: Sequence[str], config: IntervalConfig
) -> tuple[list[Cell], list[Difference]]:
    """Cells and differences of a day; intervals are over its episodes and, of a policy of several seeds, over these."""
    episodes = len(day.starts)
    weights, cells, differences = weights_of(episodes, config), list[Cell](), list[Difference]()
    for metric in METRICS:
        values = {name: _drawn(sums, metric, weights, config) for name, sums in found.items()}
        for name, value in values.items():
            estimate = summarise(value, episodes, config, range_of(metric))
            cells.append(Cell(day.judge, day.shift_days, name, metric.name, estimate))
        differences += paired(values, day.judge, day.shift_days, metric, references, episodes, config)
    return cells, differences


def _drawn(sums: Sums, metric: MetricFacts, weights: np.ndarray, config: IntervalConfig) -> np.ndarray:
    above, below = (np.atleast_2d(sums[part]) for part in PARTS[metric.name])
    each = zip(above, below, strict=True)
    return drawn_over_seeds([(weights @ one) / np.maximum(weights @ two, 1e-9) for one, two in each], config)


def _trust(cells: Sequence[Cell], days: Sequence[Day]) -> tuple[JudgeTrust, ...]:
    """How the twin's rewards stand to the true ones, by shift, where both judged."""

    def values(judge: str, shift: int) -> dict[str, float]:
        return {
            one.policy: _value(one.estimate)
            for one in cells
            if (one.judge, one.shift_days, one.metric) == (judge, shift, "reward")
        }

    found = []
    in_log = {day.shift_days: day.in_log for day in days if day.in_log is not None}
    for shift in dict.fromkeys(day.shift_days for day in days):
        in_twin, true = values(TWIN, shift), values(TRUTH, shift)
        if not in_twin:
            continue
        told = in_log.get(shift)
        logged = None if told is None else float(told["reward"].sum() / max(told["intervals"].sum(), 1.0))
        trust = JudgeTrust(TWIN, shift, in_twin.get(LOGGED), logged)
        shared = [name for name in in_twin if name in true]
        if len(shared) >= MIN_RANKED:
            mine, theirs = (np.array([one[name] for name in shared]) for one in (in_twin, true))
            trust = replace(
                trust,
                error=float(np.abs(mine - theirs).mean()),
                bias=float((mine - theirs).mean()),
                rank_correlation=known_rank_correlation(mine, theirs),
                num_policies=len(shared),
            )
        found.append(trust)
    return tuple(found)


def _value(estimate: Estimate) -> float:
    return float("nan") if estimate.value is None else estimate.value
