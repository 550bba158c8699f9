"""Ends of runs that a log lacks, or has too late: amended by what its nodes can hold.

An agent that dies reports no end, one that hangs reports it minutes later; the node has gone on meanwhile. Read to the
letter, such a log has nodes that hold more than their cores, runs that never end, and requests that begin although
there is no room: a twin of it learns runs of hours, and its queues never empty. Two things are told from other causes:

* *Lost ends*: runs that began far longer ago than any takes, and are together more than their nodes can hold.
  (Services that really run on for days leave their nodes with what they have.) Each gets the run time of its service on
  its node, by a quantile of the log's own residuals (imputation by a hot deck; D. Rubin, Multiple imputation, 1987).
* *Late ends*: nodes are overfull by the log, and yet many requests begin at the very instant at which an end makes room
  for them, far more than by chance: so the cores do bound what a node holds. (Nodes that are shared beyond their cores
  have no such instants.) An end at which another begins is right. A run that took longer than nearly all of those is
  taken as one whose end is lost; and where one begins for which there is no room, the most overdue run has ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twin.placement.columns import amount, decided_node, instant_s
from twin.placement.service_times import rows_of_each

FEWEST = 20
"""Runs without an end, of a log that loses ends, and as many times those that took as long."""
OVERFULL = 0.02
"""Share of starts on nodes that are overfull by the log, from which on something is amiss."""
AT_ONCE, BEYOND_CHANCE = 0.02, 10.0
"""Share of starts on full nodes for which an end makes room at that instant, and times that share by chance."""
MINORITY, OVERDUE = 0.4, 2.0
"""Most runs that may have ended earlier than logged, and how much longer than others, by the log, they take."""
SAME_S, AWAY_S = 2e-3, 7.0
"""What counts as one instant; how far from it chance is measured."""
LONG_QUANTILE, MARGIN = 0.999, 2.0
"""No run takes longer than so many times this quantile of the log's, as a multiple of its usual run time."""
CONFIRMED, BELIEVED_QUANTILE = 200, 0.995
"""Ends at which another run begins, at least, and up to which of their quantiles other ends are believed."""
NUM_QUANTILES = 65
PAIR_PRIOR = 5.0
"""Runs' worth of what is usual on a machine that those of a service there are drawn to."""
NOT_LOST = ["running", "waiting", "dropped", "rejected"]
"""States of a request that has no end yet, or never began."""
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MICROSECOND, LEAST_CORES = 1e-6, 1e-6


@dataclass(frozen=True)
class ReportedEnds:
    """How the ends of a log's runs are amended.

    Attributes:
        loses: Whether ends are missing.
        is_late: Whether some are too late.
        cores: Of every machine, by name.
        ratio_of_node: Usual run time on a machine, as a multiple of what is stated or usual of the service.
        run_of_service_s: Usual run time of a service, where a request states none.
        longest: No run takes longer, as a multiple of its usual time.
        believed: Ends of longer runs are believed only where another begins at once.
        log_ratio: Quantiles, evenly from 0 to 1, of the logarithm of run over usual time.
        ratio_of_pair: Service -> machine -> usual run time there, as a multiple of what it is by the two alone.
    """

    loses: bool
    is_late: bool
    cores: Mapping[str, float]
    ratio_of_node: Mapping[str, float]
    run_of_service_s: Mapping[str, float]
    longest: float
    believed: float
    log_ratio: tuple[float, ...]
    ratio_of_pair: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class _ReportedRuns(NamedTuple):
    """The runs of a log, leaves [rows]."""

    start_s: np.ndarray  # seconds since 1970; NaN where unknown
    finish_s: np.ndarray  # NaN where unknown
    is_open: np.ndarray  # bool: began, and neither an end nor a status of going on is known
    usual_s: np.ndarray
    machine: np.ndarray  # int; -1 where it is not known, or its cores are not
    cores: np.ndarray  # of the machine that each takes
    room: np.ndarray  # cores of the machine; inf where they are not known


