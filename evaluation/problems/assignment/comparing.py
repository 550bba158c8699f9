"""Judges assignment schedulers on shifted days: rounds of the days' own requests that follow each other.

A judge plays the busiest requests of a shift: in the model of its days, with noise of what that leaves, and, where the
log was simulated, in its world. Backlogs carry over from round to round, and edges are away when the log says so. What
the schedulers believe is the twin's. Blocks of consecutive requests, met by all alike, are the units of the intervals.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig, Statistic, blocks_of, resampling_units
from evaluation.comparison.comparison import Comparison, compare
from evaluation.comparison.decisions import Decisions, concatenate, plain_decisions
from evaluation.comparison.entries import JudgeFacts, Run, ShiftFacts
from evaluation.comparison.kept_runs import load_run, save_run
from evaluation.comparison.metrics import MEAN_RESPONSE, ON_TIME, Metric
from evaluation.comparison.metrics.metric import quantile
from evaluation.comparison.metrics.response import completed, response_s
from evaluation.comparison.products import archive_facts
from evaluation.comparison.shifts import ShiftPlan, TestDays
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.judges.trust import TRUTH, judges_trust
from evaluation.judges.user_judges import JudgedDays, days_of_shifts
from evaluation.problems.assignment.compared_assigners import (
    ALONE,
    AT_ONCE,
    HISTORY,
    ComparedAssigner,
    FixedEdges,
)
from evaluation.problems.assignment.shifted_rounds import (
    ShiftedRequests,
    day_model,
    modelled,
    shifted_requests,
    true_region,
)
from evaluation.problems.refresh_parts import RUNNING
from evaluation.simulator.rounds import PlayedRounds, Region, Solver
from evaluation.simulator.true_rounds import unknown_truth
from logs_schema import Archive
from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError, SchedtwinError
from logs_schema.progress import Progress
from offline_rl.assignment.config import AssignConfig
from offline_rl.assignment.rungs import SEARCHED
from offline_rl.assignment.training import interval_of
from twin.assignment.from_logs import EdgesFromLog, with_newcomers

MODEL = "twin of shifted days"
JUDGES = {
    MODEL: "edges fitted to the judged days alone, which no policy has seen, with noise of what they leave",
    TRUTH: "the simulated world that wrote the log: the same requests, their work as it was",
}


def _last_answer(decisions: Decisions) -> Statistic:
    """Seconds from a round until its last request is answered, mean over rounds; a round is of its first row's unit."""
    blocks = blocks_of(decisions.unit)
    moments, first, round_of = np.unique(decisions.begin_s, return_index=True, return_inverse=True)
    last_s = np.full(len(moments), -np.inf)
    np.maximum.at(last_s, round_of, decisions.finish_s)
    unit = blocks.row_unit[first]
    above = np.bincount(unit, last_s - moments, minlength=blocks.num_units)
    below = np.bincount(unit, minlength=blocks.num_units)
    return lambda weights: (weights @ above) / np.maximum(weights @ below, 1e-9)


def _p99(decisions: Decisions) -> Statistic:
    return quantile(decisions, response_s(decisions), completed(decisions), 0.99)


RESPONSE_P99 = Metric(
    "response_p99", "s", "lower", "response time that 99 % of the requests do not exceed", (), _p99
)
LAST_ANSWER = Metric(
    "last_answer",
    "s",
    "lower",
    "time from a round until the last of its requests is answered, mean over rounds",
    (),
    _last_answer,
)
METRICS = (MEAN_RESPONSE, RESPONSE_P99, LAST_ANSWER, ON_TIME)


