"""What the orchestration problem adds to a configuration: the table [orchestration]."""

import math
from dataclasses import dataclass

from logs_schema.errors import ConfigError

ORCHESTRATION_CODE = 9
"""Raised when code changes what a training makes."""
COPIES = 8
"""Streams of a block that meets the same requests."""
SEPARATE, JOINT, ALTERNATING = "separate", "joint", "alternating"
TRAININGS = (SEPARATE, JOINT, ALTERNATING)
"""Each side beside a rule; both from the same trajectories; likewise, but one side learns at a time."""
QUANTITIES = (
    "num_updates",
    "num_streams",
    "num_frames",
    "num_slots",
    "num_warm_up_slots",
    "num_trial_frames",
)


@dataclass(frozen=True)
class TrainingBudget:
    """How long is trained.

    Attributes:
        training: How both sides learn, of `TRAININGS`; `num_joint_updates` where they share trajectories.
        num_updates: Updates of every policy.
        num_streams: A multiple of `COPIES`.
        num_frames: Length of an orchestrator's trajectories, and of those that both sides share.
        num_slots: Length of a dispatcher's.
        num_warm_up_slots: Before them, others dispatch, better in some streams than in others.
        num_plans: Plans that are tried to tune the planned deployment, a power of two; 0 leaves it as it stands.
        num_trial_frames: Frames of the twin in which what was trained is tried beside the rules it began as.
        delay_s: Seconds that decisions come late if one place, which sees every node in full, dispatches for all access
            points: the rule and what is trained are tried there, too. None: access points dispatch.
    """

    training: str = SEPARATE
    num_updates: int = 40
    num_streams: int = 32
    num_frames: int = 16
    num_slots: int = 300
    num_warm_up_slots: int = 200
    num_plans: int = 32
    num_trial_frames: int = 40
    delay_s: float | None = None

    def __post_init__(self) -> None:
        if self.delay_s is not None and not 0.0 <= self.delay_s < math.inf:
            raise ConfigError(
                f"delay_s = {self.delay_s:g}",
                where="[orchestration]",
                allowed="0 seconds or more",
                advice="leave it out where access points dispatch",
            )
        if self.training not in TRAININGS:
            raise ConfigError(
                f"training = {self.training!r}", where="[orchestration]", allowed=", ".join(TRAININGS)
            )
        least = {name: 0 if name == "num_warm_up_slots" else 1 for name in QUANTITIES}
        for name, limit in least.items():
            if getattr(self, name) < limit:
                raise ConfigError(
                    f"{name} = {getattr(self, name)}", where="[orchestration]", allowed=f"at least {limit}"
                )
        if self.num_plans < 0 or self.num_plans & (self.num_plans - 1):
            raise ConfigError(
                f"num_plans = {self.num_plans}", where="[orchestration]", allowed="0, 1, 2, 4, 8, ..."
            )
        if self.num_streams % COPIES:
            raise ConfigError(
                f"num_streams = {self.num_streams}", where="[orchestration]", allowed=f"multiples of {COPIES}"
            )

    def num_joint_updates(self, slots_per_frame: int) -> int:
        """Updates from trajectories that both sides share which simulate as many slots as both do apart, warm-up
        included; at least one."""
        shared = self.num_frames * slots_per_frame
        return max(1, self.num_updates * (self.num_warm_up_slots + self.num_slots + shared) // shared)


QUICK_BUDGET = TrainingBudget(
    num_updates=4,
    num_streams=16,
    num_frames=8,
    num_slots=120,
    num_warm_up_slots=40,
    num_plans=4,
    num_trial_frames=8,
)
"""To see that everything works; what it trains is worth little."""