def with_amended_ends(
    looked_at: Sequence[tuple[pa.Table, np.ndarray]], nodes: pa.Table, until_s: float
) -> tuple[pa.Table, list[tuple[pa.Table, np.ndarray]], ReportedEnds | None]:
    """All rows of the pieces of a log, and the pieces, with their ends amended; and how.

    Args:
        looked_at: Rows of `requests`, and which of them are of the piece (`twin.placement.pieces`).
        nodes: The archive's machines.
        until_s: Seconds since 1970 at which the log was cut.
    """

    def together(found: Sequence[tuple[pa.Table, np.ndarray]]) -> pa.Table:
        return pa.concat_tables([one.filter(pa.array(wanted)) for one, wanted in found]).unify_dictionaries()

    rows, found = together(looked_at), list(looked_at)
    law = fit_reported_ends(rows, nodes, until_s)
    if law is not None:
        found = [(amended(one, law, until_s), wanted) for one, wanted in found]
        rows = together(found)
    return rows, found, law


def reported_ends_of(stored: Mapping[str, Any] | None) -> ReportedEnds | None:
    """How ends are amended, from JSON."""
    return None if stored is None else ReportedEnds(**{**stored, "log_ratio": tuple(stored["log_ratio"])})


def fit_reported_ends(rows: pa.Table, nodes: pa.Table, until_s: float) -> ReportedEnds | None:
    """What is amiss with the ends of a log; None: nothing that its nodes give away.

    Args:
        rows: `requests` of the training days, sorted by arrival.
        nodes: The archive's machines.
        until_s: Seconds since 1970 at which the log was cut.
    """
    if pc.any(pc.greater(pc.fill_null(rows["num_nodes"], 1), 1)).as_py():
        return None
    names, cores = nodes["node_id"].to_pylist(), amount(nodes, "cpu_cores", np.inf)
    if not np.isfinite(cores).any():
        return None
    law = ReportedEnds(
        False, False, dict(zip(names, cores.tolist(), strict=True)), {}, {}, np.inf, np.inf, (0.0,)
    )
    found = _amiss(_with_usual_times(law, rows), rows, until_s)
    # What is drawn of ends that are lost or late must leave services as unlike between machines as they are
    return found and (_amiss(_with_pairs(found, rows, until_s), rows, until_s) or found)


def _amiss(law: ReportedEnds, rows: pa.Table, until_s: float) -> ReportedEnds | None:
    """What is amiss, by the usual times of a law; None: nothing."""
    runs = _runs(law, rows, until_s)
    log_ratio = _log_ratio(runs)
    if len(log_ratio) < FEWEST:
        return None
    longest = MARGIN * float(np.exp(np.quantile(log_ratio, LONG_QUANTILE)))
    law = replace(law, longest=longest, log_ratio=_quantiles(log_ratio), is_late=False, believed=np.inf)
    law = replace(law, loses=_loses_ends(law, runs, until_s))
    law = _with_late_ends(law, runs, _imputed_s(law, runs, _is_lost(law, runs, until_s)))
    return law if law.loses or law.is_late else None


def _loses_ends(law: ReportedEnds, runs: _ReportedRuns, until_s: float) -> bool:
    """Whether runs without an end are too many to be those that take longest, and more than their nodes can hold."""
    lost = _is_lost(law, runs, until_s)
    taken_so_long = int(np.sum(_log_ratio(runs) > np.log(law.longest)))
    bounded = lost & (runs.machine >= 0)
    if lost.sum() < FEWEST * (1 + taken_so_long) or not bounded.any():
        return False
    held = np.bincount(runs.machine[bounded], runs.cores[bounded])[runs.machine[bounded]]
    return float(np.mean(held > runs.room[bounded])) > 0.5