def compare_assigners(
    archive: Archive,
    plan: ShiftPlan,
    edges: EdgesFromLog,
    config: AssignConfig,
    assigners: Sequence[ComparedAssigner],
    intervals: IntervalConfig,
    progress: Progress,
    *,
    seed: int = 0,
    keep: Unfinished = NOTHING_KEPT,
) -> Comparison:
    """All schedulers on every shift that the log can answer; `seed` is that of all that is drawn. What a judge found of
    a scheduler on a shift is a unit of `keep`, unless it is the user's: the name of a function does not identify its
    code.

    Raises:
        ConfigError: No shift has requests that ran.
    """
    interval_s, notes = interval_of(edges, config), [*edges.notes]
    edges, new = with_newcomers(edges, archive)
    notes += [f"{one}." for one in new]
    runs: list[Run] = []
    refused: dict[str, str] = {}
    facts: list[ShiftFacts] = []
    why = unknown_truth(archive.facts)
    notes += [f"There is no judge in the truth: {why}."] if why else []
    homes = usual_sites(archive, plan.train_days)
    with progress.stage("judge", unit="shifts") as stage:
        for done, test in enumerate(plan.shifts):
            stage(done, len(plan.shifts), f"after {test.shift_days} days")
            found, fact = _shift(archive, edges, test, config, interval_s, seed, notes)
            facts.append(fact)
            if found is None:
                continue
            shift, regions = found
            fixed = _fixed_edges(shift, edges, homes)
            for judge, drawn in regions.items():
                play = partial(_play, shift, drawn, fixed, interval_s, test, seed)
                runs += _judged(judge, test.shift_days, assigners, fixed, play, refused, keep)
    runs = [run for run in runs if run.policy not in refused]
    played = {run.policy for run in runs}
    if "predicted" not in played:
        notes.append("predicted: not applicable, no agent of the log is at several sites.")
    notes.append(f"Rounds come every {interval_s:.4g} s; every search ends at its first local optimum.")
    comparison = compare(
        runs, archive=archive_facts(archive), train_days=[day.isoformat() for day in plan.train_days],
        unit_kind="blocks of consecutive requests",
        policies=[one.facts for one in assigners if one.facts.name in played],
        judges=[JudgeFacts(name, JUDGES[name]) for name in dict.fromkeys(run.judge for run in runs)], shifts=facts,
        metrics=METRICS, references=(AT_ONCE, ALONE, SEARCHED, HISTORY, RUNNING), main_metric=MEAN_RESPONSE.name,
        trust=judges_trust(runs, MEAN_RESPONSE), notes=list(dict.fromkeys(notes)), lead_reference=AT_ONCE,
        config=intervals,
    )  # fmt: skip
    return replace(comparison, refused=refused)


def judged_solvers(assigners: Sequence[ComparedAssigner], seed: int) -> dict[str, list[Solver]]:
    """Name -> every seed as a function (costs) -> edges, for judges of the user's; of those that decide in rounds."""
    return {
        one.facts.name: [make(np.random.default_rng([seed, row])) for row, make in enumerate(one.solvers)]
        for one in assigners
        if one.solvers
    }


def judged_days(
    archive: Archive, comparison: Comparison, edges: EdgesFromLog, config: AssignConfig, seed: int
) -> list[JudgedDays]:
    """The days of every shift for judges of the user's; their history is a `ShiftedRequests`."""
    return days_of_shifts(
        archive,
        edges,
        comparison,
        seed,
        lambda days: shifted_requests(archive, edges, days, config.max_requests),
    )


def usual_sites(archive: Archive, days: Sequence[dt.date]) -> Mapping[str, str] | None:
    """Agent -> the site where most of its requests came on the training days; None where every agent has one site."""
    table = archive.read("requests", columns=["agent", "site"], days=days)
    counts: dict[str, dict[str, int]] = {}
    for one in table.group_by(["agent", "site"]).aggregate([([], "count_all")]).to_pylist():
        if one["agent"] is not None:
            counts.setdefault(one["agent"], {})[one["site"]] = one["count_all"]
    if all(len(sites) < 2 for sites in counts.values()):
        return None
    return {agent: max(sites, key=lambda site: sites[site]) for agent, sites in counts.items()}


