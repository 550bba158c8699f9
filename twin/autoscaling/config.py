"""What may be granted and how fast it may change."""

from dataclasses import dataclass
from typing import NamedTuple

from logs_schema.errors import ConfigError
from twin.contracts import Array


class GrantLimits(NamedTuple):
    """Least and most that each deployment may be granted; leaves [deployments]."""

    min_cpu_cores: Array
    max_cpu_cores: Array
    min_memory_gib: Array
    max_memory_gib: Array
    min_replicas: Array  # 0 where the deployment may be switched off (brownout)
    max_replicas: Array


@dataclass(frozen=True)
class AutoscalingConfig:
    """How decisions are taken.

    Attributes:
        interval_s: Time between two decisions.
        delay_intervals: How many intervals metrics are late.
        window: Intervals that the state remembers.
        cpu_step_cores: Change of the cores of a replica by an action of 1.
        memory_step_gib: Change of its memory by an action of 1.
        dead_zone: Actions of at most this size change nothing (paper DRPC, algorithm 2).
        reach: Largest action, in steps: of cores, memory, replicas.
        slo_s: Objective: response time of `slo_share` of the requests at most.
        slo_share: See `slo_s`.
        violation_cores: Price, in cores of the whole application, of a quantile e times the objective, and of failures
            of a tenth of the requests (`twin.autoscaling.rewards.cost_under_slo`).
    """

    interval_s: float = 30.0
    delay_intervals: int = 1
    window: int = 12
    cpu_step_cores: float = 0.25
    memory_step_gib: float = 0.125
    dead_zone: float = 0.5
    reach: tuple[float, float, float] = (1.0, 1.0, 1.0)
    slo_s: float = 0.25
    slo_share: float = 0.95
    violation_cores: float = 10.0

    def __post_init__(self) -> None:
        if not 1.0 <= self.interval_s <= 3600.0:
            raise ConfigError(f"an interval of {self.interval_s:g} s", allowed="1 to 3600 s")
        if not 0 <= self.delay_intervals < self.window:
            raise ConfigError(
                f"metrics are {self.delay_intervals} intervals late and {self.window} are remembered",
                allowed="a delay of 0 or more, shorter than the window",
            )
        if not 0.0 <= self.dead_zone < min(self.reach):
            raise ConfigError(
                f"a dead zone of {self.dead_zone:g} within a reach of {min(self.reach):g}",
                allowed="a dead zone of 0 or more, below the reach: else nothing ever changes",
            )
        if not 0.0 < self.slo_share < 1.0 or self.slo_s <= 0.0:
            raise ConfigError(
                f"an objective of {self.slo_s:g} s for {self.slo_share:g} of the requests",
                allowed="more than 0 s, to a share between 0 and 1",
            )
        if not self.violation_cores >= 0.0:
            raise ConfigError(
                f"a price of {self.violation_cores:g} cores for a violation", allowed="0 or more"
            )
