"""Off-policy estimates: the value of one policy from the log of another, and when no estimate is made."""

from evaluation.judges.off_policy.estimators import doubly_robust, importance_sampling
from evaluation.judges.off_policy.fitted_q import FittedQConfig, fitted_q, fitted_reward
from evaluation.judges.off_policy.logged import Logged, OffPolicyConfig, OffPolicyEstimate, Target

__all__ = [
    "FittedQConfig",
    "Logged",
    "OffPolicyConfig",
    "OffPolicyEstimate",
    "Target",
    "doubly_robust",
    "fitted_q",
    "fitted_reward",
    "importance_sampling",
]