def _shift(
    archive: Archive,
    edges: EdgesFromLog,
    test: TestDays,
    config: AssignConfig,
    interval_s: float,
    seed: int,
    notes: list[str],
) -> tuple[tuple[ShiftedRequests, dict[str, list[Region]]] | None, ShiftFacts]:
    """The requests of a shift with the regions of its judges; None where the log has none, and the shift's facts."""
    days = tuple(day.isoformat() for day in test.days)
    if not test.days:
        return None, ShiftFacts(test.shift_days, days, test.num_requests, test.note)
    try:
        shift = shifted_requests(archive, edges, test.days, config.max_requests)
        day, said = day_model(archive, edges, test.days)
    except ConfigError as error:
        return None, ShiftFacts(test.shift_days, (), test.num_requests, f"{test.note} {error.what}".strip())
    notes += [f"{test.name}: {one}." for one in said]
    rng = np.random.default_rng([seed, test.shift_days])
    regions = {MODEL: [modelled(shift, day, rng) for _ in range(config.copies)]}
    if not unknown_truth(archive.facts):
        regions[TRUTH] = [true_region(archive, shift, edges, rng)]
    num_rounds = len(np.unique(np.ceil(shift.arrival_s / interval_s)))
    load = f"{len(shift.rows.edge) / num_rounds:.2g} requests a round"
    note = "; ".join(filter(None, [test.note, shift.note, load, _absent(shift, edges)]))
    return (shift, regions), ShiftFacts(test.shift_days, days, test.num_requests, note)


def _absent(shift: ShiftedRequests, edges: EdgesFromLog) -> str:
    names = dict.fromkeys(
        edges.names[one.edge] for one in shift.absences if one.from_s <= shift.arrival_s[-1]
    )
    return f"away for a while: {', '.join(names)}" if names else ""


def _fixed_edges(shift: ShiftedRequests, edges: EdgesFromLog, homes: Mapping[str, str] | None) -> FixedEdges:
    site_of = np.array([edges.sites[name] for name in edges.names])

    def quickest_at(sites: np.ndarray) -> np.ndarray:
        work_s = np.where(site_of == sites[:, None], shift.costs.work_s, np.inf)
        return np.where(np.isfinite(work_s).any(axis=1), np.argmin(work_s, axis=1), -1)

    rows = shift.rows
    local, predicted = quickest_at(rows.site), None
    if homes is not None:
        there = np.array([homes.get(agent, site) for agent, site in zip(rows.agent, rows.site, strict=True)])
        predicted = quickest_at(there)
    return FixedEdges(rows.edge, local, predicted)


def _judged(
    judge: str,
    shift_days: int,
    assigners: Sequence[ComparedAssigner],
    fixed: FixedEdges,
    play: Callable[[Callable[..., PlayedRounds]], Decisions],
    refused: dict[str, str],
    keep: Unfinished,
) -> list[Run]:
    """The runs of a judge; a policy of the user's that fails is left out from then on."""

    def run(one: ComparedAssigner) -> Run:
        seeds = tuple(play(player) for player in one.players)
        return Run(
            judge, shift_days, one.facts.name, concatenate(seeds), by_seed=seeds if len(seeds) > 1 else ()
        )

    runs = []
    for one in assigners:
        name = one.facts.name
        if name in refused or (name in FixedEdges._fields and getattr(fixed, name) is None):
            continue
        if not one.is_users:
            runs.append(keep.unit(f"{judge}, {shift_days}d, {name}", partial(run, one), save_run, load_run))
            continue
        try:
            runs.append(run(one))
        except SchedtwinError as error:
            refused[name] = str(error)
    return runs


def _play(
    shift: ShiftedRequests,
    regions: Sequence[Region],
    fixed: FixedEdges,
    interval_s: float,
    test: TestDays,
    seed: int,
    player: Callable[..., PlayedRounds],
) -> Decisions:
    """One policy in all copies of a judge's region, as columns; each copy has a clock of its own."""
    arrival_s, rows = shift.arrival_s, shift.rows
    unit = resampling_units(np.zeros(len(arrival_s), int))[0]
    day = (rows.arrival_s // DAY_S).astype(int) + dt.date(1970, 1, 1).toordinal()
    has_deadlines = bool(np.isfinite(rows.deadline_s).any())
    parts = []
    for copy, region in enumerate(regions):
        played = player(region, fixed, interval_s, np.random.default_rng([seed, test.shift_days, copy]))
        clock_s = copy * 1e9
        found = plain_decisions(unit, day, played.edge, arrival_s + clock_s, played.finish_s + clock_s)
        missing = {
            need: one for need, one in found.missing.items() if not has_deadlines or need not in ON_TIME.needs
        }
        deadline_s = np.where(np.isfinite(rows.deadline_s), rows.deadline_s, np.inf)
        begin_s = np.ceil(arrival_s / interval_s) * interval_s + clock_s
        parts.append(replace(found, deadline_s=deadline_s, begin_s=begin_s, missing=missing))
    return concatenate(parts)
