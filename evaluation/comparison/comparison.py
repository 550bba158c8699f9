"""Comparison of policies: every metric, shift and judge, with intervals, and differences paired by unit.

A *judge* is a system that policies are evaluated in: replayed history, the twin of the shifted days, the ground truth.
Every number names its judge, because values by different judges are not comparable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from evaluation.comparison.bootstrap import (
    Estimate,
    IntervalConfig,
    blocks_of,
    student_width,
    summarise,
    verdict,
    weights_of,
)
from evaluation.comparison.entries import (
    Cell,
    Difference,
    JudgeFacts,
    JudgeTrust,
    MetricFacts,
    OffPolicyRow,
    PolicyFacts,
    Run,
    ShiftFacts,
    Tally,
    is_far,
)
from evaluation.comparison.metrics import METRICS, Metric
from evaluation.comparison.metrics.metric import range_of, range_of_gap
from logs_schema.errors import ConfigError
from logs_schema.records import from_plain, to_plain

SCHEMA_VERSION = 1
REFERENCES = ("random", "history", "bc_greedy")


@dataclass(frozen=True)
class Comparison:
    """The whole result of a comparison; round-trips through JSON.

    Attributes:
        archive: Facts of the archive: name, content hash, days, requests.
        train_days: ISO training days of the policies and the twin.
        unit_kind: Name of the resampling unit of the bootstrap.
        level: Nominal coverage of the intervals.
        main_metric: Name of the metric that leads the report.
        policies, judges, shifts, metrics: What was compared, in the order of tables; the last trained policy is the one
            that training exports.
        cells, differences, tallies: The numbers.
        trust: Accuracy of each judge.
        off_policy: Off-policy estimates, in units of the reward.
        judge_notes: Why a judge is missing or not to be relied on; stands below the tables, too.
        notes: Further remarks for readers.
        refused: Name of a policy that was left out, or `judge NAME` of a judge of the user's -> the reason.
        lead_reference: Policy that table, plots and command line refer to; empty: the first, see `reference`.
    """

    archive: Mapping[str, Any]
    train_days: tuple[str, ...]
    unit_kind: str
    level: float
    main_metric: str
    policies: tuple[PolicyFacts, ...]
    judges: tuple[JudgeFacts, ...]
    shifts: tuple[ShiftFacts, ...]
    metrics: tuple[MetricFacts, ...]
    cells: tuple[Cell, ...]
    differences: tuple[Difference, ...]
    tallies: tuple[Tally, ...]
    trust: tuple[JudgeTrust, ...] = ()
    off_policy: tuple[OffPolicyRow, ...] = ()
    judge_notes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    lead_reference: str = ""
    schema_version: int = field(default=SCHEMA_VERSION)

    def cell(self, judge: str, shift_days: int, policy: str, metric: str) -> Estimate | None:
        """The estimate of one cell; None where the policy was not evaluated there."""
        return self._estimates.get((judge, shift_days, policy, metric))

    def is_far(self, judge: str, shift_days: int, policy: str) -> bool:
        """Whether a judge's value of a policy is an extrapolation, see `entries.is_far`."""
        return (judge, shift_days, policy) in self._far

    def difference(
        self, judge: str, shift_days: int, policy: str, reference: str, metric: str
    ) -> Difference | None:
        """The paired difference of one policy to one reference; None where there is none."""
        return self._differences.get((judge, shift_days, policy, reference, metric))

    def is_alike(self, policy: str, other: str) -> bool:
        """Whether two policies differ in no measure of any judge, as one policy under two names does."""
        return frozenset((policy, other)) in self._alike

    @cached_property
    def _alike(self) -> set[frozenset[str]]:
        gaps: dict[frozenset[str], set[float | None]] = {}
        for one in self.differences:
            if one.estimate.value is not None:
                found = {one.estimate.value, one.estimate.low, one.estimate.high}
                gaps.setdefault(frozenset((one.policy, one.reference)), set()).update(found)
        return {pair for pair, found in gaps.items() if found <= {0.0, None}}

    @cached_property
    def _estimates(self) -> dict[tuple[str, int, str, str], Estimate]:
        return {(one.judge, one.shift_days, one.policy, one.metric): one.estimate for one in self.cells}

    @cached_property
    def _far(self) -> set[tuple[str, int, str]]:
        return {(one.judge, one.shift_days, one.policy) for one in self.tallies if is_far(one.out_of_support)}

    @cached_property
    def _differences(self) -> dict[tuple[str, int, str, str, str], Difference]:
        return {
            (one.judge, one.shift_days, one.policy, one.reference, one.metric): one
            for one in self.differences
        }

    def references(self) -> list[str]:
        """The policies that differences were taken to: imitation first, then history, then others."""
        known = {difference.reference for difference in self.differences}
        rank = {"imitation": 0, "history": 1}
        found = [policy for policy in self.policies if policy.name in known]
        return [policy.name for policy in sorted(found, key=lambda policy: rank.get(policy.kind, 2))]

    def reference(self) -> str | None:
        """The reference of table, figures and command line: the lead reference, else the first; None without one."""
        known = self.references()
        return self.lead_reference if self.lead_reference in known else next(iter(known), None)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return to_plain(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Comparison":
        """The comparison that `to_json` made `data` from."""
        return from_plain(Comparison, data)


def compare(
    runs: Iterable[Run],
    *,
    archive: Mapping[str, Any],
    train_days: Sequence[str],
    unit_kind: str,
    policies: Sequence[PolicyFacts],
    judges: Sequence[JudgeFacts],
    shifts: Sequence[ShiftFacts],
    metrics: Sequence[Metric] = METRICS,
    references: Sequence[str] = REFERENCES,
    main_metric: str | None = None,
    trust: Sequence[JudgeTrust] = (),
    off_policy: Sequence[OffPolicyRow] = (),
    judge_notes: Sequence[str] = (),
    notes: Sequence[str] = (),
    lead_reference: str = "",
    config: IntervalConfig | None = None,
) -> Comparison:
    """Compares policies that were evaluated on the same units.

    Args:
        runs: At most one for every judge, shift and policy; consumed one at a time per judge and shift.
        archive, train_days, unit_kind, policies, judges, shifts, trust, off_policy, judge_notes, notes,
            lead_reference: As in `Comparison`.
        metrics: To compute.
        references: Policies to take paired differences to, where they were judged.
        main_metric: Leads the report; by default the first metric that applies to every run.
        config: Of the bootstrap.

    Raises:
        ConfigError: Two runs of one judge and shift were judged on different units, or there is no run.
    """
    config = config or IntervalConfig()
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.judge, run.shift_days), []).append(run)
    if not groups:
        raise ConfigError(
            "no policy was judged",
            where="; ".join(one.note for one in shifts if one.note),
            allowed=f"days after the last training day, {train_days[-1]}" if train_days else "",
            advice="choose at least one shift with test days in the log",
        )
    cells: list[Cell] = []
    differences: list[Difference] = []
    for group in groups.values():
        refuse_unpaired(group)
        for metric in metrics:
            found_cells, found_differences = _judge(group, metric, references, config)
            cells += found_cells
            differences += found_differences
    return Comparison(
        archive=archive,
        train_days=tuple(train_days),
        unit_kind=unit_kind,
        level=config.level,
        main_metric=main_metric or _main_metric(cells, metrics),
        policies=tuple(policies),
        judges=tuple(judges),
        shifts=tuple(shifts),
        metrics=tuple(MetricFacts(item.name, item.unit, item.better, item.description) for item in metrics),
        cells=tuple(cells),
        differences=tuple(differences),
        tallies=tuple(_tally(run) for group in groups.values() for run in group),
        trust=tuple(trust),
        off_policy=tuple(off_policy),
        judge_notes=tuple(judge_notes),
        notes=tuple(notes),
        lead_reference=lead_reference,
    )


