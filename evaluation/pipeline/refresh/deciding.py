"""The decision of a refresh: export the new policy, or keep the running one, with the reason.

A new policy is exported if the twin it was trained in passed its certificate and, where a policy is running already, if
it is better on the newest days (or, if that is accepted, not worse). For placement the twin of the newest days decides,
since replay ignores congestion; where those days have too few requests for a twin, replay decides. For orders replay
decides, which is exact. With `--force` a policy of a twin that did not pass is compared too, and exported if it is
better than the running one; without a running policy nothing is exported. An order that is worse than a published rule
on those days is not exported: the rule should be.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from evaluation.certify.lines import Verdict
from evaluation.comparison.bootstrap import DifferenceVerdict, Estimate
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import number, with_interval
from evaluation.pipeline.refresh.appending import in_words
from evaluation.pipeline.refresh.config import NOT_WORSE
from evaluation.problems.ordering.playing import EASY, EASY_PREDICTED
from evaluation.problems.refresh_parts import NEW, NEWEST, RUNNING
from logs_schema.records import from_plain, to_plain


class Result(Enum):
    """The result of a refresh."""

    EXPORTED = "exported"
    KEPT = "kept the running policy"
    FAILED = "certificate failed"
    CANNOT_TELL = "certificate cannot tell"


EXIT_STATUS = {Result.EXPORTED: 0, Result.KEPT: 10, Result.FAILED: 11, Result.CANNOT_TELL: 12}
"""Exit statuses of the command; 2 is a user error, as for all commands."""


@dataclass(frozen=True)
class Judgement:
    """The result of both policies by one judge.

    Attributes:
        judge: Name of the judge.
        new, running: Values of the main metric.
        difference: New minus running, paired.
        verdict: "better", "worse" or "cannot tell", of the new one.
    """

    judge: str
    new: Estimate
    running: Estimate
    difference: Estimate
    verdict: str


@dataclass(frozen=True)
class ExportDecision:
    """The decision of a refresh, with the facts it is based on.

    Attributes:
        result: The result.
        reason: The reason, as a sentence.
        history: Facts of the history (see `appending.build_history`).
        train_days, judged_days: ISO dates: the training days of the twin, and the newest days, held out.
        certificate: Content hash of the certificate; None where nothing was fitted, for lack of new decisions.
        verdict: Verdict of the certificate, as a sentence.
        new, running: Content hashes of the bundles; None where there is none.
        accept: Required verdict of the comparison: "better" or "not-worse".
        metric, unit_kind: Metric and resampling unit of the judgements.
        judgements: Of all judges; the first one decides.
        notes: Remarks, for example on missing data.
    """

    result: Result
    reason: str
    history: Mapping[str, Any]
    train_days: tuple[str, ...]
    judged_days: tuple[str, ...]
    certificate: str | None
    verdict: str
    new: str | None
    running: str | None
    accept: str
    metric: str | None
    unit_kind: str | None
    judgements: tuple[Judgement, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        plain: dict[str, Any] = to_plain(self)
        return plain | {"exit_status": EXIT_STATUS[self.result]}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "ExportDecision":
        """The decision that `to_json` wrote; SchemaError where it is of another version."""
        return from_plain(
            ExportDecision, {name: value for name, value in content.items() if name != "exit_status"}
        )

    def in_words(self) -> str:
        """The decision as text."""
        lines = [
            self.reason if self.reason == NOTHING_RUNS else f"{self.result.value}: {self.reason}",
            f"history: {in_words(self.history)}",
        ]
        if self.certificate is not None:
            lines.append(f"twin: fitted on {_span(self.train_days)}; held out: {_span(self.judged_days)}")
            lines.append(f"certificate {self.certificate[:12]}: {self.verdict}")
        if self.new is not None:
            lines.append(f"new policy {self.new[:12]}; running policy {(self.running or 'none')[:12]}")
        if self.judgements:
            lines.append(f"{self.metric}, intervals over {self.unit_kind}; required: {self.accept}")
        lines += [_line(one) for one in self.judgements]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


NO_NEWS = "no new decisions, so nothing was fitted (--force fits all the same)"
NOTHING_RUNS = f"{NO_NEWS}; no policy is running"


def idle_decision(history: Mapping[str, Any], accept: str, reason: str = NO_NEWS) -> ExportDecision:
    """The decision where nothing is fitted; arguments as in `ExportDecision`."""
    return ExportDecision(
        Result.KEPT, reason, history, (), (), None, "not certified", None, None, accept, None, None, (), ()
    )


def judgements_of(comparison: Comparison) -> tuple[Judgement, ...]:
    """The judges' results by the main metric, the deciding judge first."""
    found = []
    for judge in sorted(comparison.judges, key=lambda facts: facts.name != NEWEST):
        where = judge.name, 0
        values = [comparison.cell(*where, policy, comparison.main_metric) for policy in (NEW, RUNNING)]
        gap = comparison.difference(*where, NEW, RUNNING, comparison.main_metric)
        nothing = Estimate(None, None, None, 0, "nothing to measure")
        found.append(
            Judgement(
                judge.name,
                values[0] or nothing,
                values[1] or nothing,
                nothing if gap is None else gap.estimate,
                (DifferenceVerdict.CANNOT_TELL if gap is None else gap.verdict).value,
            )
        )
    return tuple(found)


