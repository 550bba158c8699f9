"""How fast runs on a node go beside others, by a log: contention and processor sharing.

    pace of a run               = 1 / (slowdown by those beside it * slowdown by too few cores)
    slowdown by those beside it = 1 + sum of the pressures of their services
    slowdown by too few cores   = max(1, cores asked for by all that runs / cores of the node), where nodes are shared

What a run would take alone is its *work*. Works do not depend on who comes after a run has begun, as run times do. So
where a log shows a pace, answers draw works, and who is placed on a node slows all that runs there (`paced_fates`).
Processor sharing is the second factor, or a pressure of 1 where a node serves one request at its full pace (L.
Kleinrock, Queueing Systems II, 1976, section 4.4).

Under the right pace works scatter least around the tables. Of several, the one is taken under which runs are closest to
those around them on the node, which ended before they began or began after they had ended: where a node is slow for a
while, more runs are beside one another, and all of them are slow; those around say so. (Those beside a run would hide a
pace, since the longer they run, the more they slow it.) It counts only where it is better than none beyond chance, by a
share of the variance. Those around never say all, which a pressure that is too large makes up for: the least one is
taken that is not worse than the best beyond chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twin.placement.cross_validation import MIN_RUNS, clear_gain, stretches
from twin.placement.crowding import CrowdedRuns, fit_pressure
from twin.placement.service_times import rows_by_group
from twin.records import at_rows

PRESSURES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
MAX_ROWS = 40_000
"""Requests that are looked at, the last ones."""
NEXT_RUNS = 3
"""Runs on the node before a run, and after it, that it is held against."""
TAILS = 0.005
"""Share of these differences, at either end, that count no more than the one at its border."""
LEAST_SHARE = 0.005
"""Of the variance, that a pace must gain: heavy-tailed runs hide much of it, and where there is none all lose."""
LEAST_WORK_S = 1e-3
RIDGES = (1.0, 10.0, 100.0, 1_000.0, 1e9)
"""Squares of slopes worth of doubt that a service's pressure differs from the others'; the last: none does."""
CLEAR, CLEAR_BEYOND = 2.0, 3.0
"""Standard errors by which shared cores must gain beside a pressure, and where runs begin beyond the cores anyway."""
STEPS = 3
"""Of least squares, by which the pressures of services are found."""
FEWEST_BEYOND, LEAST_BEYOND = 20, 0.1
"""Runs that begin beyond the cores of their node, and their share of those that take the last ones or more, from which
on nobody waits for cores."""
_ROUNDED = 1e-6


@dataclass(frozen=True)
class Pace:
    """How fast runs go.

    Attributes:
        pressure: [services] by how much a run slows each run beside it on its node, >= 0.
        shares: Whether all that runs on a node shares its cores, so that none waits for one.
    """

    pressure: np.ndarray
    shares: bool


def pace_of(content: Mapping[str, Any] | None) -> Pace | None:
    """What an encoding's JSON holds."""
    return None if content is None else Pace(np.array(content["pressure"], float), bool(content["shares"]))


class HeldRuns(NamedTuple):
    """Requests of a log; leaves [rows], instants in seconds on one clock."""

    node: np.ndarray  # -1 where none took it
    service: np.ndarray
    cores: np.ndarray
    start_s: np.ndarray  # not finite where it never ran
    finish_s: np.ndarray  # not finite where it is not known to have ended


class _NodeProgress(NamedTuple):
    """Work that has been done on a node since its first event, by runs of every service."""

    times_s: np.ndarray  # [events]
    pace: np.ndarray  # [services, events] from each event to the next
    done_s: np.ndarray  # [services, events]