def refuse_unpaired(runs: Sequence[Run]) -> None:
    """Raises unless the runs of one judge and shift share their units.

    Raises:
        ConfigError: They do not, so their difference would compare days, not policies.
    """
    labels = blocks_of(runs[0].decisions.unit).labels
    for run in runs[1:]:
        if not np.array_equal(blocks_of(run.decisions.unit).labels, labels):
            raise ConfigError(
                "policies were judged on different units",
                where=f"{run.policy} and {runs[0].policy}, judge {run.judge}, shift {run.shift_days}d",
                allowed="the same days or blocks for every policy",
                advice="judge all policies on the same windows, with the same unit labels",
            )


def _judge(
    runs: Sequence[Run], metric: Metric, references: Sequence[str], config: IntervalConfig
) -> tuple[list[Cell], list[Difference]]:
    num_units = blocks_of(runs[0].decisions.unit).num_units
    weights = weights_of(num_units, config) if num_units else None
    cells, values = [], {}
    for run in runs:
        refusal = metric.applicable(run.decisions)
        if refusal is not None or weights is None:
            reason = refusal.reason if refusal is not None else "there is nothing to measure"
            estimate = Estimate(None, None, None, num_units, reason)
        else:
            values[run.policy] = _values(run, metric, weights, config)
            estimate = summarise(values[run.policy], num_units, config, range_of(metric))
        cells.append(Cell(run.judge, run.shift_days, run.policy, metric.name, estimate))
    first = runs[0]
    return cells, paired(values, first.judge, first.shift_days, metric, references, num_units, config)