def _with_late_ends(law: ReportedEnds, runs: _ReportedRuns, finish_s: np.ndarray) -> ReportedEnds:
    """With what is known of late ends, if there are any once lost ones [rows] are imputed, however few: what seems to
    go on for ever fills its node, and would show other ends there as late."""
    if _overfull(runs, finish_s) < OVERFULL or not _cores_bound(runs, finish_s):
        return law
    earlier = _emptied_s(runs, finish_s) < runs.finish_s
    late, others, right = (_log_ratio(_only(runs, one)) for one in (earlier, ~earlier, _confirmed(runs)))
    if len(right) < CONFIRMED or not 0 < len(late) <= MINORITY * (len(late) + len(others)):
        return law
    if np.median(late) < np.median(others) + np.log(OVERDUE):
        return law
    believed = float(np.exp(np.quantile(right, BELIEVED_QUANTILE)))
    return replace(law, is_late=True, believed=believed, log_ratio=_quantiles(right))


def amended(rows: pa.Table, law: ReportedEnds | None, until_s: float) -> pa.Table:
    """The rows of `requests` with their ends as amended; as they are where nothing is amiss.

    Args:
        rows: Sorted by arrival.
        law: Of `fit_reported_ends`.
        until_s: Seconds since 1970 up to which the log is known.
    """
    if law is None:
        return rows
    runs = _runs(law, rows, until_s)
    lost = _is_lost(law, runs, until_s) & law.loses
    finish_s = _imputed_s(law, runs, lost | _unbelieved(law, runs))
    if law.is_late:
        finish_s = _emptied_s(runs, finish_s)
    moved = np.isfinite(finish_s) & (finish_s != runs.finish_s)
    micros = np.where(moved, np.round(np.where(moved, finish_s, 0.0) / MICROSECOND), 0).astype(np.int64)
    finish = pc.if_else(pa.array(moved), pa.array(micros).cast(rows["finish"].type), rows["finish"])
    status = pc.if_else(pa.array(lost), "completed", pc.cast(rows["status"], pa.string()))
    for name, column in (("finish", finish), ("status", status)):
        kind = rows.schema.field(name).type
        rows = rows.set_column(rows.schema.get_field_index(name), name, pc.cast(column, kind))
    return rows