class WorkProgress:
    """How far the runs of a log have come by any instant, under a pace.

    Args:
        pace: How fast runs go.
        runs: All that ran.
        cores_of_node: [nodes] inf where not known.
    """

    def __init__(self, pace: Pace, runs: HeldRuns, cores_of_node: np.ndarray) -> None:
        self._runs = runs
        ran = np.flatnonzero((runs.node >= 0) & np.isfinite(runs.start_s))
        self._nodes: dict[int, _NodeProgress] = {}
        for here in rows_by_group(runs.node[ran]):
            rows = ran[here]
            node = int(runs.node[rows[0]])
            self._nodes[node] = _progress(pace, at_rows(runs, rows), cores_of_node[node])

    def work_s(self, row: np.ndarray, begin_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
        """Work that each of some runs (indices `row`, any shape) does from one instant to another; NaN of no run."""
        found = np.full(row.shape, np.nan)
        node, service = self._runs.node[row], self._runs.service[row]
        for one, progress in self._nodes.items():
            here = node == one
            if here.any():
                begin, end = (_done(progress, service[here], at_s[here]) for at_s in (begin_s, end_s))
                found[here] = end - begin
        return found


def _progress(pace: Pace, runs: HeldRuns, cores: float) -> _NodeProgress:
    ended = np.isfinite(runs.finish_s) & (runs.finish_s >= runs.start_s)
    row = np.concatenate([np.arange(len(ended)), np.flatnonzero(ended)])
    change = np.concatenate([np.ones(len(ended)), -np.ones(int(ended.sum()))])
    times_s = np.concatenate([runs.start_s, runs.finish_s[ended]])
    order = np.lexsort((change, times_s))
    times_s, row, change = times_s[order], row[order], change[order]
    pressing = np.cumsum(change * pace.pressure[runs.service[row]])
    slowdown = 1.0 + np.maximum(pressing[None] - pace.pressure[:, None], 0.0)
    if pace.shares and np.isfinite(cores):
        slowdown = slowdown * np.maximum(np.cumsum(change * runs.cores[row]) / max(cores, 1e-9), 1.0)
    steps = np.diff(times_s, append=times_s[-1:]) / slowdown
    done_s = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)[:, :-1]], axis=1)
    return _NodeProgress(times_s, 1.0 / slowdown, done_s)


def _done(progress: _NodeProgress, service: np.ndarray, at_s: np.ndarray) -> np.ndarray:
    """[rows] work done by an instant; that before the first event counts as done at full pace."""
    place = np.maximum(np.searchsorted(progress.times_s, at_s, "right") - 1, 0)
    since_s = at_s - progress.times_s[place]
    return np.asarray(progress.done_s[service, place] + since_s * progress.pace[service, place])


def works_s(pace: Pace, runs: HeldRuns, cores_of_node: np.ndarray) -> np.ndarray:
    """[rows] the work of every run whose start and finish are known; NaN of the others."""
    known = (runs.node >= 0) & np.isfinite(runs.start_s) & np.isfinite(runs.finish_s)
    rows, found = np.flatnonzero(known), np.full(len(known), np.nan)
    progress = WorkProgress(pace, runs, cores_of_node)
    found[rows] = progress.work_s(rows, runs.start_s[rows], runs.finish_s[rows])
    return np.where(known, np.maximum(found, 0.0), np.nan)


class Slowing(NamedTuple):
    """How runs slow each other by a log."""

    pace: Pace | None  # None where works explain no more than run times
    pressure: np.ndarray  # of `crowding`, which stands in for a pace; empty beside one
    crowded: CrowdedRuns  # with residuals of works where there is a pace


def fit_slowing(
    crowded: CrowdedRuns, cores: np.ndarray, cores_of_node: np.ndarray, num_services: int, *, by_works: bool
) -> Slowing:
    """The pace of a log, or the pressures that runs are longer by where it has none.

    Args:
        crowded: With residuals of run times.
        cores: [rows] that each asks for.
        cores_of_node: [nodes] inf where not known.
        num_services: Of the vocabulary.
        by_works: Whether answers may draw works at all.
    """
    runs = HeldRuns(crowded.node, crowded.service, cores, crowded.start_s, crowded.finish_s)
    usual_s = np.where(np.isfinite(crowded.residual), crowded.usual_s, np.nan)
    pace = fit_pace(runs, usual_s, cores_of_node, num_services) if by_works else None
    if pace is None:
        return Slowing(None, fit_pressure(crowded, num_services), crowded)
    with np.errstate(invalid="ignore", divide="ignore"):
        residual = np.log(works_s(pace, runs, cores_of_node) / crowded.usual_s)
    known = np.isfinite(crowded.residual) & np.isfinite(residual)
    return Slowing(pace, np.zeros(0), crowded._replace(residual=np.where(known, residual, np.nan)))


