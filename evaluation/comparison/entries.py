"""The records of a comparison: runs of policies by judges, and the entries of its tables."""

from dataclasses import dataclass

from evaluation.comparison.bootstrap import DifferenceVerdict, Estimate
from evaluation.comparison.decisions import Decisions

FAR = 0.05
"""Share of out-of-support decisions above which a judge's value of a policy is marked."""


def is_far(out_of_support: float | None) -> bool:
    """Whether the share of out-of-support decisions is above `FAR`, so that the value is an extrapolation; False
    where the share is None."""
    return out_of_support is not None and out_of_support > FAR


@dataclass(frozen=True)
class Run:
    """One policy, evaluated on one shift by one judge.

    Attributes:
        judge, shift_days, policy: Names of judge and policy, and the shift in days.
        decisions: The decisions and their outcomes.
        agreement: Fraction of decisions equal to the logged ones; None where there are no logged decisions.
        num_overflow: Requests that found no slot in the bookkeeping (`Decisions.lost`): they count as late.
        num_illegal: Decisions replaced because they were not legal.
        by_seed: For a policy trained with several seeds, the decisions of each; intervals then draw seeds too.
        out_of_support: Share of decisions outside the support of the judge's log: in a twin on nodes with longer queues
            than in its training data, in replay choices that the log hardly ever took; None in the truth.
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
    """A compared policy: name, kind ("baseline", "imitation", "trained", "history") and description."""

    name: str
    kind: str
    description: str


@dataclass(frozen=True)
class JudgeFacts:
    """A judge, with a description of what its values mean."""

    name: str
    description: str


@dataclass(frozen=True)
class MetricFacts:
    """The declaration of a metric."""

    name: str
    unit: str
    better: str
    description: str


@dataclass(frozen=True)
class ShiftFacts:
    """A shift with its ISO test days; no days where the log has none, with the reason as note."""

    shift_days: int
    days: tuple[str, ...]
    num_requests: int | None
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """A metric of a policy; the estimate holds the reason for a missing value or interval."""

    judge: str
    shift_days: int
    policy: str
    metric: str
    estimate: Estimate


@dataclass(frozen=True)
class Difference:
    """Policy minus reference, paired by unit, with the verdict."""

    judge: str
    shift_days: int
    policy: str
    reference: str
    metric: str
    estimate: Estimate
    verdict: DifferenceVerdict


@dataclass(frozen=True)
class Tally:
    """Counts of a run: its decisions, and those that are excluded from the metrics."""

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
    """Accuracy of a judge, by the main metric.

    Attributes:
        judge, shift_days: The judge, and the shift in days.
        told: The judge's value of the logged decisions; None where it did not evaluate them.
        logged: Their value in the log.
        error: Mean absolute error against the truth over policies; None without a truth.
        bias: Mean signed error against the truth.
        rank_correlation: Spearman's, between the judge's values of the policies and the true ones; None where one is
            constant.
        num_policies: Number of policies of the last three.
        error_near: The error over the policies that stayed within the support of the twin's log.
        num_near: Number of these policies.
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
    """The off-policy estimate of a policy on the logged days of a shift, or the reason why there is none.

    Attributes:
        shift_days, policy, method: The shift in days, and the names of policy and estimator.
        estimate: The mean reward of a decision; no value where the estimator declines.
        effective_size: Effective sample size of the importance weights, in logged decisions.
        overlap: Mean probability of the policy on actions that the behaviour has taken.
        num_rows: Number of logged decisions.
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
