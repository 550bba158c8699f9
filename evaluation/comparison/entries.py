"""What a comparison is made of: runs of policies before judges, and the entries of its tables."""

from dataclasses import dataclass

from evaluation.comparison.bootstrap import DifferenceVerdict, Estimate
from evaluation.comparison.decisions import Decisions

FAR = 0.05
"""Share of out-of-support decisions above which a judge's value of a policy is marked."""


def is_far(out_of_support: float | None) -> bool:
    """Whether a policy led a judge outside the support of its log, by the share of its decisions: what it is worth
    there is a guess. Without a share nothing is known, and nothing said."""
    return out_of_support is not None and out_of_support > FAR


@dataclass(frozen=True)
class Run:
    """One policy, judged on one shift by one judge.

    Attributes:
        judge, shift_days, policy: What was judged where.
        decisions: What it decided and what came of it.
        agreement: Fraction of decisions that are those of the log; None where there is no log to agree with.
        num_overflow: Requests that found no slot in the bookkeeping, and are in no number.
        num_illegal: Decisions replaced because they were not legal.
        by_seed: For a policy trained with several seeds, the decisions of each; intervals then draw seeds too.
        out_of_support: Share of decisions of which the judge's log knows next to nothing: on nodes with longer queues
            than
            the twin has learned from, or in replay choices that were hardly ever taken; None in the truth.
    """

    judge: str
    shift_days: int
    policy: str
    decisions: Decisions
    agreement: float | None = None
    num_overflow: int = 0
    num_illegal: int = 0
    by_seed: tuple[Decisions, ...] = ()
    out_of_support: float | None = None


@dataclass(frozen=True)
class PolicyFacts:
    """A compared policy: name, kind ("baseline", "imitation", "trained", "history"), and itself in words."""

    name: str
    kind: str
    description: str


@dataclass(frozen=True)
class JudgeFacts:
    """A judge, and what its numbers can and cannot say."""

    name: str
    description: str


@dataclass(frozen=True)
class MetricFacts:
    """A metric as declared."""

    name: str
    unit: str
    better: str
    description: str


@dataclass(frozen=True)
class ShiftFacts:
    """A shift with the ISO days it was judged on; no days where the log cannot say, and the note says why."""

    shift_days: int
    days: tuple[str, ...]
    num_requests: int | None
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """A metric of a policy; the estimate's reason says why there is no value, or no interval."""

    judge: str
    shift_days: int
    policy: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True)
class Difference:
    """Policy minus reference, paired by unit, and what it lets one say."""

    judge: str
    shift_days: int
    policy: str
    reference: str
    metric: str
    estimate: Estimate
    verdict: DifferenceVerdict


@dataclass(frozen=True)
class Tally:
    """What stands behind a run's numbers: decisions, and those that are in none of the numbers."""

    judge: str
    shift_days: int
    policy: str
    num_decisions: int
    num_censored: int
    num_overflow: int
    num_illegal: int
    agreement: float | None
    out_of_support: float | None = None


@dataclass(frozen=True)
class JudgeTrust:
    """How a judge's main metric stands to what is known.

    Attributes:
        judge, shift_days: Which judge, on which days.
        told: What it says the logged decisions are worth; None where it did not judge them.
        logged: What they were worth in the log.
        error: Mean absolute distance to the truth over policies; None without a truth.
        bias: Mean signed distance to the truth.
        rank_correlation: Spearman's, between its values of the policies and the true ones; None where one is constant.
        num_policies: How many policies the last three rest on.
        error_near: The error over the policies alone that did not lead a twin outside the support of its log.
        num_near: How many those are.
    """

    judge: str
    shift_days: int
    told: float | None
    logged: float | None
    error: float | None = None
    bias: float | None = None
    rank_correlation: float | None = None
    num_policies: int = 0
    error_near: float | None = None
    num_near: int = 0


@dataclass(frozen=True)
class OffPolicyRow:
    """What an off-policy estimator says of a policy on the logged days of a shift, or why it declines.

    Attributes:
        shift_days, policy, method: Of whom, by what.
        estimate: The mean reward of a decision; no value where the estimator declines.
        effective_size: Number of logged decisions that the importance weights are worth.
        overlap: Mean probability of the policy on actions that the behaviour has tried.
        num_rows: Logged decisions.
        estimated: Whether the behaviour's propensities had to be estimated.
    """

    shift_days: int
    policy: str
    method: str
    estimate: Estimate
    effective_size: float
    overlap: float
    num_rows: int
    estimated: bool