def fit_pace(
    runs: HeldRuns, usual_s: np.ndarray, cores_of_node: np.ndarray, num_services: int
) -> Pace | None:
    """The pace of runs in a log.

    Args:
        runs: In order of arrival.
        usual_s: [rows] the run times by the tables, NaN where unknown, or the run was not a whole one.
        cores_of_node: [nodes] inf where not known.
        num_services: Of the vocabulary.

    Returns:
        None where runs do not slow each other, beyond chance.
    """
    last = slice(-MAX_ROWS, None)
    runs, usual_s = at_rows(runs, last), usual_s[last]

    def logs(pace: Pace) -> np.ndarray:
        work_s = works_s(pace, runs, cores_of_node)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.log(np.maximum(work_s, LEAST_WORK_S) / usual_s)

    def errors(pace: Pace) -> np.ndarray:
        return _clipped(_surprises(logs(pace)[:, None], runs, num_services)[:, 0]) ** 2

    def alike(pressure: float, shares: bool = False) -> Pace:
        return Pace(np.full(num_services, pressure), shares)

    plain = errors(alike(0.0))
    if len(plain) < MIN_RUNS:
        return None
    stretch, least = stretches(len(plain)), LEAST_SHARE * float(plain.mean())
    tried = [alike(0.0, True), *(alike(pressure) for pressure in PRESSURES)]
    found = [errors(pace) for pace in tried[:2]]
    if min(one.mean() for one in found) >= plain.mean():  # where a little harms, more of it harms more
        return None
    if _begin_without_cores(runs, cores_of_node):  # so that no law can be that has them wait for cores
        laws = [tried[0], *(alike(pressure, True) for pressure in PRESSURES)]
        each = [errors(pace) for pace in laws]
        best = int(np.argmin([one.mean() for one in each]))
        is_clear = clear_gain(plain - each[best], stretch, CLEAR_BEYOND) > least
        return laws[_least(each, best, stretch)] if is_clear else None
    found += [errors(pace) for pace in tried[2:]]
    best = int(np.argmin([one.mean() for one in found]))
    if clear_gain(plain - found[best], stretch) <= least:
        return None
    if not np.array_equal(found[0], plain):  # on nodes that are ever short of cores
        together = [alike(pressure, True) for pressure in PRESSURES]
        errors_together = [errors(pace) for pace in together]
        both = int(np.argmin([one.mean() for one in errors_together]))
        if clear_gain(found[best] - errors_together[both], stretch, CLEAR) > 0.0:
            return together[_least(errors_together, both, stretch)]
    if tried[best].shares:
        return tried[best]
    best = 1 + _least(found[1:], best - 1, stretch)
    pace = tried[best]
    for _ in range(STEPS):
        slopes = _slopes(pace, runs, cores_of_node)
        surprises = _surprises(np.concatenate([logs(pace)[:, None], slopes], axis=1), runs, num_services)
        pace = Pace(np.maximum(pace.pressure - _step(surprises), 0.0), False)
    return pace if clear_gain(found[best] - errors(pace), stretch) > 0.0 else tried[best]


def _begin_without_cores(runs: HeldRuns, cores_of_node: np.ndarray) -> bool:
    """Whether runs begin on nodes all of whose cores are taken: of those that leave no core free, many take more."""
    num_full, num_beyond = 0, 0
    known = np.flatnonzero((runs.node >= 0) & np.isfinite(runs.start_s) & np.isfinite(runs.finish_s))
    for here in rows_by_group(runs.node[known]):
        rows = known[here]
        rows = rows[np.argsort(runs.start_s[rows], kind="stable")]
        by_end = rows[np.argsort(runs.finish_s[rows], kind="stable")]
        given_back = np.concatenate([[0.0], np.cumsum(runs.cores[by_end])])
        ended = np.searchsorted(runs.finish_s[by_end], runs.start_s[rows], "right")
        in_use = np.cumsum(runs.cores[rows]) - given_back[ended]
        cores = cores_of_node[runs.node[rows[0]]]
        num_full += int((in_use >= cores * (1.0 - _ROUNDED)).sum())
        num_beyond += int((in_use > cores * (1.0 + _ROUNDED)).sum())
    return num_beyond >= FEWEST_BEYOND and num_beyond >= LEAST_BEYOND * num_full


def _least(errors: list[np.ndarray], best: int, stretch: np.ndarray) -> int:
    """The first of some pressures, of ascending size, whose errors [rows] are no larger than the best one's beyond
    chance."""
    return next(one for one in range(best + 1) if clear_gain(errors[one] - errors[best], stretch) <= 0.0)


