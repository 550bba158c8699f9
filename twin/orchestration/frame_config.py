"""What orchestration by frame leaves open, and what it refuses."""

from dataclasses import dataclass
from math import ceil

from logs_schema.errors import ConfigError
from twin.orchestration.config import SlotConfig


@dataclass(frozen=True)
class FrameConfig:
    """How often is looked and how much may change.

    Attributes:
        num_changes: Replicas that a frame may change, each on another node (H of KaiS, section III-B.3, which uses 2).
        samples_per_frame: Times in a frame at which loads are measured; they are averaged over it.
        history_s: How far back measurements are kept, rounded up to frames.
    """

    num_changes: int = 2
    samples_per_frame: int = 10
    history_s: float = 300.0


def history_frames(slots: SlotConfig, config: FrameConfig) -> int:
    """Frames that measurements are kept for."""
    return max(1, ceil(config.history_s / slots.frame_s - 1e-6))


def validate_frames(slots: SlotConfig, config: FrameConfig) -> FrameConfig:
    """Returns the configuration if it fits the slots.

    Raises:
        ConfigError: naming the attribute and what is allowed.
    """
    if config.num_changes < 1:
        _refuse("num_changes", config.num_changes, "at least 1")
    if config.samples_per_frame < 1 or slots.slots_per_frame % config.samples_per_frame:
        divisor = f"a divisor of the {slots.slots_per_frame} slots of a frame"
        _refuse("samples_per_frame", config.samples_per_frame, divisor)
    if not 0.0 < config.history_s < float("inf"):
        _refuse("history_s", config.history_s, "more than 0 and finite")
    return config


def _refuse(name: str, value: object, allowed: str) -> None:
    raise ConfigError(
        f"{name} is {value}", where=f"FrameConfig.{name}", allowed=allowed, advice="change the configuration"
    )