def better_rules(comparison: Comparison) -> tuple[str, ...]:
    """The published rules of a queue, with EASY, that are better than the new order on the newest days."""
    names = [
        one.name
        for one in comparison.policies
        if one.kind == "baseline" and one.name.endswith((EASY, EASY_PREDICTED))
    ]
    found = {
        name: comparison.difference(comparison.judges[0].name, 0, NEW, name, comparison.main_metric)
        for name in names
    }
    return tuple(
        name for name, gap in found.items() if gap is not None and gap.verdict is DifferenceVerdict.WORSE
    )


def decide(
    certificate: str,
    judgements: tuple[Judgement, ...] | None,
    accept: str,
    *,
    force: bool = False,
    rules: tuple[str, ...] = (),
) -> tuple[Result, str]:
    """The decision and its reason.

    Args:
        certificate: Verdict of the certificate's lines about what training uses.
        judgements: The deciding one first; None where there is no running policy to compare with.
        accept: Required verdict of the deciding judge: "better" or "not-worse".
        force: Whether a policy was trained regardless of the certificate.
        rules: Published rules that are better than the new policy.
    """
    passed = certificate == Verdict.PASS.value
    failed = certificate == Verdict.FAIL.value
    unproved = (
        "the twin failed its certificate"
        if failed
        else "the certificate cannot tell whether the twin is accurate"
    )
    if not passed and not (force and judgements):
        why = (
            "there is no running policy to compare with, so the new one is not exported"
            if force
            else "nothing was trained, and the running policy is kept"
        )
        return (Result.FAILED if failed else Result.CANNOT_TELL), f"{unproved}: {why}"
    ground = "the twin passed its certificate" if passed else unproved
    if judgements is None:
        return Result.EXPORTED, f"{ground}, and there is no running policy to compare with"
    deciding = judgements[0]
    lacking = f" ({deciding.difference.reason})" if deciding.difference.reason else ""
    judgement = f"verdict by the {deciding.judge}: {deciding.verdict}{lacking}"
    is_better, is_worse = (
        deciding.verdict == one.value for one in (DifferenceVerdict.BETTER, DifferenceVerdict.WORSE)
    )
    measured = deciding.difference.low is not None
    if is_better or (accept == NOT_WORSE and measured and not is_worse):
        if rules:
            export = f"schedtwin export POLICY --rule {rules[0]} --out BUNDLE"
            advice = f"{', '.join(rules)} would be better than the new order: {export}"
            return Result.KEPT, f"{judgement}, but {advice}"
        return Result.EXPORTED, f"{ground}; {judgement}"
    return Result.KEPT, f"{judgement}, but {accept} is required"


def _line(one: Judgement) -> str:
    values = f"new {number(one.new.value)}, running {number(one.running.value)}"
    return f"  {one.judge}: {values}, difference {with_interval(one.difference, signed=True)}: {one.verdict}"


def _span(days: tuple[str, ...]) -> str:
    if not days:
        return "no day"
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]} ({len(days)} days)"