def _slopes(pace: Pace, runs: HeldRuns, cores_of_node: np.ndarray) -> np.ndarray:
    """[rows, services] by how much the logarithm of a run's work changes with the pressure of each service; NaN where
    the work is not known. Without shared cores."""
    work_s = works_s(pace, runs, cores_of_node)
    known = np.flatnonzero(np.isfinite(work_s))
    found = np.full((len(work_s), len(pace.pressure)), np.nan)
    for here in rows_by_group(runs.node[known]):
        rows = known[here]
        of_node = at_rows(runs, rows)
        events = np.concatenate([of_node.start_s, of_node.finish_s])
        order = np.argsort(events, kind="stable")
        row = order % len(rows)
        change = np.where(order < len(rows), 1.0, -1.0)
        beside = np.cumsum(
            change[:, None] * (of_node.service[row][:, None] == np.arange(found.shape[1])), axis=0
        )
        step_s = np.diff(events[order], append=events[order[-1]])
        begin, end = (np.searchsorted(events[order], at_s) for at_s in (of_node.start_s, of_node.finish_s))
        for service in np.unique(of_node.service):
            own = of_node.service == service
            slowdown = 1.0 + np.maximum(beside @ pace.pressure - pace.pressure[service], 0.0)
            weight = step_s / slowdown**2
            sums = np.concatenate(
                [np.zeros((1, found.shape[1])), np.cumsum(beside * weight[:, None], axis=0)]
            )
            alone = np.concatenate([[0.0], np.cumsum(weight)])
            of_beside = sums[end[own]] - sums[begin[own]]
            of_beside[:, service] -= alone[end[own]] - alone[begin[own]]  # itself
            found[rows[own]] = -of_beside / np.maximum(work_s[rows[own]], LEAST_WORK_S)[:, None]
    return found


def _step(surprises: np.ndarray) -> np.ndarray:
    """[services] the step of least squares (Gauss and Newton) that takes pressures towards what makes the first column
    [runs, 1 + services] least, drawn together as far as left-out stretches ask."""
    target, slopes = _clipped(surprises[:, 0]), surprises[:, 1:]
    together = np.concatenate([slopes.sum(axis=1, keepdims=True), slopes], axis=1)
    block = stretches(len(target))
    parts = [(together[block == one], target[block == one]) for one in np.unique(block)]
    squares, products = np.stack([x.T @ x for x, _ in parts]), np.stack([x.T @ y for x, y in parts])

    def solved(ridge: float, left_out: int | None = None) -> np.ndarray:
        kept = np.arange(len(parts)) != left_out
        penalty = np.diag(np.r_[0.0, np.full(slopes.shape[1], ridge)]) + 1e-9 * np.eye(together.shape[1])
        return np.linalg.solve(squares[kept].sum(axis=0) + penalty, products[kept].sum(axis=0))

    def error(ridge: float) -> float:
        return float(sum(np.sum((y - x @ solved(ridge, one)) ** 2) for one, (x, y) in enumerate(parts)))

    found = solved(min(RIDGES, key=error))
    return found[0] + found[1:]


def _surprises(values: np.ndarray, runs: HeldRuns, num_services: int) -> np.ndarray:
    """[runs with neighbours in time, columns] what the runs before and after a run miss of its values [rows, columns],
    beyond the mean of the service on the node; in order of arrival."""
    rows = np.flatnonzero(np.isfinite(values[:, 0]))
    found = np.full((len(rows), values.shape[1]), np.nan)
    for here in rows_by_group(runs.node[rows] * num_services + runs.service[rows]):
        found[here] = values[rows[here]] - values[rows[here]].mean(axis=0)
    missed, nothing = np.full_like(found, np.nan), np.zeros((1, values.shape[1]))
    for here in rows_by_group(runs.node[rows]):
        start_s, finish_s = runs.start_s[rows[here]], runs.finish_s[rows[here]]
        by_start, by_finish = (np.argsort(leaf, kind="stable") for leaf in (start_s, finish_s))
        before = np.searchsorted(finish_s[by_finish], start_s, "right")
        after = np.searchsorted(start_s[by_start], finish_s, "left")
        known = (before >= NEXT_RUNS) & (after + NEXT_RUNS <= len(here))
        before, after = before[known], after[known]
        ended, began = (
            np.cumsum(np.append(nothing, found[here[order]], axis=0), axis=0)
            for order in (by_finish, by_start)
        )
        around = ended[before] - ended[before - NEXT_RUNS] + began[after + NEXT_RUNS] - began[after]
        missed[here[known]] = found[here[known]] - around / (2 * NEXT_RUNS)
    return missed[np.isfinite(missed[:, 0])]


def _clipped(values: np.ndarray) -> np.ndarray:
    return np.clip(values, *np.quantile(values, (TAILS, 1.0 - TAILS))) if len(values) else values
