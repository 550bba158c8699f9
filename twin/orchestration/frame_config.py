"""What orchestration by frame leaves open, and what it refuses."""

from dataclasses import dataclass
from math import ceil

from twin.orchestration.config import SlotConfig, refuse_setting


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
        refuse_setting(config, "num_changes", "at least 1")
    if config.samples_per_frame < 1 or slots.slots_per_frame % config.samples_per_frame:
        divisor = f"a divisor of the {slots.slots_per_frame} slots of a frame"
        refuse_setting(config, "samples_per_frame", divisor)
    if not 0.0 < config.history_s < float("inf"):
        refuse_setting(config, "history_s", "more than 0 and finite")
    return config