class _Labels(NamedTuple):
    """A column of labels; "" where it is null."""

    names: list[str]
    place: np.ndarray  # [rows] in `names`

    @staticmethod
    def of(column: pa.ChunkedArray) -> "_Labels":
        encoded = pc.fill_null(pc.cast(column, pa.string()), "").combine_chunks().dictionary_encode()
        return _Labels(encoded.dictionary.to_pylist(), encoded.indices.to_numpy())

    def medians(self, values: np.ndarray) -> dict[str, float]:
        """Median (the lower one) of the known values [rows] of every label that has any."""
        known = np.isfinite(values)
        place, values = self.place[known], values[known]
        order = np.lexsort((values, place))
        labels, first, count = np.unique(place[order], return_index=True, return_counts=True)
        middle = values[order][first + (count - 1) // 2]
        return {self.names[label]: float(value) for label, value in zip(labels, middle, strict=True)}

    def look_up(self, table: Mapping[str, float], missing: float) -> np.ndarray:
        """[rows] what a table says of every label."""
        return np.array([table.get(name, missing) for name in self.names], float)[self.place]


def _with_usual_times(law: ReportedEnds, rows: pa.Table) -> ReportedEnds:
    run_s = instant_s(rows, "finish") - instant_s(rows, "start")
    law = replace(law, run_of_service_s=_Labels.of(rows["service"]).medians(run_s))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = run_s / _stated_s(law, rows)
    ratio = np.where(ratio > 0.0, ratio, np.nan)
    return replace(law, ratio_of_node=_Labels.of(decided_node(rows)).medians(ratio))


def _with_pairs(law: ReportedEnds, rows: pa.Table, until_s: float) -> ReportedEnds:
    """With what services take on machines by the ends that are believed, beyond what either of them takes."""
    runs = _runs(law, rows, until_s)
    residual = _log_ratios(runs)
    known = np.isfinite(residual) & ~_unbelieved(law, runs)
    residual = np.where(known, residual - residual[known].mean(), 0.0)
    pairs, place = _pairs(_Labels.of(rows["service"]), _Labels.of(decided_node(rows)))
    total, count = np.bincount(place, residual), np.bincount(place, known)
    of_pair: dict[str, dict[str, float]] = {}
    for number in np.flatnonzero(count).tolist():
        service, machine = pairs[number]
        of_pair.setdefault(service, {})[machine] = float(np.exp(total[number] / (count[number] + PAIR_PRIOR)))
    return replace(law, ratio_of_pair=of_pair)


def _pairs(service: "_Labels", machine: "_Labels") -> tuple[list[tuple[str, str]], np.ndarray]:
    """The pairs of names that rows have, and [rows] the place of each row's."""
    num = len(machine.names)
    pairs, place = np.unique(service.place * num + machine.place, return_inverse=True)
    return [(service.names[one // num], machine.names[one % num]) for one in pairs.tolist()], place


def _unbelieved(law: ReportedEnds, runs: _ReportedRuns) -> np.ndarray:
    """[rows] bool: it took longer than ends are believed, and no other run begins as it ends."""
    with np.errstate(invalid="ignore"):
        return (runs.finish_s - runs.start_s > law.believed * runs.usual_s) & ~_confirmed(runs)


def _stated_s(law: ReportedEnds, rows: pa.Table) -> np.ndarray:
    stated_s = amount(rows, "requested_run_s", np.nan)
    usual_s = _Labels.of(rows["service"]).look_up(law.run_of_service_s, np.nan)
    return np.where(stated_s > 0.0, stated_s, usual_s)


def _runs(law: ReportedEnds, rows: pa.Table, until_s: float) -> _ReportedRuns:
    instants = (instant_s(rows, name) for name in ("start", "finish"))
    start_s, finish_s = (np.where(at_s <= until_s, at_s, np.nan) for at_s in instants)
    machine = _Labels.of(decided_node(rows))
    known = pc.is_in(pc.cast(rows["status"], pa.string()), value_set=pa.array(NOT_LOST))
    is_open = np.isfinite(start_s) & np.isnan(finish_s) & ~known.to_numpy(zero_copy_only=False)
    index = {name: place for place, (name, cores) in enumerate(law.cores.items()) if np.isfinite(cores)}
    usual_s = _stated_s(law, rows) * machine.look_up(law.ratio_of_node, 1.0)
    if law.ratio_of_pair:
        pairs, place = _pairs(_Labels.of(rows["service"]), machine)
        of_pair = [law.ratio_of_pair.get(service, {}).get(name, 1.0) for service, name in pairs]
        usual_s = usual_s * np.array(of_pair)[place]
    return _ReportedRuns(
        start_s,
        finish_s,
        is_open,
        usual_s,
        machine.look_up(index, -1).astype(int),
        amount(rows, "cpu_cores", 1.0),
        machine.look_up(law.cores, np.inf),
    )


def _only(runs: _ReportedRuns, known: np.ndarray) -> _ReportedRuns:
    """The runs with the ends of some [rows] alone."""
    return runs._replace(finish_s=np.where(known, runs.finish_s, np.nan))


def _log_ratios(runs: _ReportedRuns) -> np.ndarray:
    """[rows] logarithms of run over usual time; not finite where one of them is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log((runs.finish_s - runs.start_s) / runs.usual_s)


def _log_ratio(runs: _ReportedRuns) -> np.ndarray:
    """Ascending logarithms of run over usual time, where both are known."""
    ratio = _log_ratios(runs)
    return np.sort(ratio[np.isfinite(ratio)])


def _quantiles(log_ratio: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(log_ratio, np.linspace(0.0, 1.0, NUM_QUANTILES)).tolist())


def _is_lost(law: ReportedEnds, runs: _ReportedRuns, until_s: float) -> np.ndarray:
    """[rows] bool: no run takes so long as these would have by now."""
    with np.errstate(invalid="ignore"):
        return runs.is_open & (runs.start_s + law.longest * runs.usual_s < until_s)


def _by_machine(runs: _ReportedRuns) -> list[np.ndarray]:
    """The rows that began on every machine with known cores."""
    began = np.where(np.isfinite(runs.start_s), runs.machine, -1)
    return rows_of_each(began, int(began.max(initial=-1)) + 1)


def _confirmed(runs: _ReportedRuns) -> np.ndarray:
    """[rows] bool: another run begins on the machine as each ends."""
    found = np.zeros(len(runs.start_s), bool)
    for here in _by_machine(runs):
        starts_s, ends_s = np.sort(runs.start_s[here]), runs.finish_s[here]
        next_s = np.append(starts_s, np.inf)[np.searchsorted(starts_s, ends_s - SAME_S)]
        found[here] = next_s <= ends_s + SAME_S  # never of an end that is not known
    return found


def _imputed_s(law: ReportedEnds, runs: _ReportedRuns, lost: np.ndarray) -> np.ndarray:
    """[rows] ends, those that are lost as of another run: which one, a hash of the start says."""
    micros = np.where(lost, runs.start_s / MICROSECOND, 0.0).astype(np.uint64)
    level = (micros * GOLDEN >> np.uint64(11)).astype(float) / 2.0**53
    ratio = np.exp(np.interp(level, np.linspace(0.0, 1.0, len(law.log_ratio)), law.log_ratio))
    return np.where(lost, runs.start_s + ratio * runs.usual_s, runs.finish_s)


def _fits(runs: _ReportedRuns, finish_s: np.ndarray, at_s: np.ndarray, after_s: float) -> np.ndarray:
    """[rows] bool: whether each run's machine has room for it at `at_s` [rows], given that what ends until `after_s`
    later is gone."""
    found = np.ones(len(at_s), bool)
    for here in _by_machine(runs):
        cores, starts_s = runs.cores[here], runs.start_s[here]
        ends_s = np.where(np.isfinite(finish_s[here]), finish_s[here], np.inf)
        by_start, by_end = np.argsort(starts_s, kind="stable"), np.argsort(ends_s, kind="stable")
        begun, ended = (np.append(0.0, np.cumsum(cores[order])) for order in (by_start, by_end))
        before = np.searchsorted(starts_s[by_start], at_s[here], side="left")
        gone = np.searchsorted(ends_s[by_end], at_s[here] + after_s, side="right")
        held = begun[before] - ended[np.minimum(gone, before)]
        found[here] = held + cores <= runs.room[here] + LEAST_CORES
    return found


def _overfull(runs: _ReportedRuns, finish_s: np.ndarray) -> float:
    """Share of starts, on machines whose cores are known, for which there is no room."""
    begun = np.isfinite(runs.start_s) & (runs.machine >= 0)
    return float(np.mean(~_fits(runs, finish_s, runs.start_s, SAME_S)[begun])) if begun.any() else 0.0


def _cores_bound(runs: _ReportedRuns, finish_s: np.ndarray) -> bool:
    """Whether requests begin as soon as an end makes room for them."""

    def made_room(at_s: np.ndarray) -> float:
        full = np.isfinite(runs.start_s) & ~_fits(runs, finish_s, at_s, -SAME_S)
        return float(np.mean(_fits(runs, finish_s, at_s, SAME_S)[full])) if full.any() else 0.0

    by_chance = max(made_room(runs.start_s - AWAY_S), made_room(runs.start_s + AWAY_S))
    return made_room(runs.start_s) >= max(AT_ONCE, BEYOND_CHANCE * by_chance)


def _emptied_s(runs: _ReportedRuns, finish_s: np.ndarray) -> np.ndarray:
    """[rows] ends, of the most overdue runs as early as another begins that has no room otherwise."""
    found = finish_s.copy()
    on: dict[int, list[int]] = {}
    begun = np.flatnonzero(np.isfinite(runs.start_s) & (runs.machine >= 0))
    for row in begun[np.argsort(runs.start_s[begun], kind="stable")].tolist():
        now_s, machine = runs.start_s[row], int(runs.machine[row])
        held = [one for one in on.get(machine, []) if not found[one] <= now_s + SAME_S]
        free = runs.room[row] - runs.cores[row] - sum(runs.cores[one] for one in held)
        for one in sorted(held, key=lambda one: (runs.start_s[one] - now_s) / runs.usual_s[one]):
            if free >= -LEAST_CORES:
                break
            found[one] = now_s
            free += runs.cores[one]
        on[machine] = [one for one in held if not found[one] <= now_s] + [row]
    return found
