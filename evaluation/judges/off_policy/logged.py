"""The inputs of off-policy estimates, and the conditions under which no estimate is made."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evaluation.comparison.bootstrap import Estimate, IntervalConfig
from logs_schema.errors import ConfigError


class Logged(NamedTuple):
    """Logged decisions in order of time within each window; one row for each decision whose outcome is known.

    Attributes:
        features: [rows, F] features of the observation.
        legal: [rows, A] bool.
        action: [rows] int, the behaviour's choice.
        propensity: [rows, A] probability with which the behaviour chose each action, logged or estimated.
        reward: [rows] reward of the decision's own outcome.
        elapsed_s: [rows] time to the next decision of the window.
        following: [rows] int, row of the next decision of the window; -1 where there is none.
        unit: [rows] label of the block that the bootstrap draws as a whole.
        estimated: Whether the propensities were estimated.
    """

    features: np.ndarray
    legal: np.ndarray
    action: np.ndarray
    propensity: np.ndarray
    reward: np.ndarray
    elapsed_s: np.ndarray
    following: np.ndarray
    unit: np.ndarray
    estimated: bool = False

    @property
    def num_rows(self) -> int:
        """Number of decisions."""
        return len(self.action)


class Target(NamedTuple):
    """The target policy: its probabilities [rows, A] at the logged decisions."""

    name: str
    probability: np.ndarray


@dataclass(frozen=True)
class OffPolicyConfig:
    """Floors below which no estimate is made.

    Attributes:
        min_effective_size: Smallest effective sample size of an estimate, in decisions.
        min_effective_share: Smallest ratio of the effective sample size to the number of decisions.
        least_propensity: Below it an action counts as not taken by the behaviour; propensities are raised to it.
        min_overlap: Smallest share of the target's probability on actions that the behaviour has taken.
        intervals: Configuration of the intervals.
    """

    min_effective_size: float = 200.0
    min_effective_share: float = 0.02
    least_propensity: float = 0.005
    min_overlap: float = 0.9
    intervals: IntervalConfig = field(default_factory=IntervalConfig)

    def __post_init__(self) -> None:
        shares = (self.min_effective_share, self.least_propensity, self.min_overlap)
        if self.min_effective_size < 1 or not all(0 <= share < 1 for share in shares):
            raise ConfigError(
                "the floors of the off-policy estimates are out of range",
                where=str(self),
                allowed="min_effective_size of at least 1, the others in [0, 1)",
            )


@dataclass(frozen=True)
class OffPolicyEstimate:
    """An off-policy estimate, or the reason why there is none.

    Attributes:
        method: Name of the estimator.
        policy: Name of the target policy.
        value: The estimate with its interval; where it declines there is no value, and `value.reason` holds the reason.
        effective_size: Effective sample size of the weights in logged decisions, `(sum w)^2 / sum w^2`.
        overlap: Mean probability of the target on actions that the behaviour has taken.
        num_rows: Number of logged decisions.
    """

    method: str
    policy: str
    value: Estimate
    effective_size: float
    overlap: float
    num_rows: int


def overlap(logged: Logged, target: Target, config: OffPolicyConfig) -> float:
    """Mean probability of the target on actions that the behaviour chooses with at least `least_propensity`."""
    tried = logged.propensity >= config.least_propensity
    return float(np.mean(np.sum(np.where(tried, target.probability, 0.0), axis=1)))


def ratios(logged: Logged, target: Target, config: OffPolicyConfig) -> np.ndarray:
    """[rows] probability of the logged action under the target over that under the behaviour."""
    rows = np.arange(logged.num_rows)
    behaviour = np.maximum(logged.propensity[rows, logged.action], config.least_propensity)
    return np.asarray(target.probability[rows, logged.action] / behaviour)


def effective_size(weight: np.ndarray) -> float:
    """Kish's effective sample size of weights >= 0; 0 where all are 0."""
    square = float(np.sum(weight**2))
    return float(np.sum(weight)) ** 2 / square if square > 0 else 0.0


def trouble(size: float, seen: float, num_rows: int, config: OffPolicyConfig) -> str:
    """Why an estimate must not be made; empty if it may."""
    if seen < config.min_overlap:
        return f"declines: {1 - seen:.0%} of the policy's choices were hardly ever taken in the log"
    floor = max(config.min_effective_size, config.min_effective_share * num_rows)
    if size < floor:
        return f"declines: effective sample size {size:,.0f} of {num_rows:,} decisions, below the floor {floor:,.0f}"
    return ""


def declined(reason: str) -> Estimate:
    """An estimate that is not made."""
    return Estimate(None, None, None, 0, reason)
