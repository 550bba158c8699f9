"""Table [scale] of a configuration: the objective, and how to train."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from logs_schema.errors import ConfigError
from twin.autoscaling.rewards import Reward, cost_under_slo, paper_reward

SCALE_CODE = 20
"""Raised when code changes what is learned of applications."""
COST = "cost_under_slo"
TEACHER_REWARDS: Mapping[str, Callable[[], Reward]] = {
    COST: cost_under_slo,
    "drpc_quotient": paper_reward,
    "drpc_product": partial(paper_reward, quotient=False),
}
"""What the teacher of TD3 may be trained for: what everything is judged by, or equation 3 of DRPC, as printed or as a
product (see `twin.autoscaling.rewards`)."""


@dataclass(frozen=True)
class ScaleConfig:
    """What to learn of an application.

    Attributes:
        slo_s: Objective: response time of 95 % of the requests at most; what the log kept in nine of ten intervals if
            None.
        violation_weight: Price of a violation of the objective (see `twin.autoscaling.rewards.cost_under_slo`), as a
            multiple of what the log's grants cost: what it takes to keep an objective grows with the application.
        replicas_beyond: Most replicas, as a multiple of the most that the log has seen.
        fixed: Deployments that cannot be scaled, such as a database: they keep as many replicas as the log had at most.
        updates: Trajectories that a teacher learns from; 0 leaves learning out, rules alone are calibrated.
        teacher_reward: What the teacher of TD3 is trained for, of `TEACHER_REWARDS`; everything else, and the trial of
            all, goes by the cost under the objective.
        trial_episodes: Episodes in the twin on which the best learned autoscaler is chosen, and as many on which it is
            held against the calibrated rule.
        trial_steps: Intervals of each.
    """

    slo_s: float | None = None
    violation_weight: float = 3.0
    replicas_beyond: float = 1.5
    fixed: tuple[str, ...] = ()
    updates: int = 150
    teacher_reward: str = COST
    trial_episodes: int = 10
    trial_steps: int = 480

    def __post_init__(self) -> None:
        if self.slo_s is not None and self.slo_s <= 0.0:
            raise ConfigError(f"slo_s = {self.slo_s:g}", where="[scale]", allowed="more than 0 s")
        if self.teacher_reward not in TEACHER_REWARDS:
            raise ConfigError(
                f"teacher_reward = {self.teacher_reward!r}",
                where="[scale]",
                allowed=", ".join(TEACHER_REWARDS),
            )
        wrong = self.violation_weight < 0 or self.replicas_beyond < 1 or self.updates < 0
        if wrong or min(self.trial_episodes, self.trial_steps) < 1:
            raise ConfigError(
                "a weight, factor, number of updates or trials that cannot be",
                where="[scale]",
                allowed="violation_weight 0 or more, replicas_beyond 1 or more, updates 0 or more, trials 1 or more",
            )