def paired(
    values: Mapping[str, np.ndarray],
    judge: str,
    shift_days: int,
    metric: Metric | MetricFacts,
    references: Sequence[str],
    num_units: int,
    config: IntervalConfig,
    holding: Mapping[str, int] | None = None,
) -> list[Difference]:
    """Every policy minus every reference that has values.

    Args:
        values: Name -> the metric on `weights_of`.
        judge, shift_days, metric, references, num_units, config: As in `compare`.
        holding: Name -> units that hold something of it; None: all do.
    """
    found = []
    for reference in references:
        for policy, value in values.items():
            if policy != reference and reference in values:
                least = num_units if holding is None else min(holding[policy], holding[reference])
                within = range_of_gap(metric)
                gap = summarise(value - values[reference], num_units, config, within, least)
                where = (judge, shift_days, policy, reference, metric.name)
                found.append(Difference(*where, gap, verdict(gap, metric.better)))
    return found


def _values(run: Run, metric: Metric, weights: np.ndarray, config: IntervalConfig) -> np.ndarray:
    """The metric on all weights, of several seeds as `drawn_over_seeds`."""
    parts = run.by_seed if len(run.by_seed) > 1 else (run.decisions,)
    return drawn_over_seeds([metric.statistic(decisions)(weights) for decisions in parts], config)


def drawn_over_seeds(values: Sequence[np.ndarray], config: IntervalConfig) -> np.ndarray:
    """The mean over seeds of a metric on all weights, each replicate over seeds drawn with replacement.

    The interval of a trained policy thus covers the variation over days and over training seeds. Means of a few seeds
    drawn so vary too little and their tails are too short: they are stretched about the mean of all seeds, to the
    width of Student's interval over so many.
    """
    if len(values) < 2:
        return values[0]
    each = np.stack(values)
    num_seeds, num_weights = each.shape
    num_exact = num_weights - config.num_replicates
    drawn = np.random.default_rng([config.seed, num_seeds]).integers(num_seeds, size=each.shape)
    drawn[:, :num_exact] = np.arange(num_seeds)[:, None]
    mean = each.mean(axis=0)
    stretched = student_width(num_seeds, config.level) / ndtri(0.5 + 0.5 * config.level)
    return mean + stretched * (np.take_along_axis(each, drawn, axis=0).mean(axis=0) - mean)


def _main_metric(cells: Sequence[Cell], metrics: Sequence[Metric]) -> str:
    silent = {cell.metric for cell in cells if cell.estimate.value is None}
    for metric in metrics:
        if metric.better != "none" and metric.name not in silent:
            return metric.name
    return metrics[0].name


def _tally(run: Run) -> Tally:
    decisions = run.decisions
    counts = (decisions.num_rows, decisions.num_censored, run.num_overflow, run.num_illegal)
    agreement = None if run.agreement is None or np.isnan(run.agreement) else run.agreement
    return Tally(run.judge, run.shift_days, run.policy, *counts, agreement, run.out_of_support)
